//! The leaves' locks, which lie in ordinary memory.
//!
//! The published leaf has its lock in persistent memory, where nobody flushes it and recovery has to
//! clear it. Here a table of words, chosen by the leaf's place, stands for the locks of all leaves:
//! nothing of it survives a crash, giving a lock back does not dirty a line that was just flushed, and a
//! leaf that is freed leaves no lock behind. Leaves that share a word share a lock, which costs a
//! wait now and then and is never waited for by somebody who holds another: a second lock is only
//! ever *tried*.
//!
//! A word counts: odd while the lock is held, and one more when it is given back after a change. A
//! reader who finds the same section before and after (the words differ in the lowest bit at most)
//! has seen the leaf of one moment within it.

#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use lapis_pmem::{Domain, Link, LockWait};

#[cfg(loom)]
type AtomicU64 = lapis_pmem::LoomAtomic<loom::sync::atomic::AtomicU64>;

/// Words of the table: 64 KiB, so that it stays in a processor's cache.
const WORDS: usize = if cfg!(loom) { 2 } else { 1 << 13 };
/// Bytes of the table, which comes first in what a modelled machine is told of.
pub(crate) const LOCK_BYTES: usize = WORDS * 8;

/// The locks of all leaves.
#[derive(Debug)]
pub(crate) struct LeafLocks {
    words: Box<[AtomicU64]>,
}

/// A lock's word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section(u64);

impl Section {
    /// Whether the lock is held.
    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether no section that changed anything ended between this reading and `later`.
    #[inline(always)]
    pub(crate) fn is_same(self, later: Self) -> bool {
        self.0 | 1 == later.0 | 1
    }
}

/// The word of a leaf's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockNumber(usize);

impl Default for LeafLocks {
    fn default() -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl LeafLocks {
    #[inline(always)]
    pub(crate) fn number_of<T>(leaf: Link<T>) -> LockNumber {
        let mixed = (leaf.offset() >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        LockNumber((mixed >> (64 - WORDS.trailing_zeros())) as usize)
    }

    #[inline(always)]
    fn word<D: Domain>(&self, domain: &D, number: LockNumber) -> &AtomicU64 {
        domain.touch_dram(number.0 * 8, 8);
        &self.words[number.0]
    }

    /// Reads the word; what follows in program order is not moved before it.
    #[inline(always)]
    pub(crate) fn read<D: Domain, T>(&self, domain: &D, leaf: Link<T>) -> Section {
        Section(self.word(domain, Self::number_of(leaf)).load(Ordering::Acquire))
    }

    /// Reads the word again after all that was read meanwhile.
    #[inline(always)]
    pub(crate) fn reread<D: Domain, T>(&self, domain: &D, leaf: Link<T>) -> Section {
        domain.order(Ordering::Acquire);
        Section(self.word(domain, Self::number_of(leaf)).load(Ordering::Relaxed))
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock<D: Domain>(&self, domain: &D, number: LockNumber) -> bool {
        domain.synchronize();
        let word = self.word(domain, number);
        let found = word.load(Ordering::Relaxed);
        let taken = found & 1 == 0
            && word
                .compare_exchange(found, found + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        // Nothing that the holder stores is seen by somebody who does not see the lock held.
        domain.order(Ordering::Release);
        taken
    }

    /// Takes the lock, waiting for it.
    #[inline(always)]
    pub(crate) fn lock<D: Domain>(&self, domain: &D, number: LockNumber) {
        if !self.try_lock(domain, number) {
            self.lock_contended(domain, number);
        }
    }

    #[cold]
    fn lock_contended<D: Domain>(&self, domain: &D, number: LockNumber) {
        let mut wait = LockWait::default();
        while !self.try_lock(domain, number) {
            wait.once(domain);
        }
    }

    /// Gives the lock back, after the fence that makes what was changed durable.
    #[inline(always)]
    pub(crate) fn unlock<D: Domain>(&self, domain: &D, number: LockNumber) {
        self.give_back(domain, number, |held| held + 1);
    }

    /// Gives the lock back; nothing was changed.
    #[inline(always)]
    pub(crate) fn unlock_unchanged<D: Domain>(&self, domain: &D, number: LockNumber) {
        self.give_back(domain, number, |held| held - 1);
    }

    #[inline(always)]
    fn give_back<D: Domain>(&self, domain: &D, number: LockNumber, free: impl Fn(u64) -> u64) {
        domain.synchronize();
        let word = self.word(domain, number);
        let held = word.load(Ordering::Relaxed);
        debug_assert!(held & 1 != 0, "gave back a lock that is not held");
        word.store(free(held), Ordering::Release);
    }

    /// Takes the lock, waiting for it, until what is returned is dropped.
    #[inline(always)]
    pub(crate) fn hold<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        number: LockNumber,
    ) -> HeldLeaf<'a, D> {
        self.lock(domain, number);
        HeldLeaf { locks: self, domain, number }
    }

    /// The same if it is free.
    pub(crate) fn try_hold<'a, D: Domain>(
        &'a self,
        domain: &'a D,
        number: LockNumber,
    ) -> Option<HeldLeaf<'a, D>> {
        self.try_lock(domain, number).then(|| HeldLeaf { locks: self, domain, number })
    }

    /// How many locks are held: none when nobody is at work.
    pub(crate) fn held(&self) -> usize {
        self.words.iter().filter(|word| word.load(Ordering::Relaxed) & 1 != 0).count()
    }
}

/// A leaf's lock, held; given back as after a change.
#[derive(Debug)]
pub(crate) struct HeldLeaf<'a, D: Domain> {
    locks: &'a LeafLocks,
    domain: &'a D,
    number: LockNumber,
}

impl<D: Domain> Drop for HeldLeaf<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        self.locks.unlock(self.domain, self.number);
    }
}

#[cfg(all(test, loom))]
mod every_order;

#[cfg(all(test, not(loom)))]
mod tests {
    use lapis_pmem::Hardware;

    use super::*;

    #[test]
    fn a_section_lasts_from_before_the_lock_until_a_change_is_given_back() {
        let (domain, locks) = (Hardware::detect(), LeafLocks::default());
        let leaf: Link<u64> = Link::from_bits(1 << 20);
        let number = LeafLocks::number_of(leaf);
        let free = locks.read(&domain, leaf);
        locks.lock(&domain, number);
        let held = locks.read(&domain, leaf);
        assert!(held.is_open() && free.is_same(held) && !locks.try_lock(&domain, number));
        locks.unlock_unchanged(&domain, number);
        assert_eq!(locks.reread(&domain, leaf), free);
        locks.lock(&domain, number);
        locks.unlock(&domain, number);
        let later = locks.reread(&domain, leaf);
        assert!(!later.is_open() && !free.is_same(later) && !held.is_same(later));
        assert_eq!(locks.held(), 0);
    }
}
