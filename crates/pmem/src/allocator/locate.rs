//! From an offset to the block that begins there, for what visits blocks.

use crate::domain::Domain;
use crate::pool::Pool;
use crate::reachable::{ReachableBlocks, SlabMarks};
use crate::region::EXTENT_BYTES;

use super::chunks::{Descriptor, LARGE, SLAB};
use super::classes::ClassId;
use super::{Block, bits};

/// The pool's slabs and runs, frozen for one visit of all blocks.
#[derive(Debug)]
pub(crate) struct BlockMap {
    /// First chunk and descriptor, in order.
    runs: Vec<(u32, Descriptor)>,
    /// The number of the run that holds a chunk, for the first chunks of the pool: of a pool that is
    /// not large, for all.
    run_of_chunk: Vec<u32>,
    /// The number of the run that was found last, of the others: the next is often the same.
    recent: usize,
}

/// Chunks whose runs are listed: 256 MiB of them, in 16 KiB.
const CHUNKS_LISTED: u32 = 1 << 12;
/// A chunk that is in no run, as those of chunk tables are.
const NO_RUN: u32 = u32::MAX;

/// A block that was found.
#[derive(Debug)]
pub(crate) struct Located {
    /// The number of its run.
    pub(crate) run: usize,
    pub(crate) first: u32,
    pub(crate) descriptor: Descriptor,
    /// The block's number in its slab; none for a large run.
    pub(crate) index: Option<usize>,
    /// Words of the slab's bitmap.
    pub(crate) words: usize,
}

impl BlockMap {
    pub(crate) fn new<D: Domain>(pool: &Pool<D>) -> Self {
        let runs = pool.allocator().survey(pool);
        let end_of = |&(first, descriptor): &(u32, Descriptor)| {
            first.saturating_add(descriptor.chunks().max(1)).min(CHUNKS_LISTED)
        };
        let listed = runs.last().map_or(0, end_of);
        let mut run_of_chunk = Vec::with_capacity(listed as usize);
        for (number, run) in runs.iter().enumerate() {
            if run.0 >= CHUNKS_LISTED {
                break;
            }
            run_of_chunk.resize(run.0 as usize, NO_RUN);
            run_of_chunk.resize(end_of(run) as usize, number as u32);
        }
        Self { runs, run_of_chunk, recent: 0 }
    }

    /// Number of slabs and runs.
    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The first chunk of a run, and what it is.
    pub(crate) fn run(&self, number: usize) -> Option<(u32, Descriptor)> {
        self.runs.get(number).copied()
    }

    /// The number of the run that begins at chunk `first`, if it is still this one.
    pub(crate) fn run_that_is(&mut self, first: u32, descriptor: Descriptor) -> Option<usize> {
        let run = self.run_of(first)?;
        (self.run(run) == Some((first, descriptor))).then_some(run)
    }

    /// The number of the run that holds a chunk.
    #[inline]
    fn run_of(&mut self, chunk: u32) -> Option<usize> {
        match self.run_of_chunk.get(chunk as usize) {
            Some(&NO_RUN) => None,
            Some(&run) => Some(run as usize),
            None => self.bisect(chunk),
        }
    }

    #[inline(never)]
    fn bisect(&mut self, chunk: u32) -> Option<usize> {
        let begins = |run: usize| self.runs.get(run).map(|&(first, _)| first);
        let is_recent = begins(self.recent).is_some_and(|first| first <= chunk)
            && begins(self.recent + 1).is_none_or(|next| chunk < next);
        if !is_recent {
            let after = self.runs.partition_point(|&(first, _)| first <= chunk);
            self.recent = after.checked_sub(1)?;
        }
        Some(self.recent)
    }

    #[inline]
    pub(crate) fn locate(&mut self, offset: u64, block_bytes: usize) -> Option<Located> {
        let chunk = ClassId::chunk_of(offset);
        let run = self.run_of(chunk)?;
        let (first, descriptor) = *self.runs.get(run)?;
        match descriptor.kind() {
            SLAB => {
                let class = descriptor.class()?;
                if ClassId::for_bytes(block_bytes) != Some(class) {
                    return None;
                }
                let index = class.index_in_slab(first, offset)?;
                let words = class.bitmap_words();
                Some(Located { run, first, descriptor, index: Some(index), words })
            }
            LARGE => {
                let begins = offset == u64::from(first) * EXTENT_BYTES as u64;
                let fits = ClassId::for_bytes(block_bytes).is_none()
                    && block_bytes.div_ceil(EXTENT_BYTES) == descriptor.chunks() as usize;
                (begins && fits).then_some(Located {
                    run,
                    first,
                    descriptor,
                    index: None,
                    words: 0,
                })
            }
            _ => None,
        }
    }
}

impl ReachableBlocks {
    /// These and other blocks.
    pub(super) fn with<D: Domain>(&self, pool: &Pool<D>, others: &[Block]) -> Self {
        let (mut all, mut map) = (self.clone(), BlockMap::new(pool));
        let located = others.iter().filter_map(|block| map.locate(block.offset, block.bytes));
        for Located { first, descriptor, index, words, .. } in located {
            let Some(index) = index else {
                all.large.insert(first, descriptor.chunks());
                continue;
            };
            let marks = all.slabs.entry(first);
            let marks = marks.or_insert_with(|| SlabMarks { descriptor, words: vec![0; words] });
            marks.words[index / 64] |= 1 << (index % 64);
        }
        all
    }

    /// The bitmap of reachable blocks of the slab at `first`.
    pub(super) fn slab_marks(&self, first: u32, class: ClassId) -> Vec<u64> {
        match self.slabs.get(&first) {
            Some(marks) => marks.words.clone(),
            None => vec![0; class.bitmap_words()],
        }
    }

    /// Every reachable block, with as many bytes as its class has.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        let slabs = self.slabs_with_marks().flat_map(|(first, class, marks)| {
            marks.iter().enumerate().flat_map(move |(at, &word)| {
                bits(word).map(move |bit| Block {
                    offset: class.offset_of(first, at * 64 + bit),
                    bytes: class.block_bytes(),
                })
            })
        });
        let large = self.large.iter().map(|(&first, &chunks)| Block {
            offset: u64::from(first) * EXTENT_BYTES as u64,
            bytes: chunks as usize * EXTENT_BYTES,
        });
        slabs.chain(large)
    }

    /// Each slab's first chunk, class, and bitmap of reachable blocks.
    pub(super) fn slabs_with_marks(&self) -> impl Iterator<Item = (u32, ClassId, &[u64])> {
        self.slabs.iter().filter_map(|(&first, marks)| {
            marks.descriptor.class().map(|class| (first, class, marks.words.as_slice()))
        })
    }
}
