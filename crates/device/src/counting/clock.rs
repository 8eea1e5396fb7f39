//! Virtual clocks of logical workers, and running workers by them.
//!
//! What this promises:
//!
//! * A [`Modelled`] that counts keeps a clock for each worker (the worker of an event is
//!   [`current_worker`]). Every load, store, flush, fence, non-temporal copy and prefetch of the
//!   region moves that worker's clock by its modelled delays, and no other worker's. Clocks start
//!   at zero and never go back, except by [`Modelled::reset_clocks`].
//! * [`Modelled::now_ns`] reads a clock; [`Modelled::spend_ns`] adds what the model cannot see, the
//!   stated CPU cost of an operation. Without [`Config::counting`](crate::Config) clocks move by
//!   what requests to attached block devices take and by nothing else; spending does nothing.
//! * [`interleave`] runs workers on the calling thread, always the one whose clock is least, one
//!   step at a time: the same on every machine, however many threads that has. Workers contend for
//!   modules and shared caches in the order of their steps, so a step should be short: one
//!   operation of an index, or less where interleaving within operations matters.
//! * A load waits for its line as if nothing else could be done meanwhile; what overlaps are
//!   prefetches, stores, the lines of one range, flushes up to the next fence. A line that was
//!   prefetched is waited for only as long as it is still on its way.
//! * Words outside of the region are not the model's: where the host's allocator puts them changes
//!   from run to run, and with it which of them share a line. They cost nothing here; what an
//!   operation does in DRAM is part of its stated CPU cost.
//!
//! Clocks decide nothing but times. Counts and traces follow from the sequence of events alone, and
//! through [`interleave`] that sequence follows from the clocks.

use std::ops::ControlFlow;

use crate::counting::timing::Picoseconds;
use crate::modelled::Modelled;
use crate::scheduler::worker::{current_worker, set_current_worker};

impl Modelled {
    /// The clock of a worker, in whole nanoseconds.
    pub fn now_ns(&self, worker: u8) -> u64 {
        self.now(worker).0 / 1000
    }

    /// The clock of a worker.
    pub fn now(&self, worker: u8) -> Picoseconds {
        let counted = self.with_counters(|counters| counters.timing().now(worker));
        counted.unwrap_or_else(|| self.with_plain_clock(worker, |clock| *clock))
    }

    /// The clock of a worker under each of the machine's delays: its own first, then
    /// [`Config::other_timings`](crate::Config) in their order.
    pub fn all_now(&self, worker: u8) -> Vec<Picoseconds> {
        self.with_counters(|counters| counters.timing().all_now(worker)).unwrap_or_default()
    }

    /// Moves a worker's clock on.
    pub fn spend_ns(&self, worker: u8, ns: u64) {
        self.spend(worker, Picoseconds(ns.saturating_mul(1000)));
    }

    /// Moves a worker's clock on by what need not be whole nanoseconds.
    pub fn spend(&self, worker: u8, span: Picoseconds) {
        self.with_counters(|counters| counters.timing().spend(worker, span));
    }

    /// Moves a worker's clock on to a time, if it is not there yet.
    pub(crate) fn wait_until_ns(&self, worker: u8, ns: u64) {
        let until = Picoseconds(ns.saturating_mul(1000));
        let counted = self.with_counters(|counters| {
            // Whatever it asks the device for, the system call waits for its stores.
            counters.timing().pass_fence(worker);
            let now = counters.timing().now(worker);
            counters.timing().spend(worker, Picoseconds(until.0.saturating_sub(now.0)));
        });
        if counted.is_none() {
            self.with_plain_clock(worker, |clock| *clock = until.max(*clock));
        }
    }

    /// Lets the first `workers` workers, and all others that have done something, wait for the
    /// latest of them, and for everything that is on its way to be accepted: the beginning or end
    /// of a measurement. Returns that time.
    pub fn align_clocks(&self, workers: usize) -> Picoseconds {
        self.with_counters(|counters| counters.align(workers));
        self.now(0)
    }

    /// Sets every clock to zero, with nothing on its way anywhere. Contents of caches and buffers
    /// stay.
    pub fn reset_clocks(&self) {
        self.with_counters(|counters| counters.timing().reset());
        self.forget_plain_clocks();
    }
}

/// Runs workers 0 to `workers` on the calling thread: always a step of the worker whose clock is
/// least (of several, the one with the lowest number), until it breaks. The thread acts as that
/// worker meanwhile, and as the one it was before in the end.
///
/// # Panics
/// If there are more than 256 workers.
pub fn interleave(machine: &Modelled, workers: usize, mut step: impl FnMut(u8) -> ControlFlow<()>) {
    struct Restore(u8);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_current_worker(self.0);
        }
    }
    assert!(workers <= 256, "a machine has at most 256 workers, not {workers}");
    let _restore = Restore(current_worker());
    let mut running: Vec<(Picoseconds, u8)> =
        (0..workers).map(|worker| (machine.now(worker as u8), worker as u8)).collect();
    while let Some(at) = (0..running.len()).min_by_key(|&at| running[at]) {
        let worker = running[at].1;
        set_current_worker(worker);
        match step(worker) {
            ControlFlow::Continue(()) => running[at].0 = machine.now(worker),
            ControlFlow::Break(()) => drop(running.swap_remove(at)),
        }
    }
}
