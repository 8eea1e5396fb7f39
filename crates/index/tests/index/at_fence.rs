//! What is flushed and fenced on this machine, and threads that are stopped at their fences, or between two words that
//! they read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use lapis_pmem::Watcher;

use crate::hold_ups::Here;

type Action = Box<dyn FnMut() + Send>;

/// Counts lines flushed and fences, and does something before each fence, or before a word is read.
#[derive(Clone, Default)]
pub struct AtFence(Arc<State>);

#[derive(Default)]
struct State {
    action: Mutex<Option<Action>>,
    at_load: Mutex<Option<Action>>,
    /// Loads until then and that one, or zero.
    loads_left: AtomicU64,
    flushes: AtomicU64,
    fences: AtomicU64,
}

impl AtFence {
    /// Has `action` called before each fence, except for fences that come while it runs.
    pub fn before_each_fence(&self, action: impl FnMut() + Send + 'static) {
        *self.0.action.lock().unwrap() = Some(Box::new(action));
    }

    /// Has `action` called once, before this load from here on: 0 is the next. Nobody else loads anything before.
    pub fn before_load(&self, number: u64, action: impl FnMut() + Send + 'static) {
        *self.0.at_load.lock().unwrap() = Some(Box::new(action));
        self.0.loads_left.store(number + 1, Ordering::Relaxed);
    }

    /// Ends [`AtFence::before_each_fence`] and [`AtFence::before_load`]. Whether there have been as many loads as that.
    pub fn let_be(&self) -> bool {
        *self.0.action.lock().unwrap() = None;
        *self.0.at_load.lock().unwrap() = None;
        self.0.loads_left.swap(0, Ordering::Relaxed) == 0
    }

    fn counts(&self) -> (u64, u64) {
        (self.0.flushes.load(Ordering::Relaxed), self.0.fences.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for AtFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtFence")
    }
}

impl Watcher for AtFence {
    fn loading(&self, _reads: u64) {
        let left = &self.0.loads_left;
        // One thread loads, as long as this is not zero.
        if left.load(Ordering::Relaxed) > 0 && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let action = self.0.at_load.lock().unwrap().take();
            if let Some(mut action) = action {
                action();
            }
        }
    }

    fn touching(&self) {
        self.loading(1);
    }

    fn flushing(&self, lines: u64) {
        self.0.flushes.fetch_add(lines, Ordering::Relaxed);
    }

    fn fencing(&self) {
        self.0.fences.fetch_add(1, Ordering::Relaxed);
        let action = self.0.action.lock().unwrap().take();
        if let Some(mut action) = action {
            action();
            *self.0.action.lock().unwrap() = Some(action);
        }
    }
}

/// What `action` answers, and the lines it flushes and the fences it makes.
pub fn counting<R>(machine: &Here, action: impl FnOnce() -> R) -> (R, (u64, u64)) {
    let counts = || machine.watcher().1.counts();
    let before = counts();
    let result = action();
    let after = counts();
    (result, (after.0 - before.0, after.1 - before.1))
}

/// Runs `meanwhile` while `write`, on a thread of its own, sleeps at its first fence.
pub fn beside_a_writer_at_its_first_fence<R>(
    machine: &Here,
    write: impl FnOnce() + Send,
    meanwhile: impl FnOnce() -> R,
) -> R {
    let (sleeps, is_asleep) = mpsc::channel();
    let (wake, woken) = mpsc::channel::<()>();
    machine.watcher().1.before_each_fence(move || {
        let _ = sleeps.send(());
        let _ = woken.recv();
    });
    std::thread::scope(|scope| {
        scope.spawn(write);
        is_asleep.recv().unwrap();
        let result = meanwhile();
        drop(wake);
        result
    })
}
