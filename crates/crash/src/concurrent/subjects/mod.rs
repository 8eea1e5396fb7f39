//! What Lapis itself has to be checked with several workers.

mod allocator;
mod index;
mod merged_node;
mod pop_log;
mod split_node;
mod store;
mod unlinked_node;
mod whole;

pub use allocator::ConcurrentAllocator;
pub use index::ConcurrentIndex;
pub(super) use merged_node::merged_node;
pub use pop_log::ConcurrentPopLog;
pub(super) use split_node::split_node;
pub use store::ConcurrentStore;
pub(super) use unlinked_node::unlinked_node;
