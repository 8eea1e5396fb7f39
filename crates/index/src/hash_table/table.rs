//! The word in an index root that refers to a table.
//!
//! ```text
//!  63      48 47                                              0
//! +----------+------------------------------------------------+
//! | log2 of  |  offset of element 0 from the start of the pool |
//! | elements |                                                |
//! +----------+------------------------------------------------+
//! ```
//!
//! A table has no header, so that tables have the sizes the allocator likes, and one store replaces one
//! by another.

use std::marker::PhantomData;

use lapis_pmem::{Domain, Link, PCell, Persistent, Pool};

const LOG2_SHIFT: u32 = 48;
/// Words that say more are damaged.
pub(crate) const MAX_LOG2: u32 = 32;

/// A table of two to the power of one or more elements. Any bits can be asked anything: a damaged word
/// leads to links that the pool refuses.
pub(crate) struct Table<T> {
    word: u64,
    /// Bytes behind each element that are nobody's.
    padding: u64,
    _elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<T> {}

impl<T> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl<T> std::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let offset = self.word & lapis_pmem::LINK_MASK;
        write!(f, "2^{} elements at {offset:#x}", self.word >> LOG2_SHIFT)
    }
}

impl<T: Persistent> Table<T> {
    #[inline(always)]
    fn of_bits(word: u64) -> Self {
        Self { word, padding: 0, _elements: PhantomData }
    }

    /// The same with so many bytes of padding behind each element ([`Observed::padding_bytes`](
    /// lapis_pmem::Observed::padding_bytes)).
    #[inline(always)]
    pub(crate) fn padded(self, padding_bytes: usize) -> Self {
        Self { padding: padding_bytes as u64, ..self }
    }

    pub(crate) fn new(link: Link<T>, log2: u32) -> Self {
        Self::of_bits(link.bits() | u64::from(log2) << LOG2_SHIFT)
    }

    /// What a cell says.
    #[inline(always)]
    pub(crate) fn in_word<D: Domain>(word: &PCell<u64>, domain: &D) -> Self {
        Self::of_bits(word.load_acquire(domain))
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.word
    }

    pub(crate) fn link(self) -> Link<T> {
        Link::from_bits(self.word)
    }

    #[inline(always)]
    pub(crate) fn log2(self) -> u32 {
        (self.word >> LOG2_SHIFT) as u32
    }

    /// Number of elements; 0 if there cannot be as many as the word says.
    pub(crate) fn len(self) -> u64 {
        if (1..=MAX_LOG2).contains(&self.log2()) { 1 << self.log2() } else { 0 }
    }

    /// From the start of one element to that of the next.
    #[inline(always)]
    pub(crate) fn stride(self) -> u64 {
        size_of::<T>() as u64 + self.padding
    }

    pub(crate) fn bytes(self) -> usize {
        (self.len() * self.stride()) as usize
    }

    /// The element that a hash belongs to. The upper bits decide, so that one element of a table is
    /// divided among neighbours in a larger one.
    #[inline(always)]
    pub(crate) fn index_of(self, hash: u64) -> u64 {
        // There are more elements than one; a damaged word selects any.
        hash.wrapping_shr(self.log2().wrapping_neg())
    }

    #[inline(always)]
    pub(crate) fn at(self, index: u64) -> Link<T> {
        // Aligned as every table is, so that nobody has to look whether its elements are.
        let start = self.word & lapis_pmem::LINK_MASK & !(align_of::<T>() as u64 - 1);
        Link::from_bits(start.wrapping_add(index.wrapping_mul(self.stride())))
    }

    /// Whether `link` leads into the table.
    pub(crate) fn contains(self, link: Link<T>) -> bool {
        let start = self.link().offset();
        (start..start + self.bytes() as u64).contains(&link.offset())
    }

    /// Whether all elements are inside the pool.
    pub(crate) fn is_inside<D: Domain>(self, pool: &Pool<D>) -> bool {
        let elements = self.bytes().div_ceil(size_of::<T>());
        elements > 0 && pool.try_slice(self.link(), elements).is_some()
    }

    /// All elements, if they are inside the pool, of a table without padding.
    pub(crate) fn elements<D: Domain>(self, pool: &Pool<D>) -> Option<&[T]> {
        debug_assert_eq!(self.padding, 0, "what lies between elements is none");
        (self.len() > 0).then(|| pool.try_slice(self.link(), self.len() as usize))?
    }
}
