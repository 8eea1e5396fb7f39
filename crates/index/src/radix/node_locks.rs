//! Locks that lie in nodes: held, given back, and kept for good.
//!
//! A writer goes down without locks, takes the lock of what it is to change if that is free, and looks
//! whether it is still what it found. If not, or if the lock is taken, it lets go of everything and goes
//! down again: nobody waits while holding a lock. Who unlinks a node never gives its lock back, which is
//! the mark by which other writers know that the node is obsolete.

use std::cell::Cell;

use lapis_pmem::{Domain, GenerationLock, LockGeneration, LockWait, LockWord, Mutant, PCell, Pool};

use super::digits::{Digits, Span};
use super::word::Place;
use crate::hash_table::locks;
use crate::index::{IndexError, Outcome};
use crate::key::IndexKey;

/// What looks like damage to a walk may be the work of others, who would have to do so again in
/// every attempt.
const ATTEMPTS: u32 = 1000;

/// The errors that a tree with locks in its nodes can be told to commit.
#[derive(Debug)]
pub struct LockMutants {
    /// A lock that a crash has left locked stays locked.
    pub persisted_lock: Mutant,
    /// A new node is not locked.
    pub new_node_unlocked: Mutant,
}

impl LockMutants {
    /// The generation in which locks are taken.
    #[inline(always)]
    pub fn generation<D: Domain>(&self, pool: &Pool<D>) -> LockGeneration {
        locks::generation(pool, self.persisted_lock)
    }

    /// The lock of a new node: held by who makes it.
    #[inline]
    pub fn word_of_new<D: Domain>(&self, pool: &Pool<D>) -> LockWord {
        if pool.domain().commits(self.new_node_unlocked) {
            return LockWord::free(0);
        }
        LockWord::held(self.generation(pool))
    }

    /// Gives the lock of a new node back: the word that refers to the node is durable.
    #[inline]
    pub fn unlock_new<D: Domain>(&self, pool: &Pool<D>, lock: Place) {
        if !pool.domain().commits(self.new_node_unlocked) {
            let held = LockWord::held(self.generation(pool));
            lock_at(pool, lock).unlock_unchanged(pool.domain(), held);
        }
    }
}

/// The lock that lies at `place`.
#[inline(always)]
pub fn lock_at<D: Domain>(pool: &Pool<D>, place: Place) -> &GenerationLock {
    GenerationLock::in_word(pool.at::<PCell<u64>>(place))
}

/// A lock, and what its word is while it is held.
type HeldNode<'t> = (&'t GenerationLock, LockWord);

/// The locks of one node, of the node above, and perhaps of more, in the order in which they were
/// taken. Dropping this gives them back, but those of nodes that have been unlinked.
pub struct HeldNodes<'t, D: Domain> {
    domain: &'t D,
    generation: LockGeneration,
    first: HeldNode<'t>,
    second: Option<HeldNode<'t>>,
    further: Vec<HeldNode<'t>>,
    unlinked: Cell<bool>,
}

/// Takes a lock if it is free.
#[inline(always)]
fn take<'t, D: Domain>(
    domain: &D,
    generation: LockGeneration,
    lock: &'t GenerationLock,
) -> Option<HeldNode<'t>> {
    lock.try_lock(domain, generation).map(|before| (lock, before.taken(generation)))
}

impl<'t, D: Domain> HeldNodes<'t, D> {
    /// Takes a lock if it is free. The caller has pinned the pool since it found the node; while the
    /// lock is held, the node is reachable.
    #[inline(always)]
    pub fn try_take(
        domain: &'t D,
        generation: LockGeneration,
        lock: &'t GenerationLock,
    ) -> Option<Self> {
        let first = take(domain, generation, lock)?;
        let unlinked = Cell::new(false);
        Some(Self { domain, generation, first, second: None, further: Vec::new(), unlinked })
    }

    /// Takes another one, too, if it is free.
    #[inline]
    pub fn try_take_also(&mut self, lock: &'t GenerationLock) -> bool {
        let Some(taken) = take(self.domain, self.generation, lock) else { return false };
        if self.second.is_none() {
            self.second = Some(taken);
        } else {
            self.further.push(taken);
        }
        true
    }

    /// Whether there is more than one.
    #[inline(always)]
    pub fn has_above(&self) -> bool {
        self.second.is_some()
    }

    /// All nodes but that whose lock was taken last have been unlinked, by a store that is durable.
    #[inline(always)]
    pub fn note_unlinking(&self) {
        self.unlinked.set(true);
    }
}

impl<D: Domain> Drop for HeldNodes<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        let give_back = |(lock, word): HeldNode<'_>| lock.unlock_unchanged(self.domain, word);
        let unlinked = self.unlinked.get();
        match self.further.split_last() {
            None => {
                if let Some(above) = self.second {
                    give_back(above);
                }
                if !unlinked {
                    give_back(self.first);
                }
            }
            Some((last, others)) => {
                give_back(*last);
                if !unlinked {
                    others.iter().copied().chain(self.second).for_each(give_back);
                    give_back(self.first);
                }
            }
        }
    }
}

/// Changes what `key` has by attempts, which come to nothing if others have been there before.
#[inline]
pub fn change_by_attempts<D: Domain, K: IndexKey + ?Sized, S: Span>(
    domain: &D,
    key: &K,
    mut attempt: impl FnMut(&Digits<'_, K, S>) -> Result<Option<Outcome>, IndexError>,
) -> Result<Outcome, IndexError> {
    key.validate()?;
    let mut space = [0; 8];
    let key = Digits::of(key, &mut space);
    match attempt(&key) {
        Ok(Some(outcome)) => Ok(outcome),
        overtaken => attempt_again(domain, overtaken, || attempt(&key)),
    }
}

/// Goes on making attempts, of which this was the `first`, until one is not overtaken by others.
#[cold]
#[inline(never)]
pub fn attempt_again<D: Domain>(
    domain: &D,
    first: Result<Option<Outcome>, IndexError>,
    mut attempt: impl FnMut() -> Result<Option<Outcome>, IndexError>,
) -> Result<Outcome, IndexError> {
    let (mut found, mut damaged) = (first, 0);
    let mut wait = LockWait::default();
    loop {
        match found {
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) => {}
            Err(IndexError::Damaged { .. }) if damaged < ATTEMPTS => damaged += 1,
            Err(error) => return Err(error),
        }
        wait.once(domain);
        found = attempt();
    }
}
