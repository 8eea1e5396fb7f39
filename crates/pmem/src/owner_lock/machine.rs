//! What a lock with an owner is made of.

use std::cell::Cell;
use std::sync::atomic::Ordering;

pub(super) use parking_lot::{Mutex, MutexGuard};
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, compiler_fence};
pub(super) use std::thread::yield_now;

use super::UNCLAIMED;

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(UNCLAIMED) };
}

/// A number that no other thread of the process ever has.
#[inline(always)]
pub(super) fn this_thread() -> u64 {
    match THREAD.get() {
        UNCLAIMED => name_this_thread(),
        name => name,
    }
}

#[cold]
fn name_this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(UNCLAIMED);
    let name = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    THREAD.set(name);
    name
}

#[inline(always)]
pub(super) fn locked(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock()
}

#[inline(always)]
pub(super) fn try_locked(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    mutex.try_lock()
}

pub(super) mod barrier {
    use crate::epoch::barrier;

    /// Whether [`make_all_threads_pass_a_fence`] costs nothing but a call.
    pub(in super::super) fn is_available() -> bool {
        !barrier::pins_need_fences()
    }

    pub(in super::super) fn make_all_threads_pass_a_fence() {
        assert!(barrier::order_all_threads(), "a process that has registered may use the barrier");
    }
}
