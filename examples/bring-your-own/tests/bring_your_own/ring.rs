//! The ring survives every power cut, each of its flushes and fences is necessary, none is wasted;
//! and with the planted bug the checker finds it.

use std::collections::VecDeque;
use std::sync::Arc;

use lapis_crash::{
    ExploreOptions, Live, Modelled, Storage, Subject, explore, persist_points, subject_performance,
};
use lapis_example_ring::{CAPACITY, Entry, Order, Ring};
use lapis_pmem::{AuditReport, Pool};

/// What is checked: the ring, with the order of stores that it is made with.
struct RingSubject {
    order: Order,
}

#[derive(Clone, Debug)]
enum Operation {
    Push(u64),
    Pop,
}

/// The entry of a number: all its words differ from each other and from those of other entries.
fn entry(number: u64) -> Entry {
    std::array::from_fn(|word| (number + 1) * 1000 + word as u64)
}

impl Subject for RingSubject {
    type Operation = Operation;
    /// What the ring holds, oldest first.
    type State = VecDeque<Entry>;
    type Live = LiveRing;

    fn name(&self) -> &'static str {
        "ring"
    }

    fn pool_bytes(&self) -> usize {
        1 << 20
    }

    fn prior_contents(&self) -> u8 {
        // As a device that held something else before: nothing may rest on zeroes.
        0xA5
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<Operation> {
        // What matters is that the ring fills and empties.
        let mut below = crate::below(seed);
        let mut filled = 0;
        (0..count as u64)
            .map(|number| {
                let push = below(5) < 3 && filled < CAPACITY || filled == 0;
                if push {
                    filled += 1;
                    Operation::Push(number)
                } else {
                    filled -= 1;
                    Operation::Pop
                }
            })
            .collect()
    }

    fn probes(&self, state: &Self::State, _: Option<&Operation>, seed: u64) -> Vec<Operation> {
        let number = 1_000_000 + seed % 1000;
        if state.len() == CAPACITY {
            vec![Operation::Pop, Operation::Push(number)]
        } else {
            vec![Operation::Push(number), Operation::Pop]
        }
    }

    fn create(&self, storage: Storage) -> Result<LiveRing, String> {
        let pool = storage.into_pool();
        Ring::create(Arc::new(pool), self.order).map(LiveRing).map_err(|error| error.to_string())
    }

    fn open(&self, storage: Storage) -> Result<Option<LiveRing>, String> {
        let pool = storage.into_pool();
        Ok(Ring::open(Arc::new(pool), self.order).map(LiveRing))
    }

    fn initial(&self) -> Self::State {
        VecDeque::new()
    }

    fn apply(&self, state: &mut Self::State, operation: &Operation) {
        match operation {
            Operation::Push(number) => state.push_back(entry(*number)),
            Operation::Pop => {
                state.pop_front();
            }
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("bring-your-own/src")
    }
}

struct LiveRing(Ring<Modelled>);

impl Live<Operation, VecDeque<Entry>> for LiveRing {
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Push(number) => {
                self.0.push(&entry(*number)).map(|_| ()).map_err(|error| error.to_string())
            }
            Operation::Pop => {
                self.0.pop().map(|_| ()).ok_or_else(|| "the ring is empty".to_owned())
            }
        }
    }

    fn observe(&self) -> Result<VecDeque<Entry>, String> {
        Ok(self.0.entries().into())
    }

    fn check(&self) -> Vec<String> {
        self.0.check().into_iter().collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.0.pool();
        let reachable = pool.reachable(|visitor| self.0.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.0.pool())
    }
}

fn options() -> ExploreOptions {
    ExploreOptions { ops: 100, exhaustive_limit: 256, samples: 32, ..ExploreOptions::default() }
}

#[test]
fn the_ring_survives_every_power_cut() {
    let report = explore(&RingSubject { order: Order::EntryFirst }, &options(), &|_| {}).unwrap();
    assert!(report.violations.is_empty(), "{}", report.violations[0].what);
    assert!(report.images > 200, "only {} images", report.images);
    assert!(report.distinct_states > 50, "only {} states", report.distinct_states);
}

#[test]
fn the_planted_bug_is_found() {
    let options = ExploreOptions { violation_limit: 1, ..options() };
    let report = explore(&RingSubject { order: Order::OneFence }, &options, &|_| {}).unwrap();
    let violation = report.violations.first().expect("a violation");
    assert!(violation.what.contains("its contents are wrong"), "{}", violation.what);
    assert!(violation.operation.as_deref().unwrap_or_default().contains("Push"), "{violation:?}");
}

#[test]
fn every_flush_and_fence_of_the_ring_is_necessary() {
    let subject = RingSubject { order: Order::EntryFirst };
    let rows = persist_points(&subject, &options(), &[1], &|_| {}).unwrap();
    let survived: Vec<_> = rows.iter().filter(|row| !row.killed).map(|row| &row.name).collect();
    assert!(survived.is_empty(), "not shown to be necessary: {survived:?}");
    // Of creation 4, of a push 4, of a pop 2.
    assert_eq!(rows.len(), 10);
}

#[test]
fn the_ring_wastes_no_flush_and_no_fence() {
    let report = subject_performance(&RingSubject { order: Order::EntryFirst }, 100, 1).unwrap();
    let own = report.findings.iter().filter(|it| it.location.contains("bring-your-own"));
    assert_eq!(own.count(), 0, "{:?}", report.findings);
    let push = report.by_operation.iter().find(|row| row.operation == "push").unwrap();
    assert!(push.fences >= 2 * push.count);
}
