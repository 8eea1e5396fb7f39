//! Limbo: a retired block is freed only when no reader can still see it.
//!
//! Readers pin ([`Pool::pin`]); a block that was unlinked, durably, is retired into limbo and comes
//! out when every guard that was alive at its retirement has been dropped: see
//! [`epoch`](crate::epoch). Limbo belongs to the pool, so that closing a pool can account for every
//! block in it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::allocator::{Block, bytes_of_size};
use crate::domain::Domain;
use crate::epoch::{PROCESS, ProcessReader};
use crate::owner_lock::{OwnerGuard, OwnerLock};
use crate::pool::Pool;
use crate::shards::Shards;

/// What is retired gets a stamp in batches of this many.
const BATCH: usize = 64;
/// A batch also ends when it holds this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Keeps every block that is reachable now readable. Not `Send`.
///
/// Pinning while another guard of the thread is alive costs next to nothing.
///
/// ```compile_fail
/// # use lapis_pmem::*;
/// fn is_send<T: Send>() {}
/// is_send::<Guard<'_, Hardware>>();
/// ```
pub struct Guard<'p, D: Domain> {
    pool: &'p Pool<D>,
    /// Of the thread that pinned; none on a deterministic machine.
    reader: Option<ProcessReader>,
    thread: PhantomData<*const ()>,
}

impl<D: Domain> fmt::Debug for Guard<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

impl<'p, D: Domain> Guard<'p, D> {
    #[inline(always)]
    pub(crate) fn new(pool: &'p Pool<D>) -> Self {
        let reader = if D::DETERMINISTIC {
            pool.domain().synchronize();
            pool.limbo().pins.fetch_add(1, Ordering::AcqRel);
            None
        } else {
            Some(PROCESS.pin(pool.domain()))
        };
        Self { pool, reader, thread: PhantomData }
    }

    /// The pool that is pinned.
    pub fn pool(&self) -> &'p Pool<D> {
        self.pool
    }
}

impl<D: Domain> Drop for Guard<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.reader {
            Some(reader) => reader.unpin(self.pool.domain()),
            None => unpin_deterministic(self.pool),
        }
    }
}

/// Ends a pin on a deterministic machine. Apart from the rest, so that a guard stays in registers on others.
#[cold]
#[inline(never)]
fn unpin_deterministic<D: Domain>(pool: &Pool<D>) {
    pool.domain().synchronize();
    // No event of the domain lies between the count and the taking of what is in limbo, so
    // none of it can have been retired by, or for, somebody who has pinned since.
    if pool.limbo().pins.fetch_sub(1, Ordering::AcqRel) == 1 {
        for block in pool.limbo().drain_all::<D>() {
            pool.free_block(block.offset, block.bytes);
        }
    }
}

/// What was retired together.
#[derive(Debug, Default)]
struct Batch {
    blocks: Vec<Block>,
    bytes: usize,
    /// What lies in the host's memory: dropped where blocks are freed.
    values: Vec<Box<dyn Any + Send>>,
    /// The epoch in which all of it had been unlinked.
    stamp: u64,
}

/// Blocks that are unreachable and may still be being read.
#[derive(Default)]
pub(crate) struct Limbo {
    /// Each thread's. On a deterministic machine the first is everybody's. Kilobytes, which are not to move with the pool.
    open: Box<Shards<Batch>>,
    /// In the order of their stamps.
    sealed: Mutex<VecDeque<Batch>>,
    pins: AtomicUsize,
}

impl Limbo {
    pub(crate) fn retire<D: Domain>(&self, block: Block, guard: &Guard<'_, D>) {
        self.add(guard, |open| {
            open.blocks.push(block);
            open.bytes += bytes_of_size(block.bytes);
        });
    }

    pub(crate) fn retire_value<D: Domain>(&self, value: Box<dyn Any + Send>, guard: &Guard<'_, D>) {
        self.add(guard, |open| open.values.push(value));
    }

    /// The calling thread's open batch. No event of the domain comes while it is held, so that nobody waits
    /// for it on a deterministic machine.
    #[inline]
    fn mine<D: Domain>(&self, domain: &D) -> OwnerGuard<'_, Batch> {
        if D::DETERMINISTIC {
            return self.open.first().lock_shared();
        }
        self.open.mine(domain).lock()
    }

    /// Every open batch, one at a time.
    fn all_open<D: Domain>(&self) -> impl Iterator<Item = OwnerGuard<'_, Batch>> {
        let (first, others) = if D::DETERMINISTIC {
            (Some(self.open.first().lock_shared()), None)
        } else {
            (None, Some(self.open.all().map(OwnerLock::lock)))
        };
        first.into_iter().chain(others.into_iter().flatten())
    }

    fn add<D: Domain>(&self, guard: &Guard<'_, D>, add: impl FnOnce(&mut Batch)) {
        // What was unlinked is visible to whoever pins from here on.
        guard.pool().domain().synchronize();
        let mut open = self.mine(guard.pool().domain());
        add(&mut open);
        let full = open.blocks.len() + open.values.len() >= BATCH || open.bytes >= BATCH_BYTES;
        if full && !D::DETERMINISTIC {
            self.seal(guard.pool().domain(), &mut open);
        }
    }

    /// Stamps what is in the open batch.
    fn seal<D: Domain>(&self, domain: &D, open: &mut Batch) {
        let mut sealed = self.sealed.lock();
        let mut batch = std::mem::take(open);
        batch.stamp = PROCESS.stamp(domain);
        sealed.push_back(batch);
    }

    /// Removes the blocks whose readers have gone.
    pub(crate) fn take_passed<D: Domain>(&self, domain: &D) -> Vec<Block> {
        let first = self.sealed.lock().front().map(|batch| batch.stamp);
        let Some(oldest) = first.and_then(|first| PROCESS.oldest_if_beyond(domain, first)) else {
            return Vec::new();
        };
        let mut sealed = self.sealed.lock();
        let passed = sealed.iter().take_while(|batch| batch.stamp < oldest).count();
        let passed: Vec<Batch> = sealed.drain(..passed).collect();
        drop(sealed);
        passed.into_iter().flat_map(|batch| batch.blocks).collect()
    }

    /// Removes the blocks whose readers have gone, and waits a moment for readers that are about to
    /// go: for when memory is short. One that stays keeps what it may see, and the caller, if it is pinned, stays.
    pub(crate) fn hasten<D: Domain>(&self, domain: &D) -> Vec<Block> {
        const PATIENCE: Duration = Duration::from_millis(250);
        if D::DETERMINISTIC {
            return Vec::new();
        }
        for mut open in self.all_open::<D>() {
            if !open.blocks.is_empty() {
                self.seal(domain, &mut open);
            }
        }
        let mut blocks = self.take_passed(domain);
        let began = Instant::now();
        while self.waits_for_others(domain) && began.elapsed() < PATIENCE {
            std::thread::yield_now();
            blocks.extend(self.take_passed(domain));
        }
        blocks
    }

    /// Whether something waits, and not for the calling thread.
    fn waits_for_others<D: Domain>(&self, domain: &D) -> bool {
        let first = self.sealed.lock().front().map(|batch| batch.stamp);
        first.is_some_and(|first| !PROCESS.is_kept_here(domain, first))
    }

    /// Removes everything; only when no guard is alive.
    pub(crate) fn drain_all<D: Domain>(&self) -> Vec<Block> {
        // Every guard of a deterministic machine comes here, mostly in vain: that is to cost little.
        let mut blocks = Vec::new();
        for mut open in self.all_open::<D>() {
            let Batch { blocks: open_blocks, values, .. } = std::mem::take(&mut *open);
            drop(open);
            blocks.extend(open_blocks);
            drop(values);
        }
        for batch in self.sealed.lock().drain(..) {
            blocks.extend(batch.blocks);
        }
        blocks
    }

    /// What is in limbo now.
    pub(crate) fn blocks<D: Domain>(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        self.all_open::<D>().for_each(|open| blocks.extend(&open.blocks));
        for batch in self.sealed.lock().iter() {
            blocks.extend(&batch.blocks);
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Hardware, Region};

    fn pool() -> Pool<Hardware> {
        let region = Region::anonymous(1 << 20, 1 << 20).unwrap();
        Pool::create(region, Hardware::detect()).unwrap()
    }

    /// Retires something in host memory, and stamps it. As long as it is there, its count is two.
    fn retire(pool: &Pool<Hardware>, guard: &Guard<'_, Hardware>) -> Arc<()> {
        let value = Arc::new(());
        pool.retire_value(Box::new(Arc::clone(&value)), guard);
        let limbo = pool.limbo();
        limbo.seal(pool.domain(), &mut limbo.mine(pool.domain()));
        value
    }

    #[test]
    fn what_this_thread_itself_may_see_is_not_waited_for_and_stays() {
        let pool = pool();
        let guard = pool.pin();
        let value = retire(&pool, &guard);
        assert!(!pool.limbo().waits_for_others(pool.domain()));
        pool.limbo().hasten(pool.domain());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(guard);
        assert!(pool.limbo().waits_for_others(pool.domain()));
        // Other tests' threads may be pinned.
        while Arc::strong_count(&value) == 2 {
            pool.limbo().hasten(pool.domain());
        }
    }

    #[test]
    fn what_only_others_may_see_is_waited_for() {
        let pool = pool();
        let before = pool.pin();
        drop(retire(&pool, &before));
        std::thread::scope(|scope| {
            let waits = || {
                // Pinned since, so that it may see nothing of it.
                let _guard = pool.pin();
                pool.limbo().waits_for_others(pool.domain())
            };
            assert!(scope.spawn(waits).join().unwrap());
        });
    }
}
