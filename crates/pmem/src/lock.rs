//! Locks that lie in persistent memory and do not survive a restart.
//!
//! A lock word in a node saves a cache miss, but a power cut may persist it locked. Each word
//! therefore names the generation of the pool in which it was last taken: a word of another
//! generation is unlocked, whatever its lock bit says, and nothing has to be scanned at open.

use crate::blocks::Blocks;
use crate::cell::{PCell, Persistent};
use crate::commit::Visible;
use crate::domain::Domain;
use crate::lock_word::{LOCKED, LockGeneration, LockWord, PAYLOAD_MASK};
use crate::owned::Durable;

/// On a deterministic machine one thread runs at a time, and a lock that stays taken for so many
/// tries is held by nobody.
const DETERMINISTIC_PATIENCE: u32 = 1_000_000;

/// A lock, version and seven bits of payload in one persistent word. See the
/// module documentation in the source.
#[repr(transparent)]
#[derive(Debug)]
pub struct GenerationLock(PCell<u64>);

// SAFETY: transparent over an atomic word.
unsafe impl Persistent for GenerationLock {}

impl GenerationLock {
    /// The lock that lies in a word which its owner has set aside for one.
    #[inline(always)]
    pub fn in_word(word: &PCell<u64>) -> &Self {
        // SAFETY: transparent over that cell, and a shared reference to it promises no less.
        unsafe { &*(&raw const *word).cast::<Self>() }
    }

    /// The word, for flushing what shares its line and for stores of a whole initial word.
    #[inline(always)]
    pub fn word(&self) -> &PCell<u64> {
        &self.0
    }

    /// Initialises the lock of a new node: free, version zero.
    #[inline(always)]
    pub fn init<D: Domain>(&self, domain: &D, generation: LockGeneration, payload: u8) {
        self.0.store(domain, generation.0 | (u64::from(payload & 0x7F) << 1));
    }

    #[inline(always)]
    fn note<D: Domain>(&self, domain: &D) {
        domain.note_lock((&raw const *self).cast());
    }

    /// Reads the word; what follows in program order is not moved before it.
    #[inline(always)]
    pub fn read<D: Domain>(&self, domain: &D) -> LockWord {
        self.note(domain);
        LockWord(self.0.load_acquire(domain))
    }

    /// Reads the word again after everything an optimistic reader has read, and before what it reads later.
    #[inline(always)]
    pub fn reread<D: Domain>(&self, domain: &D) -> LockWord {
        // On x86-64 loads are not reordered with loads; elsewhere the fence orders them.
        domain.order(core::sync::atomic::Ordering::Acquire);
        self.read(domain)
    }

    /// Takes the lock if it is free. Returns the word as it was before.
    #[inline]
    pub fn try_lock<D: Domain>(&self, domain: &D, generation: LockGeneration) -> Option<LockWord> {
        let found = self.read(domain);
        if found.is_locked(generation) {
            return None;
        }
        self.note(domain);
        self.0.compare_exchange(domain, found.0, found.taken(generation).0).ok().map(|_| found)
    }

    /// Takes the lock, waiting for it. Returns the word as it was before: if that is not of the
    /// current generation, the caller is the first here since the pool was opened.
    #[inline]
    pub fn lock<D: Domain>(&self, domain: &D, generation: LockGeneration) -> LockWord {
        if let Some(before) = self.try_lock(domain, generation) {
            return before;
        }
        self.lock_contended(domain, generation)
    }

    #[cold]
    fn lock_contended<D: Domain>(&self, domain: &D, generation: LockGeneration) -> LockWord {
        let mut wait = LockWait::default();
        loop {
            wait.once(domain);
            if let Some(before) = self.try_lock(domain, generation) {
                return before;
            }
        }
    }

    /// Replaces the payload while the lock is held, by one ordered store that shares its order
    /// with other stores to the line (rule R2 of [`crate::domain`]). The word as it is then.
    #[inline(always)]
    pub fn set_payload<D: Domain>(&self, domain: &D, payload: u8) -> LockWord {
        let held = self.0.load(domain);
        debug_assert!(held & LOCKED != 0, "the payload changes under the lock only");
        let word = (held & !PAYLOAD_MASK) | (u64::from(payload & 0x7F) << 1);
        self.0.store_ordered(domain, word);
        LockWord(word)
    }

    /// Replaces the payload by one ordered store, as [`GenerationLock::set_payload`] does, which
    /// makes `blocks` reachable, and returns the obligation to persist it. The word may also be one that is never locked, which
    /// only the holder of another lock writes.
    #[inline(always)]
    pub fn publish_payload<'a, D: Domain, B: Blocks<Durable>>(
        &'a self,
        domain: &'a D,
        blocks: B,
        payload: u8,
    ) -> Visible<'a, D> {
        let word = self.0.load(domain);
        let word = (word & !PAYLOAD_MASK) | (u64::from(payload & 0x7F) << 1);
        self.0.publish_word(domain, blocks, |_| word)
    }

    /// Counts one more completed critical section and begins another. Returns what the word is from here on.
    #[inline(always)]
    pub fn count_section<D: Domain>(&self, domain: &D) -> LockWord {
        let counted = LockWord(self.0.load(domain)).counted();
        self.0.store_ordered(domain, counted.0);
        counted
    }

    /// Gives the lock back and counts one more completed critical section. `held` is what the word is: to read it after
    /// a flush of its line takes as long as the flush, and on a device whose flushes drop lines it is a miss.
    #[inline(always)]
    pub fn unlock<D: Domain>(&self, domain: &D, held: LockWord) {
        debug_assert!(self.may_be::<D>(held), "the word that is given back is not what it is");
        self.0.store_ordered(domain, held.counted().0 & !LOCKED);
        domain.lock_released(&self.0);
    }

    /// Gives the lock back without counting: nothing that readers look at has changed. `held` as for
    /// [`GenerationLock::unlock`].
    #[inline(always)]
    pub fn unlock_unchanged<D: Domain>(&self, domain: &D, held: LockWord) {
        debug_assert!(self.may_be::<D>(held), "the word that is given back is not what it is");
        debug_assert!(held.0 & LOCKED != 0, "unlocked a lock that is not held");
        self.0.store_ordered(domain, held.0 & !LOCKED);
        domain.lock_released(&self.0);
    }

    /// Whether the word is `held`, where its holder sees what memory has: not on a machine with store buffers of its own.
    fn may_be<D: Domain>(&self, held: LockWord) -> bool {
        let is = || self.0.atomic().load(core::sync::atomic::Ordering::Relaxed) == held.0;
        D::DETERMINISTIC || cfg!(loom) || is()
    }
}

/// Waiting for a lock: for owners of locks who have to look at more than the lock between two
/// tries.
#[derive(Debug, Default)]
pub struct LockWait {
    backoff: crossbeam_utils::Backoff,
    waited: u32,
}

impl LockWait {
    /// Waits a little: spins at first, later yields the processor, for the holder may be
    /// descheduled.
    ///
    /// # Panics
    /// On a deterministic machine after a million times: the lock is held by nobody that runs.
    #[cold]
    #[inline(never)]
    pub fn once<D: Domain>(&mut self, domain: &D) {
        self.waited = self.waited.wrapping_add(1);
        assert!(
            !D::DETERMINISTIC || self.waited < DETERMINISTIC_PATIENCE,
            "a lock is held by nobody that runs: it survived a crash as locked"
        );
        if D::DETERMINISTIC {
            domain.pause();
        } else {
            self.backoff.snooze();
        }
    }
}

#[cfg(all(test, loom))]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;
    use crate::lock_word::VERSION_MASK;

    fn fresh(word: u64) -> GenerationLock {
        GenerationLock(PCell::new(word))
    }

    #[test]
    fn a_lock_of_another_generation_is_free_and_keeps_its_payload() {
        let domain = Hardware::detect();
        let lock = fresh(0);
        lock.init(&domain, LockGeneration::of(5), 0b101);
        lock.lock(&domain, LockGeneration::of(5));
        assert!(lock.try_lock(&domain, LockGeneration::of(5)).is_none());
        let before = lock.try_lock(&domain, LockGeneration::of(6)).unwrap();
        assert!(!before.is_current(LockGeneration::of(6)));
        assert_eq!(before.payload(), 0b101);
    }

    #[test]
    fn unlocking_counts_and_the_version_wraps_within_its_field() {
        let domain = Hardware::detect();
        let generation = LockGeneration::of(1);
        let lock = fresh(generation.0 | VERSION_MASK | (3 << 1));
        lock.lock(&domain, generation);
        lock.unlock(&domain, lock.read(&domain));
        let word = lock.read(&domain);
        assert_eq!(word.bits(), generation.0 | (3 << 1));
    }

    #[test]
    fn the_word_of_a_lock_that_was_taken_is_known_without_reading_it() {
        let domain = Hardware::detect();
        let generation = LockGeneration::of(4);
        let lock = fresh(LockGeneration::of(3).0 | (7 << 8) | (5 << 1));
        let before = lock.lock(&domain, generation);
        assert_eq!(before.taken(generation), lock.read(&domain));
        assert_eq!(lock.count_section(&domain), lock.read(&domain));
    }

    #[test]
    fn a_published_payload_changes_nothing_else_and_needs_no_lock() {
        let domain = Hardware::detect();
        let generation = LockGeneration::of(4);
        let lock = fresh(LockWord::free(2).bits());
        let _ = lock.publish_payload(&domain, (), 0x7F).persist();
        assert_eq!(lock.read(&domain), LockWord::free(0x7F));
        lock.lock(&domain, generation);
        let _ = lock.publish_payload(&domain, (), 1).persist();
        assert!(lock.read(&domain).is_locked(generation));
        assert_eq!(lock.read(&domain).payload(), 1);
    }

    #[test]
    fn a_word_set_aside_is_a_lock() {
        let domain = Hardware::detect();
        let (word, generation) = (PCell::new(0u64), LockGeneration::of(1));
        GenerationLock::in_word(&word).lock(&domain, generation);
        assert!(LockWord(word.load(&domain)).is_locked(generation));
    }

    #[test]
    fn a_section_lasts_until_it_is_counted_or_the_payload_changes() {
        let domain = Hardware::detect();
        let generation = LockGeneration::of(3);
        let lock = fresh(0);
        lock.init(&domain, generation, 0);
        let free = lock.read(&domain);
        lock.lock(&domain, generation);
        assert!(free.is_same_section(lock.read(&domain)));
        lock.set_payload(&domain, 1);
        let held = lock.read(&domain);
        assert!(!free.is_same_section(held));
        lock.count_section(&domain);
        let held = [held, lock.read(&domain)];
        assert!(!held[0].is_same_section(held[1]) && held[1].is_locked(generation));
        lock.unlock(&domain, lock.read(&domain));
        assert!(!held[1].is_same_section(lock.read(&domain)));
    }

    #[test]
    fn threads_exclude_each_other() {
        let domain = Hardware::detect();
        let generation = LockGeneration::of(9);
        let (lock, count) = (fresh(0), PCell::new(0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        lock.lock(&domain, generation);
                        count.store(&domain, count.load(&domain) + 1);
                        lock.unlock(&domain, lock.read(&domain));
                    }
                });
            }
        });
        assert_eq!(count.load(&domain), 8000);
    }
}
