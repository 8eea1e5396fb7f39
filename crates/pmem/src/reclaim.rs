//! Epochs: a retired block is freed only when no reader can still see it.
//!
//! Readers pin ([`Pool::pin`]); a block that was unlinked, durably, is retired into limbo and comes
//! out when every guard that was alive at its retirement has been dropped. The grace periods are
//! crossbeam-epoch's. Limbo itself belongs to the pool, so that closing a pool can account for
//! every block in it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::allocator::{Block, bytes_of_size};
use crate::domain::Domain;
use crate::pool::Pool;

/// Retired blocks are given to the collector in batches of this many.
const BATCH: usize = 64;
/// A batch also ends when it holds this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Keeps every block that is reachable now readable. Not `Send`.
pub struct Guard<'p, D: Domain> {
    pool: &'p Pool<D>,
    epoch: Option<crossbeam_epoch::Guard>,
}

impl<D: Domain> std::fmt::Debug for Guard<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

impl<'p, D: Domain> Guard<'p, D> {
    #[inline]
    pub(crate) fn new(pool: &'p Pool<D>) -> Self {
        let epoch = if D::DETERMINISTIC {
            pool.domain().synchronize();
            pool.limbo().pins.fetch_add(1, Ordering::AcqRel);
            None
        } else {
            Some(crossbeam_epoch::pin())
        };
        Self { pool, epoch }
    }

    /// The pool that is pinned.
    pub fn pool(&self) -> &'p Pool<D> {
        self.pool
    }
}

impl<D: Domain> Drop for Guard<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if !D::DETERMINISTIC {
            return;
        }
        self.pool.domain().synchronize();
        // No event of the domain lies between the count and the taking of what is in limbo, so
        // none of it can have been retired by, or for, somebody who has pinned since.
        if self.pool.limbo().pins.fetch_sub(1, Ordering::AcqRel) == 1 {
            for block in self.pool.limbo().drain_all() {
                self.pool.free_block(block.offset, block.bytes);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Batch {
    blocks: Vec<Block>,
    bytes: usize,
    /// Set by the collector when the grace period of the whole batch is over.
    passed: Arc<AtomicBool>,
}

/// Blocks that are unreachable and may still be being read.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    open: Mutex<Batch>,
    sealed: Mutex<VecDeque<Batch>>,
    pins: AtomicUsize,
}

impl Limbo {
    pub(crate) fn retire<D: Domain>(&self, block: Block, guard: &Guard<'_, D>) {
        // What was unlinked is visible to whoever pins from here on.
        guard.pool().domain().synchronize();
        let mut open = self.open.lock();
        open.blocks.push(block);
        open.bytes += bytes_of_size(block.bytes);
        if D::DETERMINISTIC || (open.blocks.len() < BATCH && open.bytes < BATCH_BYTES) {
            return;
        }
        drop(open);
        self.seal(guard);
    }

    /// Gives the open batch to the collector.
    fn seal<D: Domain>(&self, guard: &Guard<'_, D>) {
        let mut open = self.open.lock();
        let batch = std::mem::take(&mut *open);
        let passed = Arc::clone(&batch.passed);
        self.sealed.lock().push_back(batch);
        drop(open);
        if let Some(epoch) = &guard.epoch {
            epoch.defer(move || passed.store(true, Ordering::Release));
            epoch.flush();
        }
    }

    /// Removes the blocks whose readers have gone.
    pub(crate) fn take_passed(&self) -> Vec<Block> {
        let mut sealed = self.sealed.lock();
        let mut blocks = Vec::new();
        while sealed.front().is_some_and(|batch| batch.passed.load(Ordering::Acquire)) {
            blocks.extend(sealed.pop_front().map(|batch| batch.blocks).unwrap_or_default());
        }
        blocks
    }

    /// Removes the blocks whose readers have gone, after having done what there is to do that the
    /// epoch shows it: for when memory is short. Waits a moment for readers that are about to
    /// go; one that stays keeps what it may see.
    pub(crate) fn hasten<D: Domain>(&self, guard: Guard<'_, D>) -> Vec<Block> {
        const PATIENCE: Duration = Duration::from_millis(250);
        if !self.open.lock().blocks.is_empty() {
            self.seal(&guard);
        }
        drop(guard);
        let mut blocks = self.take_passed();
        let began = Instant::now();
        while !D::DETERMINISTIC && !self.sealed.lock().is_empty() && began.elapsed() < PATIENCE {
            crossbeam_epoch::pin().flush();
            blocks.extend(self.take_passed());
            std::thread::yield_now();
        }
        blocks
    }

    /// Removes everything; only when no guard is alive.
    pub(crate) fn drain_all(&self) -> Vec<Block> {
        // Every guard of a deterministic machine comes here, mostly in vain: that is to cost little.
        let mut open = self.open.lock();
        let mut blocks = std::mem::take(&mut open.blocks);
        open.bytes = 0;
        drop(open);
        for batch in self.sealed.lock().drain(..) {
            blocks.extend(batch.blocks);
        }
        blocks
    }

    /// What is in limbo now.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = self.open.lock().blocks.clone();
        for batch in self.sealed.lock().iter() {
            blocks.extend(&batch.blocks);
        }
        blocks
    }
}
