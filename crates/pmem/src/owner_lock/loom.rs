//! What a lock with an owner is made of under loom. The barrier in every thread is a fence in each: what it stands for, and
//! all that there is in the language's memory model.

use std::cell::Cell;

use crate::LoomAtomic;
pub(super) use crate::loom_fence as compiler_fence;
pub(super) use loom::sync::{Mutex, MutexGuard};
pub(super) use loom::thread::yield_now;

use super::UNCLAIMED;

pub(super) type AtomicBool = LoomAtomic<loom::sync::atomic::AtomicBool>;
pub(super) type AtomicU64 = LoomAtomic<loom::sync::atomic::AtomicU64>;

loom::thread_local! {
    static THREAD: Cell<u64> = Cell::new(UNCLAIMED);
}

/// A number that no other thread of the process ever has.
pub(super) fn this_thread() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(UNCLAIMED);
    THREAD.with(|thread| {
        if thread.get() == UNCLAIMED {
            thread.set(LAST.fetch_add(1, super::Ordering::Relaxed) + 1);
        }
        thread.get()
    })
}

pub(super) fn locked(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(super) fn try_locked(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    mutex.try_lock().ok()
}

pub(super) mod barrier {
    use std::sync::atomic::Ordering;

    pub(in super::super) fn is_available() -> bool {
        true
    }

    pub(in super::super) fn make_all_threads_pass_a_fence() {
        super::compiler_fence(Ordering::SeqCst);
    }
}
