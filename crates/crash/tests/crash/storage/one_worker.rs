//! A page store that one worker uses and writes back, and whose second power cut comes during recovery.

use lapis_crash::{
    DeviceFault, ExploreOptions, ExploreReport, Live, Modelled, Replay, Storage, Strategy, Subject,
    explore,
};
use lapis_pmem::{AuditReport, BlockOperation, Pool};

use super::page_store::{Fault, PAGES, PageStore, Pages};

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put(usize, u64),
    WriteBack(usize),
}

impl Subject for Pages {
    type Operation = Operation;
    type State = [u64; PAGES];
    type Live = PageStore;

    fn name(&self) -> &'static str {
        "pages"
    }
    fn pool_bytes(&self) -> usize {
        1 << 20
    }
    fn device_blocks(&self) -> Vec<u64> {
        vec![PAGES as u64]
    }
    fn device_faults(&self, _: u64) -> Vec<DeviceFault> {
        self.device_faults.clone()
    }
    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        let operation = |number: usize| match (number as u64 + seed) % 3 {
            2 => Operation::WriteBack(number / 3 % PAGES),
            _ => Operation::Put(number / 4 % PAGES, number as u64 + 1),
        };
        (0..count).map(operation).collect()
    }
    fn probes(&self, _: &[u64; PAGES], last: Option<&Operation>, seed: u64) -> Vec<Operation> {
        let page = match last {
            Some(Operation::Put(page, _) | Operation::WriteBack(page)) => *page,
            None => 0,
        };
        vec![Operation::WriteBack(page), Operation::Put(page, seed | 1), Operation::WriteBack(page)]
    }
    fn create(&self, storage: Storage) -> Result<PageStore, String> {
        PageStore::create(storage, self.fault)
    }
    fn open(&self, storage: Storage) -> Result<Option<PageStore>, String> {
        PageStore::open(storage, self.fault)
    }
    fn initial(&self) -> [u64; PAGES] {
        [0; PAGES]
    }
    fn apply(&self, state: &mut [u64; PAGES], operation: &Operation) {
        if let Operation::Put(page, value) = operation {
            state[*page] = *value;
        }
    }
    fn owns_source(&self, file: &str) -> bool {
        file.ends_with("page_store.rs")
    }
}

impl Live<Operation, [u64; PAGES]> for PageStore {
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        match *operation {
            Operation::Put(page, value) => self.put(page, value),
            Operation::WriteBack(page) => _ = self.write_back(page),
        }
        Ok(())
    }
    fn observe(&self) -> Result<[u64; PAGES], String> {
        self.values()
    }
    fn reclaim_and_audit(&self) -> AuditReport {
        self.audit()
    }
    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(&self.pool)
    }
}

fn options(strategy: Strategy) -> ExploreOptions {
    ExploreOptions {
        ops: 15,
        strategy,
        exhaustive_limit: 1 << 10,
        samples: 64,
        crash_in_recovery_every: 8,
        ..Default::default()
    }
}

fn explored(fault: Fault, device_faults: &[DeviceFault], strategy: Strategy) -> ExploreReport {
    let subject = Pages { fault, device_faults: device_faults.to_vec() };
    explore(&subject, &options(strategy), &|_| {}).unwrap()
}

/// The write during operation 6 fails, and the flush during operation 12, after which the SSD takes
/// no more writes.
const FAULTS: [DeviceFault; 2] = [
    DeviceFault { operation: 6, device: 0, request: BlockOperation::Write, after: 0 },
    DeviceFault { operation: 12, device: 0, request: BlockOperation::Flush, after: 0 },
];

#[test]
fn the_right_order_between_memory_and_ssd_survives_every_strategy() {
    for strategy in [Strategy::Pruned, Strategy::Exhaustive, Strategy::Sampled] {
        for faults in [&[][..], &FAULTS] {
            let report = explored(Fault::None, faults, strategy);
            assert!(report.violations.is_empty(), "{strategy}: {:#?}", report.violations[0]);
            assert!(report.images_in_recovery > 100, "{strategy}: {report:?}");
        }
    }
}

#[test]
fn pruning_loses_no_outcome_of_memory_and_ssd_together() {
    let pruned = explored(Fault::None, &FAULTS, Strategy::Pruned);
    let exhaustive = explored(Fault::None, &FAULTS, Strategy::Exhaustive);
    for (point, outcomes) in &exhaustive.outcomes {
        if outcomes.complete {
            assert_eq!(pruned.outcomes[point].hashes, outcomes.hashes, "{point:?}");
        }
    }
    assert!(pruned.images < exhaustive.images, "{} {}", pruned.images, exhaustive.images);
}

#[test]
fn a_record_dropped_before_its_page_is_flushed_is_found_by_every_strategy() {
    for strategy in [Strategy::Pruned, Strategy::Exhaustive, Strategy::Sampled] {
        let report = explored(Fault::DropBeforeFlush, &[], strategy);
        assert!(!report.violations.is_empty(), "{strategy}");
    }
}

#[test]
fn a_record_dropped_although_the_flush_failed_is_found_only_where_one_fails() {
    let without = explored(Fault::IgnoreFailedFlush, &[], Strategy::Pruned);
    assert!(without.violations.is_empty(), "{:#?}", without.violations[0]);
    let with = explored(Fault::IgnoreFailedFlush, &FAULTS, Strategy::Pruned);
    assert!(!with.violations.is_empty());
}

#[test]
fn a_violation_across_both_media_is_shrunk_told_and_shown_again_by_its_image() {
    let subject = Pages { fault: Fault::DropBeforeFlush, device_faults: Vec::new() };
    let options = ExploreOptions { shrink: true, ..options(Strategy::Pruned) };
    let report = explore(&subject, &options, &|_| {}).unwrap();
    let shrunk = report.violations[0].shrunk.as_ref().unwrap();
    assert_eq!(shrunk.operations.len(), 2, "one change and writing it back: {shrunk:#?}");
    let told: Vec<_> = shrunk.timeline.iter().map(|entry| entry.text.as_str()).collect();
    for part in
        ["write 0 to block", "what was flushed last is there", "recovery and check read sector"]
    {
        assert!(told.iter().any(|text| text.contains(part)), "{part}: {told:#?}");
    }
    let violation = &report.violations[0];
    let (position, image) = (violation.position, Some(violation.image.clone()));
    let again =
        ExploreOptions { replay: Some(Replay { position, image }), shrink: false, ..options };
    let again = explore(&subject, &again, &|_| {}).unwrap();
    assert_eq!(again.violations[0].what, violation.what);
    assert_eq!(again.images - again.images_in_recovery, 1);
}
