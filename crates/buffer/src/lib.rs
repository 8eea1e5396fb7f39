//! The buffer manager: pages with numbers, in frames of DRAM while they are used, in persistent memory
//! or on an SSD otherwise.
//!
//! After A. van Renen et al., *Managing non-volatile memory in database systems*, SIGMOD 2018 (chapter
//! 2 and appendix A of the thesis), and V. Leis et al., *LeanStore: In-memory data management beyond main
//! memory*, ICDE 2018. A manager is made of
//!
//! * [`page`] — what a page looks like, how damage to it shows, and views of its memory that races
//!   with writers cannot make undefined behaviour;
//! * [`space`] — pages on a block device: batches that power cuts leave whole, the space map;
//! * [`tier`] — pages in persistent memory, between DRAM and that device;
//! * frames with a versioned latch each, the page table, the clock, swizzled references
//!   ([`BufferManager`]).
//!
//! [`Placement`] says which tiers there are.
//!
//! # How pages are used
//!
//! Readers do not write to shared memory: [`BufferManager::fix`] notes a version, they read what they
//! like, and what they have read counts when it is validated. Everything that finds itself overtaken
//! says [`Restart`], `?` carries it, and [`BufferManager::retry`] begins again. Writers make an
//! [`OptimisticPage`] an [`ExclusivePage`], which holds the latch until it is dropped.
//!
//! ```
//! use lapis_buffer::{BufferManager, BufferOptions, PageKind};
//! use lapis_pmem::Hardware;
//!
//! # fn main() -> Result<(), lapis_buffer::BufferError> {
//! let options = BufferOptions { frames: 16, ..BufferOptions::default() };
//! let manager = BufferManager::in_memory(Hardware::detect(), &options)?;
//! let mut page = manager.allocate_page(PageKind(16), |_| 0)?;
//! page.write(0).copy_from(100, b"lapis");
//! let number = page.number();
//! drop(page);
//!
//! let word = manager.retry(|| {
//!     let page = manager.fix(number)?;
//!     let word = page.read().word(100);
//!     page.validate()?;
//!     Ok(word)
//! })?;
//! assert_eq!(&word.to_le_bytes()[..5], b"lapis");
//! # Ok(()) }
//! ```
//!
//! # Where this differs from the paper
//!
//! * Several threads, as its appendix A.1 sketches. Frames are never given back, so optimistic readers
//!   need no epochs (`frame.rs`).
//! * The device, the log and errors are reached through `dyn`: they cost microseconds. What a page in DRAM
//!   costs is a version, a branch and loads.
//! * A mini page that is promoted keeps its frame, which gets other memory; so there is no wrapper around it
//!   (`page/lines.rs`).
//! * A page with swizzled children is not evicted, but it is written: in the copy that is written,
//!   references are page numbers. Otherwise the upper levels of a tree could never become clean.

mod annealing;
mod counter;
mod error;
mod frame;
mod frame_memory;
mod latch;
mod log;
mod manager;
mod migration;
pub mod mutants;
pub mod page;
mod page_table;
mod placement;
pub mod space;
pub mod tier;

pub use error::{BufferError, Interruption};
pub use latch::Restart;
pub use log::{LogError, NoLog, WriteAheadLog};
pub use manager::{
    BufferManager, BufferOptions, ExclusivePage, MINI_FRAME_BYTES, OptimisticPage, ResidentPages,
    Statistics, TierStatistics,
};
pub use migration::{Chance, Decided, Migration, MigrationStatistics, NotAChance, NotAMigration};
pub use page::view::{PageRead, PageWrite};
pub use page::{PageDamage, PageKind, PageNumber};
pub use placement::{Placement, UnknownPlacement};
pub use space::{Promise, RoomFor, Space, SpaceError, SpaceOptions, SpaceProblem};
pub use tier::{PersistentTier, TierError, TierOptions, TierRoot};

/// This machine, of which pages in DRAM need no flush: a domain that an interpreter can be, too.
#[cfg(test)]
fn test_domain() -> lapis_pmem::Hardware {
    lapis_pmem::Hardware::with_method(lapis_pmem::FlushMethod::PageCacheNone)
        .expect("it takes no instruction")
}
