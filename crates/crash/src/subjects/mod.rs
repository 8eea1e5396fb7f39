//! What Lapis itself has to be checked.

mod allocator;
mod entries;
mod fp_leaves;
mod in_place;
mod index;
mod index_walks;
mod log;
pub(crate) mod open_index;
mod page;
mod pop_log;
mod store;

pub use allocator::{AllocatorOperation, AllocatorSubject, LiveDirectory};
pub use entries::Entries;
pub use fp_leaves::{Change, FpLeavesSubject, LiveLeaves};
pub use in_place::{InPlaceSubject, Scheme, Update};
pub use index::{IndexSubject, KeySpace};
pub use log::LogSubject;
pub use page::PageSubject;
pub use pop_log::PopLogSubject;
pub use store::StoreSubject;
