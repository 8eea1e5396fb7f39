//! How a view of a frame that lacks lines comes to them. The invariants are in [`lines`](super::lines).

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use lapis_pmem::{Domain, LINE_BYTES};

use crate::frame::Frame;
use crate::frame_memory::FrameMemory;
use crate::latch::{Loading, Patience, Version};

const LINE_WORDS: usize = LINE_BYTES / size_of::<AtomicU64>();

/// See the [module documentation](self).
pub(crate) struct MissingLines<'a, D: Domain> {
    frame: &'a Frame<D>,
    memory: &'a FrameMemory<D>,
    /// At which somebody reads, or [`Version::HELD`].
    version: Version,
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
    pub(crate) fn held(frame: &'a Frame<D>, memory: &'a FrameMemory<D>) -> Self {
        Self { frame, memory, version: Version::HELD }
    }

    /// Of who reads at a version.
    pub(crate) fn read(frame: &'a Frame<D>, memory: &'a FrameMemory<D>, version: Version) -> Self {
        Self { frame, memory, version }
    }

    /// Where a word of the page is, which is loaded if it is missing; none beyond the page, and perhaps for a reader
    /// who was overtaken. It is a call, and not by reference, so that views of frames that lack nothing have
    /// the branch before it and no more.
    #[cold]
    pub(crate) fn place(self, domain: &D, word: usize) -> Option<&'a AtomicU64> {
        let masks = self.frame.masks.as_deref()?;
        let line = word / LINE_WORDS;
        if line >= masks.lines
            || !masks.is_resident(line) && !self.make_resident(domain, line..line + 1)
        {
            return None;
        }
        let block = self.frame.block.get();
        if !self.memory.is_mini(block) {
            return self.memory.words(block).get(word);
        }
        let slot = masks.slots.find(line)?;
        self.memory.lines(block, slot..slot + 1).get(word % LINE_WORDS)
    }

    /// The words of the page, if it lies in a full block.
    pub(crate) fn full_words(self) -> Option<&'a [AtomicU64]> {
        let block = self.frame.block.get();
        (!self.memory.is_mini(block)).then(|| self.memory.words(block))
    }

    /// Loads those of the lines that are missing. False if a reader has to begin again.
    #[cold]
    pub(crate) fn make_resident(self, domain: &D, lines: Range<usize>) -> bool {
        let end = self.frame.masks.as_deref().map_or(0, |masks| masks.lines);
        let lines = lines.start..lines.end.min(end);
        let (latch, version) = (&self.frame.latch, self.version);
        if version.is_held() {
            if !self.load(domain, lines.clone()) {
                self.promote(domain);
                _ = self.load(domain, lines);
            }
            return true;
        }
        let mut patience = Patience::default();
        loop {
            match latch.begin_loading(domain, version) {
                Loading::Begun => {
                    let loaded = self.load(domain, lines);
                    if !loaded {
                        self.frame.set_overfull(domain);
                    }
                    latch.end_loading(domain, version, !loaded);
                    return loaded;
                }
                Loading::Busy => _ = patience.wait(domain),
                // L3.
                Loading::Overtaken => return false,
            }
        }
    }

    /// Loads those of the lines that are missing (L2). False if there are not as many slots.
    fn load(self, domain: &D, lines: Range<usize>) -> bool {
        let Self { frame, memory, .. } = self;
        let (Some(masks), Some(source)) = (frame.masks.as_deref(), memory.source.as_deref()) else {
            return true;
        };
        let block = frame.block.get();
        let mut slot = match memory.is_mini(block) {
            true => match masks.free_slots(lines.clone()) {
                None => return false,
                slot => slot,
            },
            false => None,
        };
        let Some(backing) = frame.backing(domain) else { return true };
        for run in masks.missing(lines) {
            let into = slot.map_or(run.clone(), |slot| slot..slot + run.len());
            source.copy_lines(backing, run.clone(), memory.lines(block, into));
            masks.add(run.clone(), slot);
            slot = slot.map(|slot| slot + run.len());
        }
        true
    }

    /// Exchanges the mini block for the spare one (M6).
    fn promote(self, domain: &D) {
        let spare = self.frame.masks.as_deref().and_then(|masks| masks.spare());
        let Some(spare) = spare else { unreachable!("who holds a mini page has a spare block") };
        let spare = &self.memory.spares[spare];
        spare.block.set(self.frame.promote(domain, self.memory, spare.block.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::lines::LineMasks;
    use crate::page::lines::LineSource;
    use crate::page::view::{PageRead, PageWrite};
    use crate::test_domain;
    use core::sync::atomic::Ordering::Relaxed;
    use lapis_pmem::Hardware;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Lines of which not all fit into a mini block.
    const BYTES: usize = 24 * LINE_BYTES;

    /// A page in persistent memory, so to speak.
    #[derive(Debug)]
    struct Source(Vec<u8>);

    impl LineSource for Source {
        fn copy_lines(&self, frame: usize, lines: Range<usize>, into: &[AtomicU64]) {
            assert_eq!((frame, lines.len() * LINE_WORDS), (3, into.len()));
            for (at, word) in (lines.start * LINE_BYTES..).step_by(8).zip(into) {
                word.store(u64::from_le_bytes(*self.0[at..].first_chunk().unwrap()), Relaxed);
            }
        }

        fn words_at(&self, place: usize) -> &[AtomicU64] {
            panic!("nothing is read in place, at {place}")
        }
    }

    /// A frame with nothing of the page in it, and a spare block.
    struct Place(Frame<Hardware>, FrameMemory<Hardware>);

    impl Place {
        fn of(page: &[u8], is_mini: bool) -> Self {
            let source = Some(Arc::new(Source(page.to_vec())) as Arc<dyn LineSource>);
            let memory = FrameMemory::new(BYTES, (1, 1, 1), source);
            memory.words(memory.mini(0)).iter().for_each(|word| word.store(u64::MAX / 3, Relaxed));
            let block = if is_mini { memory.mini(0) } else { memory.full(0) };
            let frame = Frame::new(block, is_mini, Some(LineMasks::new(BYTES)));
            frame.set_backing(&test_domain(), Some(3), false);
            let masks = frame.masks.as_deref().unwrap();
            masks.set_spare(memory.take_spare(&test_domain()));
            Self(frame, memory)
        }

        fn masks(&self) -> &LineMasks {
            self.0.masks.as_deref().unwrap()
        }

        fn is_mini(&self) -> bool {
            self.1.is_mini(self.0.block.get())
        }

        fn view<'a>(&'a self, domain: &'a Hardware, version: Version) -> PageRead<'a, Hardware> {
            let missing = MissingLines::read(&self.0, &self.1, version);
            PageRead::over(domain, self.1.words(self.0.block.get()), Some(missing))
        }

        /// The bytes of a line that is there.
        fn line(&self, line: usize) -> Vec<u8> {
            assert!(self.masks().is_resident(line));
            let held = MissingLines::held(&self.0, &self.1);
            let place = |word| held.place(&test_domain(), word).unwrap().load(Relaxed);
            (line * LINE_WORDS..(line + 1) * LINE_WORDS)
                .flat_map(|it| place(it).to_le_bytes())
                .collect()
        }
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
            steps in proptest::collection::vec((0..7, 0..1300usize, 0..1300usize, 0..150usize), 1..12),
            is_mini in any::<bool>(),
        ) {
            let (domain, place) = (test_domain(), Place::of(&page, is_mini));
            let (masks, mut expected) = (place.masks(), page.clone());
            let read = place.view(&domain, Version::HELD);
            let mut write = PageWrite::over(read, Some(masks));
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
                let differs = |&line: &usize| place.line(line) != page[line * LINE_BYTES..][..LINE_BYTES];
                prop_assert_eq!(masks.clean().find(differs), None);
                let there = (0..masks.lines).filter(|&line| masks.is_resident(line));
                prop_assert!(!place.is_mini() || there.count() == masks.slots.filled().count());
            }
            let dirty: Vec<_> = masks.dirty().collect();
            prop_assert!(lines_that_differ(&expected, &page).iter().all(|line| dirty.contains(line)));
            _ = read.make_resident(0..BYTES);
            prop_assert!(masks.is_whole() && !place.is_mini());
            let there: Vec<_> = (0..masks.lines).flat_map(|line| place.line(line)).collect();
            prop_assert_eq!(there, expected);
        }
    }

    #[test]
    fn a_reader_whose_lines_find_no_slot_begins_again_and_says_so() {
        let (domain, place) = (test_domain(), Place::of(&[7; BYTES], true));
        let version = place.0.latch.version(&domain).unwrap();
        let read = place.view(&domain, version);
        assert!((0..16).all(|line| read.byte(line * LINE_BYTES) == 7));
        assert!(place.0.latch.validate(&domain, version).is_ok() && !place.0.is_overfull(&domain));
        _ = read.byte(16 * LINE_BYTES);
        assert!(place.0.latch.validate(&domain, version).is_err() && place.0.is_overfull(&domain));
        assert!(place.is_mini() && place.0.latch.version(&domain).unwrap().is_partial());
    }

    #[test]
    fn lines_that_find_no_slot_promote_the_page_of_who_holds_it() {
        let (domain, place) = (test_domain(), Place::of(&[7; BYTES], true));
        let read = place.view(&domain, Version::HELD);
        let mut write = PageWrite::over(read, Some(place.masks()));
        (0..16).for_each(|line| write.set_byte(line * LINE_BYTES, line as u8));
        assert!(place.is_mini());
        write.set_byte(20 * LINE_BYTES, 20);
        assert!(!place.is_mini() && place.1.is_mini(place.1.spares[0].block.get()));
        let expected = |line| if line < 16 || line == 20 { line } else { 7 };
        assert!((0..24).all(|line| usize::from(read.byte(line * LINE_BYTES)) == expected(line)));
        assert_eq!(place.masks().dirty().count(), 17);
    }

    #[test]
    fn a_reader_who_was_overtaken_loads_nothing() {
        for is_mini in [false, true] {
            let (domain, place) = (test_domain(), Place::of(&[7; BYTES], is_mini));
            let latch = &place.0.latch;
            let taken = latch.try_take(&domain).unwrap();
            let version = latch.release_as(&domain, taken, true);
            let read = place.view(&domain, version);
            assert_eq!(read.byte(3), 7);
            let held = latch.try_take(&domain).unwrap();
            _ = read.byte(100);
            assert_eq!(place.masks().clean().collect::<Vec<_>>(), [0]);
            latch.release(&domain, held, false);
            // And he finds out.
            assert!(latch.validate(&domain, version).is_err());
        }
    }
}
