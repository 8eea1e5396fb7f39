//! The memory of frames: blocks of a page, and of sixteen lines of one.
//!
//! ```text
//!  mini blocks                full blocks
//! +------+------+-- … --+----+------------------+-- … --+------------------+
//! | 16   | 16   |       |    | a page           |       | a page           |
//! | lines| lines|       |    |                  |       |                  |
//! +------+------+-- … --+----+------------------+-- … --+------------------+
//! ```
//!
//! A frame always has a block, and no two have the same; promotion exchanges those of two frames, or that of a frame for a
//! spare one. Behind every block there is as much memory as a page has, so that a reader who was overtaken
//! reads nonsense and nothing else.

use core::ops::Range;
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
    fence,
};
use std::sync::Arc;

use lapis_pmem::{Domain, DramCell, LINE_BYTES};

use crate::page::lines::{LineSource, MINI_LINES};

const WORD_BYTES: usize = size_of::<AtomicU64>();
const LINE_WORDS: usize = LINE_BYTES / WORD_BYTES;

/// Where a page lies: the first of its words, of the memory of frames or, with the highest bit, of persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(usize);

impl Block {
    const IN_PLACE: usize = 1 << (usize::BITS - 1);

    /// The block of a page that is used at a place of persistent memory.
    pub(crate) fn in_place(place: usize) -> Self {
        Self(Self::IN_PLACE | place)
    }

    #[inline]
    pub(crate) fn is_in_place(self) -> bool {
        self.0 & Self::IN_PLACE != 0
    }
}

/// A block, of a frame or of nobody. Who changes it has it alone; others may read it as a guess.
#[derive(Debug)]
pub(crate) struct BlockCell(AtomicUsize);

impl BlockCell {
    pub(crate) fn new(block: Block) -> Self {
        Self(AtomicUsize::new(block.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Block {
        Block(self.0.load(Relaxed))
    }

    pub(crate) fn set(&self, block: Block) {
        self.0.store(block.0, Relaxed);
    }
}

/// A full block for whoever changes a mini page, who may come to need one and can wait for nobody then.
#[derive(Debug)]
pub(crate) struct Spare<D: Domain> {
    taken: DramCell<u32, D>,
    /// A mini block once it was used, until it is exchanged for a full one again.
    pub(crate) block: BlockCell,
}

impl<D: Domain> Spare<D> {
    fn take(&self, domain: &D) -> bool {
        let taken =
            self.taken.load(domain) == 0 && self.taken.compare_exchange(domain, 0, 1).is_ok();
        if taken {
            // What is stored to the block is not seen before it was somebody else's no more (M3).
            fence(Release);
        }
        taken
    }

    pub(crate) fn give_back(&self, domain: &D) {
        self.taken.store_release(domain, 0);
    }
}

/// Pools of fewer bytes have no large pages.
#[cfg(all(target_os = "linux", not(miri)))]
const FEWEST_BYTES_FOR_LARGE_PAGES: usize = 4 << 20;

/// The memory of all frames, and where lines come from that are missing there.
pub(crate) struct FrameMemory<D: Domain> {
    words: Box<[AtomicU64]>,
    /// The first at a line's beginning.
    first: usize,
    /// The first of the full blocks.
    first_full: usize,
    page_words: usize,
    pub(crate) spares: Box<[Spare<D>]>,
    /// None unless pages move by lines.
    pub(crate) source: Option<Arc<dyn LineSource>>,
    /// Pages that got a full block for a mini one.
    pub(crate) promotions: AtomicU64,
}

impl<D: Domain> core::fmt::Debug for FrameMemory<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "FrameMemory({} words)", self.words.len())
    }
}

impl<D: Domain> FrameMemory<D> {
    /// Memory for so many frames and spare blocks, zero. The operating system provides it as it is used: memory
    /// that is asked for with an alignment of a line would be zeroed here, so the first line is looked for.
    pub(crate) fn new(
        page_bytes: usize,
        (minis, pages, spares): (usize, usize, usize),
        source: Option<Arc<dyn LineSource>>,
    ) -> Self {
        assert!(pages > 0, "behind mini blocks there are to be full ones");
        let page_words = page_bytes / WORD_BYTES;
        let mini_words = minis * MINI_LINES * LINE_WORDS;
        let words = mini_words + (pages + spares) * page_words + LINE_WORDS;
        let words = Box::<[AtomicU64]>::new_zeroed_slice(words);
        // SAFETY: any bits are the value of an atomic word.
        let words = unsafe { words.assume_init() };
        prefer_large_pages(&words);
        let first = words.as_ptr().addr().wrapping_neg() % LINE_BYTES / WORD_BYTES;
        let first_full = first + mini_words;
        let spare = |at| Block(first_full + (pages + at) * page_words);
        let spare = |at| Spare { taken: DramCell::new(0), block: BlockCell::new(spare(at)) };
        let spares = (0..spares).map(spare).collect();
        let promotions = AtomicU64::new(0);
        Self { words, first, first_full, page_words, spares, source, promotions }
    }

    /// The mini block of this number.
    pub(crate) fn mini(&self, at: usize) -> Block {
        let block = Block(self.first + at * MINI_LINES * LINE_WORDS);
        assert!(self.is_mini(block), "there is no mini block {at}");
        block
    }

    /// The full block of this number.
    pub(crate) fn full(&self, at: usize) -> Block {
        let block = Block(self.first_full + at * self.page_words);
        assert!(block.0 + self.page_words <= self.words.len(), "there is no full block {at}");
        block
    }

    #[inline]
    pub(crate) fn is_mini(&self, block: Block) -> bool {
        block.0 < self.first_full
    }

    /// The words of a page that lies in a full block; as many from the beginning of a mini block on.
    #[inline]
    pub(crate) fn words(&self, block: Block) -> &[AtomicU64] {
        debug_assert!(block.0 + self.page_words <= self.words.len());
        // SAFETY: `new`, `mini` and `full` make blocks, of the one memory that a manager has, and see to it that
        // there are as many words behind each.
        unsafe { self.words.get_unchecked(block.0..block.0 + self.page_words) }
    }

    /// The words of a page that is used in persistent memory; none if the block is one of a frame.
    pub(crate) fn words_in_place(&self, block: Block) -> Option<&[AtomicU64]> {
        let source = self.source.as_deref().filter(|_| block.is_in_place())?;
        Some(source.words_at(block.0 & !Block::IN_PLACE))
    }

    /// Lines of a block.
    pub(crate) fn lines(&self, block: Block, lines: Range<usize>) -> &[AtomicU64] {
        &self.words(block)[lines.start * LINE_WORDS..lines.end * LINE_WORDS]
    }

    /// A spare block that is full, for whoever asks alone until it is given back.
    pub(crate) fn take_spare(&self, domain: &D) -> Option<usize> {
        (0..self.spares.len()).find(|&at| self.try_take_spare(domain, at, false))
    }

    /// Takes a spare block if it is mini, or is not.
    pub(crate) fn try_take_spare(&self, domain: &D, at: usize, mini: bool) -> bool {
        let spare = &self.spares[at];
        if self.is_mini(spare.block.get()) != mini || !spare.take(domain) {
            return false;
        }
        let is_right = self.is_mini(spare.block.get()) == mini;
        if !is_right {
            spare.give_back(domain);
        }
        is_right
    }
}

/// Asks for large pages: a random read of a large pool then misses the TLB less often.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_large_pages(words: &[AtomicU64]) {
    let (begin, page) = (words.as_ptr().addr(), rustix::param::page_size());
    let skipped = begin.next_multiple_of(page) - begin;
    let bytes = size_of_val(words).saturating_sub(skipped) / page * page;
    if bytes >= FEWEST_BYTES_FOR_LARGE_PAGES {
        let from = words.as_ptr().wrapping_byte_add(skipped).cast_mut().cast();
        // SAFETY: these are whole pages of the words, and advice changes no contents. It may be refused.
        _ = unsafe { rustix::mm::madvise(from, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn prefer_large_pages(_words: &[AtomicU64]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use lapis_pmem::Hardware;

    #[test]
    fn blocks_have_memory_of_their_own() {
        let memory = FrameMemory::<Hardware>::new(4096, (2, 3, 1), None);
        let minis = (0..2).map(|at| memory.lines(memory.mini(at), 0..MINI_LINES));
        let spare = memory.spares[0].block.get();
        let pages = (0..3).map(|at| memory.full(at)).chain([spare]);
        let blocks: Vec<_> = minis.chain(pages.map(|block| memory.words(block))).collect();
        for (at, words) in (0..).zip(&blocks) {
            words.iter().for_each(|word| word.store(at, Relaxed));
        }
        for (at, words) in (0..).zip(&blocks) {
            assert_eq!(words.len(), if at < 2 { 128 } else { 512 });
            assert_eq!(words.as_ptr().addr() % LINE_BYTES, 0);
            assert!(words.iter().all(|word| word.load(Relaxed) == at));
        }
        // Of a mini block as of any other, there are as many words as a page has.
        assert_eq!(memory.words(memory.mini(1)).len(), 512);
    }

    #[test]
    fn a_spare_block_is_one_users_at_a_time_and_nobodys_once_it_is_used() {
        let (domain, memory) = (test_domain(), FrameMemory::new(4096, (1, 1, 2), None));
        let first = memory.take_spare(&domain).unwrap();
        let second = memory.take_spare(&domain).unwrap();
        assert!(first != second && memory.take_spare(&domain).is_none());
        memory.spares[first].give_back(&domain);
        assert_eq!(memory.take_spare(&domain), Some(first));
        memory.spares[first].block.set(memory.mini(0));
        memory.spares[first].give_back(&domain);
        assert_eq!(memory.take_spare(&domain), None);
        assert!(memory.try_take_spare(&domain, first, true));
        assert!(!memory.try_take_spare(&domain, first, true));
    }
}
