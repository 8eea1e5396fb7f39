//! Several workers on one structure, and crashes in the middle of their interleavings.
//!
//! A *history* is what some workers asked of a structure and what they were told: calls, each with
//! the instant at which it was made and the instant at which its result became known. Histories are
//! made on the modelled machine, whose scheduler decides who runs and when store buffers drain; the
//! instants are positions in the trace.
//!
//! A history is *linearizable* if its calls can be put into an order that keeps the order of calls
//! which did not overlap, and in which each returns what it did return. It is *durably* so (Izraelevitz,
//! Mendes, Scott, DISC 2016) if after a crash there is such an order of all calls whose result was
//! known before the crash, and of some of those that were not, which ends in the state that was
//! recovered. A result that rested on a value the crash took back has no place in any such order: so
//! reads of unpersisted values are found without being looked for.

mod case;
mod explore;
mod first_cut;
mod history;
mod linearizability;
mod machines;
mod options;
mod pairs;
mod report;
mod rule;
mod shrink;
mod structure;
mod subject;
pub mod subjects;
mod timeline;
mod whole;

pub use explore::explore_concurrent;
pub use history::{Call, History};
pub use lapis_device::Schedule;
pub use linearizability::{MapAction, MapKey, Specification, TooManyCalls, is_linearizable};
pub use options::{ConcurrentOptions, ConcurrentReplay};
pub use report::{ConcurrentReport, ConcurrentViolation};
pub use rule::BrokenRule;
pub use structure::explore_structure_concurrently;
pub use structure::{MOST_PLANNED_SCHEDULES, PLANNED_WORKERS};
pub use subject::{ConcurrentSubject, Offence, Plan, Stop};
pub use whole::judge_whole;
