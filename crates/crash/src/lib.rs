//! The crash-consistency checker: explores the states that a power cut may leave and shows that a
//! structure survives each of them.
//!
//! A [`Subject`] is something to check: a structure, the operations to run on it and a model of what
//! they mean. [`explore`] runs the operations once on the modelled machine, then walks through the
//! crash points of the recorded trace; at each it takes the images that a power cut may leave (one of each class
//! that the recovery can tell apart, all of them, or a seeded sample with the extremes: [`Strategy`]), recovers on each, and
//! asks the oracle ([`oracle`]): is every acknowledged operation there, is the one in flight there
//! whole or not at all, do the structure's invariants hold, is exactly what is reachable allocated,
//! does a second recovery change nothing, does a crash during recovery do no harm, does the
//! structure still work, and is what was done then there at the next opening?
//!
//! [`persist_points`] switches off each flush and fence of a structure in turn and shows that the
//! checker then finds a violation: that each is necessary, and that the checker can see it.
//! [`subject_performance`] lists the flushes and fences that were wasted. [`check_recorded`] checks
//! the recorded trace of a program in any language ([`recorded`]).
//!
//! # A structure of one's own
//!
//! A counter in one word, durable when `add` returns. `examples/bring-your-own` is a longer one.
//!
//! ```
//! use lapis_crash::{ExploreOptions, Live, Modelled, Storage, Subject, explore};
//! use lapis_pmem::{AuditReport, Link, PCell, Pool};
//!
//! struct Counter {
//!     pool: Pool<Modelled>,
//!     cell: Link<PCell<u64>>,
//! }
//!
//! struct CounterSubject;
//!
//! impl Subject for CounterSubject {
//!     type Operation = u64;
//!     type State = u64;
//!     type Live = Counter;
//!
//!     fn name(&self) -> &'static str {
//!         "counter"
//!     }
//!     fn pool_bytes(&self) -> usize {
//!         1 << 20
//!     }
//!     fn operations(&self, count: usize, seed: u64) -> Vec<u64> {
//!         (0..count as u64).map(|number| number + seed).collect()
//!     }
//!     fn probes(&self, _: &u64, _: Option<&u64>, _: u64) -> Vec<u64> {
//!         vec![7]
//!     }
//!     fn create(&self, storage: Storage) -> Result<Counter, String> {
//!         let pool = storage.into_pool();
//!         let node = pool.allocate::<PCell<u64>>().map_err(|error| error.to_string())?;
//!         node.store(pool.domain(), 0);
//!         let node = pool.fence(node.flush());
//!         let cell = node.link();
//!         let root = pool.publish_root("counter", 0, node).map_err(|error| error.to_string())?;
//!         let _committed = root.persist();
//!         Ok(Counter { pool, cell })
//!     }
//!     fn open(&self, storage: Storage) -> Result<Option<Counter>, String> {
//!         let pool = storage.into_pool();
//!         Ok(pool.root("counter").map(|cell| Counter { pool, cell }))
//!     }
//!     fn initial(&self) -> u64 {
//!         0
//!     }
//!     fn apply(&self, state: &mut u64, operation: &u64) {
//!         *state += operation;
//!     }
//!     fn owns_source(&self, file: &str) -> bool {
//!         file == file!()
//!     }
//! }
//!
//! impl Live<u64, u64> for Counter {
//!     fn perform(&mut self, operation: &u64) -> Result<(), String> {
//!         let (domain, cell) = (self.pool.domain(), self.pool.at(self.cell));
//!         let sum = cell.load(domain) + operation;
//!         let _committed = cell.publish(domain, sum).persist();
//!         Ok(())
//!     }
//!     fn observe(&self) -> Result<u64, String> {
//!         Ok(self.pool.at(self.cell).load(self.pool.domain()))
//!     }
//!     fn reclaim_and_audit(&self) -> AuditReport {
//!         let reachable = self.pool.reachable(|visitor| {
//!             visitor.visit(self.cell, 8);
//!         });
//!         self.pool.reclaim_and_audit(&reachable)
//!     }
//!     fn pool(&self) -> Option<&Pool<Modelled>> {
//!         Some(&self.pool)
//!     }
//! }
//!
//! let options = ExploreOptions { ops: 20, ..ExploreOptions::default() };
//! let report = explore(&CounterSubject, &options, &|_| {})?;
//! assert!(report.violations.is_empty());
//! assert!(report.images > 40);
//! # Ok::<(), String>(())
//! ```

pub mod concurrent;
mod coverage;
mod crash_walk;
mod erased;
mod explore;
#[cfg(test)]
mod faulty_sum;
mod fewer;
mod first_violations;
mod image_check;
pub mod image_rate;
mod markers;
pub mod mutants;
mod options;
pub mod oracle;
pub mod performance_bugs;
mod persist_points;
pub mod recorded;
mod report;
mod reuse;
mod run;
mod shrink;
mod spread;
mod stop_flag;
mod storage;
mod strategy;
mod structure;
mod subject;
pub mod subjects;
mod timed;
mod timeline;

pub use coverage::{Coverage, known_persist_points};
pub use explore::explore;
pub use lapis_device::{BytesOfLine, Modelled, PersistPoint};
pub use options::{ExploreOptions, Replay};
pub use performance_bugs::{
    PerformanceFinding, PerformanceReport, Waste, performance_bugs, structure_performance,
    subject_performance,
};
pub use persist_points::persist_points;
pub use recorded::{
    RecordedError, RecordedOptions, RecordedReport, RecordedViolation, check_recorded,
    record_structure,
};
pub use report::{
    ExploreReport, KeptOperation, PersistPointRow, PointOutcomes, Shrunk, ShrunkHistory, Violation,
};
pub use run::Phase;
pub use stop_flag::StopFlag;
pub use storage::{DeviceFault, Storage};
pub use strategy::{Strategy, UnknownStrategy};
pub use structure::{
    CrashError, Progress, Structure, explore_further, explore_structure, persist_point_called,
    points_of_sources, structure_persist_points, structure_points,
};
pub use subject::{Kills, Live, Subject, WalkMemory};
pub use timed::{TimedExploration, explore_for};
pub use timeline::entry::{EntryKind, LineChange, LineFate, LineState, TimelineEntry};
