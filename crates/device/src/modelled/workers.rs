//! Running workers by turns: what the machine does between two events of a program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread::Thread;

use lapis_pmem::Word;

use crate::modelled::Modelled;
use crate::scheduler::effect::Effect;
use crate::scheduler::processor::Processor;
use crate::scheduler::schedule::{Schedule, SchedulePolicy, Step};
use crate::scheduler::store_buffer::{Entry, EntryKind};
use crate::scheduler::worker::{current_worker, set_current_worker};
use crate::scheduler::{
    InterleavedRun, Interleaving, RunEnd, SCHEDULED, Shared, Stopped, Turn, WorkerProgram, unwind,
};

/// Entries in a store buffer; when it is full the oldest leaves.
const BUFFER_ENTRIES: usize = 32;
/// Turns given away by each worker, with nothing becoming visible meanwhile, after which all of them
/// wait for ever.
const PATIENCE: u32 = 1000;
/// Events, and turns given away, after which a run is given up.
const MOST_EVENTS: u64 = 4_000_000;

impl Modelled {
    /// Runs each program as a worker of its own, numbered from zero, one event at a time as `policy`
    /// chooses. Returns when all have ended or cannot go on. The machine must have been made with
    /// [`Config::concurrent`](crate::Config::concurrent). One run at a time.
    ///
    /// # Panics
    /// If the machine was made otherwise, or there are more than 64 programs.
    pub fn run_workers(
        &self,
        policy: &SchedulePolicy,
        programs: Vec<WorkerProgram<'_>>,
    ) -> InterleavedRun {
        let Some(interleaving) = self.scheduler() else {
            panic!("this modelled machine was not made for several workers");
        };
        let count = u8::try_from(programs.len()).ok().filter(|&count| count <= 64);
        let count = count.expect("at most 64 workers");
        *interleaving.shared.lock() = Shared::new(policy, count);
        interleaving.stopped.store(false, Ordering::Release);
        interleaving.current.store(u8::MAX, Ordering::Release);
        let processor = Processor::of_caller();
        std::thread::scope(|scope| {
            let spawn = |(program, me)| {
                scope.spawn(move || {
                    processor.stay();
                    self.work(interleaving, me, program);
                })
            };
            let handles: Vec<_> = programs.into_iter().zip(0u8..).map(spawn).collect();
            let threads: Vec<Thread> = handles.iter().map(|it| it.thread().clone()).collect();
            let mut shared = interleaving.shared.lock();
            for (worker, thread) in shared.workers.iter_mut().zip(&threads) {
                worker.thread = Some(thread.clone());
            }
            drop(shared);
            if let Some(first) = threads.first() {
                interleaving.hand_over(0, Some(first.clone()));
            }
        });
        let mut shared = interleaving.shared.lock();
        InterleavedRun {
            end: shared.end.take().unwrap_or(RunEnd::Completed),
            schedule: Schedule { steps: std::mem::take(&mut shared.record) },
            diverged: shared.chooser.has_diverged(),
            options: shared.chooser.options().to_vec(),
        }
    }

    /// Steps of the run so far; between runs, 0.
    pub fn steps_taken(&self) -> usize {
        self.scheduler().map_or(0, |interleaving| interleaving.shared.lock().record.len())
    }

    /// The life of a worker's thread.
    fn work(&self, interleaving: &Interleaving, me: u8, program: WorkerProgram<'_>) {
        set_current_worker(me);
        SCHEDULED.set(true);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            interleaving.await_turn(me);
            program();
            self.finish(interleaving, me);
        }));
        SCHEDULED.set(false);
        if let Err(payload) = outcome
            && !payload.is::<Stopped>()
        {
            let message = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "for an unknown reason".to_owned());
            interleaving.stop(RunEnd::Panicked { worker: me, message });
        }
    }

    /// A worker has come to its end: another goes on, or everything left becomes visible.
    fn finish(&self, interleaving: &Interleaving, me: u8) {
        interleaving.shared.lock().workers[usize::from(me)].done = true;
        loop {
            let mut shared = interleaving.shared.lock();
            if shared.end.is_some() {
                return;
            }
            shared.changed();
            if shared.ready().is_empty() {
                let workers = shared.workers.len() as u8;
                drop(shared);
                return (0..workers).for_each(|worker| self.drain_buffer(interleaving, worker));
            }
            match shared.choose(me, Turn::Waits) {
                Step::Run(next) => {
                    let thread = shared.workers[usize::from(next)].thread.clone();
                    drop(shared);
                    return interleaving.hand_over(next, thread);
                }
                Step::Drain(worker, place) => {
                    drop(shared);
                    self.drain_entry(interleaving, worker, usize::from(place));
                }
            }
        }
    }

    /// The point before an event: entries leave store buffers, and others run, until it is the
    /// calling worker's turn. A worker that `waits` lets another go first.
    pub(crate) fn turn(&self, interleaving: &Interleaving, turn: Turn) {
        let waits = turn == Turn::Waits;
        let me = current_worker();
        loop {
            let mut shared = interleaving.shared.lock();
            if shared.end.is_some() {
                drop(shared);
                return unwind();
            }
            shared.events += 1;
            shared.workers[usize::from(me)].given_away += u32::from(waits);
            // Who reads for long does not wait.
            let deadlock = waits && shared.all_wait(PATIENCE);
            if deadlock || shared.events > MOST_EVENTS {
                drop(shared);
                interleaving.stop(if deadlock { RunEnd::Deadlock } else { RunEnd::TooLong });
                return unwind();
            }
            match shared.choose(me, turn) {
                Step::Run(next) if next == me => return,
                Step::Run(next) => {
                    let thread = shared.workers[usize::from(next)].thread.clone();
                    drop(shared);
                    interleaving.hand_over(next, thread);
                    return interleaving.await_turn(me);
                }
                Step::Drain(worker, place) => {
                    drop(shared);
                    self.drain_entry(interleaving, worker, usize::from(place));
                }
            }
        }
    }

    /// Lets one entry of a worker's buffer take effect.
    pub(super) fn drain_entry(&self, interleaving: &Interleaving, worker: u8, place: usize) {
        let mut shared = interleaving.shared.lock();
        let Some(entry) = shared.workers[usize::from(worker)].buffer.take(place) else { return };
        shared.changed();
        drop(shared);
        let me = current_worker();
        set_current_worker(worker);
        self.take_effect(entry);
        set_current_worker(me);
    }

    /// Lets everything in a worker's buffer take effect, in program order.
    fn drain_buffer(&self, interleaving: &Interleaving, worker: u8) {
        while !interleaving.shared.lock().workers[usize::from(worker)].buffer.is_empty() {
            self.drain_entry(interleaving, worker, 0);
        }
    }

    fn take_effect(&self, entry: Entry<Effect>) {
        /// # Safety
        /// `at` was made from a reference to the atomic of `W` that is still valid.
        unsafe fn store<W: Word>(
            machine: &Modelled,
            offset: usize,
            at: *const (),
            value: u64,
            order: Ordering,
        ) {
            // SAFETY: as the caller vouches.
            let at = unsafe { &*at.cast::<W::Atomic>() };
            machine.store_now::<W>(offset, at, W::narrow(value), order);
        }
        match entry.effect {
            // SAFETY: `at` was a reference to an atomic of that width when the store was executed;
            // it lies in the region, which outlives all accesses through the domain.
            Effect::Word { at, bytes, value, order } => unsafe {
                match bytes {
                    1 => store::<u8>(self, entry.start, at, value, order),
                    2 => store::<u16>(self, entry.start, at, value, order),
                    4 => store::<u32>(self, entry.start, at, value, order),
                    _ => store::<u64>(self, entry.start, at, value, order),
                }
            },
            // SAFETY: the caller of the domain's method vouched for the memory, which is its own
            // until it publishes it, and that is later in the buffer.
            Effect::Copy { destination, source } => unsafe {
                self.copy_now(destination, source.as_source());
            },
            // SAFETY: as above.
            Effect::NonTemporal { destination, source, at } => unsafe {
                self.fill_nontemporal_now(destination, source.as_source(), at);
            },
            Effect::Flush(location) => self.flush_now(entry.start, entry.bytes, location),
            Effect::Fence(location) => self.fence_now(location),
            Effect::Dram { word, value } => word.store(value, Ordering::Release),
            Effect::Mark(marker) => self.mark_now(marker),
        }
    }

    /// Puts an entry into the calling worker's store buffer.
    pub(super) fn buffer(&self, interleaving: &Interleaving, entry: Entry<Effect>) {
        let persists = matches!(entry.kind, EntryKind::Flush | EntryKind::Fence);
        self.turn(interleaving, if persists { Turn::Persists } else { Turn::Event });
        if interleaving.is_stopped() {
            return self.take_effect(entry);
        }
        let me = current_worker();
        let mut shared = interleaving.shared.lock();
        let buffer = &mut shared.workers[usize::from(me)].buffer;
        buffer.push(entry);
        let full = buffer.len() > BUFFER_ENTRIES;
        drop(shared);
        if full {
            self.drain_entry(interleaving, me, 0);
        }
    }

    /// A barrier in every worker: the buffers are empty one after the other, and others run in
    /// between.
    pub(super) fn empty_all_buffers(&self, interleaving: &Interleaving) {
        self.empty_buffer(interleaving);
        let workers = interleaving.shared.lock().workers.len() as u8;
        for worker in 0..workers {
            self.turn(interleaving, Turn::Persists);
            if !interleaving.is_stopped() {
                self.drain_buffer(interleaving, worker);
            }
        }
    }

    /// The calling worker's locked instruction, or what orders like one: its buffer is empty then.
    pub(crate) fn empty_buffer(&self, interleaving: &Interleaving) {
        self.turn(interleaving, Turn::Persists);
        if !interleaving.is_stopped() {
            interleaving.shared.lock().changed();
            self.drain_buffer(interleaving, current_worker());
        }
    }
}
