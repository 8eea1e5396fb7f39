//! Failure-atomic building blocks on persistent memory: logs and in-place updates.

pub mod in_place;
pub mod log;
pub mod pop_log;
