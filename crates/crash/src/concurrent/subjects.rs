//! What Lapis itself has to be checked with several workers.

mod allocator;
mod index;
mod pop_log;
mod store;
mod whole;

pub use allocator::ConcurrentAllocator;
pub use index::ConcurrentIndex;
pub use pop_log::ConcurrentPopLog;
pub use store::ConcurrentStore;
