//! The persistent allocator: which bytes of a pool belong to which block.
//!
//! In the manner of Ralloc (Cai et al., ISMM 2020): what is persistent is only how the pool is cut
//! into slabs of equal blocks; *which* blocks are free is kept in DRAM and, after a crash, worked
//! out again by a walk from the roots. The steady state therefore has no flush and no fence, and
//! no crash can leak or double-allocate. What differs from Ralloc: opening never waits for a
//! walk. After a crash allocation goes on in chunks that nobody has, and in blocks freed
//! since, until [`Pool::reclaim`](crate::Pool::reclaim) is told what is reachable; after a clean shutdown
//! saved bitmaps make a walk unnecessary and are read slab by slab, as needed.
//!
//! ```text
//!  pool = chunks of 64 KiB; segments of chunks, each beginning with its chunk table
//!
//!  segment 0 (chunks 0 ..= 7679)            segment k >= 1 (1 Mi chunks = 64 GiB each)
//!  +--------+-------------+------------     +---------------+------------------------
//!  | header | descriptors | chunk 1 …       | descriptors   | data chunks
//!  | 4 KiB  | 7680 x 8 B  |                 | 1 Mi x 8 B    |
//!  +--------+-------------+------------     +---------------+------------------------
//!
//!  descriptor (8 bytes)   63        32 31     16 15    8 7     0
//!                        +------------+---------+-------+-------+
//!                        |  chunks    |  zero   | class | kind  |  kind 0 free, 1 slab, 2 large
//!                        +------------+---------+-------+-------+
//!
//!  slab (1 chunk, or 8 for blocks over 4 KiB)
//!  +--------------------------+---------+---------+----
//!  | saved bitmap, 1 = in use | block 0 | block 1 | …
//!  +--------------------------+---------+---------+----
//!
//!  large (blocks over 32 KiB): a run of whole chunks; only the first has a descriptor
//! ```
//!
//! Invariants, at every instant a crash may come:
//!
//! * A1. A reachable block lies in a slab or large run whose descriptor is durable: the descriptor
//!   is persisted before the allocator hands out the first block.
//! * A2. The descriptor of every chunk that is not the first of a slab or run is zero: runs are
//!   made of free chunks, whose descriptors are zero, and a freed run's descriptor is zeroed and
//!   persisted before any of its chunks is used again.
//! * A3. Chunks at or above the header's high-water mark have zero descriptors and were never
//!   handed out: the mark is durable before a descriptor of a run that ends beyond its old value
//!   is written. (By one fence for both, the descriptor of a run across the old mark could be
//!   durable and the mark not; the chunks behind the mark would then be given out twice.) The mark
//!   never lies within a chunk table: what comes behind it is a table or the first chunk of a run.
//! * A4. Saved bitmaps are believed only after a clean shutdown that says so, and no block is
//!   allocated between the shutdown that writes them and the open that stops believing them (H3).
//!
//! A descriptor that says what none can (not as many chunks as its class has, an end beyond the mark or the
//! segment, another kind) is damaged: its chunks are in use, and belong to nobody.
//!
//! Costs: a block from a cache, a partial slab or a freed block: no flush, no fence. A new slab or
//! large run: 1 flush and 1 fence, and once in 16 chunks another 1 and 1 for the high-water mark.
//! A slab has at least 15 blocks, so the amortised cost is below 0.1 flushes per allocation.
//!
//! Each of 16 caches keeps up to 128 free blocks of a class. Before a pool is said to be full they give them back.

mod audit;
mod cache;
mod chunks;
mod classes;
mod locate;
#[doc(hidden)]
pub mod mutants;
mod slabs;

use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::domain::Domain;
use crate::host_lock::{HostGuard, lock};
use crate::pool::{Pool, Usage};
use crate::region::{EXTENT_BYTES, Region, RegionError};

use cache::Caches;
use chunks::ChunkMap;
use classes::{CLASS_COUNT, ClassId};
pub use classes::{LARGEST_SLAB_BLOCK_BYTES, block_bytes_for};
pub(crate) use classes::{bytes_of_size, size_of_block};
use slabs::ClassSlabs;

pub(crate) use chunks::{Descriptor, is_unused_from};
pub(crate) use locate::BlockMap;

/// The largest block, in bytes: a segment without its chunk table.
pub const LARGEST_BLOCK_BYTES: usize = (64 << 30) - (8 << 20);

/// Why a block could not be had. The pool is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The pool is full and cannot grow.
    #[error("the pool is full: no room for a block of {asked_bytes} bytes ({why})")]
    Full {
        /// Bytes asked for.
        asked_bytes: usize,
        /// Why it could not grow.
        why: RegionError,
    },
    /// Larger than [`LARGEST_BLOCK_BYTES`].
    #[error("a block of {asked_bytes} bytes is larger than the largest, {LARGEST_BLOCK_BYTES}")]
    TooLarge {
        /// Bytes asked for.
        asked_bytes: usize,
    },
}

/// A block: where it is and its size ([`size_of_block`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Allocator {
    caches: Caches,
    /// Of each class that anything has been asked of: what goes over all classes need not lock the others, of which there
    /// is nothing. Asked for many blocks at a time: threads seldom meet at them, on whatever line they are.
    classes: [OnceLock<Box<Mutex<ClassSlabs>>>; CLASS_COUNT],
    chunks: Mutex<ChunkMap>,
}

impl Allocator {
    /// Zeroes the chunk table of segment 0 and flushes it; the caller fences.
    pub(crate) fn format<D: Domain>(region: &Region, domain: &D) {
        chunks::format(region, domain);
    }

    /// The allocator of a pool whose chunks below `high_water` may be in use.
    pub(crate) fn open(high_water: u32, bitmaps_valid: bool) -> Self {
        Self {
            caches: Caches::default(),
            classes: [const { OnceLock::new() }; CLASS_COUNT],
            chunks: Mutex::new(ChunkMap::open(high_water, bitmaps_valid)),
        }
    }

    /// The slabs of a class.
    fn slabs_of<'a, D: Domain>(
        &'a self,
        pool: &'a Pool<D>,
        class: ClassId,
    ) -> HostGuard<'a, D, MutexGuard<'a, ClassSlabs>> {
        lock(pool.domain(), self.classes[class.index()].get_or_init(Box::default))
    }

    /// The classes of which there may be slabs or blocks.
    fn used_classes(&self) -> impl Iterator<Item = ClassId> {
        ClassId::all().filter(|class| self.classes[class.index()].get().is_some())
    }

    #[inline]
    pub(crate) fn allocate<D: Domain>(
        &self,
        pool: &Pool<D>,
        bytes: usize,
    ) -> Result<u64, AllocError> {
        let Some(class) = ClassId::for_bytes(bytes) else {
            return self.allocate_large(pool, bytes);
        };
        let mut cache = self.caches.mine(pool.domain());
        if let Some(offset) = cache.pop(class) {
            return Ok(offset);
        }
        self.refill(pool, class, &mut cache).or_else(|_| {
            drop(cache);
            self.allocate_of_what_is_left(pool, class, bytes)
        })
    }

    #[cold]
    fn allocate_of_what_is_left<D: Domain>(
        &self,
        pool: &Pool<D>,
        class: ClassId,
        bytes: usize,
    ) -> Result<u64, AllocError> {
        self.make_room(pool);
        self.refill(pool, class, &mut self.caches.mine(pool.domain()))
            .map_err(|why| AllocError::Full { asked_bytes: bytes_of_size(bytes), why })
    }

    /// Of what is free and lies in no free chunk, before the pool is said to be full: blocks whose readers have gone although
    /// the epoch does not show it yet, and blocks that threads keep at hand, this one and others.
    fn make_room<D: Domain>(&self, pool: &Pool<D>) {
        for block in pool.limbo().hasten(pool.domain()) {
            self.free(pool, block);
        }
        self.empty_caches(pool);
    }

    /// Returns the blocks that threads keep at hand to their slabs.
    fn empty_caches<D: Domain>(&self, pool: &Pool<D>) {
        for (class, offsets) in self.caches.drain(pool.domain()) {
            self.give_back(pool, class, &offsets);
        }
    }

    #[cold]
    fn refill<D: Domain>(
        &self,
        pool: &Pool<D>,
        class: ClassId,
        cache: &mut cache::Cache,
    ) -> Result<u64, RegionError> {
        // Blocks whose readers have gone are the cheapest: look at them first.
        let passed = pool.limbo().take_passed(pool.domain());
        if !passed.is_empty() {
            self.keep_at_hand(pool, passed, cache);
            if let Some(offset) = cache.pop(class) {
                return Ok(offset);
            }
        }
        let mut slabs = self.slabs_of(pool, class);
        while slabs.is_exhausted() {
            drop(slabs);
            let more = self.discover(pool);
            slabs = self.slabs_of(pool, class);
            if more || !slabs.is_exhausted() {
                continue;
            }
            let count = class.slab_chunks();
            let taken = lock(pool.domain(), &self.chunks).take_run(
                pool,
                count,
                Descriptor::slab(class, count),
            );
            match taken {
                Ok(first) => slabs.adopt_empty(class, first),
                Err(why) => {
                    // Retired blocks may only be waiting for somebody to ask whether their
                    // readers have gone.
                    drop(slabs);
                    self.keep_at_hand(pool, pool.limbo().hasten(pool.domain()), cache);
                    return cache.pop(class).ok_or(why);
                }
            }
        }
        slabs.take(pool.domain(), class, cache.magazine(class));
        Ok(cache.pop(class).expect("a slab that is not exhausted gives at least one block"))
    }

    /// Frees blocks into `cache`, and what is more than it keeps into the slabs: they may be the whole pool's, and of
    /// classes that this thread never allocates.
    fn keep_at_hand<D: Domain>(
        &self,
        pool: &Pool<D>,
        blocks: Vec<Block>,
        cache: &mut cache::Cache,
    ) {
        for block in blocks {
            let Some(class) = ClassId::for_bytes(block.bytes) else {
                self.free_large(pool, block);
                continue;
            };
            cache.push(class, block.offset);
            if cache.is_overfull(class) {
                self.give_back(pool, class, &cache.shed(class));
            }
        }
    }

    pub(crate) fn free<D: Domain>(&self, pool: &Pool<D>, block: Block) {
        let Some(class) = ClassId::for_bytes(block.bytes) else {
            return self.free_large(pool, block);
        };
        let mut cache = self.caches.mine(pool.domain());
        cache.push(class, block.offset);
        if cache.is_overfull(class) {
            let surplus = cache.shed(class);
            drop(cache);
            self.give_back(pool, class, &surplus);
        }
    }

    /// Returns blocks to their slabs; slabs that become empty give their chunks back.
    fn give_back<D: Domain>(&self, pool: &Pool<D>, class: ClassId, offsets: &[u64]) {
        let mut slabs = self.slabs_of(pool, class);
        for &offset in offsets {
            if let Some(emptied) = slabs.give_back(class, offset) {
                pool.domain().happens("an empty slab is freed");
                lock(pool.domain(), &self.chunks).free_run(pool, emptied, class.slab_chunks());
            }
        }
    }

    #[cold]
    fn allocate_large<D: Domain>(&self, pool: &Pool<D>, bytes: usize) -> Result<u64, AllocError> {
        if bytes > LARGEST_BLOCK_BYTES {
            return Err(AllocError::TooLarge { asked_bytes: bytes });
        }
        for block in pool.limbo().take_passed(pool.domain()) {
            self.free(pool, block);
        }
        pool.domain().happens("a large block");
        let count = bytes.div_ceil(EXTENT_BYTES) as u32;
        while self.discover(pool) {}
        let take =
            || lock(pool.domain(), &self.chunks).take_run(pool, count, Descriptor::large(count));
        let first = take().or_else(|_| {
            self.make_room(pool);
            take()
        });
        let first = first.map_err(|why| AllocError::Full { asked_bytes: bytes, why })?;
        Ok(u64::from(first) * EXTENT_BYTES as u64)
    }

    #[cold]
    fn free_large<D: Domain>(&self, pool: &Pool<D>, block: Block) {
        let first = (block.offset / EXTENT_BYTES as u64) as u32;
        lock(pool.domain(), &self.chunks).free_run(
            pool,
            first,
            block.bytes.div_ceil(EXTENT_BYTES) as u32,
        );
    }

    /// Whether chunks for `bytes` can be had, growing the region if need be.
    pub(crate) fn ensure_headroom<D: Domain>(
        &self,
        pool: &Pool<D>,
        bytes: usize,
    ) -> Result<(), AllocError> {
        let count = u32::try_from(bytes.div_ceil(EXTENT_BYTES)).map_err(|_| {
            let why = RegionError::Full { capacity_bytes: pool.region().reserved_bytes() };
            AllocError::Full { asked_bytes: bytes, why }
        })?;
        let free = |allocator: &Self| lock(pool.domain(), &allocator.chunks).free_chunks(pool);
        if free(self) >= count {
            return Ok(());
        }
        for block in pool.limbo().take_passed(pool.domain()) {
            self.free(pool, block);
        }
        while self.discover(pool) {}
        if free(self) >= count {
            return Ok(());
        }
        let Err(why) = lock(pool.domain(), &self.chunks).grow_by(pool, count) else {
            return Ok(());
        };
        self.make_room(pool);
        if free(self) >= count {
            return Ok(());
        }
        Err(AllocError::Full { asked_bytes: bytes, why })
    }

    /// Every slab and run, for finding what is reachable.
    pub(crate) fn survey<D: Domain>(&self, pool: &Pool<D>) -> Vec<(u32, Descriptor)> {
        lock(pool.domain(), &self.chunks).survey(pool)
    }

    pub(crate) fn needs_reclaim<D: Domain>(&self, pool: &Pool<D>) -> bool {
        lock(pool.domain(), &self.chunks).needs_reclaim()
    }

    /// Reads some descriptors not yet read since the pool was opened and, after a clean shutdown, adopts the
    /// slabs they name.
    /// Returns whether there were any. Lock order: a class's lock may be held when the chunks' is
    /// taken, never the other way round.
    fn discover<D: Domain>(&self, pool: &Pool<D>) -> bool {
        let mut found = Vec::new();
        let more = lock(pool.domain(), &self.chunks)
            .discover(pool, |class, first| found.push((class, first)));
        for (class, first) in found {
            self.slabs_of(pool, class).adopt_saved(pool, class, first);
        }
        more
    }

    /// Returns every cached block to its slab, for an exact picture.
    fn settle<D: Domain>(&self, pool: &Pool<D>) {
        self.empty_caches(pool);
        while self.discover(pool) {}
        for class in self.used_classes() {
            let loose = self.slabs_of(pool, class).take_loose();
            if !loose.is_empty() {
                self.give_back(pool, class, &loose);
            }
        }
    }

    /// Writes the bitmaps of all slabs that changed and flushes them; the caller fences. Returns
    /// whether the saved bitmaps are complete.
    pub(crate) fn save<D: Domain>(&self, pool: &Pool<D>) -> bool {
        self.empty_caches(pool);
        if self.needs_reclaim(pool) {
            return pool.domain().commits(mutants::UNRECLAIMED_BITMAPS_VALID);
        }
        let any_loose = self.used_classes().any(|id| self.slabs_of(pool, id).has_loose());
        if any_loose {
            // Their slabs' saved bitmaps count them as in use: read those slabs now and correct it.
            pool.domain().happens("blocks of slabs that were not read yet are freed");
            if !pool.domain().commits(mutants::FREES_OF_UNREAD_SLABS_FORGOTTEN) {
                self.settle(pool);
            }
        }
        for class in self.used_classes() {
            self.slabs_of(pool, class).save(pool, class);
        }
        true
    }

    pub(crate) fn usage<D: Domain>(&self, pool: &Pool<D>) -> Usage {
        let exact = !self.needs_reclaim(pool);
        if exact {
            self.settle(pool);
        }
        let slabs: u64 = self
            .used_classes()
            .map(|class| {
                let in_use = self.slabs_of(pool, class).blocks_in_use();
                in_use * class.block_bytes() as u64
            })
            .sum();
        let chunks = lock(pool.domain(), &self.chunks);
        Usage {
            storage_bytes: pool.region().mapped_bytes() as u64,
            touched_bytes: u64::from(chunks.high_water()) * EXTENT_BYTES as u64,
            allocated_bytes: slabs + chunks.large_bytes(pool),
            exact,
        }
    }
}

/// The bits that are set, in ascending order.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}
