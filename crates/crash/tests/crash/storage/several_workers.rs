//! A page store that several workers use while one of its own writes back.

use lapis_crash::concurrent::{
    Call, ConcurrentOptions, ConcurrentReport, ConcurrentSubject, Offence, Plan, Specification,
    Stop, explore_concurrent, judge_whole,
};
use lapis_crash::{DeviceFault, Storage};
use lapis_pmem::{AuditReport, BlockOperation, Observed};

use super::page_store::{Fault, PAGES, PageStore, Pages};

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put(usize, u64),
    Get(usize),
}

impl Specification for Pages {
    type State = [u64; PAGES];
    type Operation = Operation;
    type Returned = u64;

    fn step(&self, state: &[u64; PAGES], operation: &Operation) -> ([u64; PAGES], u64) {
        let mut after = *state;
        match *operation {
            Operation::Put(page, value) => {
                after[page] = value;
                (after, 0)
            }
            Operation::Get(page) => (after, state[page]),
        }
    }
}

impl ConcurrentSubject for Pages {
    type Operation = Operation;
    type Returned = u64;
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
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Operation> {
        let mut number = seed;
        let next = |_| {
            number += 1;
            let page = (number / 2) as usize % PAGES;
            if number.is_multiple_of(3) {
                Operation::Get(page)
            } else {
                Operation::Put(page, number)
            }
        };
        Plan::sharing(vec![Operation::Put(0, u64::MAX)], workers, operations, next)
    }
    fn create(&self, storage: Storage) -> Result<PageStore, String> {
        PageStore::create(storage, self.fault)
    }
    fn open(&self, storage: Storage) -> Result<PageStore, String> {
        PageStore::open(storage, self.fault)?.ok_or_else(|| "the root is gone".to_owned())
    }
    fn perform(&self, live: &PageStore, operation: &Operation) -> Result<u64, String> {
        match *operation {
            Operation::Put(page, value) => {
                live.put(page, value);
                Ok(0)
            }
            Operation::Get(page) => live.get(page),
        }
    }
    fn observe(&self, live: &PageStore) -> Result<[u64; PAGES], String> {
        live.values()
    }
    fn audit(&self, live: &PageStore) -> AuditReport {
        live.audit()
    }
    fn judge(
        &self,
        initial: &[u64; PAGES],
        calls: &[Call<Operation, u64>],
        found: &[u64; PAGES],
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }
    fn background_workers(&self) -> usize {
        1
    }
    fn work_in_background(&self, live: &PageStore, _: usize, stop: &Stop) -> Result<(), String> {
        while !stop.is_asked_for() {
            let written = (0..PAGES).filter(|&page| live.write_back(page)).count();
            if written == 0 {
                live.pool.domain().pause();
            }
        }
        Ok(())
    }
    fn owns_source(&self, file: &str) -> bool {
        file.ends_with("page_store.rs")
    }
}

fn explored(fault: Fault, device_faults: &[DeviceFault], workers: usize) -> ConcurrentReport {
    let subject = Pages { fault, device_faults: device_faults.to_vec() };
    let options = ConcurrentOptions { workers, ops: 8, schedules: 60, ..Default::default() };
    explore_concurrent(&subject, &options, &|_| {}).unwrap()
}

/// A write and a flush of the worker that writes back fail while the first calls are made.
const FAULTS: [DeviceFault; 2] = [
    DeviceFault { operation: 1, device: 0, request: BlockOperation::Write, after: 1 },
    DeviceFault { operation: 2, device: 0, request: BlockOperation::Flush, after: 1 },
];

#[test]
fn a_worker_that_writes_back_beside_one_or_two_others_loses_nothing() {
    for workers in [1, 2] {
        for faults in [&[][..], &FAULTS] {
            let report = explored(Fault::None, faults, workers);
            assert!(report.violations.is_empty(), "{workers}: {:#?}", report.violations[0]);
            assert!(report.images > 1000, "{workers}: {report:?}");
        }
    }
}

#[test]
fn a_record_dropped_too_early_by_the_background_worker_is_found_beside_one_or_two_others() {
    for workers in [1, 2] {
        let report = explored(Fault::DropBeforeFlush, &[], workers);
        assert!(!report.violations.is_empty(), "{workers}");
    }
}

#[test]
fn a_failed_flush_that_the_background_worker_ignores_is_found() {
    assert!(explored(Fault::IgnoreFailedFlush, &[], 2).violations.is_empty());
    assert!(!explored(Fault::IgnoreFailedFlush, &FAULTS, 2).violations.is_empty());
}

#[test]
fn a_violation_of_the_background_worker_is_shrunk_to_a_schedule_that_shows_it_again() {
    let subject = Pages { fault: Fault::DropBeforeFlush, device_faults: Vec::new() };
    let options =
        ConcurrentOptions { ops: 8, shrink: true, violation_limit: 1, ..Default::default() };
    let report = explore_concurrent(&subject, &options, &|_| {}).unwrap();
    let shrunk = report.violations[0].shrunk.as_ref().unwrap();
    assert!(shrunk.operations.len() <= 1, "{shrunk:#?}");
    assert!(shrunk.timeline.iter().any(|entry| entry.text.contains("write")), "{shrunk:#?}");
}
