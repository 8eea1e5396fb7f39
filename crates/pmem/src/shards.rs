//! What each thread has a part of, so that threads seldom meet.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::domain::Domain;
use crate::owner_lock::OwnerLock;

/// Parts; threads are dealt to them in turn.
const SHARDS: usize = 16;

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn my_shard() -> usize {
    match SHARD.get() {
        usize::MAX => deal(),
        shard => shard,
    }
}

#[cold]
fn deal() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    SHARD.set(shard);
    shard
}

/// A part for each thread. Seldom contended: one thread in sixteen shares it.
#[derive(Debug, Default)]
pub(crate) struct Shards<T>([Apart<OwnerLock<T>>; SHARDS]);

/// No two are in one pair of lines, which the prefetcher fetches together. By distance, for what is aligned costs malloc
/// several times as much, and the checker opens pools by the hundred thousand.
#[derive(Debug, Default)]
struct Apart<T> {
    part: T,
    _distance: [[u64; 8]; 2],
}

impl<T> Shards<T> {
    /// The calling thread's, or that of the worker it acts as.
    #[inline]
    pub(crate) fn mine<D: Domain>(&self, domain: &D) -> &OwnerLock<T> {
        &self.0[domain.worker().map_or_else(my_shard, |worker| worker % SHARDS)].part
    }

    /// The first, for those who share one.
    #[inline]
    pub(crate) fn first(&self) -> &OwnerLock<T> {
        &self.0[0].part
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OwnerLock<T>> {
        self.0.iter().map(|shard| &shard.part)
    }
}
