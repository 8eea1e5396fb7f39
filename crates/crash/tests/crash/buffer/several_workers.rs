//! The same pages, which several workers read and change while one of the manager's own writes back.

use lapis_buffer::Placement;
use lapis_buffer::mutants::CHANGE_DURING_WRITE_FORGOTTEN;
use lapis_crash::concurrent::{
    Call, ConcurrentOptions, ConcurrentReport, ConcurrentSubject, Offence, Plan, Specification,
    Stop, explore_concurrent, judge_whole,
};
use lapis_crash::{Storage, Subject};
use lapis_pmem::{AuditReport, Mutant, Observed};

use super::paged::{LivePages, Paged, SLOTS, spitfire};
use super::text;

#[derive(Clone, Debug)]
enum Operation {
    Put(usize, u64),
    Get(usize),
}

/// [`Paged`], among workers.
struct Shared(Paged);

impl Specification for Shared {
    type State = [u64; SLOTS];
    type Operation = Operation;
    type Returned = u64;

    fn step(&self, state: &[u64; SLOTS], operation: &Operation) -> ([u64; SLOTS], u64) {
        let mut after = *state;
        match *operation {
            Operation::Put(slot, value) => {
                after[slot] = value;
                (after, 0)
            }
            Operation::Get(slot) => (after, state[slot]),
        }
    }
}

impl ConcurrentSubject for Shared {
    type Operation = Operation;
    type Returned = u64;
    type State = [u64; SLOTS];
    type Live = LivePages;

    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn pool_bytes(&self) -> usize {
        self.0.pool_bytes()
    }
    fn device_blocks(&self) -> Vec<u64> {
        self.0.device_blocks()
    }
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Operation> {
        // With persistent memory, until pages are there.
        let rounds = if self.0.0.has_persistent_memory() { 3 } else { 1 };
        let slots = (0..rounds).flat_map(|_| 0..SLOTS);
        let before = slots.map(|slot| Operation::Put(slot, 1000 + slot as u64)).collect();
        let mut random = seed;
        let next = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let slot = (random >> 33) as usize % SLOTS;
            match (random >> 50) % 3 {
                0 => Operation::Get(slot),
                _ => Operation::Put(slot, random >> 40),
            }
        };
        Plan::sharing(before, workers, operations, next)
    }
    fn create(&self, storage: Storage) -> Result<LivePages, String> {
        self.0.create(storage)
    }
    fn open(&self, storage: Storage) -> Result<LivePages, String> {
        self.0.open(storage)?.ok_or_else(|| "the root is gone".to_owned())
    }
    fn perform(&self, live: &LivePages, operation: &Operation) -> Result<u64, String> {
        match *operation {
            Operation::Put(slot, value) => {
                live.put(slot, value)?;
                live.flush_log()?;
                Ok(0)
            }
            Operation::Get(slot) => {
                let value = live.get(slot)?;
                // Another worker's change may not be durable yet.
                live.flush_log()?;
                Ok(value)
            }
        }
    }
    fn observe(&self, live: &LivePages) -> Result<[u64; SLOTS], String> {
        live.contents()
    }
    fn problems(&self, live: &LivePages) -> Vec<String> {
        live.problems()
    }
    fn audit(&self, live: &LivePages) -> AuditReport {
        live.audit()
    }
    fn judge(
        &self,
        initial: &[u64; SLOTS],
        calls: &[Call<Operation, u64>],
        found: &[u64; SLOTS],
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }
    fn background_workers(&self) -> usize {
        1
    }
    fn work_in_background(
        &self,
        live: &LivePages,
        _worker: usize,
        stop: &Stop,
    ) -> Result<(), String> {
        while !stop.is_asked_for() {
            live.manager.write_back().map_err(text)?;
            live.domain().pause();
        }
        Ok(())
    }
    fn changes(&self, operation: &Operation) -> bool {
        matches!(operation, Operation::Put(..))
    }
    fn owns_source(&self, file: &str) -> bool {
        self.0.owns_source(file)
    }
}

fn explored(placement: Placement, schedules: u64, mutant: Option<Mutant>) -> ConcurrentReport {
    let options = ConcurrentOptions {
        workers: 2,
        ops: 8,
        schedules,
        exhaustive_limit: 8,
        samples: 4,
        violation_limit: 1,
        mutant,
        ..ConcurrentOptions::default()
    };
    explore_concurrent(&Shared(Paged(placement)), &options, &|_| {}).unwrap()
}

#[test]
fn workers_and_one_that_writes_back_lose_nothing_to_power_cuts() {
    for (placement, schedules) in [(Placement::Ssd, 8), (Placement::ThreeTier, 3), (spitfire(), 3)]
    {
        let report = explored(placement, schedules, None);
        println!("{placement}: {} schedules, {} images", report.schedules, report.images);
        assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
        assert!(report.images > 1200, "{report:?}");
    }
}

#[test]
fn a_change_that_is_forgotten_because_it_came_during_a_write_is_found() {
    let report = explored(Placement::Ssd, 200, Some(CHANGE_DURING_WRITE_FORGOTTEN));
    assert!(!report.violations.is_empty(), "it survived");
    println!("after {} images: {}", report.images, report.violations[0].what);
}
