//! The memory of inner nodes: words in DRAM, or in a block of the pool that is never flushed.

use std::cmp::Ordering;
use std::sync::atomic::Ordering as MemoryOrdering;

use lapis_pmem::{
    BlockVisitor, Committed, Domain, DramWords, Guard, LINE_BYTES, Link, PCell, Pool,
};

use crate::index::InnerNodes;
use crate::key::leading_word;

/// Where the words lie.
enum Place {
    Dram(DramWords),
    Pm(Link<PCell<u64>>),
}

/// A fixed number of words.
pub(super) struct Arena {
    place: Place,
    words: usize,
    /// Where the model is told that the words lie in DRAM.
    offset_bytes: usize,
}

impl Arena {
    /// So many words, all zero. If the pool has no room for them they lie in DRAM: inner nodes are
    /// no reason for a change to fail.
    pub(super) fn new<D: Domain>(
        pool: &Pool<D>,
        inner_nodes: InnerNodes,
        words: usize,
        offset_bytes: usize,
    ) -> Self {
        if inner_nodes == InnerNodes::Pm
            && let Ok(mut block) = pool.allocate_with_tail::<PCell<u64>>((words - 1) * 8)
        {
            block.zero();
            let place = Place::Pm(block.link());
            // It stays this arena's, never flushed; after a crash it is an unreachable block.
            std::mem::forget(block);
            return Self { place, words, offset_bytes };
        }
        Self { place: Place::Dram(DramWords::zeroed(words)), words, offset_bytes }
    }

    #[inline(always)]
    pub(super) fn words<'a, D: Domain>(&'a self, pool: &'a Pool<D>) -> Words<'a, D> {
        let (cells, in_pool) = match &self.place {
            Place::Dram(cells) => (&cells[..], false),
            Place::Pm(link) => match pool.try_slice(*link, self.words) {
                Some(cells) => (cells, true),
                None => gone(),
            },
        };
        Words { cells, domain: pool.domain(), in_pool, offset_bytes: self.offset_bytes }
    }

    fn block(&self) -> Option<(Link<PCell<u64>>, usize)> {
        match &self.place {
            Place::Dram(_) => None,
            Place::Pm(link) => Some((*link, self.words * 8)),
        }
    }

    /// Bytes of the block of the pool, if it lies in one.
    pub(super) fn pool_bytes(&self) -> Option<usize> {
        self.block().map(|(_, bytes)| bytes)
    }

    pub(super) fn visit_blocks<D: Domain>(&self, visitor: &mut BlockVisitor<'_, D>) {
        if let Some((link, bytes)) = self.block() {
            visitor.visit(link, bytes);
        }
    }

    /// Gives the block back when the readers that may look at it have gone. Nothing durable ever
    /// referred to it.
    pub(super) fn retire<D: Domain>(&self, pool: &Pool<D>, guard: &Guard<'_, D>) {
        if let Some((link, bytes)) = self.block() {
            pool.retire(link, bytes, Committed::nothing_to_do(), guard);
        }
    }

    /// Gives the block back at once: nobody else can reach it.
    pub(super) fn free<D: Domain>(&self, pool: &Pool<D>) {
        if let Some((link, bytes)) = self.block() {
            pool.free_unshared(link, bytes, Committed::nothing_to_do());
        }
    }
}

#[cold]
fn gone() -> ! {
    panic!("the index is damaged: its inner nodes are outside the pool")
}

/// The words of an arena, on the machine that reads them.
pub(super) struct Words<'a, D> {
    cells: &'a [PCell<u64>],
    domain: &'a D,
    in_pool: bool,
    offset_bytes: usize,
}

impl<D> Clone for Words<'_, D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Words<'_, D> {}

impl<D: Domain> Words<'_, D> {
    /// Loads a word; what follows is not moved before it.
    #[inline(always)]
    pub(super) fn load(self, at: usize) -> u64 {
        let cell = &self.cells[at];
        if self.in_pool || !D::DETERMINISTIC {
            return cell.load_acquire(self.domain);
        }
        self.domain.touch_dram(self.offset_bytes + at * 8, 8);
        cell.atomic().load(MemoryOrdering::Acquire)
    }

    /// Asks for the lines of so many words, of which the first one begins a line.
    #[inline(always)]
    pub(super) fn prefetch(self, at: usize, words: usize) {
        if self.domain.prefetches() {
            if !self.in_pool {
                self.domain.prefetch_dram(self.offset_bytes + at * 8, words * 8);
            }
            for line in self.cells[at..at + words].chunks(LINE_BYTES / 8) {
                self.domain.prefetch(line.as_ptr().cast());
            }
        }
    }

    /// Stores a word after everything before.
    #[inline(always)]
    pub(super) fn store(self, at: usize, value: u64) {
        let cell = &self.cells[at];
        if self.in_pool || !D::DETERMINISTIC {
            return cell.store_ordered(self.domain, value);
        }
        self.domain.touch_dram(self.offset_bytes + at * 8, 8);
        cell.atomic().store(value, MemoryOrdering::Release);
    }

    /// Writes a key: its length, then its bytes, eight to a word, the first at the top, padded with
    /// zeroes. Takes [`key_words`].
    pub(super) fn store_key(self, at: usize, key: &[u8]) {
        self.store(at, key.len() as u64);
        for (index, chunk) in key.chunks(8).enumerate() {
            self.store(at + 1 + index, leading_word(chunk));
        }
    }

    /// The key at `at`.
    pub(super) fn load_key(self, at: usize) -> Vec<u8> {
        let bytes = self.load(at) as usize;
        let words = (0..bytes.div_ceil(8)).map(|index| self.load(at + 1 + index));
        let mut key: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
        key.truncate(bytes);
        key
    }

    /// Compares the key at `at` with another.
    pub(super) fn compare_key(self, at: usize, key: &[u8]) -> Ordering {
        let bytes = self.load(at) as usize;
        let both = bytes.min(key.len()).div_ceil(8);
        for (index, chunk) in key.chunks(8).take(both).enumerate() {
            match self.load(at + 1 + index).cmp(&leading_word(chunk)) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        // What padding hides the lengths tell.
        bytes.cmp(&key.len())
    }
}

/// Words that a key takes.
pub(super) fn key_words(bytes: usize) -> usize {
    1 + bytes.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_words_compare_like_bytes() {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let keys: [&[u8]; 9] = [
            b"a",
            b"a\0",
            b"a\0\0\0\0\0\0\0",
            b"a\0\0\0\0\0\0\0\0",
            b"ab",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefgi",
            b"b",
        ];
        for inner_nodes in [InnerNodes::Dram, InnerNodes::Pm] {
            let arena = Arena::new(&pool, inner_nodes, 16, 0);
            assert_eq!(arena.pool_bytes().is_some(), inner_nodes == InnerNodes::Pm);
            let words = arena.words(&pool);
            for one in keys {
                words.store_key(3, one);
                assert_eq!(words.load_key(3), one);
                for other in keys {
                    assert_eq!(words.compare_key(3, other), one.cmp(other), "{one:?} {other:?}");
                }
            }
            arena.free(&pool);
        }
    }
}
