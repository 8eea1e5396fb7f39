//! Caches of free blocks, so that threads seldom meet at the slabs.

use super::classes::{CLASS_COUNT, ClassId};
use crate::domain::Domain;
use crate::host_lock::{HostGuard, lock_owned};
use crate::owner_lock::OwnerGuard;
use crate::shards::Shards;

/// Most free blocks of one class that a cache takes from the slabs at once.
pub(super) const REFILL: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Caches(Shards<Cache>);

/// Free blocks by class; the last is the next to be handed out.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Of each class, or none as long as nothing was put into any: most of the caches of a pool that
    /// is opened for a moment.
    magazines: Vec<Vec<u64>>,
}

impl Caches {
    /// The calling thread's cache.
    #[inline]
    pub(super) fn mine<'a, D: Domain>(
        &'a self,
        domain: &'a D,
    ) -> HostGuard<'a, D, OwnerGuard<'a, Cache>> {
        lock_owned(domain, self.0.mine(domain))
    }

    /// Empties all caches.
    pub(super) fn drain<D: Domain>(&self, domain: &D) -> Vec<(ClassId, Vec<u64>)> {
        let mut drained = Vec::new();
        for shard in self.0.all() {
            let mut cache = lock_owned(domain, shard);
            for (class, blocks) in ClassId::all().zip(&mut cache.magazines) {
                if !blocks.is_empty() {
                    drained.push((class, std::mem::take(blocks)));
                }
            }
        }
        drained
    }
}

impl Cache {
    #[inline]
    pub(super) fn pop(&mut self, class: ClassId) -> Option<u64> {
        self.magazines.get_mut(class.index())?.pop()
    }

    #[inline]
    pub(super) fn push(&mut self, class: ClassId, offset: u64) {
        self.magazine(class).push(offset);
    }

    #[inline]
    pub(super) fn magazine(&mut self, class: ClassId) -> &mut Vec<u64> {
        if self.magazines.is_empty() {
            self.magazines.resize_with(CLASS_COUNT, Vec::new);
        }
        &mut self.magazines[class.index()]
    }

    #[inline]
    pub(super) fn is_overfull(&self, class: ClassId) -> bool {
        self.magazines.get(class.index()).is_some_and(|blocks| blocks.len() > 2 * REFILL)
    }

    /// Takes the half that was freed longest ago.
    pub(super) fn shed(&mut self, class: ClassId) -> Vec<u64> {
        self.magazine(class).drain(..REFILL).collect()
    }
}
