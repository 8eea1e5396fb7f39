//! A lock that is nearly free for the thread that took it first, until another thread comes.
//!
//! Every event of a machine takes its lock, and most machines are used by one thread only. A mutex
//! costs that thread two locked instructions, and each of them waits until what was stored before is
//! in a cache: the model's own memory accesses then come one after the other. So the first thread
//! owns the lock and only notes that it is inside. Whoever comes next takes that from it for good,
//! and from then on the lock is a mutex.
//!
//! ```text
//!  owner                                 the second thread, holding the mutex
//!  inside = true                         owner = nobody
//!  (the compiler keeps the order)        membarrier: every thread passes a full fence
//!  owner is still me? then go on         wait until inside is false
//! ```
//!
//! Either the owner's first store is visible before the barrier, and the second thread waits, or its
//! second step comes after the barrier, and it finds that it owns nothing. The owner itself needs no
//! fence for that: the barrier makes it pass one when it matters (Dice, Huang, Yang: "Asymmetric
//! Dekker Synchronization", 2001; membarrier(2) of Linux). Where there is no such call, the lock
//! is a mutex from the start.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

#[cfg_attr(loom, path = "owner_lock/loom.rs")]
#[cfg_attr(not(loom), path = "owner_lock/machine.rs")]
mod machine;

use machine::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, barrier, compiler_fence, this_thread, yield_now,
};

/// Nobody has come yet.
const UNCLAIMED: u64 = 0;
/// Several threads have come.
const SHARED: u64 = u64::MAX;

/// The lock. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct OwnerLock<T> {
    /// The thread that may enter without the mutex.
    owner: AtomicU64,
    /// That thread is inside.
    inside: AtomicBool,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: at any time at most one thread has a guard, as the module documentation shows, and what
// one did with the value happens before the next one's guard: the owner's guards are all of one
// thread; its last store to `inside`, a release, is read by who takes the lock from it; and all
// others hold the mutex.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

/// Access to the value, for as long as it lives.
pub(crate) struct Guard<'l, T> {
    lock: &'l OwnerLock<T>,
    /// None if this is the owner.
    mutex: Option<MutexGuard<'l, ()>>,
}

impl<T> OwnerLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: AtomicU64::new(UNCLAIMED),
            inside: AtomicBool::new(false),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread has access.
    ///
    /// # Panics
    /// If the owner takes the lock while it has it. (Other threads wait for ever.)
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let me = this_thread();
        if self.owner.load(Ordering::Relaxed) == me {
            if self.inside.load(Ordering::Relaxed) {
                taken_twice();
            }
            self.inside.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Acquire) == me {
                return Guard { lock: self, mutex: None };
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_slowly(me)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, me: u64) -> Guard<'_, T> {
        let mutex = machine::locked(&self.mutex);
        // Only changed under the mutex.
        match self.owner.load(Ordering::Relaxed) {
            UNCLAIMED if barrier::is_available() => {
                self.owner.store(me, Ordering::Relaxed);
                // Whoever gets the mutex next sees it.
                self.inside.store(true, Ordering::Relaxed);
                return Guard { lock: self, mutex: None };
            }
            UNCLAIMED => self.owner.store(SHARED, Ordering::Relaxed),
            SHARED => {}
            _ => {
                self.owner.store(SHARED, Ordering::SeqCst);
                barrier::make_all_threads_pass_a_fence();
                while self.inside.load(Ordering::Acquire) {
                    yield_now();
                }
            }
        }
        Guard { lock: self, mutex: Some(mutex) }
    }
}

#[cold]
#[inline(never)]
fn taken_twice() -> ! {
    panic!("a machine's lock was taken while it was held");
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.mutex.is_none() {
            self.lock.inside.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod every_order;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// Two words that are equal whenever nobody has access.
    type Pair = OwnerLock<(u64, u64)>;

    fn count_up(pair: &Pair, times: u64) {
        for _ in 0..times {
            let mut pair = pair.lock();
            assert_eq!(pair.0, pair.1);
            pair.0 += 1;
            std::hint::black_box(&mut *pair);
            pair.1 += 1;
        }
    }

    #[test]
    fn no_two_threads_have_access_at_once_when_the_second_comes_in_the_middle() {
        for _ in 0..200 {
            let pair = Pair::new((0, 0));
            let start = Barrier::new(2);
            count_up(&pair, 1);
            thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    count_up(&pair, 200);
                });
                start.wait();
                count_up(&pair, 2000);
            });
            assert_eq!(*pair.lock(), (2201, 2201));
        }
    }

    #[test]
    fn no_two_threads_have_access_at_once_when_several_come_first() {
        for _ in 0..100 {
            let pair = Pair::new((0, 0));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| count_up(&pair, 300));
                }
            });
            assert_eq!(*pair.lock(), (900, 900));
        }
    }

    #[test]
    fn a_thread_takes_the_lock_from_one_that_has_ended() {
        let pair = Pair::new((0, 0));
        thread::scope(|scope| {
            scope.spawn(|| count_up(&pair, 5));
        });
        count_up(&pair, 5);
        assert_eq!(*pair.lock(), (10, 10));
    }

    #[test]
    #[should_panic(expected = "taken while it was held")]
    fn the_owner_cannot_take_it_twice() {
        if !barrier::is_available() {
            panic!("taken while it was held, as the mutex would find by waiting for ever");
        }
        let pair = Pair::new((0, 0));
        let _first = pair.lock();
        let _second = pair.lock();
    }
}
