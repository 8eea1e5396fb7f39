//! Cache-line-grained pages: which lines of a page are in its frame, and which were changed there.
//!
//! After section 3.1 and Fig. 3 of the paper. A frame over a page in persistent memory may hold only some
//! lines of it, as `resident` says; the others are loaded when somebody looks at them. The paper's page has
//! to be told before it is read (`MakeResident`), and when it was changed. Here the views look at the masks
//! themselves, so neither can be forgotten, and whoever knows what comes may still say so and have
//! several lines loaded at once. A page that is wholly in DRAM has no masks in its views: that is one branch.
//!
//! # Loading beside readers
//!
//! Appendix A.1 has a reader whose line is missing upgrade to the exclusive latch. Then every other reader would
//! have to begin again. But a line that is loaded changes nothing that anybody has seen, so it is loaded at the
//! same version:
//!
//! * L1. A frame that lacks lines says so in its latch (*partial*), and so in the version that readers have.
//! * L2. Who loads a line holds the latch, or has set *loading* in it, which takes the version that he
//!   reads at. So the page stays what it is, its frame in persistent memory too, and nobody writes. He waits
//!   for nobody who might wait for him; others wait for him.
//! * L3. A reader who finds the latch held gives up, and what he read is worth nothing. He says so in the latch, and
//!   then whoever holds it leaves another version behind, though he has changed nothing.
//! * L4. A line's words are stored before its bit in `resident` is (release, acquire).
//! * L5. A line is loaded before any of it is changed. Who changes it marks it in `dirty`, latch held. Every
//!   line that is resident and not dirty is as it is in persistent memory, but for references to frames.

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use lapis_pmem::{Domain, DramCell, LINE_BYTES};

use crate::latch::{Latch, Loading, Patience, Version};
use crate::mutants::LINE_NOT_MARKED;

/// What lines are loaded from.
pub(crate) trait LineSource: Debug + Send + Sync {
    /// Copies lines of the page in a frame of persistent memory to the words of a whole page.
    fn copy_lines(&self, frame: usize, lines: Range<usize>, words: &[AtomicU64]);
}

/// The masks of a frame.
#[derive(Debug)]
pub(crate) struct LineMasks<D: Domain> {
    resident: Box<[AtomicU64]>,
    dirty: Box<[AtomicU64]>,
    lines: usize,
    /// The frame of persistent memory that the page is in.
    backing: DramCell<u32, D>,
    source: Arc<dyn LineSource>,
}

impl<D: Domain> LineMasks<D> {
    /// Masks of a frame that lacks nothing.
    pub(crate) fn new(page_bytes: usize, source: Arc<dyn LineSource>) -> Self {
        let lines = page_bytes / LINE_BYTES;
        let mask = |word: u64| (0..lines.div_ceil(64)).map(|_| AtomicU64::new(word)).collect();
        let backing = DramCell::new(0);
        Self { resident: mask(u64::MAX), dirty: mask(0), lines, backing, source }
    }

    /// Says that the frame, which is latched, holds a page of this frame of persistent memory: all of it, or
    /// nothing yet. None of it is dirty.
    pub(crate) fn begin(&self, domain: &D, backing: usize, whole: bool) {
        self.backing.store(domain, backing as u32);
        let word = if whole { u64::MAX } else { 0 };
        self.resident.iter().for_each(|mask| mask.store(word, Relaxed));
        self.clear_dirty();
    }

    #[inline]
    fn is_resident(&self, line: usize) -> bool {
        self.resident.get(line / 64).is_none_or(|mask| mask.load(Acquire) >> (line % 64) & 1 == 1)
    }

    /// Whether no line is missing.
    pub(crate) fn is_whole(&self) -> bool {
        (0..self.lines).step_by(64).zip(&self.resident).all(|(first, mask)| {
            let missing = !mask.load(Acquire);
            let lines = self.lines - first;
            missing & (if lines >= 64 { u64::MAX } else { (1 << lines) - 1 }) == 0
        })
    }

    /// Loads those of the lines that are missing (L2).
    pub(crate) fn load(&self, domain: &D, words: &[AtomicU64], lines: Range<usize>) {
        let mut at = lines.start;
        while at < lines.end {
            let end = (at..lines.end).find(|&line| self.is_resident(line)).unwrap_or(lines.end);
            if at < end {
                self.source.copy_lines(self.backing.load(domain) as usize, at..end, words);
                // L4. Nobody else changes the mask (L2).
                for line in at..end {
                    let mask = &self.resident[line / 64];
                    mask.store(mask.load(Relaxed) | 1 << (line % 64), Release);
                }
            }
            at = end + 1;
        }
    }

    /// Notes that a line was changed (L5).
    #[inline]
    pub(crate) fn mark(&self, domain: &D, line: usize) {
        if let Some(mask) = self.dirty.get(line / 64) {
            let (now, bit) = (mask.load(Relaxed), 1 << (line % 64));
            if now & bit == 0 && !domain.commits(LINE_NOT_MARKED) {
                mask.store(now | bit, Relaxed);
            }
        }
    }

    pub(crate) fn mark_all(&self, domain: &D) {
        (0..self.lines).for_each(|line| self.mark(domain, line));
    }

    pub(crate) fn clear_dirty(&self) {
        self.dirty.iter().for_each(|mask| mask.store(0, Relaxed));
    }

    /// The dirty lines.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lines).filter(|line| self.dirty[line / 64].load(Relaxed) >> (line % 64) & 1 == 1)
    }

    /// The lines that are as in persistent memory (L5).
    pub(crate) fn clean(&self) -> impl Iterator<Item = usize> + '_ {
        let is_dirty = |line: &usize| self.dirty[line / 64].load(Relaxed) >> (line % 64) & 1 == 1;
        (0..self.lines).filter(move |line| self.is_resident(*line) && !is_dirty(line))
    }
}

/// How a view of a frame that lacks lines comes to them.
pub(crate) struct MissingLines<'a, D: Domain> {
    masks: &'a LineMasks<D>,
    /// With the version of a reader; none if the latch is held.
    reader: Option<(&'a Latch<D>, Version)>,
}

impl<D: Domain> Clone for MissingLines<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for MissingLines<'_, D> {}

impl<D: Domain> Debug for MissingLines<'_, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("MissingLines")
    }
}

impl<'a, D: Domain> MissingLines<'a, D> {
    /// Of whoever holds the latch.
    pub(crate) fn held(masks: &'a LineMasks<D>) -> Self {
        Self { masks, reader: None }
    }

    /// Of who reads at a version.
    pub(crate) fn read(masks: &'a LineMasks<D>, latch: &'a Latch<D>, version: Version) -> Self {
        Self { masks, reader: Some((latch, version)) }
    }

    /// Loads the line of a word, if it is missing. What is beyond the page is not. It is a call, and not
    /// by reference, so that views of frames that lack nothing have the branch before it and no more.
    #[cold]
    pub(crate) fn make_resident(self, domain: &D, words: &[AtomicU64], word: usize) {
        let line = word / (LINE_BYTES / 8);
        if !self.masks.is_resident(line) {
            self.load(domain, words, line..line + 1);
        }
    }

    /// Loads those of the lines that are missing.
    #[cold]
    pub(crate) fn load(self, domain: &D, words: &[AtomicU64], lines: Range<usize>) {
        let lines = lines.start..lines.end.min(self.masks.lines);
        let Some((latch, version)) = self.reader else {
            return self.masks.load(domain, words, lines);
        };
        let mut patience = Patience::default();
        loop {
            match latch.begin_loading(domain, version) {
                Loading::Begun => {
                    self.masks.load(domain, words, lines);
                    return latch.end_loading(domain, version);
                }
                Loading::Busy => _ = patience.wait(domain),
                // L3.
                Loading::Overtaken => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::view::{PageRead, PageWrite};
    use crate::test_domain;
    use lapis_pmem::Hardware;
    use proptest::prelude::*;

    /// Eight lines.
    const BYTES: usize = 512;

    /// A page in persistent memory, so to speak.
    #[derive(Debug)]
    struct Source(Vec<u8>);

    impl LineSource for Source {
        fn copy_lines(&self, frame: usize, lines: Range<usize>, words: &[AtomicU64]) {
            assert_eq!(frame, 3);
            for at in (lines.start * LINE_BYTES..lines.end * LINE_BYTES).step_by(8) {
                let word = self.0[at..].first_chunk().unwrap();
                words[at / 8].store(u64::from_le_bytes(*word), Relaxed);
            }
        }
    }

    /// Words with nothing of the page in them, and their masks.
    fn missing(page: &[u8]) -> (Vec<AtomicU64>, LineMasks<Hardware>) {
        let masks = LineMasks::new(BYTES, Arc::new(Source(page.to_vec())));
        masks.begin(&test_domain(), 3, false);
        ((0..BYTES / 8).map(|_| AtomicU64::new(u64::MAX / 3)).collect(), masks)
    }

    fn bytes(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect()
    }

    fn lines_that_differ(one: &[u8], other: &[u8]) -> Vec<usize> {
        let pairs = one.chunks(LINE_BYTES).zip(other.chunks(LINE_BYTES));
        pairs.enumerate().filter(|(_, (one, other))| one != other).map(|(line, _)| line).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        #[test]
        fn a_page_of_which_lines_are_missing_is_read_and_written_like_any_other(
            page in proptest::collection::vec(0..4u8, BYTES),
            from in proptest::collection::vec(any::<u8>(), 0..150),
            steps in proptest::collection::vec((0..7, 0..350usize, 0..350usize, 0..150usize), 1..6),
        ) {
            let (domain, (words, masks)) = (test_domain(), missing(&page));
            let mut expected = page.clone();
            let read = PageRead::over(&domain, &words, Some(MissingLines::held(&masks)));
            let mut write = PageWrite::over(read, Some(&masks));
            for (step, at, to, count) in steps {
                match step {
                    0 => {
                        let mut into = vec![0; count];
                        read.copy_to(at, &mut into);
                        prop_assert_eq!(&into, &expected[at..at + count]);
                    }
                    1 => {
                        let order = read.compare(at..at + count, &from);
                        prop_assert_eq!(order, expected[at..at + count].cmp(&from));
                    }
                    2 => prop_assert_eq!(&read.word(at).to_le_bytes(), &expected[at..at + 8]),
                    3 => {
                        write.copy_from(at, &from);
                        expected[at..at + from.len()].copy_from_slice(&from);
                    }
                    4 => {
                        write.move_within(at, to, count);
                        expected.copy_within(at..at + count, to);
                    }
                    5 => {
                        write.set_word(at, to as u64);
                        expected[at..at + 8].copy_from_slice(&(to as u64).to_le_bytes());
                    }
                    _ => {
                        write.zero_from(at);
                        expected[at..].fill(0);
                    }
                }
                // L5.
                let there = bytes(&words);
                let clean: Vec<_> = masks.clean().collect();
                prop_assert!(lines_that_differ(&there, &page).iter().all(|line| !clean.contains(line)));
            }
            let dirty: Vec<_> = masks.dirty().collect();
            prop_assert!(lines_that_differ(&expected, &page).iter().all(|line| dirty.contains(line)));
            _ = read.make_resident(0..BYTES);
            prop_assert!(masks.is_whole());
            prop_assert_eq!(bytes(&words), expected);
        }
    }

    #[test]
    fn a_reader_who_was_overtaken_loads_nothing() {
        let (domain, (words, masks)) = (test_domain(), missing(&[7; BYTES]));
        let latch = Latch::new();
        let taken = latch.try_take(&domain).unwrap();
        let version = latch.release_as(&domain, taken, true);
        let read =
            || PageRead::over(&domain, &words, Some(MissingLines::read(&masks, &latch, version)));
        assert_eq!(read().byte(3), 7);
        let held = latch.try_take(&domain).unwrap();
        _ = read().byte(100);
        assert_eq!(masks.clean().collect::<Vec<_>>(), [0]);
        latch.release(&domain, held, false);
        // And he finds out.
        assert!(latch.validate(&domain, version).is_err());
    }
}
