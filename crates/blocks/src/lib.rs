//! Failure-atomic building blocks on persistent memory: logs.

pub mod classic_log;
pub mod header_log;
pub mod log;
pub mod mutants;
pub mod pop_log;
pub mod pop_ring;
pub mod rawl;
pub mod ring_log;
pub mod shared_log;
pub mod thread_logs;
