//! Failure-atomic building blocks on persistent memory: logs.
