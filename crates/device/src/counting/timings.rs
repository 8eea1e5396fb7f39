//! Several clocks over one sequence of events.
//!
//! Counts follow from the events alone, so machines that differ in nothing but their delays have the
//! same ones. The first clock is the machine's own; others see the same events with delays of
//! their own ([`Config::other_timings`](crate::Config)), which shows what a slower memory would cost
//! without running the program again.

use crate::counting::hierarchy::Level;
use crate::counting::timing::{Picoseconds, Timing, TimingShape, Way};
use crate::counting::xp_buffer::{Fetched, Place};

/// A clock beside the first one.
#[derive(Clone, Debug)]
struct Other {
    timing: Timing,
    /// When all lines that were begun since [`Timings::gather`] will be there.
    there: u64,
}

impl Other {
    fn begun(&mut self, ready: u64) {
        self.there = self.there.max(ready);
    }
}

/// The first clock and the others. The methods are those of [`Timing`].
#[derive(Clone, Debug)]
pub(crate) struct Timings {
    first: Timing,
    others: Vec<Other>,
}

impl Timings {
    /// Clocks with these delays, all at zero.
    pub(crate) fn new(
        first: TimingShape,
        others: &[TimingShape],
        modules: usize,
        lines_per_unit: u32,
    ) -> Self {
        let timing = |shape| Timing::new(shape, modules, lines_per_unit);
        let other = |&shape: &TimingShape| Other { timing: timing(shape), there: 0 };
        Self { first: timing(first), others: others.iter().map(other).collect() }
    }

    #[inline(always)]
    fn each(&mut self, event: impl Fn(&mut Timing) + Copy) {
        event(&mut self.first);
        if !self.others.is_empty() {
            self.each_other(event);
        }
    }

    #[inline(never)]
    fn each_other(&mut self, event: impl Fn(&mut Timing)) {
        for other in &mut self.others {
            event(&mut other.timing);
        }
    }

    /// The same for an event that takes until the time it returns; the first clock's is returned.
    #[inline(always)]
    fn each_ready(&mut self, event: impl Fn(&mut Timing) -> u64 + Copy) -> u64 {
        if !self.others.is_empty() {
            self.each_other_ready(event);
        }
        event(&mut self.first)
    }

    #[inline(never)]
    fn each_other_ready(&mut self, event: impl Fn(&mut Timing) -> u64) {
        for other in &mut self.others {
            let ready = event(&mut other.timing);
            other.begun(ready);
        }
    }

    pub(crate) fn now(&self, worker: u8) -> Picoseconds {
        self.first.now(worker)
    }

    /// What each clock shows, the first one's first.
    pub(crate) fn all_now(&self, worker: u8) -> Vec<Picoseconds> {
        let others = self.others.iter().map(|other| other.timing.now(worker));
        std::iter::once(self.first.now(worker)).chain(others).collect()
    }

    pub(crate) fn spend(&mut self, worker: u8, span: Picoseconds) {
        self.each(move |timing| timing.spend(worker, span));
    }

    /// The clocks of a worker wait for its last fence.
    pub(crate) fn pass_fence(&mut self, worker: u8) {
        self.each(move |timing| timing.pass_fence(worker));
    }

    pub(crate) fn align(&mut self, workers: usize) {
        self.each(move |timing| timing.align(workers));
    }

    pub(crate) fn reset(&mut self) {
        self.each(Timing::reset);
    }

    #[inline]
    pub(crate) fn load(&mut self, worker: u8, line: u32, level: Level) {
        // Nearly every access: what is called in two places is not inlined in one.
        self.first.load(worker, line, level);
        if !self.others.is_empty() {
            self.each_other(|timing| timing.load(worker, line, level));
        }
    }

    #[inline]
    pub(crate) fn load_missing(&mut self, worker: u8, place: Place, fetched: Fetched) {
        self.each(move |timing| timing.load_missing(worker, place, fetched));
    }

    #[inline]
    pub(crate) fn begin_missing(&mut self, worker: u8, place: Place, fetched: Fetched) -> u64 {
        self.each_ready(move |timing| timing.begin_missing(worker, place, fetched))
    }

    pub(crate) fn read_again(&mut self, worker: u8, place: Place, fetched: Fetched) {
        self.each(move |timing| timing.read_again(worker, place, fetched));
    }

    #[inline]
    pub(crate) fn store_missing(&mut self, worker: u8, place: Place, fetched: Fetched) -> u64 {
        self.each_ready(move |timing| timing.store_missing(worker, place, fetched))
    }

    pub(crate) fn begin_dram(&mut self, worker: u8, line: u32) -> u64 {
        self.each_ready(move |timing| timing.begin_dram(worker, line))
    }

    #[inline]
    pub(crate) fn begin(&mut self, worker: u8, line: u32, level: Level) -> u64 {
        self.each_ready(move |timing| timing.begin(worker, line, level))
    }

    /// The lines that are begun from here on are those that [`Timings::wait_until`] waits for.
    #[inline]
    pub(crate) fn gather(&mut self) {
        for other in &mut self.others {
            other.there = 0;
        }
    }

    /// A core waits: until `time` by the first clock, by the others until what was begun since
    /// [`Timings::gather`] is there.
    #[inline]
    pub(crate) fn wait_until(&mut self, worker: u8, time: u64) {
        self.first.wait_until(worker, time);
        for other in &mut self.others {
            other.timing.wait_until(worker, other.there);
        }
    }

    #[inline]
    pub(crate) fn stored(&mut self, worker: u8) {
        self.each(move |timing| timing.stored(worker));
    }

    #[inline]
    pub(crate) fn locked(&mut self, worker: u8) {
        self.each(move |timing| timing.locked(worker));
    }

    #[inline]
    pub(crate) fn flush_issued(&mut self, worker: u8) {
        self.each(move |timing| timing.flush_issued(worker));
    }

    #[inline]
    pub(crate) fn fence(&mut self, worker: u8) {
        self.each(move |timing| timing.fence(worker));
    }

    #[inline]
    pub(crate) fn send(&mut self, worker: u8, place: Place, way: Way) {
        self.each(move |timing| timing.send(worker, place, way));
    }

    #[inline]
    pub(crate) fn arrive(&mut self, worker: u8, place: Place, media_writes: u32) {
        self.each(move |timing| timing.arrive(worker, place, media_writes));
    }
}
