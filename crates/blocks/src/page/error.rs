//! What can go wrong with a page store.

use lapis_pmem::{AllocError, DomainFault};

use super::{LARGEST_PAGE_BYTES, SMALLEST_PAGE_BYTES};

/// Something in a page store that no sequence of writes, deletions and crashes leaves behind: the
/// medium or another writer has changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageDamage {
    /// What is wrong.
    pub what: &'static str,
    /// Where in the pool, in bytes from its start.
    pub pool_offset: u64,
}

impl std::fmt::Display for PageDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pool offset {:#x})", self.what, self.pool_offset)
    }
}

/// Why a page store could not do what it was asked. Unless said otherwise it is as it was and can
/// be used further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// No such page size.
    #[error(
        "pages of {page_bytes} bytes are impossible; choose a power of two between \
         {SMALLEST_PAGE_BYTES} and {LARGEST_PAGE_BYTES}"
    )]
    BadPageSize {
        /// The size asked for.
        page_bytes: usize,
    },
    /// A store has at least one page and one lane, and no more than its numbers can count.
    #[error("a page store cannot have {what}; choose {choose}")]
    BadOptions {
        /// What was asked for.
        what: String,
        /// What would do.
        choose: &'static str,
    },
    /// The bytes given are not one page.
    #[error("a page of this store has {expected_bytes} bytes, not {given_bytes}")]
    WrongPageSize {
        /// Bytes given.
        given_bytes: usize,
        /// Bytes of a page.
        expected_bytes: usize,
    },
    /// Lines are said to be dirty that a page does not have.
    #[error("line {line} is said to be dirty; a page of this store has lines 0 to {last}")]
    DirtyBeyondPage {
        /// The first such line.
        line: usize,
        /// The last line of a page.
        last: usize,
    },
    /// No such page id.
    #[error("page {id} is out of range; this store has pages 0 to {last}")]
    IdOutOfRange {
        /// The id asked for.
        id: u64,
        /// The largest id.
        last: u64,
    },
    /// Nothing was ever written under this id, or it was deleted.
    #[error("there is no page {id}; write it first")]
    NoSuchPage {
        /// The id asked for.
        id: u64,
    },
    /// Every page that there is room for exists.
    #[error("the page store is full: it holds {capacity_pages} pages; delete one first")]
    Full {
        /// Pages there is room for.
        capacity_pages: usize,
    },
    /// The pool has no room for the store.
    #[error("the page store needs {needed_bytes} bytes: {why}")]
    RegionTooSmall {
        /// Bytes of the store.
        needed_bytes: usize,
        /// What the pool answered.
        why: AllocError,
    },
    /// The block is not the root of a page store.
    #[error("there is no page store at pool offset {pool_offset:#x}")]
    NotAPageStore {
        /// Where it was looked for.
        pool_offset: u64,
    },
    /// Written by a newer Lapis.
    #[error("the page store has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u64,
        /// The newest version this code reads.
        supported: u64,
    },
    /// It is open in this opening of the pool: which slots are free, that handle knows.
    #[error("the page store is open already: its handle is to be shared")]
    InUse,
    /// The store holds what no crash leaves behind. Nothing was written.
    #[error("the page store is damaged: {0}")]
    Damaged(PageDamage),
    /// A cost model that says nothing.
    #[error("a cost model needs {what}")]
    BadCostModel {
        /// What it lacks.
        what: &'static str,
    },
    /// The medium refused to persist. What was written may or may not be durable.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}
