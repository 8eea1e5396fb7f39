//! The arena of what the tree keeps beside its leaves: words in chunks that are never moved or given
//! back while the tree is open.
//!
//! Readers look at words that are being reused and find out afterwards, so every access is an atomic
//! one and every index is checked. In the pool ([`InnerNodes::Pm`]) the chunks are blocks that
//! nobody flushes; a crash makes garbage of them, which no root reaches.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lapis_pmem::{
    AllocError, BlockVisitor, Committed, Domain, DramWords, LINE_BYTES, Link, PCell, Pool,
};

use crate::group_search::GROUP;
use crate::index::InnerNodes;

/// Chunk c holds 2^c times what the first one does.
const CHUNKS: usize = 28;

#[derive(Debug)]
enum Chunk {
    /// With its place among the volatile words that a modelled machine is told of.
    Dram(DramWords, usize),
    Pm(Link<PCell<u64>>),
}

/// An arena.
#[derive(Debug)]
pub(super) struct Memory {
    placement: InnerNodes,
    /// Words of the first chunk: a power of two, as its logarithm.
    first_shift: u32,
    /// Where the next chunk's place is.
    next_place: Arc<AtomicUsize>,
    chunks: [OnceLock<Chunk>; CHUNKS],
}

/// Words of the arena that lie one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    cells: &'a [PCell<u64>],
    /// Where they are in the arena; none if they are persistent memory, which the domain sees.
    dram_at: Option<usize>,
}

/// A group of words, whose places need no check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    cells: &'a [PCell<u64>; GROUP],
    dram_at: Option<usize>,
}

impl Group<'_> {
    /// Asks for its lines.
    #[inline(always)]
    pub(super) fn prefetch<D: Domain>(&self, domain: &D) {
        if let Some(at) = self.dram_at {
            domain.prefetch_dram(at, size_of_val(self.cells));
        }
        for line in self.cells.chunks(LINE_BYTES / 8) {
            domain.prefetch(line.as_ptr().cast());
        }
    }

    /// Loads a word, counted from the first of the group, and around its end.
    #[inline(always)]
    pub(super) fn load<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        let index = index % GROUP;
        let cell = &self.cells[index];
        let Some(at) = self.dram_at else { return cell.load(domain) };
        domain.touch_dram(at + index * 8, 8);
        cell.atomic().load(Ordering::Relaxed)
    }
}

impl<'a> Words<'a> {
    /// The group that begins with a word, if all of it is there.
    #[inline(always)]
    pub(super) fn group(&self, first: usize) -> Option<Group<'a>> {
        let cells = self.cells.get(first..)?.first_chunk()?;
        Some(Group { cells, dram_at: self.dram_at.map(|at| at + first * 8) })
    }

    #[inline(always)]
    fn cell<D: Domain>(&self, domain: &D, index: usize) -> Option<&PCell<u64>> {
        if let Some(at) = self.dram_at {
            domain.touch_dram(at + index * 8, 8);
        }
        self.cells.get(index)
    }

    /// Loads a word, or zero beyond the end.
    #[inline(always)]
    pub(super) fn load<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        match self.cell(domain, index) {
            Some(cell) if self.dram_at.is_some() => cell.atomic().load(Ordering::Relaxed),
            Some(cell) => cell.load(domain),
            None => 0,
        }
    }

    /// Loads a word; what follows in program order is not moved before it.
    #[inline(always)]
    pub(super) fn load_acquire<D: Domain>(&self, domain: &D, index: usize) -> u64 {
        match self.cell(domain, index) {
            Some(cell) if self.dram_at.is_some() => cell.atomic().load(Ordering::Acquire),
            Some(cell) => cell.load_acquire(domain),
            None => 0,
        }
    }

    /// Stores a word.
    #[inline(always)]
    pub(super) fn store<D: Domain>(&self, domain: &D, index: usize, value: u64) {
        match self.cell(domain, index) {
            Some(cell) if self.dram_at.is_some() => cell.atomic().store(value, Ordering::Relaxed),
            Some(cell) => cell.store(domain, value),
            None => debug_assert!(false, "a store beyond the end of a node"),
        }
    }

    /// Stores a word after everything earlier in program order.
    #[inline(always)]
    pub(super) fn store_ordered<D: Domain>(&self, domain: &D, index: usize, value: u64) {
        match self.cell(domain, index) {
            Some(cell) if self.dram_at.is_some() => cell.atomic().store(value, Ordering::Release),
            Some(cell) => cell.store_ordered(domain, value),
            None => debug_assert!(false, "a store beyond the end of a node"),
        }
    }
}

impl Memory {
    /// An empty arena. `first_words` is a power of two.
    pub(super) fn new(
        placement: InnerNodes,
        first_words: usize,
        next_place: &Arc<AtomicUsize>,
    ) -> Self {
        let chunks = std::array::from_fn(|_| OnceLock::new());
        let next_place = Arc::clone(next_place);
        Self { placement, first_shift: first_words.trailing_zeros(), next_place, chunks }
    }

    /// The chunk that a word lies in and the place of the first word of that chunk.
    #[inline(always)]
    fn chunk_of(&self, word: usize) -> (usize, usize) {
        let chunk = ((word >> self.first_shift) + 1).ilog2() as usize;
        (chunk, ((1 << chunk) - 1) << self.first_shift)
    }

    /// The place after the last word of a word's chunk.
    pub(super) fn chunk_end(&self, word: usize) -> usize {
        let (chunk, first) = self.chunk_of(word);
        first + self.chunk_words(chunk)
    }

    fn chunk_words(&self, chunk: usize) -> usize {
        1 << (self.first_shift as usize + chunk)
    }

    /// So many words from `word` on, or none if they are not all in one chunk that is there.
    #[inline(always)]
    pub(super) fn words<'a, D: Domain>(
        &'a self,
        pool: &'a Pool<D>,
        word: usize,
        count: usize,
    ) -> Option<Words<'a>> {
        let (chunk, first) = self.chunk_of(word);
        let start = word - first;
        match self.chunks.get(chunk)?.get()? {
            Chunk::Dram(cells, at) => Some(Words {
                cells: cells.get(start..start.checked_add(count)?)?,
                dram_at: Some(at + start * 8),
            }),
            Chunk::Pm(link) => {
                if start.checked_add(count)? > self.chunk_words(chunk) {
                    return None;
                }
                let link = Link::from_bits(link.offset() + start as u64 * 8);
                Some(Words { cells: pool.try_slice(link, count)?, dram_at: None })
            }
        }
    }

    /// Makes sure that the chunk of `word` is there. Its words are zero at first.
    pub(super) fn provide<D: Domain>(&self, pool: &Pool<D>, word: usize) -> Result<(), AllocError> {
        let (chunk, _) = self.chunk_of(word);
        let count = self.chunk_words(chunk);
        let full = || AllocError::TooLarge { asked_bytes: count * 8 };
        let place = self.chunks.get(chunk).ok_or_else(full)?;
        if place.get().is_some() {
            return Ok(());
        }
        let made = match self.placement {
            InnerNodes::Dram => {
                let at = self.next_place.fetch_add(count * 8, Ordering::Relaxed);
                Chunk::Dram(DramWords::zeroed(count), at)
            }
            InnerNodes::Pm => {
                let mut block = pool.allocate_with_tail::<PCell<u64>>((count - 1) * 8)?;
                block.zero();
                let link = block.link();
                // It is the tree's from here on, unflushed: nothing of it is to survive.
                mem::forget(block);
                Chunk::Pm(link)
            }
        };
        // Only the holder of the tree's lock for changes comes here.
        let _ = place.set(made);
        Ok(())
    }

    /// The blocks of the pool that the arena consists of, with their bytes.
    fn blocks(&self) -> impl Iterator<Item = (Link<PCell<u64>>, usize)> {
        self.chunks.iter().enumerate().filter_map(|(chunk, place)| match place.get() {
            Some(Chunk::Pm(link)) => Some((*link, self.chunk_words(chunk) * 8)),
            _ => None,
        })
    }

    pub(super) fn visit_blocks<D: Domain>(&self, visitor: &mut BlockVisitor<'_, D>) {
        for (link, bytes) in self.blocks() {
            visitor.visit(link, bytes);
        }
    }

    /// Blocks of the pool and their bytes.
    pub(super) fn pool_blocks(&self) -> (u64, u64) {
        self.blocks().fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes as u64))
    }

    /// Gives the blocks back, when the tree is dropped.
    pub(super) fn give_back<D: Domain>(&self, pool: &Pool<D>) {
        for (link, bytes) in self.blocks() {
            // No root ever referred to them.
            pool.free_unshared(link, bytes, Committed::nothing_to_do());
        }
    }
}
