//! What Lapis itself has to be checked.

mod allocator;
mod index;
mod page;
mod pop_log;
mod store;

pub use allocator::AllocatorSubject;
pub use index::IndexSubject;
pub use page::PageSubject;
pub use pop_log::PopLogSubject;
pub use store::StoreSubject;
