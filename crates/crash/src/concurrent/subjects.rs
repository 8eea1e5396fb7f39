//! What Lapis itself has to be checked with several workers.

mod allocator;
mod index;
mod merged_node;
mod pop_log;
mod store;
mod whole;

pub use allocator::ConcurrentAllocator;
pub use index::ConcurrentIndex;
pub(super) use merged_node::merged_node;
pub use pop_log::ConcurrentPopLog;
pub use store::ConcurrentStore;
