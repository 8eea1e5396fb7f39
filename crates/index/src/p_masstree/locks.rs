//! Locks of nodes, and what the first to take one after a crash does.

use std::cell::Cell;

use lapis_pmem::{Domain, GenerationLock, LockGeneration, LockWord};

use super::node::View;
use super::read::Above;
use super::{LOCK_MUTANTS, PMasstree, mutants};
use crate::key::IndexKey;

/// A lock that is held, until this is dropped.
pub struct Locked<'t, D: Domain> {
    lock: &'t GenerationLock,
    domain: &'t D,
    /// What its word is.
    word: Cell<LockWord>,
    /// Whether the section is counted when it ends.
    counts: Cell<bool>,
}

impl<'t, D: Domain> Locked<'t, D> {
    #[inline(always)]
    fn new(lock: &'t GenerationLock, domain: &'t D, word: LockWord) -> Self {
        Self { lock, domain, word: Cell::new(word), counts: Cell::new(false) }
    }

    /// What readers look at has changed, durably.
    #[inline(always)]
    pub fn note_change(&self) {
        self.counts.set(true);
    }

    /// The node has been unlinked, durably. M6: before any lock is given back.
    pub fn note_unlinking(&self) {
        if !self.domain.commits(mutants::UNCOUNTED_UNLINKING) {
            self.word.set(self.lock.count_section(self.domain));
        }
    }
}

impl<D: Domain> Drop for Locked<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.counts.get() {
            false => self.lock.unlock_unchanged(self.domain, self.word.get()),
            true => self.lock.unlock(self.domain, self.word.get()),
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PMasstree<D, K> {
    #[inline(always)]
    fn generation(&self) -> LockGeneration {
        LOCK_MUTANTS.generation(&self.handle.pool)
    }

    /// Takes the lock of a node, if it is free and nobody has changed the node since it was read. What lies beyond its
    /// bound is taken out of it, if that has not been looked after since the pool was opened (M4).
    #[inline(always)]
    pub(super) fn try_lock<'t>(&'t self, view: &mut View<'t>) -> Option<Locked<'t, D>> {
        let domain = self.handle.pool.domain();
        let lock = &view.node.lock;
        let before = lock.try_lock(domain, self.generation())?;
        let locked = Locked::new(lock, domain, before.taken(self.generation()));
        if before != view.lock && !domain.commits(mutants::STALE_DECISION) {
            return None;
        }
        if !before.is_current(self.generation()) {
            self.drop_beyond_bound(view, &locked);
        }
        Some(locked)
    }

    #[cold]
    fn drop_beyond_bound(&self, view: &mut View<'_>, locked: &Locked<'_, D>) {
        let domain = self.handle.pool.domain();
        let live = view.live_count(domain);
        if view.is_interior() && domain.commits(mutants::CHILDREN_BEYOND_BOUND) {
            return;
        }
        if live < view.permutation.count() {
            domain.happens("entries beyond a node's bound are dropped");
            {
                let _mutant = domain.omitting(mutants::UNFLUSHED_TRUNCATION);
                self.truncate(view, live);
            }
            // The slots may be used again before the lock is given back.
            locked.word.set(locked.lock.count_section(domain));
        }
    }

    /// Leaves a node its first entries alone. The slots of the others are free when this is durable.
    pub(super) fn truncate(&self, view: &mut View<'_>, count: usize) {
        let shorter = view.permutation.truncated(count);
        let _ = self.handle.publish(view.permutation_place(), (), |()| shorter.0);
        view.permutation = shorter;
    }

    /// Takes the lock under which a word that leads to a node changes, if the word is still what it was.
    pub(super) fn try_lock_above<'t>(&'t self, above: &mut Above<'t>) -> Option<Locked<'t, D>> {
        if let Some(view) = &mut above.view {
            return self.try_lock(view);
        }
        let (lock, domain) = (self.handle.root_lock(), self.handle.pool.domain());
        let before = lock.try_lock(domain, self.generation())?;
        let locked = Locked::new(lock, domain, before.taken(self.generation()));
        (self.word_at(above.place).0 == above.word.0).then_some(locked)
    }
}
