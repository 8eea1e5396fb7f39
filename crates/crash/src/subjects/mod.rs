//! What Lapis itself has to be checked.

mod allocator;
mod ballast;
pub(crate) mod block_log;
mod entries;
mod fp_leaves;
mod in_place;
mod index;
mod index_walks;
mod log;
mod log_state;
mod page;
pub(crate) mod store;

pub use allocator::{AllocatorOperation, AllocatorSubject, LiveDirectory};
pub use block_log::{BlockLogOperation, BlockLogSubject, LiveBlockLog};
pub use entries::Entries;
pub use fp_leaves::{Change, FpLeavesSubject, LiveLeaves};
pub(crate) use in_place::CELLS;
pub use in_place::{InPlaceSubject, LiveCells, Update};
pub use index::{IndexSubject, KeySpace};
pub(crate) use index::{created, crowded, opened, visit_from_root};
pub use log::{LiveLog, LogSubject};
pub use log_state::LogState;
pub use page::PageSubject;
pub use store::{LiveStore, SPITFIRE, StoreOperation, StoreSubject, TUNED_SPITFIRE};
