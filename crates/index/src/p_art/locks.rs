//! The locks of nodes.

use lapis_pmem::{Dirty, Domain, GenerationLock, Owned, Pool};

use super::{PArt, mutants};
use crate::art::node::{Child, Head};
use crate::key::IndexKey;
use crate::radix::{Claims, HeldNodes, Holding, LockMutants, Obstacle, RadixTree, lock_at};

const MUTANTS: LockMutants = LockMutants {
    persisted_lock: mutants::PERSISTED_LOCK,
    new_node_unlocked: mutants::NEW_NODE_UNLOCKED,
};

/// I12: writes the lock of a new node as one that the caller holds.
#[inline]
pub(super) fn lock_new<D: Domain>(node: &mut Owned<'_, D, Head, Dirty>) {
    let word = MUTANTS.word_of_new(node.pool());
    node.write_tail(0, &word.bits().to_le_bytes());
}

/// I12: the word that refers to the node is durable.
#[inline]
pub(super) fn unlock_new<D: Domain>(pool: &Pool<D>, node: Child) {
    MUTANTS.unlock_new(pool, node.lock_place());
}

impl<D: Domain, K: IndexKey + ?Sized> PArt<D, K> {
    /// The lock of `node`, or that of the root.
    #[inline(always)]
    pub(super) fn lock_of(&self, node: Option<Child>) -> &GenerationLock {
        let handle = self.handle();
        node.map_or_else(|| handle.root_lock(), |node| lock_at(&handle.pool, node.lock_place()))
    }

    /// Takes the lock of `node`, or that of the root, if it is free (I11).
    #[inline(always)]
    pub(super) fn try_lock(&self, node: Option<Child>) -> Option<HeldNodes<'_, D>> {
        let pool = &self.handle().pool;
        HeldNodes::try_take(pool.domain(), MUTANTS.generation(pool), self.lock_of(node))
    }
}

impl<D: Domain> Holding for HeldNodes<'_, D> {
    /// What is asked for beside the node's own lock is that of the node above.
    fn require(&self, claims: Claims) -> Result<(), Obstacle> {
        if self.has_above() { Ok(()) } else { Err(Obstacle::Needs(claims)) }
    }

    fn note_unlinking(&self) {
        self.note_unlinking();
    }
}
