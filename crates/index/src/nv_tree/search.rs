//! Look-ups. Readers take no lock and wait for nobody.

use lapis_pmem::{Domain, Link, persist_before_answer};

use super::NvTree;
use super::inner::{Directory, Found, Probe};
use super::leaf::{Leaf, order_loads};
use crate::key::IndexKey;

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// The directory, if the tree is not empty.
    #[inline(always)]
    pub(super) fn directory<'g>(&self, epoch: &'g crossbeam_epoch::Guard) -> Option<&'g Directory> {
        let shared = self.directory.load(std::sync::atomic::Ordering::Acquire, epoch);
        // SAFETY: null or made by `Owned::new`, and dropped only when all guards that were pinned
        // at its replacement are gone.
        unsafe { shared.as_ref() }
    }

    /// Whether what was found in a directory is still there: then the leaf was the right one for
    /// everything loaded before (I7).
    #[inline(always)]
    pub(super) fn is_current(
        &self,
        directory: &Directory,
        found: &Found,
        epoch: &crossbeam_epoch::Guard,
    ) -> bool {
        directory.is_still(&self.pool, found)
            && self.directory(epoch).is_some_and(|now| std::ptr::eq(now, directory))
    }

    /// Makes durable what a reader may have seen of a change that is under way in a leaf: the line
    /// of the count, since records are durable before they count (I2). If the leaf is not locked
    /// now, whoever changed it has persisted the change.
    #[inline(always)]
    pub(super) fn persist_before_return(&self, leaf: Leaf<'_>) {
        order_loads();
        if self.lock_of(leaf.link).is_locked() {
            persist_before_answer(self.domain(), [leaf.header]);
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Option<u64> {
        let mut space = [0; 8];
        let probe = Probe::up_to(key.bytes(&mut space));
        let _pinned = self.pool.pin();
        let epoch = crossbeam_epoch::pin();
        loop {
            let directory = self.directory(&epoch)?;
            let found = directory.find(&self.pool, probe);
            let leaf = self.leaf(Link::from_bits(found.link));
            self.prefetch_leaf(leaf);
            let newest = self.newest(leaf, leaf.count(self.domain()), key);
            if self.is_current(directory, &found, &epoch) {
                self.persist_before_return(leaf);
                return newest.filter(|newest| !newest.deleted).map(|newest| newest.value);
            }
        }
    }
}
