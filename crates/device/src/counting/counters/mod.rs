//! Counters: what a program asked of the machine, and what reached the controller and the media.
//!
//! ```text
//!  load, store ──▶ cache ──dirty line: flush, eviction──▶ WPQ ──▶ XPLine buffer ──▶ media
//!                    │                                     ▲          ▲    │
//!  non-temporal ─────┼─────────────────────────────────────┘          │    └─ write, 4 units
//!                    └──miss──────────────────────────────────────────┘─ read, 4 units
//! ```
//!
//! The write pending queue is inside the power-fail domain and drains in order, so a line counts
//! when it enters. Counts follow from the sequence of events alone; the clocks of the workers
//! (module `timing`) are moved along with them and change no count.

mod counts;

use std::ops::Range;
use std::sync::LazyLock;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

pub use self::counts::Counts;
use crate::counting::access::Access;
use crate::counting::cache::Tag;
use crate::counting::hierarchy::{
    DRAM_FIRST_LINE, Evicted, Hierarchy, HierarchyShape, Level, Reach, Shared,
};
use crate::counting::in_flight::InFlight;
use crate::counting::last_flushed::LastFlushed;
use crate::counting::reads_under_way::ReadsUnderWay;
use crate::counting::timing::{TimingShape, Way};
use crate::counting::timings::Timings;
use crate::counting::waiting_events::{self, Waiting, WaitingEvents, What};
use crate::counting::xp_buffer::{Place, XpBuffer, XpBufferShape};
use crate::profile::Profile;

/// The machine whose traffic is counted. [`Profile::machine`] makes one; the default is that of
/// `optane-100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MachineShape {
    /// The caches.
    pub caches: HierarchyShape,
    /// The modules and their buffers.
    pub xp_buffer: XpBufferShape,
    /// What things cost.
    pub timing: TimingShape,
}

impl Default for MachineShape {
    fn default() -> Self {
        static OPTANE_100: LazyLock<MachineShape> = LazyLock::new(|| {
            Profile::named("optane-100").expect("a built-in profile is valid").machine()
        });
        *OPTANE_100
    }
}

/// The counted machine. Offsets are in bytes from the start of the region.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    counts: Counts,
    /// For each worker the line whose non-temporal stores are still being combined.
    combining: Vec<Option<u32>>,
    caches: Hierarchy,
    /// Lines that have left the caches and are not at their modules yet.
    in_flight: InFlight,
    reads: ReadsUnderWay,
    last_flushed: LastFlushed,
    buffer: XpBuffer,
    timing: Timings,
    /// Events that have come and are still to be done.
    waiting: WaitingEvents,
}

/// Bytes of ordinary memory that are told apart; later offsets begin again.
const DRAM_BYTES: usize = (DRAM_FIRST_LINE as usize - 1) * LINE_BYTES;

fn lines(offset: usize, bytes: usize) -> Range<u32> {
    (offset / LINE_BYTES) as u32..((offset + bytes).div_ceil(LINE_BYTES)) as u32
}

fn words(offset: usize, bytes: usize) -> u64 {
    ((offset + bytes).div_ceil(8) - offset / 8) as u64
}

impl Counters {
    #[cfg(test)]
    fn new(shape: MachineShape) -> Self {
        Self::with_timings(shape, &[])
    }

    /// The machine, with further clocks that have other delays.
    pub(crate) fn with_timings(shape: MachineShape, others: &[TimingShape]) -> Self {
        let buffer = XpBuffer::new(shape.xp_buffer);
        let (modules, lines_per_unit) = (shape.xp_buffer.modules, buffer.lines_per_unit());
        Self {
            counts: Counts::default(),
            combining: vec![None; 256],
            caches: Hierarchy::new(shape.caches),
            in_flight: InFlight::new(shape.xp_buffer.lines_in_flight, shape.xp_buffer.seed),
            reads: ReadsUnderWay::new(
                shape.timing.line_fill_buffers,
                shape.xp_buffer.lines_in_read_queue,
                modules,
                shape.xp_buffer.seed,
            ),
            last_flushed: LastFlushed::default(),
            buffer,
            timing: Timings::new(shape.timing, others, modules, lines_per_unit),
            waiting: WaitingEvents::new(),
        }
    }

    pub(crate) fn counts(&mut self) -> Counts {
        self.settle();
        let media = self.buffer.traffic();
        let units = u64::from(self.buffer.lines_per_unit());
        let (media_writes, media_reads) = (media.writes * units, media.reads * units);
        Counts { media_writes, media_reads, ..self.counts }
    }

    pub(crate) fn timing(&mut self) -> &mut Timings {
        self.settle();
        &mut self.timing
    }

    /// Lets workers wait for one another, and for all that is on its way.
    pub(crate) fn align(&mut self, workers: usize) {
        self.arrive_all();
        self.timing.align(workers);
    }

    pub(crate) fn drain(&mut self) {
        self.arrive_all();
        self.buffer.drain();
    }

    /// All that is on its way arrives.
    fn arrive_all(&mut self) {
        self.settle();
        for worker in 0..self.in_flight.workers() {
            self.arrive_all_of(worker as u8);
        }
        self.reads.forget();
    }

    #[inline]
    fn arrive_all_of(&mut self, worker: u8) {
        let lines = self.in_flight.take(worker);
        for &place in &lines {
            self.arrive(worker, place);
        }
        self.in_flight.give_back(worker, lines);
    }

    /// A line that a worker wrote comes to its module.
    #[inline(always)]
    fn arrive(&mut self, worker: u8, place: Place) {
        let media_writes = self.buffer.write(place);
        self.timing.arrive(worker, place, media_writes);
    }

    /// Does what waits.
    fn settle(&mut self) {
        while let Some(event) = self.waiting.pop() {
            self.perform(event);
        }
    }

    /// Does an event.
    #[inline]
    fn perform(&mut self, event: Waiting) {
        let Waiting { line, cast_out, worker, what, access } = event;
        if what == What::FromBeyond {
            return self.access_shared(worker, line, access, cast_out);
        }
        match what {
            What::FromBeyond => unreachable!("done above"),
            What::FromL1 => _ = self.finish_near(worker, line, access, Level::L1),
            What::FromL2 => _ = self.finish_near(worker, line, access, Level::L2),
            What::Access => _ = self.access(worker, line, access),
            What::Flush => self.flush_line(worker, line),
            What::FlushOfDirty => self.flush_shared(worker, line, Some(true)),
            What::FlushOfClean => self.flush_shared(worker, line, Some(false)),
            What::FlushBeyond => self.flush_shared(worker, line, None),
            What::Fence => self.fence_now(worker),
        }
    }

    /// An access that nobody asks the end of: done at once if nothing waits and it is near.
    #[inline]
    fn begin(&mut self, worker: u8, line: u32, access: Access) {
        if !self.caches.is_alone(worker) {
            return self.begin_among_others(worker, line, access);
        }
        match self.caches.access_private(worker, line, access.writes()) {
            Reach::Private(level) => {
                if self.waiting.is_empty() {
                    self.finish_near(worker, line, access, level);
                    return;
                }
                let what = if level == Level::L1 { What::FromL1 } else { What::FromL2 };
                self.wait(Waiting { line, cast_out: Tag::NONE, worker, what, access }, true);
            }
            Reach::Beyond(cast_out) => {
                self.caches.prefetch(line, cast_out);
                let what = What::FromBeyond;
                self.wait_for_host(Waiting { line, cast_out, worker, what, access });
            }
        }
    }

    /// The same where caches of several workers are concerned: all of it waits.
    #[inline(never)]
    fn begin_among_others(&mut self, worker: u8, line: u32, access: Access) {
        if !self.caches.are_several() {
            // What waits is of an only worker.
            self.settle();
            self.access(worker, line, access);
            return;
        }
        let near = if self.waiting.is_empty() {
            if let Some(level) = self.caches.access_near(worker, line, access.writes()) {
                self.finish_near(worker, line, access, level);
                return;
            }
            false
        } else {
            self.caches.is_near(worker, line)
        };
        if !near {
            self.caches.prefetch(line, self.caches.next_victim(worker, line));
        }
        let (cast_out, what) = (Tag::NONE, What::Access);
        self.wait(Waiting { line, cast_out, worker, what, access }, near);
    }

    /// Lets an event wait for what the host fetches, and does what has waited long enough.
    #[inline(always)]
    fn wait_for_host(&mut self, event: Waiting) {
        if let Some(oldest) = self.waiting.push(event, false) {
            self.perform(oldest);
        }
    }

    /// Lets an event wait, and does what has waited long enough.
    #[inline(never)]
    fn wait(&mut self, event: Waiting, near: bool) {
        if let Some(oldest) = self.waiting.push(event, near) {
            self.perform(oldest);
        }
        if self.waiting.is_done_waiting() {
            self.settle();
        }
    }

    /// Lets an event wait that is no access.
    fn wait_for_others(&mut self, worker: u8, line: u32, what: What) {
        let (cast_out, access) = (Tag::NONE, Access::LOAD);
        self.wait(Waiting { line, cast_out, worker, what, access }, true);
    }

    /// The rest of an access of the only worker.
    #[inline(always)]
    fn access_shared(&mut self, worker: u8, line: u32, access: Access, cast_out: Tag) {
        let Shared { level, dirty, leaves } = self.caches.access_shared(line, cast_out);
        // Of a line that is written the private caches know that it is dirty.
        if dirty && !access.writes() && !self.waiting.soil_cast_out(line) {
            self.caches.soil_private(worker, line);
        }
        if level == Level::Memory {
            self.miss(worker, line, access);
        } else {
            self.answer(worker, line, access, level);
        }
        if let (Some(line), true) = (leaves.line(), leaves.is_dirty()) {
            self.insert(worker, line, Way::Eviction);
        }
        self.end(worker, access);
    }

    /// A line enters the write pending queue.
    #[inline(always)]
    fn insert(&mut self, worker: u8, line: u32, way: Way) {
        match way {
            Way::Flush => self.counts.wpq_flush += 1,
            Way::NonTemporal => self.counts.wpq_nontemporal += 1,
            Way::Eviction => self.counts.wpq_eviction += 1,
        }
        let place = self.buffer.place(line);
        self.timing.send(worker, place, way);
        let arrives = match way {
            // It was in no buffer of the core.
            Way::Eviction => Some(place),
            Way::Flush | Way::NonTemporal => self.in_flight.push(worker, place),
        };
        if let Some(place) = arrives {
            self.arrive(worker, place);
        }
    }

    /// An access; when the line will be there, if the worker does not wait for it.
    #[inline]
    fn access(&mut self, worker: u8, line: u32, access: Access) -> u64 {
        match self.caches.access_near(worker, line, access.writes()) {
            Some(level) => self.finish_near(worker, line, access, level),
            None => self.access_far(worker, line, access),
        }
    }

    /// The same for a line that is not near.
    #[inline]
    fn access_far(&mut self, worker: u8, line: u32, access: Access) -> u64 {
        let mut evicted = Evicted::default();
        let level = self.caches.access_far(worker, line, access.writes(), &mut evicted);
        let ready = if level == Level::Memory {
            self.miss(worker, line, access)
        } else {
            self.answer(worker, line, access, level)
        };
        for &line in evicted.lines() {
            self.insert(worker, line, Way::Eviction);
        }
        self.end(worker, access);
        ready
    }

    /// What is left of an access that a cache answered.
    #[inline(always)]
    fn finish_near(&mut self, worker: u8, line: u32, access: Access, level: Level) -> u64 {
        let ready = self.answer(worker, line, access, level);
        self.end(worker, access);
        ready
    }

    /// A cache answers.
    #[inline(always)]
    fn answer(&mut self, worker: u8, line: u32, access: Access, level: Level) -> u64 {
        if access.waits() {
            self.timing.load(worker, line, level);
            0
        } else {
            self.timing.begin(worker, line, level)
        }
    }

    /// What an access costs the worker beside the line.
    #[inline(always)]
    fn end(&mut self, worker: u8, access: Access) {
        if !access.waits() {
            self.timing.stored(worker);
        } else if access.locks() {
            self.timing.locked(worker);
        }
    }

    /// The line comes from a module.
    #[inline(always)]
    fn miss(&mut self, worker: u8, line: u32, access: Access) -> u64 {
        self.counts.llc_misses += 1;
        if self.in_flight.holds(worker, line) {
            self.arrive_all_of(worker);
        }
        let place = self.buffer.place(line);
        let fetched = self.buffer.read(place);
        if access.waits() {
            self.reads.wait(worker);
            self.counts.flushed_reads += u64::from(self.last_flushed.holds(worker, line));
            self.timing.load_missing(worker, place, fetched);
            0
        } else if access.writes() {
            self.timing.store_missing(worker, place, fetched)
        } else {
            let ready = self.timing.begin_missing(worker, place, fetched);
            // One core alone has fewer lines under way than a module's queue takes.
            if self.caches.are_several() {
                self.reads.begin(worker, place, fetched.from_media);
                while let Some(late) = self.reads.sent(place.module) {
                    self.read_if_gone(worker, late);
                }
            }
            ready
        }
    }

    /// A line is sent that was in the buffer when it was asked for. If its unit has left meanwhile, the
    /// media read that again.
    #[inline(never)]
    fn read_if_gone(&mut self, worker: u8, place: Place) {
        let fetched = self.buffer.read(place);
        if fetched.from_media {
            self.timing.read_again(worker, place, fetched);
        }
    }

    #[inline]
    pub(crate) fn load(&mut self, worker: u8, offset: usize) {
        self.counts.loads += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::LOAD);
    }

    #[inline]
    pub(crate) fn store(&mut self, worker: u8, offset: usize) {
        self.counts.stores += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::STORE);
    }

    /// A locked operation owns the line even if it stores nothing; only a store makes it dirty.
    #[inline]
    pub(crate) fn locked(&mut self, worker: u8, offset: usize, stored: bool) {
        self.counts.locked += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::locked(stored));
    }

    /// The lines of a range are on their way together.
    pub(crate) fn read_range(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.counts.loads += words(offset, bytes);
        let lines = lines(offset, bytes);
        if lines.len() == 1 {
            return self.begin(worker, lines.start, Access::LOAD);
        }
        for line in lines.clone().take(waiting_events::DEPTH) {
            self.caches.prefetch(line, self.caches.next_victim(worker, line));
        }
        self.settle();
        self.timing.gather();
        let mut ready = 0;
        for line in lines {
            ready = ready.max(self.access(worker, line, Access::PREFETCH));
        }
        self.timing.wait_until(worker, ready);
        self.reads.wait(worker);
    }

    pub(crate) fn write_range(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.counts.stores += words(offset, bytes);
        lines(offset, bytes).for_each(|line| {
            self.begin(worker, line, Access::STORE);
        });
    }

    pub(crate) fn nontemporal(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.settle();
        let combining = usize::from(worker);
        for line in lines(offset, bytes) {
            let dirty = self.caches.remove(line);
            // An ordinary store in between has ended the combining.
            if self.combining[combining] == Some(line) && !dirty {
                continue;
            }
            let start = line as usize * LINE_BYTES;
            let whole = offset <= start && start + LINE_BYTES <= offset + bytes;
            // A cached copy leaves first; if it is overwritten in whole there is nothing to save.
            if dirty && !whole {
                self.insert(worker, line, Way::Eviction);
            }
            self.counts.nontemporal_lines += 1;
            self.timing.stored(worker);
            self.insert(worker, line, Way::NonTemporal);
        }
        // A line that is full leaves its combining buffer.
        let end = offset + bytes;
        self.combining[combining] =
            (!end.is_multiple_of(LINE_BYTES)).then_some((end / LINE_BYTES) as u32);
    }

    #[inline]
    pub(crate) fn flush(&mut self, worker: u8, offset: usize, bytes: usize) {
        for line in lines(offset, bytes) {
            if self.waiting.is_empty() {
                self.flush_line(worker, line);
            } else if self.caches.are_several() {
                self.wait_for_others(worker, line, What::Flush);
            } else if self.waiting.is_unsettled(line) {
                self.settle();
                self.flush_line(worker, line);
            } else {
                let what = match self.caches.flush_private(line) {
                    Some(true) => What::FlushOfDirty,
                    Some(false) => What::FlushOfClean,
                    None => What::FlushBeyond,
                };
                self.wait_for_others(worker, line, what);
            }
        }
    }

    #[inline]
    fn flush_line(&mut self, worker: u8, line: u32) {
        self.counts.flushes += 1;
        self.last_flushed.push(worker, line);
        self.timing.flush_issued(worker);
        if self.caches.flush(line) {
            self.insert(worker, line, Way::Flush);
        }
    }

    /// The rest of a flush of the only worker's caches: whether the line was dirty in the private ones,
    /// if it was there.
    #[inline]
    fn flush_shared(&mut self, worker: u8, line: u32, dirty: Option<bool>) {
        self.counts.flushes += 1;
        self.last_flushed.push(worker, line);
        self.timing.flush_issued(worker);
        if self.caches.flush_shared(line, dirty) {
            self.insert(worker, line, Way::Flush);
        }
    }

    #[inline]
    pub(crate) fn fence(&mut self, worker: u8) {
        if self.waiting.is_empty() {
            self.fence_now(worker);
        } else {
            self.wait_for_others(worker, 0, What::Fence);
        }
    }

    #[inline]
    fn fence_now(&mut self, worker: u8) {
        self.counts.fences += 1;
        self.combining[usize::from(worker)] = None;
        self.arrive_all_of(worker);
        self.timing.fence(worker);
    }

    /// Reads of ordinary memory: nothing of it is ever dirty or reaches a module. The lines of a range
    /// are on their way together.
    pub(crate) fn read_dram(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.settle();
        self.timing.gather();
        let there = self.ask_for_dram(worker, offset, bytes);
        self.timing.wait_until(worker, there);
    }

    /// The same, and nobody waits for it.
    pub(crate) fn prefetch_dram(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.settle();
        self.ask_for_dram(worker, offset, bytes);
    }

    /// Asks for lines of ordinary memory. When all of them will be there.
    fn ask_for_dram(&mut self, worker: u8, offset: usize, bytes: usize) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let offset = offset % DRAM_BYTES;
        let mut there = 0;
        for line in lines(offset, bytes.min(DRAM_BYTES - offset)) {
            let line = line + DRAM_FIRST_LINE;
            let mut evicted = Evicted::default();
            let level = self.caches.access(worker, line, false, &mut evicted);
            let ready = if level == Level::Memory {
                self.counts.llc_misses += 1;
                self.counts.dram_reads += 1;
                self.timing.begin_dram(worker, line)
            } else {
                self.timing.begin(worker, line, level)
            };
            there = there.max(ready);
            for &line in evicted.lines() {
                self.insert(worker, line, Way::Eviction);
            }
        }
        there
    }

    pub(crate) fn prefetch(&mut self, worker: u8, offset: usize) {
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::PREFETCH);
    }
}

#[cfg(test)]
mod tests;
