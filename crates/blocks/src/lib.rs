//! Failure-atomic building blocks on persistent memory: logs, in-place updates,
//! interleaving.

pub mod fp_leaves;
pub mod in_place;
pub mod interleave;
pub mod log;
pub mod pop_log;
