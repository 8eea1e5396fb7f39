//! Views of a page's memory: words that others may be writing.
//!
//! An optimistic reader looks at a page while a writer may change it, and finds out afterwards. So the
//! memory of a page is never a `&[u8]`: it is words, each loaded and stored atomically, through the
//! domain. In DRAM that is a plain `mov` and none of a model's business; over a page that lies in
//! persistent memory the same view makes events of the persistence domain.
//!
//! A view of a frame that lacks lines of its page loads them as it comes to them, and knows where in a
//! mini block they are (`lines.rs`); one of a page that persistent memory has, too, notes what is changed.
//!
//! What a reader loads before it has validated may be anything, offsets among it. Reads are therefore
//! total: beyond the end of the page everything is zero.

use core::cmp::Ordering;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapis_pmem::{Domain, LINE_BYTES};

use super::lines::LineMasks;
use super::missing::MissingLines;

const WORD_BYTES: usize = 8;

/// A page, to be read. See the [module documentation](self).
#[derive(Debug)]
pub struct PageRead<'a, D: Domain> {
    domain: &'a D,
    /// The page, if no line is missing; otherwise there are as many of them, and that is all.
    words: &'a [AtomicU64],
    /// None if no line is missing.
    missing: Option<MissingLines<'a, D>>,
}

impl<D: Domain> Clone for PageRead<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for PageRead<'_, D> {}

impl<'a, D: Domain> PageRead<'a, D> {
    /// The machine that it is read on.
    pub(super) fn domain(&self) -> &'a D {
        self.domain
    }

    /// A view of `words`. Numbers are little-endian: a word is the eight bytes it is on the medium.
    pub fn new(domain: &'a D, words: &'a [AtomicU64]) -> Self {
        Self { domain, words, missing: None }
    }

    /// A view of a frame's words, of which lines may be missing.
    #[inline]
    pub(crate) fn over(
        domain: &'a D,
        words: &'a [AtomicU64],
        missing: Option<MissingLines<'a, D>>,
    ) -> Self {
        Self { domain, words, missing }
    }

    /// Loads the lines of a range of bytes, as far as they are missing, and gives a view to which none of
    /// these is, as long as the page does not lie in a mini block.
    #[inline]
    pub(crate) fn make_resident(&self, bytes: Range<usize>) -> Self {
        let Some(missing) = self.missing else { return *self };
        let lines = bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES);
        _ = missing.make_resident(self.domain, lines);
        match missing.full_words() {
            Some(words) => Self { words, missing: None, ..*self },
            None => *self,
        }
    }

    /// Bytes of the page.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.words.len() * WORD_BYTES
    }

    /// Where an aligned word is; none beyond the page.
    #[inline]
    fn place(&self, word: usize) -> Option<&'a AtomicU64> {
        match self.missing {
            None => self.words.get(word),
            Some(missing) => missing.place(self.domain, word),
        }
    }

    #[inline]
    fn aligned(&self, word: usize) -> u64 {
        self.place(word).map_or(0, |word| self.domain.load::<u64>(word, Relaxed))
    }

    /// The eight bytes at `offset`, aligned or not.
    #[inline]
    pub fn word(&self, offset: usize) -> u64 {
        let (word, bits) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
        let low = self.aligned(word) >> bits;
        if bits == 0 { low } else { low | self.aligned(word + 1) << (64 - bits) }
    }

    /// The four bytes at `offset`.
    #[inline]
    pub fn half(&self, offset: usize) -> u32 {
        self.word(offset) as u32
    }

    /// The two bytes at `offset`.
    #[inline]
    pub fn quarter(&self, offset: usize) -> u16 {
        self.word(offset) as u16
    }

    /// The byte at `offset`.
    #[inline]
    pub fn byte(&self, offset: usize) -> u8 {
        (self.aligned(offset / WORD_BYTES) >> (offset % WORD_BYTES * 8)) as u8
    }

    /// How many of the aligned words of `range`, counted from the page's start, come before the first of which
    /// `is_before` does not hold; it holds for none behind that. Words beyond the page are not looked at.
    #[inline]
    pub fn partition_words(&self, range: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        let start = range.start.min(self.words.len());
        let words = &self.words[start..range.end.clamp(start, self.words.len())];
        let load = |at: usize| match self.missing {
            None => self.domain.load::<u64>(&words[at], Relaxed),
            Some(_) => self.aligned(start + at),
        };
        let (mut first, mut count) = (0, words.len());
        while count > 0 {
            let half = count / 2;
            let before = is_before(load(first + half));
            first = if before { first + half + 1 } else { first };
            count = if before { count - half - 1 } else { half };
        }
        first
    }

    /// Compares the bytes of `range` with `other`, as slices compare.
    pub fn compare(&self, range: Range<usize>, other: &[u8]) -> Ordering {
        let bytes = range.end.saturating_sub(range.start);
        let shared = bytes.min(other.len());
        let page = self.make_resident(range.start..range.start.saturating_add(shared));
        let (mut at, mut chunks) = (range.start, other[..shared].chunks_exact(WORD_BYTES));
        for chunk in &mut chunks {
            let theirs = u64::from_be_bytes(chunk.try_into().unwrap_or_default());
            match page.word(at).swap_bytes().cmp(&theirs) {
                Ordering::Equal => at += WORD_BYTES,
                unequal => return unequal,
            }
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            // The bytes behind them go.
            let mine = page.word(at).swap_bytes() >> (64 - 8 * rest.len());
            let theirs = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            match mine.cmp(&theirs) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        bytes.cmp(&other.len())
    }

    /// Copies the bytes from `offset` on into `into`.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        let page_words = match self.missing {
            None => self.words,
            Some(missing) => {
                _ = self.make_resident(offset..offset.saturating_add(into.len()));
                missing.full_words().unwrap_or_default()
            }
        };
        match offset.checked_add(into.len()) {
            Some(end) if end <= page_words.len() * WORD_BYTES => {
                self.domain.read_words(page_words, offset, into);
            }
            // At the end of the page or beyond it, or in a mini block.
            _ => {
                for (at, chunk) in into.chunks_mut(WORD_BYTES).enumerate() {
                    let word = self.word(offset.saturating_add(at * WORD_BYTES));
                    chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
                }
            }
        }
    }
}

/// A page, to be read and written by the one who has it alone.
///
/// Offsets are the writer's own here, so one beyond the page is a programming error and panics.
#[derive(Debug)]
pub struct PageWrite<'a, D: Domain> {
    page: PageRead<'a, D>,
    /// Where changed lines are noted. None only if no line is missing, either.
    masks: Option<&'a LineMasks>,
}

impl<'a, D: Domain> PageWrite<'a, D> {
    /// A view of `words`, which nobody else writes.
    pub fn new(domain: &'a D, words: &'a [AtomicU64]) -> Self {
        Self { page: PageRead::new(domain, words), masks: None }
    }

    /// A view of what `page` shows, whose latch is held.
    #[inline]
    pub(crate) fn over(page: PageRead<'a, D>, masks: Option<&'a LineMasks>) -> Self {
        Self { page, masks }
    }

    /// The page, to be read.
    #[inline]
    pub fn read(&self) -> PageRead<'a, D> {
        self.page
    }

    /// The bytes of a range are about to be changed (L5 of the lines). The view of them is of a mini block if it
    /// lacks lines.
    #[inline]
    fn touch(&mut self, bytes: Range<usize>) -> PageRead<'a, D> {
        let Some(masks) = self.masks else { return self.page };
        let page = self.page.make_resident(bytes.clone());
        let lines = bytes.start / LINE_BYTES..bytes.end.div_ceil(LINE_BYTES);
        lines.for_each(|line| masks.mark(page.domain, line));
        page
    }

    /// Stores the `bytes` low bytes of `value` at `offset`.
    #[inline]
    fn set_bytes(&mut self, offset: usize, bytes: usize, value: u64) {
        if self.masks.is_some() {
            return self.set_marked(offset, bytes, value);
        }
        let (domain, words) = (self.page.domain, self.page.words);
        store_bytes(domain, |word| &words[word], offset, bytes, value);
    }

    /// The same, of a page whose lines are marked.
    #[inline(never)]
    fn set_marked(&mut self, offset: usize, bytes: usize, value: u64) {
        let page = self.touch(offset..offset + bytes);
        let place = |word| match page.place(word) {
            Some(word) => word,
            None => panic!("word {word} is beyond the page"),
        };
        store_bytes(page.domain, place, offset, bytes, value);
    }

    /// Stores eight bytes at `offset`, aligned or not.
    #[inline]
    pub fn set_word(&mut self, offset: usize, value: u64) {
        self.set_bytes(offset, 8, value);
    }

    /// Stores four bytes at `offset`.
    #[inline]
    pub fn set_half(&mut self, offset: usize, value: u32) {
        self.set_bytes(offset, 4, value.into());
    }

    /// Stores two bytes at `offset`.
    #[inline]
    pub fn set_quarter(&mut self, offset: usize, value: u16) {
        self.set_bytes(offset, 2, value.into());
    }

    /// Stores a byte at `offset`.
    #[inline]
    pub fn set_byte(&mut self, offset: usize, value: u8) {
        self.set_bytes(offset, 1, value.into());
    }

    /// Copies `from` to `offset`.
    pub fn copy_from(&mut self, offset: usize, from: &[u8]) {
        let page = self.touch(offset..offset + from.len());
        if page.missing.is_none() {
            return page.domain.write_words(page.words, offset, from);
        }
        for (at, chunk) in (offset..).step_by(WORD_BYTES).zip(from.chunks(WORD_BYTES)) {
            let mut value = [0; WORD_BYTES];
            value[..chunk.len()].copy_from_slice(chunk);
            self.set_bytes(at, chunk.len(), u64::from_le_bytes(value));
        }
    }

    /// Moves `bytes` bytes from `from` to `to`; the ranges may overlap.
    pub fn move_within(&mut self, from: usize, to: usize, bytes: usize) {
        _ = self.page.make_resident(from..from + bytes);
        let page = self.touch(to..to + bytes);
        let (words, rest) = (bytes / WORD_BYTES, bytes % WORD_BYTES);
        if (from | to | bytes).is_multiple_of(WORD_BYTES) && page.missing.is_none() {
            return page.move_words(from / WORD_BYTES, to / WORD_BYTES, words);
        }
        // A chunk is read whole before it is written, and written where everything has been read
        // that lies on this side of it.
        if to <= from {
            for at in (0..words).map(|word| word * WORD_BYTES) {
                self.set_word(to + at, page.word(from + at));
            }
            for at in bytes - rest..bytes {
                self.set_byte(to + at, page.byte(from + at));
            }
        } else {
            for at in (bytes - rest..bytes).rev() {
                self.set_byte(to + at, page.byte(from + at));
            }
            for at in (0..words).rev().map(|word| word * WORD_BYTES) {
                self.set_word(to + at, page.word(from + at));
            }
        }
    }

    /// Makes every byte from `offset` on zero.
    pub fn zero_from(&mut self, offset: usize) {
        const ZEROES: [u8; 1024] = [0; 1024];
        let page = self.touch(offset..self.page.bytes());
        if page.missing.is_none() {
            for at in (offset..page.bytes()).step_by(ZEROES.len()) {
                let zeroes = &ZEROES[..ZEROES.len().min(page.bytes() - at)];
                page.domain.write_words(page.words, at, zeroes);
            }
            return;
        }
        let aligned = offset.next_multiple_of(WORD_BYTES);
        (offset..aligned).for_each(|at| self.set_byte(at, 0));
        let places = (aligned / WORD_BYTES..page.words.len()).filter_map(|word| page.place(word));
        places.for_each(|word| page.domain.store::<u64>(word, 0, Relaxed));
    }
}

impl<D: Domain> PageRead<'_, D> {
    /// Moves words of a page that lies in a full block and is held.
    fn move_words(&self, from: usize, to: usize, words: usize) {
        let domain = self.domain;
        let (from, to) = (&self.words[from..][..words], &self.words[to..][..words]);
        let copy = |(from, to)| domain.store::<u64>(to, domain.load::<u64>(from, Relaxed), Relaxed);
        if to.as_ptr() <= from.as_ptr() {
            from.iter().zip(to).for_each(copy);
        } else {
            from.iter().zip(to).rev().for_each(copy);
        }
    }
}

/// Replaces the bits of `mask` in a word.
#[inline]
fn replace<D: Domain>(domain: &D, word: &AtomicU64, mask: u64, value: u64) {
    let kept = domain.load::<u64>(word, Relaxed) & !mask;
    domain.store::<u64>(word, kept | (value & mask), Relaxed);
}

/// Stores the `bytes` low bytes of `value` at `offset` of a page, of which every word has a place.
#[inline]
fn store_bytes<'a, D: Domain>(
    domain: &D,
    place: impl Fn(usize) -> &'a AtomicU64,
    offset: usize,
    bytes: usize,
    value: u64,
) {
    let (word, bits) = (offset / WORD_BYTES, offset % WORD_BYTES * 8);
    let mask = if bytes == WORD_BYTES { u64::MAX } else { (1 << (bytes * 8)) - 1 };
    if mask == u64::MAX && bits == 0 {
        return domain.store::<u64>(place(word), value, Relaxed);
    }
    replace(domain, place(word), mask << bits, value << bits);
    if bits + bytes * 8 > 64 {
        replace(domain, place(word + 1), mask >> (64 - bits), value >> (64 - bits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use proptest::prelude::*;

    fn page(bytes: &[u8]) -> Vec<AtomicU64> {
        let words = bytes.chunks_exact(8);
        words.map(|word| AtomicU64::new(u64::from_le_bytes(word.try_into().unwrap()))).collect()
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn reads_are_what_a_slice_holds(
            contents in proptest::collection::vec(0..4u8, 64),
            other in proptest::collection::vec(0..4u8, 0..20),
            start in 0..40usize,
            bytes in 0..20usize,
        ) {
            let (domain, words) = (test_domain(), page(&contents));
            let view = PageRead::new(&domain, &words);
            prop_assert_eq!(&view.word(start).to_le_bytes(), &contents[start..start + 8]);
            prop_assert_eq!(&view.half(start).to_le_bytes(), &contents[start..start + 4]);
            prop_assert_eq!(&view.quarter(start).to_le_bytes(), &contents[start..start + 2]);
            prop_assert_eq!(view.byte(start), contents[start]);
            let mut copied = vec![9; bytes];
            view.copy_to(start, &mut copied);
            prop_assert_eq!(&copied, &contents[start..start + bytes]);
            let expected = contents[start..start + bytes].cmp(&other[..]);
            prop_assert_eq!(view.compare(start..start + bytes, &other), expected);
        }

        #[test]
        fn writes_change_what_they_name_and_nothing_else(
            contents in proptest::collection::vec(any::<u8>(), 64),
            from in proptest::collection::vec(any::<u8>(), 0..20),
            at in 0..40usize,
            to in 0..40usize,
            moved in 0..24usize,
        ) {
            let (domain, words) = (test_domain(), page(&contents));
            let mut view = PageWrite::new(&domain, &words);
            let mut expected = contents;
            view.copy_from(at, &from);
            expected[at..at + from.len()].copy_from_slice(&from);
            prop_assert_eq!(bytes(&words), expected.clone());
            view.move_within(at, to, moved);
            expected.copy_within(at..at + moved, to);
            prop_assert_eq!(bytes(&words), expected.clone());
            view.set_half(at, 0x0403_0201);
            expected[at..at + 4].copy_from_slice(&[1, 2, 3, 4]);
            view.set_quarter(to, 0x0605);
            expected[to..to + 2].copy_from_slice(&[5, 6]);
            prop_assert_eq!(bytes(&words), expected.clone());
            view.zero_from(at);
            expected[at..].fill(0);
            prop_assert_eq!(bytes(&words), expected);
        }
    }

    #[test]
    fn ascending_words_are_parted_where_a_slice_would_be() {
        let words: Vec<_> = (0..8).map(|word| AtomicU64::new(word * 10)).collect();
        let domain = test_domain();
        let view = PageRead::new(&domain, &words);
        for (start, end, below) in [(0, 8, 35), (2, 7, 0), (2, 7, 99), (3, 3, 99), (1, 40, 55)] {
            let within = start as u64..end.min(8) as u64;
            let expected = within.filter(|word| word * 10 < below).count();
            let found = view.partition_words(start..end, |word| word < below);
            assert_eq!(found, expected, "{start}..{end}, below {below}");
        }
        assert_eq!(view.partition_words(50..60, |_| true), 0);
    }

    #[test]
    fn everything_beyond_the_end_reads_as_zero() {
        let (domain, words) = (test_domain(), page(&[0xff; 16]));
        let view = PageRead::new(&domain, &words);
        assert_eq!(view.word(12), 0xffff_ffff);
        assert_eq!((view.word(16), view.word(usize::MAX), view.byte(1 << 40)), (0, 0, 0));
        let mut into = [7; 12];
        view.copy_to(10, &mut into);
        assert_eq!(into, [255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(view.compare(14..18, &[255, 255, 0, 0]), Ordering::Equal);
    }
}
