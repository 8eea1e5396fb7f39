//! Pages on an SSD: the floor on which a buffer manager is to stand.
//!
//! * [`page`] — what a page looks like, how damage to it shows, and views of its memory that races
//!   with writers cannot make undefined behaviour;
//! * [`space`] — pages on a block device: batches that power cuts leave whole, the space map.

pub mod page;
pub mod space;

pub use page::view::{PageRead, PageWrite};
pub use page::{PageDamage, PageKind, PageNumber};
pub use space::{Space, SpaceError, SpaceOptions, SpaceProblem};
