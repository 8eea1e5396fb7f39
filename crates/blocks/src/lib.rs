//! Failure-atomic building blocks on persistent memory: logs.

pub mod log;
pub mod pop_log;
