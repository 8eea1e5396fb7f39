//! In-place updates: values of 8 to 256 bytes that change where they lie, whole or not at all.
//!
//! After section 3.4 of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks for
//! persistent memory*, The VLDB Journal 29 (2020). Hardware updates eight bytes at once; for more
//! there are three ways, here behind one trait, [`InPlace`]:
//!
//! | scheme | barriers per update | lines written, 16 / 32 / 64 bytes | words of a cell |
//! |---|---|---|---|
//! | [`CowCell`] | 2 | 2 / 2 / 2 | 2 copies and a selector |
//! | [`LogCell`] | 2, or 3 with a log of two barriers | 2 / 2 / 3 | the value; the log is shared by all cells |
//! | [`FamCell`] | 1 | 1 / 2 / 3 | one for 31 bits |
//!
//! (The paper has 3 lines for a copy-on-write cell of 64 bytes: its flag lies before the copies and
//! pushes them across lines. Here the selector lies behind them.)
//!
//! # Which to choose
//!
//! * [`FamCell`] for values that are updated often: the one barrier is what an update costs, and
//!   the gain is largest for 16 bytes, which stay in one line. A cell takes about twice the space
//!   of its value, and a read has to put 31-bit pieces together again.
//! * [`LogCell`] for values that are read much more often than updated, above all in order: they
//!   lie there as they are, without indirection. Updates of all cells that share a log take turns.
//!   Any [`Log`](crate::log::Log) will do; one of a single barrier makes two for an update.
//! * [`CowCell`] where neither fits: nothing beside the cell, plain reads after one selector.
//!
//! A scheme works on any words of persistent memory, so a node of an index can hold a cell among
//! its own fields. [`CellArray`] is a persistent array of cells, with a header that says what it
//! holds.
//!
//! ```
//! use std::sync::Arc;
//! use lapis_blocks::in_place::{CellArray, FamCell};
//! use lapis_pmem::Pool;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Arc::new(Pool::create_anonymous(1 << 20)?);
//! let array = CellArray::create(&pool, &FamCell::default(), 16, 1000)?;
//! let array = pool.fence(array);
//! let root = array.link();
//! let _ = pool.publish_root("accounts", 0, array)?.persist();
//! let accounts = CellArray::open(&pool, FamCell::default(), root)?;
//! accounts.update(7, &[1; 16])?; // durable on return, by one barrier
//! let mut value = [0; 16];
//! accounts.read(7, &mut value)?;
//! assert_eq!(value, [1; 16]);
//! # Ok(()) }
//! ```

mod array;
mod famb;
pub mod mutants;

use std::sync::Arc;

use lapis_pmem::{AllocError, BlockVisitor, Committed, Domain, DomainFault, PCell, Pool};

pub use array::{CellArray, CellArrayRoot};
pub use famb::{Arithmetic, UnavailableArithmetic};

use crate::log::{Damage, Layout, LogError};

// The number on the medium, the cells, their module and type, and whether they take a log.
cells! { ($)
    1 Cow cow_cell::CowCell [];
    2 Log log_cell::LogCell [log];
    3 Fam fam_cell::FamCell [];
}

/// The smallest value of a cell, in bytes.
pub const SMALLEST_VALUE_BYTES: usize = 8;
/// The largest value of a cell, in bytes.
pub const LARGEST_VALUE_BYTES: usize = 256;

/// Why a cell could not be used. Nothing has changed unless said otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InPlaceError {
    /// The size of values is out of bounds.
    #[error(
        "a cell of {value_bytes} bytes is impossible; choose between {SMALLEST_VALUE_BYTES} and \
         {LARGEST_VALUE_BYTES}"
    )]
    BadValueSize {
        /// The size asked for.
        value_bytes: usize,
    },
    /// An array of no cells.
    #[error("an array has at least one cell")]
    NoCells,
    /// A value of another size than the cell's.
    #[error("the cells hold {value_bytes} bytes and the value has {given_bytes}")]
    WrongLength {
        /// The size of the cells' values.
        value_bytes: usize,
        /// What was passed.
        given_bytes: usize,
    },
    /// There is no such cell.
    #[error("there is no cell {index}; the array has {len}")]
    NoSuchCell {
        /// The index asked for.
        index: usize,
        /// The number of cells.
        len: usize,
    },
    /// The block is not an array of cells.
    #[error("there is no array of cells at pool offset {pool_offset:#x}")]
    NotAnArray {
        /// Where it was looked for.
        pool_offset: u64,
    },
    /// The array's cells are of another kind than the reader's.
    #[error("the array holds cells of kind {found}, not {expected}")]
    OtherKind {
        /// The kind that the array names.
        found: CellKind,
        /// The kind of the reader.
        expected: CellKind,
    },
    /// Written by a newer Lapis.
    #[error("the array has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u64,
        /// The newest version this code reads.
        supported: u64,
    },
    /// A cell that no sequence of updates and crashes leaves behind.
    #[error("the cell at pool offset {pool_offset:#x} is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where.
        pool_offset: u64,
    },
    /// No room in the pool.
    #[error("no room for the cells: {0}")]
    Full(#[from] AllocError),
    /// The log failed, and the value is as it was.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Nothing is published as the log of the cells.
    #[error("the log of the cells is gone")]
    NoLog,
    /// The medium refused to persist. The value may be the old or the new one.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}

/// Damage of one cell; whoever knows where the cell lies says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellDamage(pub &'static str);

/// A way to update a value of some bytes in place, whole or not at all.
///
/// A cell is `cell_words(value_bytes)` consecutive words, best beginning on a line. A cell of zeroes
/// holds a value of zeroes. Each cell has one writer at a time, and no reader while it writes: who
/// shares a cell between threads brings the lock.
pub trait InPlace<D: Domain>: Sized + Send + Sync {
    /// Which way this is.
    const KIND: CellKind;
    /// Barriers of an update, with a log of one barrier.
    const BARRIERS: u64;

    /// Makes what it needs beside its cells in a pool: a log, laid out like that and published, if it
    /// takes one.
    ///
    /// # Errors
    /// [`InPlaceError::Log`].
    fn make_in(pool: &Arc<Pool<D>>, log: Layout) -> Result<Self, InPlaceError>;

    /// Opens what [`InPlace::make_in`] has made, after a crash or not.
    ///
    /// # Errors
    /// [`InPlaceError::NoLog`], [`InPlaceError::Log`], [`InPlaceError::Damaged`].
    fn open_in(pool: &Arc<Pool<D>>) -> Result<Self, InPlaceError>;

    /// What is wrong with what it has beside its cells.
    fn check(&self) -> Vec<Damage> {
        Vec::new()
    }

    /// Visits the blocks that it has beside its cells.
    fn visit_blocks(&self, _: &mut BlockVisitor<'_, D>) {}

    /// Words of a cell whose value has so many bytes.
    fn cell_words(&self, value_bytes: usize) -> usize;

    /// Copies the value out.
    ///
    /// # Panics
    /// If `cell` does not have the words for a value of that length.
    fn read(&self, domain: &D, cell: &[PCell<u64>], value: &mut [u8]);

    /// Replaces the value; durable on return. After a crash during the call the cell holds the old
    /// value or the new one. The costs stand in the [module documentation](self).
    ///
    /// # Errors
    /// [`InPlaceError::Log`] and [`InPlaceError::Full`]; the value is as it was.
    ///
    /// # Panics
    /// If `cell` does not have the words for a value of that length.
    fn update(
        &self,
        domain: &D,
        cell: &[PCell<u64>],
        value: &[u8],
    ) -> Result<Committed, InPlaceError>;

    /// Brings a cell back to its last acknowledged value, or to the one of the update in flight,
    /// after a crash; says whether there was anything to do. What it changes it flushes, and the
    /// caller fences, once for all cells, before the first update. A crash during recovery does
    /// no harm: recover again.
    ///
    /// # Errors
    /// [`CellDamage`] if the cell holds what no crash leaves behind; it is left as it is.
    fn recover(&self, domain: &D, cell: &[PCell<u64>]) -> Result<bool, CellDamage>;
}

/// Words of a value.
pub(crate) fn value_words(value_bytes: usize) -> usize {
    value_bytes.div_ceil(8)
}

/// Stores a value into words, the last padded with zeroes.
#[inline]
pub(crate) fn store_value<D: Domain>(domain: &D, words: &[PCell<u64>], value: &[u8]) {
    for (word, bytes) in words.iter().zip(value.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        word.store(domain, u64::from_le_bytes(padded));
    }
}

/// Loads a value from words.
#[inline]
pub(crate) fn load_value<D: Domain>(domain: &D, words: &[PCell<u64>], value: &mut [u8]) {
    for (word, bytes) in words.iter().zip(value.chunks_mut(8)) {
        let loaded = word.load(domain).to_le_bytes();
        bytes.copy_from_slice(&loaded[..bytes.len()]);
    }
}
