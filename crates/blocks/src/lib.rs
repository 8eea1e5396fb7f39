//! Failure-atomic building blocks on persistent memory: logs, page propagation.

pub mod log;
pub mod page;
pub mod pop_log;
