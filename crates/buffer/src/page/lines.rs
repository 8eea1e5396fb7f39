//! Cache-line-grained pages and mini pages: which lines of a page are in its frame, where, and which were changed there.
//!
//! After section 3.1, Fig. 3, section 3.2 and Fig. 4 of the paper. A frame over a page in persistent memory may hold only some
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
//!
//! # Mini pages
//!
//! A page of which few lines are used needs no frame of a whole page. A *mini block* has room for sixteen of its
//! lines, and `slots` say which they are:
//!
//! ```text
//!  slots        0 | 255 | 17 | – | …       lines of the page, in the order in which they came
//!  mini block   line 0 | line 255 | line 17 | …
//! ```
//!
//! The paper keeps them sorted, so that lines that follow each other in the page do so in memory. Its views are pointers; these
//! look for a line whenever they come to a word of it, so nothing has to be moved, and a line is added beside readers as
//! it is to a full frame. And the paper's promoted mini page goes on as a wrapper of the full one, because
//! somebody has pointers to it, with a parent to be told later. Here a page keeps its frame: what is exchanged is the block in which
//! it lies. Neither the page table, nor a parent, nor persistent memory, nor who holds the latch has to know of it.
//!
//! * M1. A frame with a mini block is partial, whatever its page lacks. So views that look at no masks are of
//!   full blocks.
//! * M2. A page in a mini block is in persistent memory, too. It refers to no frames, so nobody who comes from a child
//!   changes it. Inner nodes get full blocks.
//! * M3. Every block is one frame's or one spare's. Blocks are exchanged by who holds the latches of both frames, or that of one and
//!   the spare, and every frame that has another block is left with another version: who has read beside
//!   the exchange finds out.
//! * M4. Promotion takes over every line that the slots name. `resident` and `dirty` are by lines, not by slots, and stay.
//! * M5. The first slot has line 0, the page's header: it is the first that is loaded. So the header is where the
//!   block begins, whichever it is.
//! * M6. Whoever holds the latch of a mini page to read or change it has a spare full block: lines that
//!   find no slot promote the page at once, which cannot fail. Who gets no spare block, and a reader whose line finds no slot,
//!   begins again and finds the page *overfull*; who fixes it next gets it a full block from
//!   another frame, holding nothing yet.

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use lapis_pmem::{Domain, LINE_BYTES};

use crate::mutants::LINE_NOT_MARKED;

/// Lines of a mini block.
pub(crate) const MINI_LINES: usize = 16;

/// What lines are loaded from.
pub(crate) trait LineSource: Debug + Send + Sync {
    /// Copies lines of the page in a frame of persistent memory to words.
    fn copy_lines(&self, frame: usize, lines: Range<usize>, into: &[AtomicU64]);

    /// The words of the page that lies, or lay, at a place of persistent memory.
    fn words_at(&self, place: usize) -> &[AtomicU64];
}

/// Slots in a word.
const LANES: usize = 4;
const LANE_BITS: usize = u64::BITS as usize / LANES;
/// In a slot that has no line.
const NO_LINE: usize = 0xffff;
const LOW_BITS: u64 = 0x0001_0001_0001_0001;

/// Which lines are in a mini block.
#[derive(Debug)]
pub(crate) struct LineSlots([AtomicU64; MINI_LINES / LANES]);

impl LineSlots {
    fn new() -> Self {
        Self([const { AtomicU64::new(u64::MAX) }; MINI_LINES / LANES])
    }

    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(u64::MAX, Relaxed));
    }

    /// The first slot that has this line.
    pub(crate) fn find(&self, line: usize) -> Option<usize> {
        (0..).zip(&self.0).find_map(|(at, word)| {
            // The lane that is zero, of which the lowest is found without error.
            let differs = word.load(Acquire) ^ (line as u64 * LOW_BITS);
            let zero = differs.wrapping_sub(LOW_BITS) & !differs & (LOW_BITS << (LANE_BITS - 1));
            let lane = zero.trailing_zeros() as usize / LANE_BITS;
            (zero != 0).then_some(at * LANES + lane)
        })
    }

    /// How many slots have a line.
    fn count(&self) -> usize {
        self.find(NO_LINE).unwrap_or(MINI_LINES)
    }

    /// Says which line is in a slot that had none.
    fn fill(&self, slot: usize, line: usize) {
        let (word, shift) = (&self.0[slot / LANES], slot % LANES * LANE_BITS);
        let kept = word.load(Relaxed) & !((NO_LINE as u64) << shift);
        word.store(kept | (line as u64) << shift, Release);
    }

    /// Slots with their lines.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.count()).map(|slot| {
            let word = self.0[slot / LANES].load(Relaxed);
            (slot, (word >> (slot % LANES * LANE_BITS)) as usize & NO_LINE)
        })
    }
}

/// The masks of a frame.
#[derive(Debug)]
pub(crate) struct LineMasks {
    resident: Box<[AtomicU64]>,
    dirty: Box<[AtomicU64]>,
    /// Of a mini block.
    pub(crate) slots: LineSlots,
    /// One more than the spare block of who holds the latch; 0 for none (M6).
    spare: AtomicU32,
    pub(crate) lines: usize,
}

fn bit(line: usize) -> u64 {
    1 << (line % 64)
}

impl LineMasks {
    /// Masks of a frame that lacks nothing.
    pub(crate) fn new(page_bytes: usize) -> Self {
        let lines = page_bytes / LINE_BYTES;
        let mask = |word: u64| (0..lines.div_ceil(64)).map(|_| AtomicU64::new(word)).collect();
        let (slots, spare) = (LineSlots::new(), AtomicU32::new(0));
        Self { resident: mask(u64::MAX), dirty: mask(0), slots, spare, lines }
    }

    /// Says that the frame, which is latched, holds a page of persistent memory: all of it, or nothing yet. None of it
    /// is dirty.
    pub(crate) fn begin(&self, whole: bool) {
        let word = if whole { u64::MAX } else { 0 };
        self.resident.iter().for_each(|mask| mask.store(word, Relaxed));
        self.slots.clear();
        self.clear_dirty();
    }

    #[inline]
    pub(crate) fn is_resident(&self, line: usize) -> bool {
        self.resident.get(line / 64).is_none_or(|mask| mask.load(Acquire) & bit(line) != 0)
    }

    #[inline]
    pub(crate) fn is_dirty(&self, line: usize) -> bool {
        self.dirty.get(line / 64).is_some_and(|mask| mask.load(Relaxed) & bit(line) != 0)
    }

    /// Whether no line is missing.
    pub(crate) fn is_whole(&self) -> bool {
        (0..self.lines).step_by(64).zip(&self.resident).all(|(first, mask)| {
            let missing = !mask.load(Acquire);
            let lines = self.lines - first;
            missing & (if lines >= 64 { u64::MAX } else { (1 << lines) - 1 }) == 0
        })
    }

    /// Runs of those of the lines that are missing.
    pub(crate) fn missing(&self, lines: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = lines.start;
        core::iter::from_fn(move || {
            let start = (at..lines.end).find(|&line| !self.is_resident(line))?;
            let end = (start..lines.end).find(|&line| self.is_resident(line));
            at = end.unwrap_or(lines.end);
            Some(start..at)
        })
    }

    /// The first of as many free slots as there are missing lines; none if there are too few.
    pub(crate) fn free_slots(&self, lines: Range<usize>) -> Option<usize> {
        let free = self.slots.count();
        let missing: usize = self.missing(lines).map(|run| run.len()).sum();
        (free + missing <= MINI_LINES).then_some(free)
    }

    /// Lines that were loaded are there from here on, of a mini block in the slots from `first` on (L4). Nobody
    /// else changes the mask (L2).
    pub(crate) fn add(&self, lines: Range<usize>, first: Option<usize>) {
        for (at, line) in lines.enumerate() {
            if let Some(first) = first {
                self.slots.fill(first + at, line);
            }
            let mask = &self.resident[line / 64];
            mask.store(mask.load(Relaxed) | bit(line), Release);
        }
    }

    /// Takes out a line that is there.
    pub(crate) fn forget(&self, line: usize) {
        for masks in [&self.resident, &self.dirty] {
            let mask = &masks[line / 64];
            mask.store(mask.load(Relaxed) & !bit(line), Relaxed);
        }
    }

    /// Notes that a line was changed (L5).
    #[inline]
    pub(crate) fn mark<D: Domain>(&self, domain: &D, line: usize) {
        if let Some(mask) = self.dirty.get(line / 64) {
            let now = mask.load(Relaxed);
            if now & bit(line) == 0 && !domain.commits(LINE_NOT_MARKED) {
                mask.store(now | bit(line), Relaxed);
            }
        }
    }

    pub(crate) fn mark_all<D: Domain>(&self, domain: &D) {
        (0..self.lines).for_each(|line| self.mark(domain, line));
    }

    pub(crate) fn clear_dirty(&self) {
        self.dirty.iter().for_each(|mask| mask.store(0, Relaxed));
    }

    /// The dirty lines.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lines).filter(|&line| self.is_dirty(line))
    }

    /// The lines that are as in persistent memory (L5).
    pub(crate) fn clean(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lines).filter(|&line| self.is_resident(line) && !self.is_dirty(line))
    }

    /// Says which spare block whoever holds the latch has.
    pub(crate) fn set_spare(&self, spare: Option<usize>) {
        self.spare.store(spare.map_or(0, |spare| spare as u32 + 1), Relaxed);
    }

    pub(crate) fn spare(&self) -> Option<usize> {
        (self.spare.load(Relaxed) as usize).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_find_the_lines_that_they_were_given_and_no_other() {
        // Neighbours, and those that differ in one bit, are where arithmetic on lanes would go wrong.
        let lines = [0, 1, 256, 255, 2, 1023, 512, 513, 128, 3, 4, 7, 8, 15, 16, 64];
        let slots = LineSlots::new();
        for (slot, line) in lines.into_iter().enumerate() {
            assert_eq!((slots.count(), slots.find(line)), (slot, None));
            slots.fill(slot, line);
            assert_eq!(slots.filled().last(), Some((slot, line)));
        }
        for line in 0..1024 {
            assert_eq!(slots.find(line), lines.iter().position(|&it| it == line), "{line}");
        }
        assert_eq!(slots.count(), MINI_LINES);
        slots.clear();
        assert_eq!((slots.count(), slots.find(0)), (0, None));
    }

    #[test]
    fn missing_lines_come_in_runs() {
        let masks = LineMasks::new(16 << 10);
        masks.begin(false);
        for lines in [3..5, 62..66, 255..256] {
            masks.add(lines, None);
        }
        let runs: Vec<_> = masks.missing(0..256).collect();
        assert_eq!(runs, [0..3, 5..62, 66..255]);
        assert_eq!(masks.missing(3..5).count(), 0);
        assert_eq!(masks.free_slots(0..10), Some(0));
        assert_eq!(masks.free_slots(0..30), None);
        masks.forget(64);
        assert_eq!(masks.missing(60..70).collect::<Vec<_>>(), [60..62, 64..65, 66..70]);
    }
}
