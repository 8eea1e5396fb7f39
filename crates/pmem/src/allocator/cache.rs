//! Caches of free blocks, so that threads seldom meet at the slabs.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use super::classes::{CLASS_COUNT, ClassId};
use crate::domain::Domain;
use crate::host_lock::{HostGuard, lock};

/// Caches per allocator; threads are dealt to them in turn.
const SHARDS: usize = 16;

/// Most free blocks of one class that a cache takes from the slabs at once.
pub(super) const REFILL: usize = 64;

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn my_shard() -> usize {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

#[derive(Debug, Default)]
pub(super) struct Caches {
    shards: [CachePadded<Mutex<Cache>>; SHARDS],
}

/// Free blocks by class; the last is the next to be handed out.
#[derive(Debug)]
pub(super) struct Cache {
    magazines: [Vec<u64>; CLASS_COUNT],
}

impl Default for Cache {
    fn default() -> Self {
        Self { magazines: std::array::from_fn(|_| Vec::new()) }
    }
}

impl Caches {
    /// The calling thread's cache, or that of the worker it acts as. Seldom contended: it is shared
    /// by one thread in sixteen.
    #[inline]
    pub(super) fn mine<'a, D: Domain>(
        &'a self,
        domain: &'a D,
    ) -> HostGuard<'a, D, MutexGuard<'a, Cache>> {
        let shard = domain.worker().map_or_else(my_shard, |worker| worker % SHARDS);
        lock(domain, &self.shards[shard])
    }

    /// Empties all caches.
    pub(super) fn drain<D: Domain>(&self, domain: &D) -> Vec<(ClassId, Vec<u64>)> {
        let mut drained = Vec::new();
        for shard in &self.shards {
            let mut cache = lock(domain, shard);
            for class in ClassId::all() {
                let blocks = std::mem::take(&mut cache.magazines[class.index()]);
                if !blocks.is_empty() {
                    drained.push((class, blocks));
                }
            }
        }
        drained
    }
}

impl Cache {
    #[inline]
    pub(super) fn pop(&mut self, class: ClassId) -> Option<u64> {
        self.magazines[class.index()].pop()
    }

    #[inline]
    pub(super) fn push(&mut self, class: ClassId, offset: u64) {
        self.magazines[class.index()].push(offset);
    }

    pub(super) fn magazine(&mut self, class: ClassId) -> &mut Vec<u64> {
        &mut self.magazines[class.index()]
    }

    #[inline]
    pub(super) fn is_overfull(&self, class: ClassId) -> bool {
        self.magazines[class.index()].len() > 2 * REFILL
    }

    /// Takes the half that was freed longest ago.
    pub(super) fn shed(&mut self, class: ClassId) -> Vec<u64> {
        self.magazines[class.index()].drain(..REFILL).collect()
    }
}
