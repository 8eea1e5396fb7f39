//! The tests of the persistence layer, linked once.

mod allocator;
mod allocator_damage;
#[cfg(not(miri))]
mod memory_faults;
#[cfg(not(miri))]
mod pool;
mod reachable_by_parts;
#[cfg(target_arch = "x86_64")]
#[cfg(not(miri))]
mod zero_cost;
