//! Which lines of a page were modified since it was last written.

use std::ops::Range;

use lapis_pmem::LINE_BYTES;

use super::LARGEST_PAGE_BYTES;

/// Lines of the largest page.
pub const LARGEST_PAGE_LINES: usize = LARGEST_PAGE_BYTES / LINE_BYTES;
const WORDS: usize = LARGEST_PAGE_LINES / 64;

/// A set of 64-byte lines of a page, by their number from the start of the page. Whoever modifies a
/// page in DRAM marks what he stores to; whoever writes the page clears the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtyLines {
    words: [u64; WORDS],
}

impl DirtyLines {
    /// No line.
    pub const fn none() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Every line of a page of `page_bytes`; of the largest page, if that is less.
    pub fn all(page_bytes: usize) -> Self {
        let mut dirty = Self::none();
        dirty.mark_lines(0..page_bytes.min(LARGEST_PAGE_BYTES).div_ceil(LINE_BYTES));
        dirty
    }

    /// Marks the lines that `[at, at + bytes)` of the page touches.
    ///
    /// # Panics
    /// If the range reaches beyond [`LARGEST_PAGE_BYTES`].
    pub fn mark(&mut self, at: usize, bytes: usize) {
        if bytes > 0 {
            self.mark_lines(at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES));
        }
    }

    /// Marks one line.
    ///
    /// # Panics
    /// If the largest page has no such line.
    pub fn mark_line(&mut self, line: usize) {
        self.words[line / 64] |= 1 << (line % 64);
    }

    fn mark_lines(&mut self, lines: Range<usize>) {
        lines.for_each(|line| self.mark_line(line));
    }

    /// Takes all marks away.
    pub fn clear(&mut self) {
        *self = Self::none();
    }

    /// Whether a line is marked.
    pub fn contains(&self, line: usize) -> bool {
        self.words.get(line / 64).is_some_and(|word| word >> (line % 64) & 1 == 1)
    }

    /// How many lines are marked.
    #[inline]
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no line is marked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The last marked line.
    pub fn last(&self) -> Option<usize> {
        let (index, word) = self.words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(index * 64 + 63 - word.leading_zeros() as usize)
    }

    /// The set in words of 64 lines, the lowest first.
    pub(super) fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        Self { words }
    }

    /// The first line from `from` on that is marked, or is not, before `end`; else `end`.
    #[inline]
    fn seek(&self, from: usize, end: usize, marked: bool) -> usize {
        let mut line = from;
        while line < end {
            let word = if marked { self.words[line / 64] } else { !self.words[line / 64] };
            let rest = word >> (line % 64);
            if rest != 0 {
                return (line + rest.trailing_zeros() as usize).min(end);
            }
            line = (line / 64 + 1) * 64;
        }
        end
    }

    /// The runs of marked lines among the first `lines`, as long as can be.
    #[inline]
    pub fn runs(&self, lines: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.seek(at, lines, true);
            at = self.seek(start, lines, false);
            (start < lines).then_some(start..at)
        })
    }

    /// The runs of marked and of unmarked lines among the first `lines`, in turn, with which they
    /// are.
    #[inline]
    pub(super) fn alternating_runs(
        &self,
        lines: usize,
    ) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (start, marked) = (at, self.contains(at));
            at = self.seek(start, lines, !marked);
            (start < lines).then_some((start..at, marked))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_mark_the_lines_they_touch() {
        let mut dirty = DirtyLines::none();
        dirty.mark(63, 2);
        dirty.mark(640, 0);
        dirty.mark(1024, 64);
        assert_eq!(dirty.runs(256).collect::<Vec<_>>(), [0..2, 16..17]);
        assert_eq!((dirty.count(), dirty.last()), (3, Some(16)));
    }

    #[test]
    fn all_lines_of_the_largest_page_are_one_run() {
        let dirty = DirtyLines::all(LARGEST_PAGE_BYTES);
        assert_eq!((dirty.runs(1024).next(), dirty.runs(1024).count()), (Some(0..1024), 1));
        assert_eq!(DirtyLines::none().runs(1024).count(), 0);
        assert_eq!(DirtyLines::none().last(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn runs_cover_exactly_the_marked_lines(
            marked in proptest::collection::btree_set(0usize..1024, 0..300),
            lines in prop_oneof![Just(64usize), Just(256), Just(1024)],
        ) {
            let mut dirty = DirtyLines::none();
            marked.iter().for_each(|&line| dirty.mark_line(line));
            let expected: Vec<_> = marked.iter().copied().filter(|&line| line < lines).collect();
            let found: Vec<_> = dirty.runs(lines).flatten().collect();
            prop_assert_eq!(&found, &expected);
            let mut next = 0;
            for (run, is_marked) in dirty.alternating_runs(lines) {
                prop_assert_eq!(run.start, next);
                prop_assert!(run.clone().all(|line| dirty.contains(line) == is_marked));
                next = run.end;
            }
            prop_assert_eq!(next, lines);
            prop_assert_eq!(dirty.count(), marked.len());
            prop_assert_eq!(dirty.last(), marked.last().copied());
        }
    }
}
