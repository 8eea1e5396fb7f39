//! Threads that are held up in the middle of what they do, while the others go on.
//!
//! What goes wrong only if a thread sleeps through many operations of others, between two words that
//! it reads or writes, is next to never seen on an idle machine with as many cores as threads.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lapis_pmem::{Pool, Region, Watched, Watcher};

use crate::at_fence::AtFence;

/// This machine, whose threads can be held up, and stopped at their fences. Structures are compiled for it once, and
/// tested on it whether they are or not.
pub type Here = Watched<(HoldUps, AtFence)>;

/// A pool in memory on it, of a MiB that can grow.
pub fn pool_in_memory() -> Arc<Pool<Here>> {
    let region = Region::anonymous(1 << 20, 1 << 30).unwrap();
    Arc::new(Pool::create(region, Here::new(Default::default())).unwrap())
}

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
/// whoever it is.
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
        if !is_due || state.is_anybody_held_up.swap(true, Ordering::Acquire) {
            return;
        }
        for _ in 0..LOOKS {
            std::thread::sleep(Duration::from_micros(50));
            if state.steps.load(Ordering::Relaxed) >= now + STEPS_HELD_UP {
                break;
            }
        }
        // One at a time comes here.
        state.left.fetch_sub(1, Ordering::Relaxed);
        state.is_anybody_held_up.store(false, Ordering::Release);
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
