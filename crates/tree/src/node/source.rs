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
    /// How many aligned words of `range`, counted from the page's start, come before the first of which
    /// `is_before` does not hold.
    fn partition_words(self, range: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize;
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
    fn partition_words(self, range: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        PageRead::partition_words(&self, range, is_before)
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

    #[inline]
    fn word(self, offset: usize) -> u64 {
        if let Some(word) = self.get(offset..).and_then(<[u8]>::first_chunk) {
            return u64::from_le_bytes(*word);
        }
        let mut word = [0; 8];
        self.copy_to(offset, &mut word);
        u64::from_le_bytes(word)
    }

    fn partition_words(self, range: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        let words = self.as_chunks::<8>().0;
        let start = range.start.min(words.len());
        let words = &words[start..range.end.clamp(start, words.len())];
        words.partition_point(|word| is_before(u64::from_le_bytes(*word)))
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
