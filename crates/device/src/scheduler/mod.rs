//! Several workers on one modelled machine, interleaved event by event.
//!
//! Each worker is a thread of the operating system, and only the one that holds the baton runs. Every
//! event of the domain is a point at which the baton may change hands and entries may leave the
//! store buffers ([`store_buffer`](crate::scheduler::store_buffer)), as a [`SchedulePolicy`] chooses. The choices
//! are recorded: the same policy, or the recorded [`Schedule`], gives the same run.
//!
//! ```text
//!  worker 0  ──store──▶ buffer 0 ──┐ leaves when the scheduler says so
//!                                  ├──▶ memory, trace, counters: in the order of visibility
//!  worker 1  ──store──▶ buffer 1 ──┘
//! ```
//!
//! What is not interleaved: words in the host's own memory (locks, counters, epochs) that are no
//! [`DramCell`](lapis_pmem::DramCell). They are accessed at once, between two events; [`Observed::synchronize`](lapis_pmem::Observed::synchronize)
//! says when they order the worker's stores. A copy is one entry of the buffer.

pub(crate) mod bounded_search;
pub(crate) mod effect;
pub mod litmus;
pub(crate) mod processor;
pub(crate) mod schedule;
pub(crate) mod store_buffer;
pub(crate) mod worker;

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::Thread;

use parking_lot::Mutex;

use self::effect::Effect;
use crate::scheduler::schedule::{Chooser, Schedule, SchedulePolicy, Step, View};
use crate::scheduler::store_buffer::StoreBuffer;

/// What a worker runs.
pub type WorkerProgram<'p> = Box<dyn FnOnce() + Send + 'p>;

/// How a run of several workers ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Every worker came to the end of its program and every store became visible.
    Completed,
    /// All workers wait for each other, and none has changed anything for a thousand turns given away by each. Every
    /// locked attempt counts as a change, also one that fails, and so does every look of [`lapis_pmem::host_lock::wait`]: workers that wait through these alone end as [`RunEnd::TooLong`].
    Deadlock,
    /// A worker panicked; the others were stopped.
    Panicked {
        /// Which.
        worker: u8,
        /// With which message.
        message: String,
    },
    /// Four million events and turns given away, and no end.
    TooLong,
}

/// A run of several workers.
#[derive(Clone, Debug)]
pub struct InterleavedRun {
    /// How it ended.
    pub end: RunEnd,
    /// What was chosen; replays the run.
    pub schedule: Schedule,
    /// A replay whose schedule is of another program: it was followed as far as it made sense.
    pub diverged: bool,
    pub(crate) options: Vec<u32>,
}

/// Why the scheduler is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// An event is about to happen.
    Event,
    /// One that makes something durable, or waits for what does, or is a locked instruction.
    Persists,
    /// The worker waits for another.
    Waits,
}

#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) buffer: StoreBuffer<Effect>,
    pub(crate) thread: Option<Thread>,
    pub(crate) done: bool,
    /// Turns given away since something last changed.
    pub(crate) given_away: u32,
}

/// What the workers of a run have in common.
pub(crate) struct Shared {
    pub(crate) workers: Vec<Worker>,
    pub(crate) chooser: Chooser,
    pub(crate) record: Vec<Step>,
    /// Events, and turns given away.
    pub(crate) events: u64,
    pub(crate) end: Option<RunEnd>,
}

/// The scheduler of one machine.
pub(crate) struct Interleaving {
    /// Who holds the baton.
    pub(crate) current: AtomicU8,
    pub(crate) stopped: AtomicBool,
    pub(crate) shared: Mutex<Shared>,
}

impl Default for Interleaving {
    fn default() -> Self {
        let policy = SchedulePolicy::Replay(Schedule::default());
        Self {
            current: AtomicU8::new(0),
            stopped: AtomicBool::new(false),
            shared: Mutex::new(Shared::new(&policy, 0)),
        }
    }
}

impl Shared {
    pub(crate) fn new(policy: &SchedulePolicy, workers: u8) -> Self {
        Self {
            workers: (0..workers).map(|_| Worker::default()).collect(),
            chooser: Chooser::new(policy, workers),
            record: Vec::new(),
            events: 0,
            end: None,
        }
    }

    pub(crate) fn ready(&self) -> Vec<u8> {
        let numbered = self.workers.iter().zip(0u8..);
        numbered.filter(|(worker, _)| !worker.done).map(|(_, number)| number).collect()
    }

    /// Something has changed that others may wait for.
    pub(crate) fn changed(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.given_away = 0);
    }

    /// Whether all workers have given so many turns away since.
    pub(crate) fn all_wait(&self, turns: u32) -> bool {
        self.workers.iter().all(|worker| worker.done || worker.given_away > turns)
    }

    pub(crate) fn choose(&mut self, current: u8, turn: Turn) -> Step {
        let ready = self.ready();
        let mut leavable = Vec::new();
        for (worker, number) in self.workers.iter().zip(0u8..) {
            leavable.extend(worker.buffer.leavable().map(|place| (number, place as u8)));
        }
        let (waits, persists) = (turn == Turn::Waits, turn == Turn::Persists);
        let view = View { current, waits, persists, ready: &ready, leavable: &leavable };
        let step = self.chooser.choose(&view);
        self.record.push(step);
        step
    }
}

thread_local! {
    pub(crate) static SCHEDULED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker of a run.
#[inline]
pub(crate) fn is_scheduled() -> bool {
    SCHEDULED.get()
}

/// What a worker that is stopped unwinds with.
pub(crate) struct Stopped;

impl Interleaving {
    pub(crate) fn stop(&self, end: RunEnd) {
        let mut shared = self.shared.lock();
        shared.end.get_or_insert(end);
        self.stopped.store(true, Ordering::Release);
        shared.workers.iter().filter_map(|worker| worker.thread.as_ref()).for_each(Thread::unpark);
    }

    /// Sleeps until the calling worker has the baton; unwinds if the run was stopped.
    pub(crate) fn await_turn(&self, me: u8) {
        while self.current.load(Ordering::Acquire) != me {
            if self.stopped.load(Ordering::Acquire) {
                return unwind();
            }
            std::thread::park();
        }
    }

    pub(crate) fn hand_over(&self, to: u8, thread: Option<Thread>) {
        self.current.store(to, Ordering::Release);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// Whether the run was stopped: what is left to do is done at once, without store buffers.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Leaves a worker that is stopped.
pub(crate) fn unwind() {
    if !std::thread::panicking() {
        resume_unwind(Box::new(Stopped));
    }
}
