//! A machine that can be made to stall.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex};

use lapis_pmem::{Pool, Region, Watched, Watcher};

/// A pool on a watched machine.
pub fn watched_pool<T: Watcher + Default>(bytes: usize) -> Arc<Pool<Watched<T>>> {
    let region = Region::anonymous(bytes, 1 << 30).unwrap();
    Arc::new(Pool::create(region, Watched::new(T::default())).unwrap())
}

thread_local! {
    static STALLS: Cell<bool> = const { Cell::new(false) };
}

/// Where a stalled thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Shut,
    /// Somebody stands before it.
    Waiting,
    Open,
}

/// Makes threads that asked for it stop at their next fence until the gate opens.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

impl Stall {
    /// From here on the calling thread stops at fences while the gate is shut.
    pub fn this_thread(&self) {
        STALLS.set(true);
    }

    /// Waits until a thread has stopped.
    pub fn wait_for_one(&self) {
        let (gate, changed) = &*self.gate;
        drop(changed.wait_while(gate.lock().unwrap(), |gate| *gate != Gate::Waiting).unwrap());
    }

    /// Lets everybody go on.
    pub fn open(&self) {
        *self.gate.0.lock().unwrap() = Gate::Open;
        self.gate.1.notify_all();
    }
}

impl Watcher for Stall {
    const DETERMINISTIC: bool = false;

    fn fencing(&self) {
        if !STALLS.get() {
            return;
        }
        let (gate, changed) = &*self.gate;
        let mut state = gate.lock().unwrap();
        while *state != Gate::Open {
            *state = Gate::Waiting;
            changed.notify_all();
            state = changed.wait(state).unwrap();
        }
    }
}
