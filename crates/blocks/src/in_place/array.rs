//! An array of cells in a pool.
//!
//! # Layout
//!
//! ```text
//!  byte   0  8  magic           "LAPISCEL"
//!         8  8  format_version  1
//!        16  8  kind            1 copy-on-write, 2 log, 3 failure-atomic memory
//!        24  8  value_bytes     of each value, 8 to 256
//!        32  8  len             number of cells
//!        40  8  checksum        CRC-32C of bytes 0..40
//!        48 16  reserved, zero
//!        64     cell 0          each begins on a line and takes whole lines
//! ```
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. The header is durable before the array is reachable, and never changes.
//! * I2. Cells are zero, durably, before the array is reachable: all values are zero.
//! * I3. Each cell is in a state that its scheme recovers from (its own invariants).
//!
//! # Order of stores, and cost
//!
//! Create: header stored and flushed, cells zeroed past the caches; the caller fences and publishes.
//! Open: cells recovered, those that changed flushed, one fence if any did.

use std::sync::Arc;

use lapis_pmem::{
    BlockVisitor, Committed, Dirty, Domain, InFlight, LINE_BYTES, Link, Owned, PCell, Pool,
    persistent,
};

use super::{CellKind, InPlace, InPlaceError, LARGEST_VALUE_BYTES, SMALLEST_VALUE_BYTES};
use crate::root_checksum::root_checksum;

const MAGIC: u64 = u64::from_le_bytes(*b"LAPISCEL");
const FORMAT_VERSION: u64 = 1;

persistent! {
    /// The header of an array of cells: what the caller publishes.
    pub struct CellArrayRoot: 64 {
        magic: PCell<u64>,
        format_version: PCell<u64>,
        kind: PCell<u64>,
        value_bytes: PCell<u64>,
        len: PCell<u64>,
        /// CRC-32C of the five words above.
        checksum: PCell<u64>,
        reserved: [PCell<u64>; 2],
    }
}

const _: () = {
    assert!(core::mem::offset_of!(CellArrayRoot, checksum) == 40);
    assert!(size_of::<CellArrayRoot>() == LINE_BYTES);
};

/// Words from one cell to the next: whole lines, so that cells share none.
fn stride_words(cell_words: usize) -> usize {
    cell_words.next_multiple_of(LINE_BYTES / 8)
}

/// An open array of cells of one scheme. See the [module](super).
///
/// Reads and updates of one cell exclude each other by the caller's care: an array that threads
/// share needs a lock for each cell, or for all.
#[derive(Debug)]
pub struct CellArray<D: Domain, S> {
    pool: Arc<Pool<D>>,
    scheme: S,
    root: Link<CellArrayRoot>,
    value_bytes: usize,
    cell_words: usize,
    len: usize,
}

impl<D: Domain, S: InPlace<D>> CellArray<D, S> {
    fn tail_bytes(scheme: &S, value_bytes: usize, len: usize) -> usize {
        // Saturated sizes are refused by the allocator.
        stride_words(scheme.cell_words(value_bytes)).saturating_mul(8).saturating_mul(len)
    }

    /// Makes an array of `len` cells, all values zero, for the caller to fence and publish.
    ///
    /// # Errors
    /// [`InPlaceError::BadValueSize`], [`InPlaceError::NoCells`], [`InPlaceError::Full`].
    pub fn create<'p>(
        pool: &'p Pool<D>,
        scheme: &S,
        value_bytes: usize,
        len: usize,
    ) -> Result<Owned<'p, D, CellArrayRoot, InFlight>, InPlaceError> {
        if !(SMALLEST_VALUE_BYTES..=LARGEST_VALUE_BYTES).contains(&value_bytes) {
            return Err(InPlaceError::BadValueSize { value_bytes });
        }
        if len == 0 {
            return Err(InPlaceError::NoCells);
        }
        let domain = pool.domain();
        let tail_bytes = Self::tail_bytes(scheme, value_bytes, len);
        let mut array: Owned<'_, D, CellArrayRoot, Dirty> = pool.allocate_with_tail(tail_bytes)?;
        zero_tail(&mut array, tail_bytes);
        let words = [MAGIC, FORMAT_VERSION, S::KIND as u64, value_bytes as u64, len as u64];
        array.magic.store(domain, words[0]);
        array.format_version.store(domain, words[1]);
        array.kind.store(domain, words[2]);
        array.value_bytes.store(domain, words[3]);
        array.len.store(domain, words[4]);
        array.checksum.store(domain, root_checksum(words));
        for word in &array.reserved {
            word.store(domain, 0);
        }
        Ok(array.flush_head()) // I1, I2: the caller's fence is for both
    }

    /// Opens the array and recovers its cells: one fence if any was caught in an update.
    ///
    /// # Errors
    /// [`InPlaceError::NotAnArray`], [`InPlaceError::OtherKind`], [`InPlaceError::NewerVersion`],
    /// [`InPlaceError::Damaged`]: the array is left as it was, but for cells before the damaged
    /// one, which are recovered.
    pub fn open(
        pool: &Arc<Pool<D>>,
        scheme: S,
        root: Link<CellArrayRoot>,
    ) -> Result<Self, InPlaceError> {
        let header = read_header(pool, root, S::KIND)?;
        let cell_words = scheme.cell_words(header.value_bytes);
        let array = Self {
            pool: Arc::clone(pool),
            scheme,
            root,
            value_bytes: header.value_bytes,
            cell_words,
            len: header.len,
        };
        let words = stride_words(cell_words).checked_mul(header.len);
        let first = Link::<PCell<u64>>::from_bits(array.cell_offset(0));
        if words.is_none_or(|words| array.pool.try_slice(first, words).is_none()) {
            return Err(InPlaceError::NotAnArray { pool_offset: root.offset() });
        }
        array.recover()?;
        Ok(array)
    }

    fn recover(&self) -> Result<(), InPlaceError> {
        let domain = self.pool.domain();
        let mut changed = false;
        for index in 0..self.len {
            changed |= self.scheme.recover(domain, self.cell(index)).map_err(|damage| {
                let pool_offset = self.cell_offset(index);
                InPlaceError::Damaged { what: damage.0, pool_offset }
            })?;
        }
        if changed {
            domain.fence(); // I3: what was repaired is durable before anything is updated
        }
        Ok(())
    }

    #[inline(always)]
    fn cell_offset(&self, index: usize) -> u64 {
        self.root.offset() + (LINE_BYTES + stride_words(self.cell_words) * 8 * index) as u64
    }

    /// The words of a cell that exists.
    #[inline(always)]
    fn cell(&self, index: usize) -> &[PCell<u64>] {
        let first = Link::<PCell<u64>>::from_bits(self.cell_offset(index));
        // `open` has looked whether they lie in the pool, which never shrinks.
        self.pool.try_slice(first, self.cell_words).expect("cells lie in the pool")
    }

    #[inline(always)]
    fn checked(&self, index: usize, given_bytes: usize) -> Result<&[PCell<u64>], InPlaceError> {
        if index >= self.len {
            return Err(InPlaceError::NoSuchCell { index, len: self.len });
        }
        if given_bytes != self.value_bytes {
            let value_bytes = self.value_bytes;
            return Err(InPlaceError::WrongLength { value_bytes, given_bytes });
        }
        Ok(self.cell(index))
    }

    /// Copies a value out. `value` has the length of the values.
    ///
    /// # Errors
    /// [`InPlaceError::NoSuchCell`], [`InPlaceError::WrongLength`].
    #[inline]
    pub fn read(&self, index: usize, value: &mut [u8]) -> Result<(), InPlaceError> {
        let cell = self.checked(index, value.len())?;
        self.scheme.read(self.pool.domain(), cell, value);
        Ok(())
    }

    /// Replaces a value, whole or not at all; durable on return. The barriers stand in the
    /// [module](super).
    ///
    /// # Errors
    /// [`InPlaceError::NoSuchCell`], [`InPlaceError::WrongLength`], [`InPlaceError::Log`],
    /// [`InPlaceError::Fault`].
    #[inline]
    pub fn update(&self, index: usize, value: &[u8]) -> Result<Committed, InPlaceError> {
        let cell = self.checked(index, value.len())?;
        let committed = self.scheme.update(self.pool.domain(), cell, value)?;
        self.pool.domain().health()?;
        Ok(committed)
    }

    /// Hints that a cell will be read or updated soon.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if index < self.len {
            self.pool.domain().prefetch(self.cell(index).as_ptr().cast());
        }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: an array has at least one cell.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of each value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of persistent memory per cell, its padding to whole lines left out.
    pub fn cell_bytes(&self) -> usize {
        self.cell_words * 8
    }

    /// The scheme.
    pub fn scheme(&self) -> &S {
        &self.scheme
    }

    /// The header, as [`CellArray::open`] takes it.
    pub fn root(&self) -> Link<CellArrayRoot> {
        self.root
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// Says which blocks the array has, with those of its scheme.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        let tail_bytes = Self::tail_bytes(&self.scheme, self.value_bytes, self.len);
        visitor.visit(self.root, size_of::<CellArrayRoot>() + tail_bytes);
        self.scheme.visit_blocks(visitor);
    }
}

fn zero_tail<D: Domain>(array: &mut Owned<'_, D, CellArrayRoot, Dirty>, tail_bytes: usize) {
    const ZEROES: [u8; 4096] = [0; 4096];
    for at in (0..tail_bytes).step_by(ZEROES.len()) {
        // I2
        array.write_tail_nontemporal(at, &ZEROES[..ZEROES.len().min(tail_bytes - at)]);
    }
}

struct Header {
    value_bytes: usize,
    len: usize,
}

fn read_header<D: Domain>(
    pool: &Pool<D>,
    root: Link<CellArrayRoot>,
    expected: CellKind,
) -> Result<Header, InPlaceError> {
    let nothing = || InPlaceError::NotAnArray { pool_offset: root.offset() };
    let domain = pool.domain();
    let found = pool.try_at(root).ok_or_else(nothing)?;
    let words = [&found.magic, &found.format_version, &found.kind, &found.value_bytes, &found.len]
        .map(|word| word.load(domain));
    let [magic, format_version, kind, value_bytes, len] = words;
    if magic != MAGIC {
        return Err(nothing());
    }
    if format_version > FORMAT_VERSION {
        let supported = FORMAT_VERSION;
        return Err(InPlaceError::NewerVersion { found: format_version, supported });
    }
    if found.checksum.load(domain) != root_checksum(words) || format_version != FORMAT_VERSION {
        let what = "its header does not match its checksum";
        return Err(InPlaceError::Damaged { what, pool_offset: root.offset() });
    }
    let kind = CellKind::ALL.into_iter().find(|it| *it as u64 == kind).ok_or_else(nothing)?;
    if kind != expected {
        return Err(InPlaceError::OtherKind { found: kind, expected });
    }
    let bounds = SMALLEST_VALUE_BYTES as u64..=LARGEST_VALUE_BYTES as u64;
    if !bounds.contains(&value_bytes) || len == 0 || len > usize::MAX as u64 / 1024 {
        return Err(nothing());
    }
    Ok(Header { value_bytes: value_bytes as usize, len: len as usize })
}
