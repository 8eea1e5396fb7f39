//! A lock that is nearly free for the thread that has come last, as long as threads seldom change.
//!
//! A mutex costs two locked instructions, and each of them waits until what was stored before is in a
//! cache, flushed or not: an index that allocates while its last change is on its way to the medium would
//! wait for it, and the model's own memory accesses would come one after the other. So the first thread
//! owns the lock and only notes that it is inside. Whoever comes next takes that from it, and owns the
//! lock in its place. After [`STINTS`] owners the lock is a mutex: its threads come in turns.
//!
//! ```text
//!  owner                                 another thread, holding the mutex
//!  its inside = true                     owner = nobody
//!  (the compiler keeps the order)        membarrier: every thread passes a full fence
//!  owner is still me? then go on         wait until the old owner's inside is false
//!                                        owner = me, with an inside of its own
//! ```
//!
//! Either the owner's first store is visible before the barrier, and the other thread waits, or its
//! second step comes after the barrier, and it finds that it owns nothing. The owner itself needs no
//! fence for that: the barrier makes it pass one when it matters (Dice, Huang, Yang: "Asymmetric
//! Dekker Synchronization", 2001; membarrier(2) of Linux). Each stint has its own `inside`, which nobody
//! stores to but its thread: one that has lost the lock may still be on its way to find that out. Where
//! there is no such call, the lock is a mutex from the start.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

#[cfg_attr(loom, path = "owner_lock/loom.rs")]
#[cfg_attr(not(loom), path = "owner_lock/machine.rs")]
mod machine;

use machine::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, barrier, compiler_fence, this_thread, yield_now,
};

/// How often the lock has an owner, the first included.
const STINTS: u64 = 8;
/// Nobody has come yet.
const UNCLAIMED: u64 = 0;
/// It has had its owners, or is to have none.
const SHARED: u64 = u64::MAX;

/// The word of a thread's stint: unlike that of any other, and neither [`UNCLAIMED`] nor [`SHARED`].
#[inline(always)]
fn stint_of(thread: u64, stint: u64) -> u64 {
    thread * STINTS + stint
}

/// The lock. See the module documentation in the source.
pub struct OwnerLock<T> {
    /// The thread that may enter without the mutex, and in which stint: [`stint_of`].
    owner: AtomicU64,
    /// That thread is inside. By stints.
    inside: [AtomicBool; STINTS as usize],
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: at any time at most one thread has a guard, as the module documentation shows, and what
// one did with the value happens before the next one's guard: the guards of a stint are all of one
// thread; its last store to its `inside`, a release, is read by who takes the lock from it; and all
// others hold the mutex, as the first guard of a stint does when it becomes the owner.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

impl<T> fmt::Debug for OwnerLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerLock")
    }
}

impl<T: Default> Default for OwnerLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Access to the value of an [`OwnerLock`], for as long as it lives.
pub struct OwnerGuard<'l, T> {
    lock: &'l OwnerLock<T>,
    /// Of the owner's stint.
    inside: Option<&'l AtomicBool>,
    /// Of who is not the owner. Always there in its type: a guard stays with its thread.
    _mutex: Option<MutexGuard<'l, ()>>,
}

impl<T> fmt::Debug for OwnerGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerGuard")
    }
}

impl<T> OwnerLock<T> {
    /// A lock that nobody has.
    pub fn new(value: T) -> Self {
        Self {
            owner: AtomicU64::new(UNCLAIMED),
            inside: std::array::from_fn(|_| AtomicBool::new(false)),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until no other thread has access.
    ///
    /// # Panics
    /// If the owner takes the lock while it has it. (Other threads wait for ever.)
    #[inline(always)]
    pub fn lock(&self) -> OwnerGuard<'_, T> {
        let me = this_thread();
        let owner = self.owner.load(Ordering::Relaxed);
        if owner / STINTS == me {
            let inside = &self.inside[(owner % STINTS) as usize];
            if inside.load(Ordering::Relaxed) {
                taken_twice();
            }
            inside.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Acquire) == owner {
                return OwnerGuard { lock: self, inside: Some(inside), _mutex: None };
            }
            inside.store(false, Ordering::Release);
        }
        self.lock_slowly(me)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, me: u64) -> OwnerGuard<'_, T> {
        let mutex = machine::locked(&self.mutex);
        // Only changed under the mutex.
        let owner = self.owner.load(Ordering::Relaxed);
        let stint = match owner {
            UNCLAIMED => 0,
            SHARED => STINTS,
            _ => owner % STINTS + 1,
        };
        if stint < STINTS && barrier::is_available() {
            self.dispossess(owner);
            let inside = &self.inside[stint as usize];
            // Whoever gets the mutex next sees both.
            inside.store(true, Ordering::Relaxed);
            self.owner.store(stint_of(me, stint), Ordering::Relaxed);
            return OwnerGuard { lock: self, inside: Some(inside), _mutex: None };
        }
        self.share(mutex)
    }

    /// As a mutex: without an owner, from now on. Waits until no other thread has access.
    #[inline]
    pub fn lock_shared(&self) -> OwnerGuard<'_, T> {
        self.share(machine::locked(&self.mutex))
    }

    /// As [`OwnerLock::lock_shared`]; none if somebody has access.
    #[inline]
    pub fn try_lock_shared(&self) -> Option<OwnerGuard<'_, T>> {
        machine::try_locked(&self.mutex).map(|mutex| self.share(mutex))
    }

    #[inline]
    fn share<'l>(&'l self, mutex: MutexGuard<'l, ()>) -> OwnerGuard<'l, T> {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != SHARED {
            self.dispossess(owner);
            self.owner.store(SHARED, Ordering::Relaxed);
        }
        OwnerGuard { lock: self, inside: None, _mutex: Some(mutex) }
    }

    /// Takes the lock from its owner, if it has one, and waits until that is not inside. The caller holds
    /// the mutex.
    #[inline]
    fn dispossess(&self, owner: u64) {
        if matches!(owner, UNCLAIMED | SHARED) {
            return;
        }
        self.owner.store(SHARED, Ordering::SeqCst);
        barrier::make_all_threads_pass_a_fence();
        while self.inside[(owner % STINTS) as usize].load(Ordering::Acquire) {
            yield_now();
        }
    }
}

#[cold]
#[inline(never)]
fn taken_twice() -> ! {
    panic!("a lock was taken by the thread that had it");
}

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for OwnerGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(inside) = self.inside {
            inside.store(false, Ordering::Release);
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
    fn who_comes_owns_it_until_there_have_been_as_many_owners_as_there_may_be() {
        let pair = Pair::new((0, 0));
        for visitor in 1..2 * STINTS {
            thread::scope(|scope| {
                scope.spawn(|| {
                    count_up(&pair, 2);
                    let owns = barrier::is_available() && visitor <= STINTS;
                    assert_eq!(pair.lock().inside.is_some(), owns, "visitor {visitor}");
                });
            });
        }
        assert_eq!(*pair.lock(), (4 * STINTS - 2, 4 * STINTS - 2));
    }

    #[test]
    fn a_lock_that_was_shared_once_has_no_owner() {
        let pair = Pair::new((0, 0));
        count_up(&pair, 1);
        drop(pair.lock_shared());
        let held = pair.lock();
        assert!(held.inside.is_none());
        thread::scope(|scope| {
            assert!(scope.spawn(|| pair.try_lock_shared().is_none()).join().unwrap());
        });
    }

    #[test]
    #[should_panic(expected = "taken by the thread that had it")]
    fn the_owner_cannot_take_it_twice() {
        if !barrier::is_available() {
            panic!("taken by the thread that had it, as the mutex would find by waiting for ever");
        }
        let pair = Pair::new((0, 0));
        let _first = pair.lock();
        let _second = pair.lock();
    }
}
