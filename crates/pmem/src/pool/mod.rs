//! Pools: a region with a header, named roots, an allocator and readers' epochs.

mod access;
mod error;
mod header;
mod open;
mod resident;
mod roots;
mod sole_use;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::allocator::{AllocError, Allocator, Block, size_of_block};
use crate::blocks::{Batch, InOrder};
use crate::cell::{Link, Persistent};
use crate::commit::Committed;
use crate::domain::Domain;
use crate::hardware::Hardware;
use crate::owned::{Dirty, Owned};
use crate::parts::KnownParts;
use crate::reachable::{AuditReport, BlockVisitor, ReachableBlocks, ReachablePart, ReclaimReport};
use crate::reclaim::{Guard, Limbo};
use crate::region::{EXTENT_BYTES, Region};

pub use access::Reach;
pub use error::{PoolError, RootError};
use header::Header;
pub use header::{FORMAT_VERSION, ROOT_CAPACITY, ROOT_NAME_BYTES};
use open::header_of;
pub use resident::Resident;
pub use sole_use::SoleUse;
use sole_use::SoleUses;

/// The smallest pool: the first chunk (header and chunk table) and one chunk of data.
pub const MIN_POOL_BYTES: usize = 2 * EXTENT_BYTES;

/// A pool of persistent memory on a machine `D`.
///
/// Everything in it is named by [`Link`]s, which are offsets, so that a pool opens at any address.
/// Dropping the pool shuts it down cleanly (see [`Pool::abandon`] for the other way).
pub struct Pool<D: Domain = Hardware> {
    /// Many kilobytes, which are not to move with the pool.
    allocator: Box<Allocator>,
    limbo: Limbo,
    domain: D,
    generation: u64,
    opened_clean: bool,
    lost_power_unsafely: u64,
    abandoned: AtomicBool,
    in_use: Mutex<SoleUses>,
    region: Region,
}

impl<D: Domain> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({}, {} bytes)", self.region.medium().name(), self.region.mapped_bytes())
    }
}

impl<D: Domain> Pool<D> {
    /// The machine the pool is on.
    #[inline(always)]
    pub fn domain(&self) -> &D {
        &self.domain
    }

    /// The region the pool lies in.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// How often the pool has been opened. Locks of another generation are free (H2).
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The pool's identity.
    pub fn uuid(&self) -> uuid::Uuid {
        let header = self.header();
        uuid::Uuid::from_u64_pair(
            header.uuid[0].load(&self.domain),
            header.uuid[1].load(&self.domain),
        )
    }

    /// Whether the last user shut the pool down cleanly.
    pub fn opened_clean(&self) -> bool {
        self.opened_clean
    }

    /// How often the memory module lost power without keeping all that it should have, while the pool was open, since it
    /// was opened before: what was acknowledged may be gone. 0 where modules do not count that.
    pub fn lost_power_unsafely(&self) -> u64 {
        self.lost_power_unsafely
    }

    pub(crate) fn header(&self) -> &Header {
        header_of(&self.region)
    }

    /// Allocates a block for a `T`. Its contents are arbitrary: write every field.
    ///
    /// Steady state: no flush, no fence. A new slab costs 1 flush and 1 fence, and as much again when
    /// the pool's high-water mark moves; see [`crate::allocator`].
    ///
    /// # Errors
    /// [`AllocError`]; the pool is as it was.
    #[inline]
    pub fn allocate<T: Persistent>(&self) -> Result<Owned<'_, D, T, Dirty>, AllocError> {
        self.allocate_with_tail(0)
    }

    /// Allocates a block for a `T` with `tail_bytes` bytes behind it.
    ///
    /// # Errors
    /// [`AllocError`]; the pool is as it was.
    #[inline]
    pub fn allocate_with_tail<T: Persistent>(
        &self,
        tail_bytes: usize,
    ) -> Result<Owned<'_, D, T, Dirty>, AllocError> {
        let bytes = size_of::<T>()
            .checked_add(tail_bytes)
            .ok_or(AllocError::TooLarge { asked_bytes: usize::MAX })?;
        let offset = self.allocator.allocate(self, size_of_block::<T>(bytes))?;
        Ok(Owned::new(self, Link::from_bits(offset), tail_bytes))
    }

    /// Gives back a block that nothing refers to and that was never reachable, or whose epoch has
    /// passed.
    pub(crate) fn free_block(&self, offset: u64, bytes: usize) {
        self.allocator.free(self, Block { offset, bytes });
    }

    /// One fence for a batch of in-flight blocks.
    ///
    /// ```
    /// # use lapis_pmem::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::create_anonymous(1 << 20)?;
    /// let a = pool.allocate::<PCell<u64>>()?.flush();
    /// let b = pool.allocate::<PCell<u64>>()?.flush();
    /// let (a, b) = pool.fence((a, b));
    /// # drop((a, b)); Ok(()) }
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn fence<B: Batch>(&self, batch: B) -> B::Durable {
        self.domain.fence();
        batch.fenced(InOrder(()))
    }

    /// Flushes `what`, and fences for it and for a batch of in-flight blocks.
    #[inline(always)]
    #[track_caller]
    pub fn persist_with<T: ?Sized, B: Batch>(&self, what: &T, batch: B) -> B::Durable {
        self.domain.persist(what);
        batch.fenced(InOrder(()))
    }

    /// Starts a read: blocks that are reachable now stay readable until the guard is dropped.
    #[inline]
    pub fn pin(&self) -> Guard<'_, D> {
        Guard::new(self)
    }

    /// The `T` at `link`, for who follows it again and again.
    ///
    /// # Panics
    /// As [`Pool::at`].
    pub fn resident<T: Persistent>(self: &Arc<Self>, link: Link<T>) -> Resident<D, T> {
        Resident::new(self, link)
    }

    /// The right to use what hangs at `link` alone; none while somebody else has it. Only who asks for it is kept out:
    /// it is for structures whose locks are in their handle, which two handles would not share.
    pub fn sole_use<T: Persistent>(self: &Arc<Self>, link: Link<T>) -> Option<SoleUse<D>> {
        SoleUse::of(self, link.offset())
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    pub(crate) fn limbo(&self) -> &Limbo {
        &self.limbo
    }

    /// Hands over a block that is no longer reachable, of which `_unlinked` is the proof: it is
    /// freed when every reader that may still see it has gone.
    ///
    /// # Panics
    /// If no such block can be at `link`: the pool is damaged.
    #[inline]
    pub fn retire<T: Persistent>(
        &self,
        link: Link<T>,
        block_bytes: usize,
        _unlinked: Committed,
        guard: &Guard<'_, D>,
    ) {
        self.check_block(link, block_bytes);
        let bytes = size_of_block::<T>(block_bytes);
        self.limbo.retire(Block { offset: link.offset(), bytes }, guard);
    }

    /// Hands over a value in the host's memory that nobody who pins from now on can come by: it is
    /// dropped when every reader that may still see it has gone.
    pub fn retire_value<T: Send + 'static>(&self, value: Box<T>, guard: &Guard<'_, D>) {
        self.limbo.retire_value(value, guard);
    }

    /// Takes back a block that *was* published but that the calling thread alone can reach now and
    /// that no reader can have seen, of which `_unlinked` is the proof. For building and tearing
    /// down whole structures.
    ///
    /// # Panics
    /// As [`Pool::retire`].
    pub fn free_unshared<T: Persistent>(
        &self,
        link: Link<T>,
        block_bytes: usize,
        _unlinked: Committed,
    ) {
        self.check_block(link, block_bytes);
        self.free_block(link.offset(), size_of_block::<T>(block_bytes));
    }

    /// Makes sure that `bytes` can be allocated before the first of them is, growing the region if
    /// need be: for callers that must not fail half-way. A promise only while nobody else
    /// allocates.
    ///
    /// # Errors
    /// [`AllocError::Full`]; the pool is as it was.
    pub fn ensure_headroom(&self, bytes: usize) -> Result<(), AllocError> {
        self.allocator.ensure_headroom(self, bytes)
    }

    /// Retires every block that is `reachable`: for dropping a whole structure, of which
    /// `_unlinked` proves that it can no longer be reached. It ends each [`Pool::sole_use`] of one of them.
    pub fn retire_reachable(
        &self,
        reachable: &ReachableBlocks,
        _unlinked: Committed,
        guard: &Guard<'_, D>,
    ) {
        for block in reachable.blocks() {
            self.in_use.lock().end(block.offset);
            self.limbo.retire(block, guard);
        }
    }

    /// Bytes of storage, bytes in use by blocks as far as the allocator knows, and whether that is
    /// exact (it is not between a crash and [`Pool::reclaim`]).
    pub fn usage(&self) -> Usage {
        self.allocator.usage(self)
    }

    /// Whether the pool was opened after a crash and [`Pool::reclaim`] has not run since. Until it
    /// has, blocks that were free at the crash are not reused.
    pub fn needs_reclaim(&self) -> bool {
        self.allocator.needs_reclaim(self)
    }

    /// Collects every block that is reachable: `visit_blocks` calls [`BlockVisitor::visit`] for
    /// each. Nothing is changed. Nobody may mutate the structures meanwhile.
    pub fn reachable(
        &self,
        visit_blocks: impl FnOnce(&mut BlockVisitor<'_, D>),
    ) -> ReachableBlocks {
        let mut visitor = BlockVisitor::new(self, None);
        visit_blocks(&mut visitor);
        visitor.finish()
    }

    /// [`Pool::reachable`], of which some parts may be `known`: see [`parts`](crate::parts).
    pub fn reachable_by_parts<'p>(
        &'p self,
        known: &'p mut dyn KnownParts<ReachablePart>,
        visit_blocks: impl FnOnce(&mut BlockVisitor<'p, D>),
    ) -> ReachableBlocks {
        let mut visitor = BlockVisitor::new(self, Some(known));
        visit_blocks(&mut visitor);
        visitor.finish()
    }

    /// Makes the allocator's picture equal to `reachable`: every block that is neither reachable nor
    /// in limbo becomes free. Not if the visitor was told of [problems](ReachableBlocks::problems): what hangs below a
    /// broken reference would become free too. Then nothing changes, and [`Pool::needs_reclaim`] stays as it was.
    ///
    /// Between the visit and the end of this call nobody may allocate, free or mutate, and no
    /// [`Owned`] may be outstanding; readers may go on. Durable at the next clean shutdown; after
    /// a crash it is simply done again.
    pub fn reclaim(&self, reachable: &ReachableBlocks) -> ReclaimReport {
        self.allocator.reclaim(self, reachable)
    }

    /// Compares `reachable` with the allocator's picture: blocks that are allocated and neither
    /// reachable nor in limbo have leaked. The same conditions as for [`Pool::reclaim`] hold.
    pub fn audit(&self, reachable: &ReachableBlocks) -> AuditReport {
        self.allocator.audit(self, reachable)
    }

    /// [`Pool::reclaim`] if that is called for, then [`Pool::audit`].
    pub fn reclaim_and_audit(&self, reachable: &ReachableBlocks) -> AuditReport {
        if self.needs_reclaim() {
            self.reclaim(reachable);
        }
        self.audit(reachable)
    }

    /// Lets go of the pool as a crash would: dropping it will not mark a clean shutdown.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Takes [`Pool::abandon`] back.
    pub fn keep(&self) {
        self.abandoned.store(false, Ordering::Relaxed);
    }
}

/// How much of a pool is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of storage mapped.
    pub storage_bytes: u64,
    /// Bytes in chunks that have ever been handed out.
    pub touched_bytes: u64,
    /// Bytes in blocks that are allocated, as far as known.
    pub allocated_bytes: u64,
    /// Whether `allocated_bytes` is exact.
    pub exact: bool,
}
