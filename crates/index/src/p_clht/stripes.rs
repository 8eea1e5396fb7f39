//! The locks of a table: volatile, striped, counting.
//!
//! ```text
//!  63                                      2   1        0
//! +----------------------------------------+--------+--------+
//! |  sections: completed changes           | frozen | locked |
//! +----------------------------------------+--------+--------+
//! ```
//!
//! Chain `i` of a table belongs to stripe `i mod STRIPES`. Writers of a chain hold its stripe;
//! readers only look: if `sections` is the same before and after, at most one change overlapped
//! with the reading, and if the stripe is unlocked after it, none that is not yet durable. Whoever
//! replaces the table holds all stripes at once, marked frozen: nothing is being changed under
//! them.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Enough that threads seldom meet by chance; 8 KiB.
const STRIPES: usize = 1024;

/// Rounds of waiting before a waiter yields the processor.
const SPINS: u32 = 64;

const LOCKED: u64 = 1;
const FROZEN: u64 = 2;
const SECTION_ONE: u64 = 4;

#[derive(Debug)]
pub(super) struct Stripes {
    words: Box<[AtomicU64]>,
}

/// One lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripe<'a>(&'a AtomicU64);

/// What a stripe's word was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen(u64);

impl Seen {
    /// Whether no change was completed between the two looks.
    #[inline(always)]
    pub(super) fn same_section(self, other: Self) -> bool {
        (self.0 ^ other.0) < SECTION_ONE
    }

    /// Whether somebody may have made changes that are not durable yet.
    #[inline(always)]
    pub(super) fn is_changing(self) -> bool {
        self.0 & (LOCKED | FROZEN) == LOCKED
    }
}

impl Stripes {
    pub(super) fn new() -> Self {
        Self { words: (0..STRIPES).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline(always)]
    pub(super) fn of(&self, index: u64) -> Stripe<'_> {
        Stripe(&self.words[index as usize % STRIPES])
    }

    /// Waits for all writers and keeps new ones out until the result is dropped.
    pub(super) fn freeze(&self, wait: &impl Fn()) -> Frozen<'_> {
        // In ascending order; writers hold one stripe and wait for none.
        let held = self.words.iter().map(|word| Stripe(word).lock_as(LOCKED | FROZEN, wait));
        Frozen { _held: held.collect() }
    }
}

/// All stripes, held. Dropping it lets everybody go on and counts as a change of every chain.
#[must_use]
pub(super) struct Frozen<'a> {
    _held: Vec<Held<'a>>,
}

impl<'a> Stripe<'a> {
    /// Looks before reading.
    #[inline(always)]
    pub(super) fn look(self) -> Seen {
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Looks after reading.
    #[inline(always)]
    pub(super) fn look_again(self) -> Seen {
        fence(Ordering::Acquire);
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// Takes the lock, calling `wait` each time that it is found taken.
    #[inline(always)]
    pub(super) fn lock(self, wait: &impl Fn()) -> Held<'a> {
        self.lock_as(LOCKED, wait)
    }

    #[inline(always)]
    fn lock_as(self, how: u64, wait: &impl Fn()) -> Held<'a> {
        let free = self.0.load(Ordering::Relaxed) & !(LOCKED | FROZEN);
        match self.0.compare_exchange(free, free | how, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Held { word: self.0, free: free.wrapping_add(SECTION_ONE) },
            Err(_) => self.lock_contended(how, wait),
        }
    }

    #[cold]
    fn lock_contended(self, how: u64, wait: &impl Fn()) -> Held<'a> {
        let mut rounds = 0u32;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            let taken = word & LOCKED == 0
                && self
                    .0
                    .compare_exchange(word, word | how, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                return Held { word: self.0, free: word.wrapping_add(SECTION_ONE) };
            }
            wait();
            rounds += 1;
            if rounds < SPINS {
                std::hint::spin_loop();
            } else {
                // The holder may be descheduled, or building a table.
                std::thread::yield_now();
            }
        }
    }
}

/// A stripe, held. Dropping it counts one more section and lets go.
#[must_use]
#[derive(Debug)]
pub(super) struct Held<'a> {
    word: &'a AtomicU64,
    /// The word to leave behind.
    free: u64,
}

impl Held<'_> {
    /// Lets go without counting: nothing was changed.
    #[inline(always)]
    pub(super) fn leave_unchanged(mut self) {
        self.free = self.free.wrapping_sub(SECTION_ONE);
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.word.store(self.free, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_change_is_seen_as_another_section() {
        let stripes = Stripes::new();
        let stripe = stripes.of(7);
        let before = stripe.look();
        let held = stripe.lock(&|| {});
        assert!(stripe.look_again().same_section(before));
        assert!(stripe.look_again().is_changing());
        drop(held);
        assert!(!stripe.look_again().same_section(before));
        assert!(!stripe.look_again().is_changing());
    }

    #[test]
    fn leaving_unchanged_does_not_count() {
        let stripes = Stripes::new();
        let before = stripes.of(7).look();
        stripes.of(7).lock(&|| {}).leave_unchanged();
        assert!(stripes.of(7).look_again().same_section(before));
    }

    #[test]
    fn frozen_stripes_exclude_writers_and_are_not_changing() {
        let stripes = Stripes::new();
        let frozen = stripes.freeze(&|| {});
        assert!(!stripes.of(0).look().is_changing());
        let entered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = stripes.of(STRIPES as u64 - 1).lock(&|| {});
                entered.store(1, Ordering::SeqCst);
                drop(held);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(entered.load(Ordering::SeqCst), 0);
            drop(frozen);
        });
        assert_eq!(entered.load(Ordering::SeqCst), 1);
    }
}
