//! Look-ups. Readers take no lock and wait for nobody.

use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, Guard, Link, persist_before_answer};

use super::inner::{Directory, Found, Probe};
use super::leaf::{Leaf, order_loads};
use super::{NvTree, mutants};
use crate::key::IndexKey;

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// The directory, if the tree is not empty.
    #[inline(always)]
    pub(super) fn directory<'g>(&self, _pinned: &'g Guard<'_, D>) -> Option<&'g Directory> {
        let directory = self.directory.load(std::sync::atomic::Ordering::Acquire);
        // SAFETY: null or from a box, which is dropped only when all guards of the pool that were
        // alive at its replacement are gone.
        unsafe { directory.as_ref() }
    }

    /// Whether what was found in a directory is still there: then the leaf was the right one for
    /// everything loaded before (I7).
    #[inline(always)]
    pub(super) fn is_current(
        &self,
        directory: &Directory,
        found: &Found,
        pinned: &Guard<'_, D>,
    ) -> bool {
        directory.is_still(&self.pool, found)
            && (self.directory(pinned).is_some_and(|now| std::ptr::eq(now, directory))
                || self.domain().commits(mutants::DIRECTORY_UNCHECKED))
    }

    /// Makes durable what a reader may have seen of a change that is under way in a leaf: the line
    /// of the count, since records are durable before they count (I2). If the leaf is not locked
    /// now, whoever changed it has persisted the change.
    #[inline(always)]
    pub(super) fn persist_before_return(&self, leaf: Leaf<'_>) {
        order_loads();
        if self.locks.read(self.domain(), leaf.link).is_open() {
            persist_before_answer(self.domain(), [leaf.header]);
        }
    }

    /// The leaf to which `probe` leads, all of it on its way to the cache; none if the tree is empty.
    #[inline(always)]
    pub(super) fn arrive<'p, 'g>(
        &'p self,
        probe: Probe<'_>,
        pinned: &'g Guard<'_, D>,
    ) -> Option<(&'g Directory, Found, Leaf<'p>)> {
        let directory = self.directory(pinned)?;
        let found = directory.find(&self.pool, probe);
        let leaf = self.leaf(Link::from_bits(found.link));
        self.prefetch_leaf(leaf);
        Some((directory, found, leaf))
    }

    /// The value of `key` in the leaf that was found; nothing if that does not count.
    #[inline(always)]
    fn read_leaf(
        &self,
        directory: &Directory,
        found: &Found,
        leaf: Leaf<'_>,
        key: &K,
        pinned: &Guard<'_, D>,
    ) -> Option<Option<u64>> {
        let newest = self.newest(leaf, leaf.count(self.domain()), key);
        self.is_current(directory, found, pinned).then(|| {
            self.persist_before_return(leaf);
            newest.filter(|newest| !newest.deleted).map(|newest| newest.value)
        })
    }

    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Option<u64> {
        let mut space = [0; 8];
        let probe = Probe::up_to(key.bytes(&mut space));
        let pinned = self.pool.pin();
        loop {
            let (directory, found, leaf) = self.arrive(probe, &pinned)?;
            if let Some(answer) = self.read_leaf(directory, &found, leaf, key, &pinned) {
                return answer;
            }
        }
    }

    /// As [`NvTree::lookup`], in turns with others.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let mut space = [0; 8];
        let probe = Probe::up_to(key.bytes(&mut space));
        let pinned = self.pool.pin();
        loop {
            let (directory, found, leaf) = self.arrive(probe, &pinned)?;
            turn.give_way().await;
            if let Some(answer) = self.read_leaf(directory, &found, leaf, key, &pinned) {
                return answer;
            }
        }
    }
}
