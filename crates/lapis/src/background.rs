//! The thread that does what nobody should have to wait for.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lapis_engine::{Engine, EngineError};
use lapis_pmem::Hardware;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// It looks so often whether there is something to do. What was committed with
/// [`Durability::Eventual`](crate::Durability::Eventual) is durable about that long after.
const INTERVAL: Duration = Duration::from_millis(50);

/// So long after a failure it only syncs. A page that cannot be read is not read again and again.
const REST: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held during a round.
    round: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    ends: bool,
    wanted: bool,
}

/// Writes pages and cuts the log before that is urgent, frees what nobody reads any more, syncs what nobody waits for.
#[derive(Debug)]
pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it; without a thread, everything is done by those who would have to wait.
    pub(crate) fn start(engine: Engine<Hardware>) -> Self {
        let signal = Arc::new(Signal::default());
        let of_thread = Arc::clone(&signal);
        let thread = std::thread::Builder::new()
            .name("lapis".to_owned())
            .spawn(move || work(&engine, &of_thread))
            .inspect_err(|error| tracing::warn!(%error, "no thread for work in the background"));
        Self { signal, thread: thread.ok() }
    }

    /// Has it look now.
    pub(crate) fn wake(&self) {
        self.signal.state.lock().wanted = true;
        self.signal.changed.notify_one();
    }

    /// Keeps it from working meanwhile.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.signal.round.lock()
    }

    /// Ends it, and waits until it has.
    pub(crate) fn end(&mut self) {
        self.signal.state.lock().ends = true;
        self.signal.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread for work in the background panicked");
        }
    }
}

fn work(engine: &Engine<Hardware>, signal: &Signal) {
    if let Err(error) = engine.find_leaked_memory() {
        tracing::error!(%error, "work in the background failed before it began");
        return;
    }
    let mut rests_until = Instant::now();
    loop {
        let working = signal.round.lock();
        let rests = Instant::now() < rests_until;
        let done = engine.sync().and_then(|()| if rests { Ok(false) } else { engine.maintain() });
        drop(working);
        let busy = match done {
            Ok(busy) => busy,
            Err(error) if error.is_no_room() => {
                // Who needs the room is told. What is left to do waits for it.
                tracing::warn!(%error, "work in the background waits for room");
                false
            }
            Err(error @ EngineError::Stopped { .. }) => {
                // Whoever writes next is told by the engine itself.
                tracing::error!(%error, "work in the background has ended");
                return;
            }
            Err(error) => {
                // Of one table, perhaps; others are to become durable and to be cleaned all the same.
                tracing::error!(%error, "work in the background failed and will be tried again");
                rests_until = Instant::now() + REST;
                false
            }
        };
        let mut state = signal.state.lock();
        if !busy && !state.wanted && !state.ends {
            signal.changed.wait_for(&mut state, INTERVAL);
        }
        if state.ends {
            return;
        }
        state.wanted = false;
    }
}
