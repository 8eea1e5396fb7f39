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

#[cfg(target_os = "linux")]
pub(super) mod barrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether [`make_all_threads_pass_a_fence`] works in this process.
    pub(in super::super) fn is_available() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    pub(in super::super) fn make_all_threads_pass_a_fence() {
        membarrier(MembarrierCommand::PrivateExpedited)
            .expect("a process that has registered may use the barrier");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) mod barrier {
    pub(in super::super) fn is_available() -> bool {
        false
    }

    pub(in super::super) fn make_all_threads_pass_a_fence() {
        unreachable!("no lock has an owner where there is no such barrier");
    }
}
