//! Threads that are held up in the middle of what they do, while the others go on.
//!
//! What goes wrong only if a thread sleeps through many operations of others, between two words that
//! it reads or writes, is next to never seen on an idle machine with as many cores as threads.
//!
//! Built with `--cfg hold_ups`, [`Hardware`](crate::Hardware) holds threads up, too, so that every test with several threads is
//! one of this kind (CONTRIBUTING.md).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::watched::Watcher;

/// Words loaded and stored, flushes and fences of the others that a thread is held up for.
const STEPS_HELD_UP: u64 = 20_000;
/// Looks at the others, who may all be waiting for the one that is held up.
const LOOKS: usize = 10;
/// A thread is held up within so many steps, a power of two, after something rare has begun.
const STEPS_AFTER: u32 = 8;

/// One is held up wherever it is after so many steps of all threads, on average.
const STEPS_BETWEEN: u64 = 4_000;

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

/// Holds up threads, one at a time: those that have begun something rare, a split, a merge, a movement; and now and then
/// whoever it is. None until it is told how many times. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct HoldUps(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// How many there are still to be.
    left: AtomicU64,
    /// Steps of all threads until now.
    steps: AtomicU64,
    is_anybody_held_up: AtomicBool,
}

thread_local! {
    /// Steps of this thread until it is held up, or zero.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

impl HoldUps {
    /// From here on, threads are held up so many times.
    pub fn hold_up(&self, times: u64) {
        self.0.left.store(times, Ordering::Relaxed);
    }

    #[inline(never)]
    fn step(&self) {
        let state = &*self.0;
        if state.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = state.steps.fetch_add(1, Ordering::Relaxed);
        let left = STEPS_LEFT.get();
        STEPS_LEFT.set(left.saturating_sub(1));
        // Readers begin nothing.
        let is_due = left == 1 || mixed(now).is_multiple_of(STEPS_BETWEEN);
        if is_due && !state.is_anybody_held_up.swap(true, Ordering::Acquire) {
            state.hold_up_here(now);
            state.is_anybody_held_up.store(false, Ordering::Release);
        }
    }
}

impl State {
    /// Holds the calling thread up, which is the only one, after so many steps of all.
    fn hold_up_here(&self, now: u64) {
        // Whoever was held up until just now may have been the last.
        if self.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        for _ in 0..LOOKS {
            std::thread::sleep(Duration::from_micros(50));
            if self.steps.load(Ordering::Relaxed) >= now + STEPS_HELD_UP {
                break;
            }
        }
        // Meanwhile somebody may have said that there are to be none.
        let one_less = |left: u64| left.checked_sub(1);
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

impl Watcher for HoldUps {
    /// Whoever waits for a lock whose holder is held up gives way.
    const DETERMINISTIC: bool = false;

    fn happening(&self) {
        let steps = mixed(self.0.steps.load(Ordering::Relaxed));
        // Sooner rather than later.
        let within = 1 << (steps as u32 % (STEPS_AFTER + 1));
        STEPS_LEFT.set(1 + (steps >> 8) % within);
    }

    fn loading(&self, _reads: u64) {
        self.step();
    }

    fn storing(&self) {
        self.step();
    }

    fn touching(&self) {
        self.step();
    }

    fn flushing(&self, _lines: u64) {
        self.step();
    }

    fn streaming(&self, _lines: u64) {
        self.step();
    }

    fn fencing(&self) {
        self.step();
    }
}

/// A thread does something that [`Hardware`](crate::Hardware) knows of, with `--cfg hold_ups`; otherwise nothing, at no cost.
#[inline(always)]
pub(crate) fn step() {
    #[cfg(hold_ups)]
    everywhere().step();
}

/// Something rare has begun, with `--cfg hold_ups`.
#[inline(always)]
pub(crate) fn happening() {
    #[cfg(hold_ups)]
    everywhere().happening();
}

#[cfg(hold_ups)]
fn everywhere() -> &'static HoldUps {
    static EVERYWHERE: std::sync::LazyLock<HoldUps> = std::sync::LazyLock::new(|| {
        let hold_ups = HoldUps::default();
        hold_ups.hold_up(u64::MAX);
        hold_ups
    });
    &EVERYWHERE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_the_last_is_not_held_up_and_takes_none_away() {
        let hold_ups = HoldUps::default();
        hold_ups.hold_up(1);
        hold_ups.0.hold_up_here(0);
        // It had seen that one was left before.
        hold_ups.0.hold_up_here(0);
        assert_eq!(hold_ups.0.left.load(Ordering::Relaxed), 0);
    }
}
