//! Locks of chains and groups of buckets, of segments, and of whoever changes the whole table.

use lapis_pmem::{
    Committed, Domain, GenerationLock, LockGeneration, LockWord, Mutant, Pool, Visible,
};

use super::bucket::{Bucket, FROZEN};
use super::table::Table;

/// The payload of the lock for growing while the word that refers to the table is being replaced: a
/// new table may be visible that is not durable yet.
pub(crate) const PUBLISHING: u8 = 1;

/// The generation in which locks are taken; by the mutant, always the same.
pub(crate) fn generation<D: Domain>(pool: &Pool<D>, never_ends: Mutant) -> LockGeneration {
    if pool.domain().commits(never_ends) {
        let generation = LockGeneration::of(1);
        // It is what the locks go by, and so what images differ in.
        pool.domain().note_generation(generation);
        return generation;
    }
    LockGeneration::of(pool.generation())
}

/// Whether `growing`, the lock for growing, says [`PUBLISHING`].
#[inline(always)]
pub(crate) fn is_publishing<D: Domain>(
    growing: &GenerationLock,
    domain: &D,
    generation: LockGeneration,
) -> bool {
    let word = growing.read(domain);
    word.payload() & PUBLISHING != 0 && word.is_locked(generation)
}

/// The whole payload of a lock.
pub(crate) const WHOLE_PAYLOAD: u8 = 0x7F;

/// A lock, held. Dropping it counts one more section and lets go. Two words, which are handed on in registers: loads
/// of what was just stored, if they are wider, wait until the stores have been drained.
#[must_use]
pub(crate) struct HeldLock<'a, D: Domain> {
    lock: &'a GenerationLock,
    domain: &'a D,
}

impl<'a, D: Domain> HeldLock<'a, D> {
    /// Takes a lock if it is free.
    #[inline(always)]
    pub(crate) fn try_take(
        lock: &'a GenerationLock,
        domain: &'a D,
        generation: LockGeneration,
    ) -> Option<Self> {
        lock.try_lock(domain, generation).map(|_| Self { lock, domain })
    }

    /// Takes a lock if it is free, and takes the bits of its payload away that a growth which was cut
    /// short has left behind: [`FROZEN`] in those of buckets.
    #[inline(always)]
    pub(crate) fn try_take_cleared(
        lock: &'a GenerationLock,
        domain: &'a D,
        generation: LockGeneration,
        left_behind: u8,
    ) -> Option<Self> {
        let before = lock.try_lock(domain, generation)?;
        Some(Self { lock, domain }.cleared(before, left_behind))
    }

    /// As [`HeldLock::try_take_cleared`], waiting for it.
    pub(crate) fn take_cleared(
        lock: &'a GenerationLock,
        domain: &'a D,
        generation: LockGeneration,
        left_behind: u8,
    ) -> Self {
        let before = lock.lock(domain, generation);
        Self { lock, domain }.cleared(before, left_behind)
    }

    #[inline(always)]
    fn cleared(self, before: LockWord, left_behind: u8) -> Self {
        if before.payload() & left_behind != 0 {
            self.lock.set_payload(self.domain, before.payload() & !left_behind);
        }
        self
    }

    /// Counts a section and goes on: readers that have seen what was before begin anew.
    pub(crate) fn count_section(&self) {
        self.lock.count_section(self.domain);
    }

    /// Makes the last change durable, counts one more section and lets go.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn persist(self, change: Visible<'_, D>) -> Committed {
        // Before the flush, which is often of its line.
        let word = self.word();
        let committed = change.persist();
        self.leave_from(word);
        committed
    }

    /// The word as it is.
    #[inline(always)]
    pub(crate) fn word(&self) -> LockWord {
        self.lock.read(self.domain)
    }

    /// Counts one more section and lets go, if `word` is what the word is.
    #[inline(always)]
    pub(crate) fn leave_from(self, word: LockWord) {
        self.lock.unlock(self.domain, word);
        std::mem::forget(self);
    }

    /// Lets go without counting: nothing was changed.
    #[inline(always)]
    pub(crate) fn leave_unchanged(self) {
        self.lock.unlock_unchanged(self.domain, self.word());
        std::mem::forget(self);
    }
}

impl<D: Domain> Drop for HeldLock<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.unlock(self.domain, self.word());
    }
}

/// Buckets with a lock that are locked for copying: the first so many of those that have one. Dropping
/// this lets go of them without counting, for nothing was changed.
///
/// The locks of a table that has been replaced are never given back. Hence a lock that could be taken
/// belongs to the current table, which is not replaced while it is held.
#[must_use]
pub(crate) struct Frozen<'a, D: Domain> {
    pool: &'a Pool<D>,
    generation: LockGeneration,
    table: Table<Bucket>,
    /// Every so many buckets there is one with a lock.
    step: u64,
    locked: u64,
}

impl<'a, D: Domain> Frozen<'a, D> {
    pub(crate) fn none_of(
        pool: &'a Pool<D>,
        generation: LockGeneration,
        table: Table<Bucket>,
        step: u64,
    ) -> Self {
        Self { pool, generation, table, step, locked: 0 }
    }

    /// Waits for the writer of the next one and keeps others out. None if it is not inside the pool.
    pub(crate) fn freeze_next(&mut self) -> Option<&'a Bucket> {
        let domain = self.pool.domain();
        let head = self.pool.try_at(self.table.at(self.locked * self.step))?;
        // In ascending order, in which writers of several take them.
        let before = head.lock.lock(domain, self.generation);
        head.lock.set_payload(domain, before.payload() | FROZEN);
        self.locked += 1;
        Some(head)
    }

    /// Leaves them locked for ever: another table has taken their place.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl<D: Domain> Drop for Frozen<'_, D> {
    fn drop(&mut self) {
        let domain = self.pool.domain();
        for number in 0..self.locked {
            let head = self.pool.at(self.table.at(number * self.step));
            let held = head.lock.read(domain);
            head.lock.set_payload(domain, held.payload() & !FROZEN);
            head.lock.unlock_unchanged(domain, head.lock.read(domain));
        }
    }
}
