//! The locks of nodes: held, given back, and kept for good.

use std::cell::Cell;

use lapis_pmem::{Dirty, Domain, GenerationLock, LockGeneration, LockWord, Owned, PCell, Pool};

use super::{PArt, mutants};
use crate::art::node::{Child, Head};
use crate::hash_table::locks;
use crate::key::IndexKey;
use crate::radix::{Claims, Holding, Obstacle, Place, RadixTree};

/// The generation in which locks are taken.
#[inline(always)]
fn generation<D: Domain>(pool: &Pool<D>) -> LockGeneration {
    locks::generation(pool, mutants::PERSISTED_LOCK)
}

#[inline(always)]
pub(super) fn lock_at<D: Domain>(pool: &Pool<D>, place: Place) -> &GenerationLock {
    GenerationLock::in_word(pool.at::<PCell<u64>>(place))
}

/// I12: writes the lock of a new node as one that the caller holds.
#[inline]
pub(super) fn lock_new<D: Domain>(node: &mut Owned<'_, D, Head, Dirty>) {
    let word = if node.domain().commits(mutants::NEW_NODE_UNLOCKED) {
        LockWord::free(0)
    } else {
        LockWord::held(generation(node.pool()))
    };
    node.write_tail(0, &word.bits().to_le_bytes());
}

/// I12: the word that refers to the node is durable.
#[inline]
pub(super) fn unlock_new<D: Domain>(pool: &Pool<D>, node: Child) {
    if !pool.domain().commits(mutants::NEW_NODE_UNLOCKED) {
        lock_at(pool, node.lock_place()).unlock_unchanged(pool.domain());
    }
}

/// The lock of a node, and perhaps that of the node above. Dropping this gives them back, but that
/// of a node that has been unlinked (I11).
pub(super) struct HeldNodes<'t, D: Domain> {
    domain: &'t D,
    node: &'t GenerationLock,
    above: Option<&'t GenerationLock>,
    unlinked: Cell<bool>,
}

impl<'t, D: Domain> HeldNodes<'t, D> {
    /// Takes the lock of `node`, or that of the root, if it is free. The caller has pinned the pool
    /// since it found the node; while the lock is held, the node is reachable (I11).
    #[inline(always)]
    pub(super) fn try_take<K: IndexKey + ?Sized>(
        tree: &'t PArt<D, K>,
        node: Option<Child>,
    ) -> Option<Self> {
        let pool = &*tree.handle().pool;
        let lock = Self::lock_of(tree, node);
        lock.try_lock(pool.domain(), generation(pool))?;
        Some(Self { domain: pool.domain(), node: lock, above: None, unlinked: Cell::new(false) })
    }

    /// Takes that of the node above, too, if it is free. The caller has pinned the pool since it found
    /// it.
    pub(super) fn try_take_above<K: IndexKey + ?Sized>(
        &mut self,
        tree: &'t PArt<D, K>,
        above: Option<Child>,
    ) -> bool {
        let lock = Self::lock_of(tree, above);
        let taken = lock.try_lock(self.domain, generation(&tree.handle().pool)).is_some();
        if taken {
            self.above = Some(lock);
        }
        taken
    }

    #[inline(always)]
    fn lock_of<K: IndexKey + ?Sized>(
        tree: &'t PArt<D, K>,
        node: Option<Child>,
    ) -> &'t GenerationLock {
        let handle = tree.handle();
        match node {
            Some(node) => lock_at(&handle.pool, node.lock_place()),
            None => GenerationLock::in_word(&handle.pool.at(handle.root).words[0]),
        }
    }
}

impl<D: Domain> Holding for HeldNodes<'_, D> {
    /// What is asked for beside the node's own lock is that of the node above.
    fn require(&self, claims: Claims) -> Result<(), Obstacle> {
        if self.above.is_some() { Ok(()) } else { Err(Obstacle::Needs(claims)) }
    }

    fn note_unlinking(&self) {
        self.unlinked.set(true);
    }
}

impl<D: Domain> Drop for HeldNodes<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(above) = self.above {
            above.unlock_unchanged(self.domain);
        }
        if !self.unlinked.get() {
            self.node.unlock_unchanged(self.domain);
        }
    }
}
