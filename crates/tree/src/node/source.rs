//! Where the bytes of a node are: in a frame, where others may be writing, or in a copy of one's own.

use core::cmp::Ordering;
use core::ops::Range;

use lapis_buffer::PageRead;
use lapis_pmem::Domain;

/// A page's bytes. Reads are total: beyond its end everything is zero.
pub(crate) trait Source: Copy {
    /// How many there are.
    fn bytes(self) -> usize;
    /// Eight of them.
    fn word(self, offset: usize) -> u64;
    /// Compares some with `other`, as slices compare.
    fn compare(self, range: Range<usize>, other: &[u8]) -> Ordering;
    /// Copies some of them.
    fn copy_to(self, offset: usize, into: &mut [u8]);
}

impl<D: Domain> Source for PageRead<'_, D> {
    #[inline]
    fn bytes(self) -> usize {
        PageRead::bytes(&self)
    }

    #[inline]
    fn word(self, offset: usize) -> u64 {
        PageRead::word(&self, offset)
    }

    #[inline]
    fn compare(self, range: Range<usize>, other: &[u8]) -> Ordering {
        PageRead::compare(&self, range, other)
    }

    #[inline]
    fn copy_to(self, offset: usize, into: &mut [u8]) {
        PageRead::copy_to(&self, offset, into);
    }
}

impl Source for &[u8] {
    fn bytes(self) -> usize {
        self.len()
    }

    fn word(self, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.copy_to(offset, &mut word);
        u64::from_le_bytes(word)
    }

    fn compare(self, range: Range<usize>, other: &[u8]) -> Ordering {
        self.get(range).unwrap_or_default().cmp(other)
    }

    fn copy_to(self, offset: usize, into: &mut [u8]) {
        let from = self.get(offset..).unwrap_or_default();
        let (copied, beyond) = into.split_at_mut(from.len().min(into.len()));
        copied.copy_from_slice(&from[..copied.len()]);
        beyond.fill(0);
    }
}
