//! What may go wrong with a space.

use lapis_pmem::BlockError;

use super::geometry::FEWEST_BATCH_PAGES;
use crate::page::{LARGEST_PAGE_BYTES, PageDamage, PageNumber, SMALLEST_PAGE_BYTES};

/// Why a space refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// No page is that large.
    #[error(
        "pages of {page_bytes} bytes: choose a power of two from {SMALLEST_PAGE_BYTES} to \
         {LARGEST_PAGE_BYTES}"
    )]
    BadPageSize {
        /// What was asked for.
        page_bytes: usize,
    },
    /// No batch is that large.
    #[error("batches of {batch_pages} pages: choose from {FEWEST_BATCH_PAGES} to {most}")]
    BadBatch {
        /// What was asked for.
        batch_pages: usize,
        /// What the size of pages has room for.
        most: usize,
    },
    /// The device holds something else.
    #[error("the device holds no space of pages: its first block {0}")]
    NotASpace(PageDamage),
    /// Neither batch can be read that may have to be redone.
    #[error("both journal areas are damaged, so the last writes cannot be completed")]
    JournalDamaged,
    /// A block of the journal cannot be read that may belong to a batch which has to be redone.
    #[error("the journal cannot be read, so the last writes cannot be completed: {source}")]
    JournalUnreadable {
        /// What the device answered.
        source: BlockError,
    },
    /// A map cannot be read.
    #[error("which pages there are from {first} on cannot be read: {source}")]
    MapUnreadable {
        /// The first page that it is the map of.
        first: PageNumber,
        /// What the device answered.
        source: BlockError,
    },
    /// A page is damaged.
    #[error("page {number} {damage}")]
    Page {
        /// The page.
        number: PageNumber,
        /// What is wrong.
        damage: PageDamage,
    },
    /// No such page.
    #[error("page {number} is not in use")]
    NotInUse {
        /// The page.
        number: PageNumber,
    },
    /// The log says that a page was made which nobody can have asked for: it is no record of this space.
    #[error(
        "page {number} lies far behind all others, so it was never given out: the log is damaged"
    )]
    NeverGivenOut {
        /// The page.
        number: PageNumber,
    },
    /// The device cannot be made large enough for what is to be written.
    #[error("no room for {pages} pages that the change may take: {source}")]
    NoRoom {
        /// Pages that it may take.
        pages: u64,
        /// What the device answered.
        source: BlockError,
    },
    /// There are no more page numbers.
    #[error("all page numbers are in use")]
    Full,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// Earlier writes failed half-way; nothing is written any more.
    #[error("an earlier write failed ({reason}); reopen and recover")]
    WritesLost {
        /// What the device answered then.
        reason: String,
    },
}
