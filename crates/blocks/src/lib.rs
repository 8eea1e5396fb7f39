//! Failure-atomic building blocks on persistent memory: logs, page propagation, in-place updates,
//! interleaving.

pub mod classic_log;
mod declaration;
pub mod fp_leaves;
pub mod header_log;
pub mod in_place;
pub mod interleave;
pub mod log;
#[doc(hidden)]
pub mod mutants;
pub mod page;
pub mod pop_log;
pub mod pop_ring;
pub mod rawl;
pub mod ring_log;
mod root_checksum;
mod set_bits;
pub mod shared_log;
mod spacing;
pub mod thread_logs;

pub use declaration::{CellKind, CellRun, Declaration, LogKind, LogRun, PageKind, PageRun};
