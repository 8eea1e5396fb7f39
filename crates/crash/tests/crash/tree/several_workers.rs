//! Several workers on one tree, while one of the manager's own writes back and cuts the log.

use lapis_buffer::mutants::CHANGED_SINCE_NOT_LOWERED;
use lapis_crash::Storage;
use lapis_crash::concurrent::{
    Call, ConcurrentOptions, ConcurrentReport, ConcurrentSubject, Offence, Plan, Specification,
    Stop, explore_concurrent, judge_whole,
};
use lapis_pmem::{AuditReport, Mutant, Observed};

use super::logged::{BLOCKS, LiveTree, State};
use super::text;

const FRAMES: usize = 16;
const KEYS: u64 = 24;

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, u64),
    Remove(u64),
    Get(u64),
}

struct Shared;

impl Specification for Shared {
    type State = State;
    type Operation = Operation;
    type Returned = Option<u64>;

    fn step(&self, state: &State, operation: &Operation) -> (State, Option<u64>) {
        let mut after = state.clone();
        let returned = match *operation {
            Operation::Put(number, made_from) => {
                after.insert(number, made_from);
                None
            }
            Operation::Remove(number) => {
                after.remove(&number);
                None
            }
            Operation::Get(number) => state.get(&number).copied(),
        };
        (after, returned)
    }
}

impl ConcurrentSubject for Shared {
    type Operation = Operation;
    type Returned = Option<u64>;
    type State = State;
    type Live = LiveTree;

    fn name(&self) -> &'static str {
        "tree:ssd"
    }
    fn pool_bytes(&self) -> usize {
        0
    }
    fn device_blocks(&self) -> Vec<u64> {
        BLOCKS.to_vec()
    }
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Operation> {
        let before = (0..KEYS).step_by(2).map(|number| Operation::Put(number, 89 + 90 * number));
        let mut random = seed;
        // Two changes of a key at the same time would be ordered by the store's locks: each number here
        // is used by one worker at most.
        let mut at = 0;
        let next = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            at += 1;
            let number = (at * 7 + seed) % KEYS;
            match (random >> 50) % 4 {
                0 => Operation::Get((random >> 33) % KEYS),
                1 => Operation::Remove(number),
                _ => Operation::Put(number, random >> 40),
            }
        };
        Plan::sharing(before.collect(), workers, operations, next)
    }
    fn create(&self, storage: Storage) -> Result<LiveTree, String> {
        LiveTree::create(storage, FRAMES)
    }
    fn open(&self, storage: Storage) -> Result<LiveTree, String> {
        LiveTree::open(storage, FRAMES)?.ok_or_else(|| "the tree is gone".to_owned())
    }
    fn perform(&self, live: &LiveTree, operation: &Operation) -> Result<Option<u64>, String> {
        match *operation {
            Operation::Put(number, made_from) => live.put(number, made_from).map(|()| None),
            Operation::Remove(number) => live.remove(number).map(|_| None),
            Operation::Get(number) => {
                let found = live.get(number)?;
                // Another worker's change may not be durable yet.
                live.sync()?;
                Ok(found)
            }
        }
    }
    fn observe(&self, live: &LiveTree) -> Result<State, String> {
        live.contents()
    }
    fn problems(&self, live: &LiveTree) -> Vec<String> {
        live.problems()
    }
    fn audit(&self, _live: &LiveTree) -> AuditReport {
        AuditReport::default()
    }
    fn judge(
        &self,
        initial: &State,
        calls: &[Call<Operation, Option<u64>>],
        found: &State,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }
    fn background_workers(&self) -> usize {
        1
    }
    fn work_in_background(
        &self,
        live: &LiveTree,
        _worker: usize,
        stop: &Stop,
    ) -> Result<(), String> {
        while !stop.is_asked_for() {
            live.manager.write_back().map_err(text)?;
            live.cut_log()?;
            live.machine().pause();
        }
        Ok(())
    }
    fn changes(&self, operation: &Operation) -> bool {
        !matches!(operation, Operation::Get(_))
    }
    fn owns_source(&self, file: &str) -> bool {
        file.contains("tree/src") || file.ends_with("tree/logged.rs")
    }
}

fn explored(seed: u64, schedules: u64, mutant: Option<Mutant>) -> ConcurrentReport {
    let options = ConcurrentOptions {
        workers: 2,
        ops: 8,
        seed,
        schedules,
        exhaustive_limit: 8,
        samples: 4,
        violation_limit: 1,
        mutant,
        ..ConcurrentOptions::default()
    };
    explore_concurrent(&Shared, &options, &|_| {}).unwrap()
}

#[test]
fn workers_on_one_tree_lose_nothing_to_power_cuts() {
    let report = explored(1, 6, None);
    println!("{} schedules, {} images", report.schedules, report.images);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.images > 1000, "{report:?}");
}

#[test]
fn a_change_out_of_order_that_does_not_hold_back_the_log_is_found() {
    // Few histories show it; the first does.
    let report = explored(96, 300, Some(CHANGED_SINCE_NOT_LOWERED));
    assert!(!report.violations.is_empty(), "it survived");
    println!("after {} images: {}", report.images, report.violations[0].what);
}
