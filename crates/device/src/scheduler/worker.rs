//! Who is executing: the logical worker of the calling thread.

use std::cell::Cell;

thread_local! {
    static WORKER: Cell<u8> = const { Cell::new(0) };
}

/// The logical worker that the calling thread acts as; zero unless it was set.
#[inline]
pub fn current_worker() -> u8 {
    WORKER.get()
}

/// Makes the calling thread act as `worker`. Flushes and fences belong to workers (rule R4), so a
/// single thread can play several of them in a chosen order.
#[inline]
pub fn set_current_worker(worker: u8) {
    WORKER.set(worker);
}
