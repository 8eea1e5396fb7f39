//! The tests of the persistence layer, linked once.

mod allocator;
mod memory_faults;
mod pool;
mod reachable_by_parts;
#[cfg(target_arch = "x86_64")]
mod zero_cost;
