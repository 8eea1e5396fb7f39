//! What Lapis itself has to be checked.

mod allocator;
mod in_place;
mod index;
mod pop_log;
mod store;

pub use allocator::AllocatorSubject;
pub use in_place::{InPlaceSubject, Scheme, Update};
pub use index::IndexSubject;
pub use pop_log::PopLogSubject;
pub use store::StoreSubject;
