//! A counter in persistent memory behind a latch and a table entry in DRAM: races on words that a power
//! cut leaves nothing of.
//!
//! The counter is copied on write. `table` says which of its two places is the newest; it is made anew
//! from `current` when the structure is opened.

use lapis_crash::concurrent::{
    Call, ConcurrentOptions, ConcurrentReport, ConcurrentSubject, Offence, Plan, Specification,
    explore_concurrent, judge_whole,
};
use lapis_crash::{Modelled, Storage};
use lapis_pmem::{AuditReport, DramCell, Link, Observed, PCell, Pool};

use super::page_store::text;

/// The two places, and which of them is the newest.
type Counter = [PCell<u64>; 3];
const CURRENT: usize = 2;

const ROOT: &str = "counter";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The latch is released once the total is known, before it is stored.
    ReleasedEarly,
    /// The table entry is read without the latch.
    ReadWithoutLatch,
}

#[derive(Clone, Debug)]
enum Operation {
    Add(u64),
    Get,
}

struct Latched {
    fault: Fault,
}

struct Live {
    pool: Pool<Modelled>,
    counter: Link<Counter>,
    latch: DramCell<u64, Modelled>,
    table: DramCell<u64, Modelled>,
}

impl Live {
    fn over(pool: Pool<Modelled>, counter: Link<Counter>) -> Self {
        let current = pool.at(counter)[CURRENT].load(pool.domain());
        let (latch, table) = (DramCell::new(0), DramCell::new(current));
        Self { pool, counter, latch, table }
    }

    fn acquire(&self) {
        let domain = self.pool.domain();
        while self.latch.compare_exchange(domain, 0, 1).is_err() {
            domain.pause();
        }
    }

    fn release(&self) {
        self.latch.store_release(self.pool.domain(), 0);
    }

    fn add(&self, count: u64, fault: Fault) -> u64 {
        let (counter, domain) = (self.pool.at(self.counter), self.pool.domain());
        self.acquire();
        let at = self.table.load_acquire(domain);
        let total = counter[at as usize].load(domain) + count;
        if fault == Fault::ReleasedEarly {
            self.release();
        }
        let _committed = counter[1 - at as usize].publish(domain, total).persist();
        let _committed = counter[CURRENT].publish(domain, 1 - at).persist();
        self.table.store_release(domain, 1 - at);
        if fault != Fault::ReleasedEarly {
            self.release();
        }
        total
    }

    fn get(&self, fault: Fault) -> u64 {
        let domain = self.pool.domain();
        if fault != Fault::ReadWithoutLatch {
            self.acquire();
        }
        let at = self.table.load_acquire(domain);
        let total = self.pool.at(self.counter)[at as usize].load(domain);
        if fault != Fault::ReadWithoutLatch {
            self.release();
        }
        total
    }
}

impl Specification for Latched {
    type State = u64;
    type Operation = Operation;
    type Returned = u64;

    fn step(&self, total: &u64, operation: &Operation) -> (u64, u64) {
        let total = match operation {
            Operation::Add(count) => total + count,
            Operation::Get => *total,
        };
        (total, total)
    }
}

impl ConcurrentSubject for Latched {
    type Operation = Operation;
    type Returned = u64;
    type State = u64;
    type Live = Live;

    fn name(&self) -> &'static str {
        "latched-counter"
    }
    fn pool_bytes(&self) -> usize {
        1 << 20
    }
    fn plan(&self, workers: usize, operations: usize, seed: u64) -> Plan<Operation> {
        let mut number = seed;
        let next = |_| {
            number += 1;
            if number.is_multiple_of(3) {
                Operation::Get
            } else {
                Operation::Add(1 << (number % 16))
            }
        };
        Plan::sharing(Vec::new(), workers, operations, next)
    }
    fn create(&self, storage: Storage) -> Result<Live, String> {
        let pool = storage.into_pool();
        let mut node = pool.allocate::<Counter>().map_err(text)?;
        node.zero();
        let node = pool.fence(node.flush());
        let counter = node.link();
        let _committed = pool.publish_root(ROOT, 0, node).map_err(text)?.persist();
        Ok(Live::over(pool, counter))
    }
    fn open(&self, storage: Storage) -> Result<Live, String> {
        let pool = storage.into_pool();
        let counter = pool.root::<Counter>(ROOT).ok_or("the root is gone")?;
        Ok(Live::over(pool, counter))
    }
    fn perform(&self, live: &Live, operation: &Operation) -> Result<u64, String> {
        Ok(match operation {
            Operation::Add(count) => live.add(*count, self.fault),
            Operation::Get => live.get(self.fault),
        })
    }
    fn observe(&self, live: &Live) -> Result<u64, String> {
        Ok(live.get(Fault::None))
    }
    fn audit(&self, live: &Live) -> AuditReport {
        let reachable = live.pool.reachable(|visitor| {
            visitor.visit(live.counter, size_of::<Counter>());
        });
        live.pool.reclaim_and_audit(&reachable)
    }
    fn judge(
        &self,
        initial: &u64,
        calls: &[Call<Operation, u64>],
        found: &u64,
    ) -> Result<(), Offence> {
        judge_whole(self, initial, calls, found)
    }
    fn owns_source(&self, file: &str) -> bool {
        file.ends_with("words_in_dram.rs")
    }
}

fn explored(fault: Fault, shrink: bool) -> ConcurrentReport {
    let options = ConcurrentOptions {
        ops: 9,
        schedules: 200,
        shrink,
        violation_limit: 1,
        ..Default::default()
    };
    explore_concurrent(&Latched { fault }, &options, &|_| {}).unwrap()
}

#[test]
fn a_latch_in_dram_that_is_held_long_enough_shows_no_violation() {
    let report = explored(Fault::None, false);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.schedules == 200 && report.images > 1000, "{report:?}");
}

#[test]
fn a_latch_in_dram_that_is_released_too_early_is_found_by_schedules() {
    let report = explored(Fault::ReleasedEarly, true);
    let shrunk = report.violations[0].shrunk.as_ref().unwrap();
    assert!(shrunk.operations.len() <= 3, "{shrunk:#?}");
}

#[test]
fn a_table_entry_in_dram_that_is_read_without_the_latch_is_found_by_schedules() {
    let report = explored(Fault::ReadWithoutLatch, true);
    let shrunk = report.violations[0].shrunk.as_ref().unwrap();
    assert!(shrunk.operations.len() <= 4, "{shrunk:#?}");
}
