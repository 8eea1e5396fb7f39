//! Which blocks are reachable: a structure visits its own.

use std::collections::BTreeMap;
use std::fmt;

use crate::allocator::{BlockMap, Descriptor, size_of_block};
use crate::cell::{Link, Persistent};
use crate::domain::Domain;
use crate::parts::KnownParts;
use crate::pool::Pool;
use crate::region::EXTENT_BYTES;

mod part;

pub use part::ReachablePart;
use part::VisitingByParts;

/// Something a visitor was told that cannot be in a sound pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReachabilityProblem {
    /// A reference to something that is not a block of that size.
    NotABlock {
        /// Where the reference points.
        offset: u64,
        /// The size the structure expects.
        bytes: usize,
    },
    /// Two references to a block that has one owner.
    ReachedTwice {
        /// The block.
        offset: u64,
    },
    /// The allocator would hand out other blocks or chunks than those that are free: some are lost until the pool is
    /// opened again, or would be given out twice.
    FreeSpace {
        /// The slab, or the first of the chunks.
        offset: u64,
        /// How many are free.
        free: u64,
        /// How many would be handed out.
        listed: u64,
    },
    /// Something the structure itself found wrong.
    Structure {
        /// What.
        what: String,
    },
}

impl ReachabilityProblem {
    /// Of what begins at a chunk so many are free, and so many would be handed out.
    pub(crate) fn miscount(chunk: u32, free: u64, listed: u64) -> Option<Self> {
        let offset = u64::from(chunk) * EXTENT_BYTES as u64;
        (free != listed).then_some(Self::FreeSpace { offset, free, listed })
    }
}

impl std::fmt::Display for ReachabilityProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotABlock { offset, bytes } => {
                write!(f, "a reference to {offset:#x}, where no block of {bytes} bytes begins")
            }
            Self::ReachedTwice { offset } => write!(f, "the block at {offset:#x} has two owners"),
            Self::FreeSpace { offset, free, listed } => {
                write!(
                    f,
                    "at {offset:#x} {free} blocks or chunks are free, and {listed} would be handed out"
                )
            }
            Self::Structure { what } => f.write_str(what),
        }
    }
}

/// Collects reachable blocks. Made by [`Pool::reachable`].
pub struct BlockVisitor<'p, D: Domain> {
    pool: &'p Pool<D>,
    map: BlockMap,
    /// First chunk and marks of each slab that was reached, by the number of its run.
    slabs: Vec<Option<(u32, SlabMarks)>>,
    /// First chunk and number of chunks.
    large: BTreeMap<u32, u32>,
    problems: Vec<ReachabilityProblem>,
    by_parts: Option<VisitingByParts<'p>>,
}

impl<D: Domain> fmt::Debug for BlockVisitor<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockVisitor").field("problems", &self.problems).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct SlabMarks {
    pub(crate) descriptor: Descriptor,
    pub(crate) words: Vec<u64>,
}

impl<'p, D: Domain> BlockVisitor<'p, D> {
    pub(crate) fn new(
        pool: &'p Pool<D>,
        known: Option<&'p mut dyn KnownParts<ReachablePart>>,
    ) -> Self {
        let map = BlockMap::new(pool);
        Self {
            pool,
            slabs: vec![None; map.run_count()],
            map,
            large: BTreeMap::new(),
            problems: Vec::new(),
            by_parts: known.map(VisitingByParts::new),
        }
    }

    /// The pool whose blocks are visited.
    pub fn pool(&self) -> &'p Pool<D> {
        self.pool
    }

    /// Says that the block at `link`, of `block_bytes` bytes (as allocated: the `T` and its tail),
    /// is reachable. Returns whether it is a block and has not been visited before: only then may
    /// the caller look into it.
    pub fn visit<T: Persistent>(&mut self, link: Link<T>, block_bytes: usize) -> bool {
        let offset = link.offset();
        let Some(found) = self.map.locate(offset, size_of_block::<T>(block_bytes)) else {
            self.problems.push(ReachabilityProblem::NotABlock { offset, bytes: block_bytes });
            return false;
        };
        let fresh = match found.index {
            None => self.large.insert(found.first, found.descriptor.chunks()).is_none(),
            Some(index) => {
                let (_, marks) = self.slabs[found.run].get_or_insert_with(|| {
                    let words = vec![0; found.words];
                    (found.first, SlabMarks { descriptor: found.descriptor, words })
                });
                let (word, bit) = (&mut marks.words[index / 64], 1u64 << (index % 64));
                let fresh = *word & bit == 0;
                *word |= bit;
                if let Some(by_parts) = &mut self.by_parts {
                    by_parts.visited(found.run, index / 64, bit);
                }
                fresh
            }
        };
        if !fresh {
            self.problems.push(ReachabilityProblem::ReachedTwice { offset });
        }
        fresh
    }

    /// Notes something wrong in the structure itself.
    pub fn problem(&mut self, what: impl Into<String>) {
        self.problems.push(ReachabilityProblem::Structure { what: what.into() });
    }

    pub(crate) fn finish(self) -> ReachableBlocks {
        ReachableBlocks {
            slabs: self.slabs.into_iter().flatten().collect(),
            large: self.large,
            problems: self.problems,
        }
    }
}

/// What a visitor was told: the reachable blocks and the problems.
#[derive(Clone, Debug, Default)]
pub struct ReachableBlocks {
    pub(crate) slabs: BTreeMap<u32, SlabMarks>,
    pub(crate) large: BTreeMap<u32, u32>,
    problems: Vec<ReachabilityProblem>,
}

impl ReachableBlocks {
    /// What cannot be in a sound pool.
    pub fn problems(&self) -> &[ReachabilityProblem] {
        &self.problems
    }

    /// Reachable blocks.
    pub fn block_count(&self) -> u64 {
        let slabs: u64 = self.slabs.keys().map(|&first| self.slab_count(first)).sum();
        slabs + self.large.len() as u64
    }

    pub(crate) fn slab_count(&self, first: u32) -> u64 {
        self.slabs
            .get(&first)
            .map_or(0, |marks| marks.words.iter().map(|word| u64::from(word.count_ones())).sum())
    }

    pub(crate) fn has_large(&self, first: u32) -> bool {
        self.large.contains_key(&first)
    }

    /// The bitmap of reachable blocks of the slab at `first`; empty if there are none.
    pub(crate) fn marks_of(&self, first: u32) -> &[u64] {
        self.slabs.get(&first).map_or(&[], |marks| &marks.words)
    }
}

/// What [`Pool::reclaim`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Blocks that stay because they are reachable.
    pub reachable_blocks: u64,
    /// Whole chunks of 64 KiB that became free.
    pub freed_chunks: u64,
}

/// What [`Pool::audit`] found.
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    /// Blocks the allocator counts as in use.
    pub allocated_blocks: u64,
    /// Offsets of blocks that are allocated, and neither reachable nor in limbo.
    pub leaked: Vec<u64>,
    /// Offsets of blocks that are reachable or in limbo and that the allocator would hand out again.
    pub unallocated: Vec<u64>,
    /// What the visitor was told, and what is damaged or miscounted in the allocator's own tables.
    pub problems: Vec<ReachabilityProblem>,
}

impl AuditReport {
    /// Whether allocated and reachable are the same.
    pub fn is_clean(&self) -> bool {
        self.leaked.is_empty() && self.unallocated.is_empty() && self.problems.is_empty()
    }
}
