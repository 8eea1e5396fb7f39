//! The crash-consistency checker: explores the states that a power cut may leave and shows that a
//! structure survives each of them.
//!
//! A [`Subject`] is something to check: a structure, the operations to run on it and a model of what
//! they mean. [`explore`] runs the operations once on the modelled machine, then walks through the
//! crash points of the recorded trace; at each it takes the images that a power cut may leave (one of each class
//! that the recovery can tell apart, all of them, or a seeded sample with the extremes: [`Strategy`]), recovers on each, and
//! asks the oracle ([`oracle`]): is every acknowledged operation there, is the one in flight there
//! whole or not at all, do the structure's invariants hold, is exactly what is reachable allocated,
//! does a second recovery change nothing, does a crash during recovery do no harm, and does the
//! structure still work?
//!
//! [`persist_points`] switches off each flush and fence of a structure in turn and shows that the
//! checker then finds a violation: that each is necessary, and that the checker can see it.

mod explore;
mod image_check;
mod line_history;
pub mod mutants;
mod options;
pub mod oracle;
mod persist_points;
mod report;
mod run;
mod shrink;
mod strategy;
mod structure;
mod subject;
pub mod subjects;
mod timeline;
mod timeline_page;
mod timeline_text;

pub use explore::explore;
pub use lapis_device::PersistPoint;
pub use options::{ExploreOptions, Replay};
pub use persist_points::{PersistPointRow, persist_points};
pub use report::{ExploreReport, KeptOperation, PointOutcomes, Shrunk, Violation};
pub use strategy::{Strategy, UnknownStrategy};
pub use structure::{
    CrashError, Progress, Structure, explore_structure, structure_persist_points, structure_points,
};
pub use subject::{Live, Subject};
pub use timeline::{EntryKind, LineChange, LineFate, LineState, TimelineEntry};
