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

use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub};
use std::sync::LazyLock;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use crate::hierarchy::{Evicted, Hierarchy, HierarchyShape, Level};
use crate::lookahead::{self, Lookahead, Waiting, What};
use crate::profile::Profile;
use crate::timing::{TimingShape, Way};
use crate::timings::Timings;
use crate::xp_buffer::{XpBuffer, XpBufferShape};

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

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        /// What happened, in total or between two moments: subtract an earlier snapshot from a
        /// later one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
        pub struct Counts {
            $($(#[$meta])* pub $name: u64),*
        }

        impl Add for Counts {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name),* }
            }
        }

        impl Sub for Counts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name),* }
            }
        }
    };
}

counts! {
    /// Words loaded; a range that is noted as read counts a load for each aligned eight bytes.
    loads,
    /// Words stored, a copy in aligned eight bytes; without locked and non-temporal stores.
    stores,
    /// Lines flushed, dirty or not.
    flushes,
    /// Fences.
    fences,
    /// Locked operations, successful or not.
    locked,
    /// Lines stored to by non-temporal copies. Copies that follow one another in a line without a
    /// fence are combined and count once.
    nontemporal_lines,
    /// Loads, stores, locked operations and prefetches, by line, that no cache answered, those of
    /// ordinary memory included.
    llc_misses,
    /// Those of `llc_misses` that went to ordinary memory
    /// ([`touch_dram`](lapis_pmem::Domain::touch_dram)).
    dram_reads,
    /// Lines that entered the write pending queue because of a flush.
    wpq_flush,
    /// Lines that entered it non-temporally.
    wpq_nontemporal,
    /// Dirty lines that entered it because the caches needed room.
    wpq_eviction,
    /// Media writes, in units of 64 bytes (an XPLine is four), those that the modules add on their
    /// own behalf included.
    media_writes,
    /// Media reads, in units of 64 bytes, for cache misses and for partial XPLines.
    media_reads,
}

impl Counts {
    /// Lines that entered the write pending queue for any reason.
    pub fn wpq_inserts(&self) -> u64 {
        self.wpq_flush + self.wpq_nontemporal + self.wpq_eviction
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} loads, {} stores, {} locked, {} flushes, {} fences, {} LLC misses, {} WPQ inserts \
             ({} flush, {} non-temporal, {} eviction), {} media writes, {} media reads",
            self.loads,
            self.stores,
            self.locked,
            self.flushes,
            self.fences,
            self.llc_misses,
            self.wpq_inserts(),
            self.wpq_flush,
            self.wpq_nontemporal,
            self.wpq_eviction,
            self.media_writes,
            self.media_reads,
        )
    }
}

/// The counted machine. Offsets are in bytes from the start of the region.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    counts: Counts,
    /// For each worker the line whose non-temporal stores are still being combined.
    combining: Vec<Option<u32>>,
    caches: Hierarchy,
    buffer: XpBuffer,
    timing: Timings,
    /// Events that have come and are still to be done.
    lookahead: Lookahead,
}

/// What an access is to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The worker waits for the line.
    Load,
    /// The worker goes on.
    Store,
    /// The worker waits and may have written.
    Locked { stored: bool },
    /// The worker goes on and has written nothing.
    Prefetch,
}

impl Access {
    #[inline]
    fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Locked { stored: true })
    }

    #[inline]
    fn waits(self) -> bool {
        matches!(self, Self::Load | Self::Locked { .. })
    }
}

/// The first of the line numbers that stand for ordinary memory, beyond every region (64 GiB).
pub(crate) const DRAM_FIRST_LINE: u32 = 1 << 30;
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
            buffer,
            timing: Timings::new(shape.timing, others, modules, lines_per_unit),
            lookahead: Lookahead::new(),
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

    pub(crate) fn drain(&mut self) {
        self.settle();
        self.buffer.drain();
    }

    /// Does what waits.
    fn settle(&mut self) {
        while let Some(event) = self.lookahead.pop() {
            self.perform(event);
        }
    }

    /// Does an event.
    #[inline]
    fn perform(&mut self, event: Waiting) {
        match event.what {
            What::Access(access) => {
                self.access(event.worker, event.line, access);
            }
            What::Flush => self.flush_line(event.worker, event.line),
            What::Fence => self.fence_now(event.worker),
        }
    }

    /// An access that nobody asks the end of: done at once if nothing waits and it is near.
    #[inline]
    fn begin(&mut self, worker: u8, line: u32, access: Access) {
        if self.lookahead.is_empty() {
            match self.caches.access_near(worker, line, access.writes()) {
                Some(level) => _ = self.finish_near(worker, line, access, level),
                None => self.wait(Waiting { line, worker, what: What::Access(access) }, false),
            }
        } else {
            let near = self.caches.is_near(worker, line);
            self.wait(Waiting { line, worker, what: What::Access(access) }, near);
        }
    }

    /// Lets an event wait, and does what has waited long enough.
    #[inline(never)]
    fn wait(&mut self, event: Waiting, near: bool) {
        if !near {
            self.prefetch_tables(event.worker, event.line);
        }
        if let Some(oldest) = self.lookahead.push(event, near) {
            self.perform(oldest);
        }
        if self.lookahead.is_done_waiting() {
            self.settle();
        }
    }

    /// Lets the host fetch what a far access needs.
    #[inline]
    fn prefetch_tables(&self, worker: u8, line: u32) {
        self.caches.prefetch(worker, line);
        if line < DRAM_FIRST_LINE {
            self.timing.prefetch_tables(self.buffer.place(line));
        }
    }

    /// A line enters the write pending queue.
    fn insert(&mut self, worker: u8, line: u32, way: Way) {
        match way {
            Way::Flush => self.counts.wpq_flush += 1,
            Way::NonTemporal => self.counts.wpq_nontemporal += 1,
            Way::Eviction => self.counts.wpq_eviction += 1,
        }
        let place = self.buffer.place(line);
        let written = self.buffer.write(place);
        self.timing.send(worker, place, written, way);
    }

    /// An access; when the line will be there, if the worker does not wait for it.
    #[inline]
    fn access(&mut self, worker: u8, line: u32, access: Access) -> u64 {
        let mut evicted = Evicted::default();
        let level = self.caches.access(worker, line, access.writes(), &mut evicted);
        if level != Level::Memory && evicted.lines().is_empty() {
            return self.finish_near(worker, line, access, level);
        }
        let ready = if level == Level::Memory {
            self.miss(worker, line, access.waits())
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
    #[inline]
    fn finish_near(&mut self, worker: u8, line: u32, access: Access, level: Level) -> u64 {
        let ready = self.answer(worker, line, access, level);
        self.end(worker, access);
        ready
    }

    /// A cache answers.
    #[inline]
    fn answer(&mut self, worker: u8, line: u32, access: Access, level: Level) -> u64 {
        if access.waits() {
            self.timing.load(worker, line, level);
            0
        } else {
            self.timing.begin(worker, line, level)
        }
    }

    /// What an access costs the worker beside the line.
    #[inline]
    fn end(&mut self, worker: u8, access: Access) {
        match access {
            Access::Load => {}
            Access::Store | Access::Prefetch => self.timing.stored(worker),
            Access::Locked { .. } => self.timing.locked(worker),
        }
    }

    #[inline(never)]
    fn miss(&mut self, worker: u8, line: u32, waits: bool) -> u64 {
        self.counts.llc_misses += 1;
        let place = self.buffer.place(line);
        let fetched = self.buffer.read(place);
        if waits {
            self.timing.load_missing(worker, place, fetched);
            0
        } else {
            self.timing.begin_missing(worker, place, fetched)
        }
    }

    #[inline]
    pub(crate) fn load(&mut self, worker: u8, offset: usize) {
        self.counts.loads += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::Load);
    }

    #[inline]
    pub(crate) fn store(&mut self, worker: u8, offset: usize) {
        self.counts.stores += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::Store);
    }

    /// A locked operation owns the line even if it stores nothing; only a store makes it dirty.
    #[inline]
    pub(crate) fn locked(&mut self, worker: u8, offset: usize, stored: bool) {
        self.counts.locked += 1;
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::Locked { stored });
    }

    /// The lines of a range are on their way together.
    pub(crate) fn read_range(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.counts.loads += words(offset, bytes);
        let lines = lines(offset, bytes);
        if lines.len() == 1 {
            return self.begin(worker, lines.start, Access::Load);
        }
        lines.clone().take(lookahead::DEPTH).for_each(|line| self.prefetch_tables(worker, line));
        self.settle();
        self.timing.gather();
        let mut ready = 0;
        for line in lines {
            ready = ready.max(self.access(worker, line, Access::Prefetch));
        }
        self.timing.wait_until(worker, ready);
    }

    pub(crate) fn write_range(&mut self, worker: u8, offset: usize, bytes: usize) {
        self.counts.stores += words(offset, bytes);
        lines(offset, bytes).for_each(|line| {
            self.begin(worker, line, Access::Store);
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
            if self.lookahead.is_empty() {
                self.flush_line(worker, line);
            } else {
                self.wait(Waiting { line, worker, what: What::Flush }, true);
            }
        }
    }

    #[inline]
    fn flush_line(&mut self, worker: u8, line: u32) {
        self.counts.flushes += 1;
        self.timing.flush_issued(worker);
        if self.caches.flush(line) {
            self.insert(worker, line, Way::Flush);
        }
    }

    #[inline]
    pub(crate) fn fence(&mut self, worker: u8) {
        if self.lookahead.is_empty() {
            self.fence_now(worker);
        } else {
            self.wait(Waiting { line: 0, worker, what: What::Fence }, true);
        }
    }

    #[inline]
    fn fence_now(&mut self, worker: u8) {
        self.counts.fences += 1;
        self.combining[usize::from(worker)] = None;
        self.timing.fence(worker);
    }

    /// Reads of ordinary memory: nothing of it is ever dirty or reaches a module. The lines of a range
    /// are on their way together.
    pub(crate) fn read_dram(&mut self, worker: u8, offset: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.settle();
        let offset = offset % DRAM_BYTES;
        self.timing.gather();
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
        self.timing.wait_until(worker, there);
    }

    pub(crate) fn prefetch(&mut self, worker: u8, offset: usize) {
        self.begin(worker, (offset / LINE_BYTES) as u32, Access::Prefetch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheShape;
    use crate::timing::Picoseconds;

    fn counters() -> Counters {
        let level = |lines| CacheShape { capacity_bytes: lines * LINE_BYTES, ways: lines };
        let caches =
            HierarchyShape { l1: level(2), l2: level(4), l3: level(8), flush_keeps_line: true };
        let machine = MachineShape::default();
        let xp_buffer =
            XpBufferShape { eager_permille: 1000, own_writes_permille: 0, ..machine.xp_buffer };
        Counters::new(MachineShape { caches, xp_buffer, ..machine })
    }

    #[test]
    fn flushing_a_dirty_line_inserts_once_and_a_clean_or_absent_one_never() {
        let mut counters = counters();
        counters.store(0, 0);
        counters.flush(0, 0, 8);
        counters.flush(0, 0, 8);
        counters.flush(0, 640, 8);
        let counts = counters.counts();
        assert_eq!((counts.flushes, counts.wpq_flush, counts.wpq_inserts()), (3, 1, 1));
    }

    #[test]
    fn further_clocks_see_the_same_events_and_keep_their_own_time() {
        let machine = MachineShape::default();
        let timing = machine.timing;
        let slow = TimingShape {
            read_media: Picoseconds(2 * timing.read_media.0),
            flush_accept: Picoseconds(3 * timing.flush_accept.0),
            ..timing
        };
        let run = |counters: &mut Counters| {
            for at in 0..200 {
                counters.load(0, at * 8192);
                counters.read_range(0, at * 8192 + 1024, 700);
                counters.read_dram(0, at * 4096, 256);
                counters.store(0, at * 8192);
                counters.flush(0, at * 8192, 8);
                counters.fence(0);
            }
        };
        let alone = |timing| {
            let mut counters = Counters::new(MachineShape { timing, ..machine });
            run(&mut counters);
            (counters.counts(), counters.timing().now(0))
        };
        let mut both = Counters::with_timings(machine, &[timing, slow]);
        run(&mut both);
        let ((counts, first), (_, second)) = (alone(timing), alone(slow));
        assert!(second > first);
        assert_eq!(both.counts(), counts);
        assert_eq!(both.timing().all_now(0), [first, first, second]);
    }

    #[test]
    fn events_that_wait_change_no_count_and_no_time() {
        // One machine is looked at after every event, so nothing of it waits.
        let slow =
            TimingShape { read_media: Picoseconds(1_000_000), ..MachineShape::default().timing };
        let machine = || Counters::with_timings(MachineShape::default(), &[slow]);
        let (mut waiting, mut prompt) = (machine(), machine());
        let mut random = crate::random::Random::new(23);
        for step in 0..60_000 {
            let worker = if step < 40_000 { 0 } else { random.below(3) as u8 };
            // Runs near one another, and places that no cache holds.
            let near = random.below(4) > 0;
            let offset = random.below(if near { 1 << 14 } else { 1 << 28 });
            let (kind, bytes) = (random.below(10), 1 + random.below(300));
            for counters in [&mut waiting, &mut prompt] {
                match kind {
                    0 => counters.fence(worker),
                    1 => counters.flush(worker, offset, bytes),
                    2 => counters.locked(worker, offset, offset & 8 == 0),
                    3 => counters.prefetch(worker, offset),
                    4 => counters.read_range(worker, offset, bytes),
                    5 => counters.write_range(worker, offset, bytes),
                    6 if near => counters.nontemporal(worker, offset, bytes),
                    7 if near => counters.read_dram(worker, offset, bytes),
                    6 | 8 => counters.store(worker, offset),
                    _ => counters.load(worker, offset),
                }
            }
            prompt.settle();
        }
        assert_eq!(waiting.counts(), prompt.counts());
        for worker in 0..3 {
            assert_eq!(waiting.timing().all_now(worker), prompt.timing().all_now(worker));
        }
    }

    #[test]
    fn a_flushed_line_stays_cached() {
        let mut counters = counters();
        counters.store(0, 0);
        counters.flush(0, 0, 8);
        counters.load(0, 0);
        assert_eq!(counters.counts().llc_misses, 1);
    }

    #[test]
    fn a_dirty_line_that_is_pushed_out_is_an_insert_by_eviction() {
        let mut counters = counters();
        // Four lines fit into L2 and eight into L3.
        for line in 0..13 {
            counters.store(0, line * 64);
        }
        assert_eq!(counters.counts().wpq_eviction, 1);
    }

    #[test]
    fn sequential_nontemporal_lines_are_written_to_the_media_without_amplification() {
        let mut counters = counters();
        for line in 0..64 {
            counters.nontemporal(0, line * 64, 64);
        }
        let counts = counters.counts();
        assert_eq!((counts.wpq_nontemporal, counts.media_writes, counts.media_reads), (64, 64, 0));
    }

    #[test]
    fn nontemporal_copies_are_combined_within_a_line_until_it_is_full_or_fenced() {
        let mut counters = counters();
        counters.nontemporal(0, 0, 24);
        counters.nontemporal(0, 24, 40);
        assert_eq!(counters.counts().wpq_nontemporal, 1);
        counters.nontemporal(0, 64, 8);
        counters.fence(0);
        counters.nontemporal(0, 72, 8);
        assert_eq!(counters.counts().wpq_nontemporal, 3);
    }

    #[test]
    fn workers_combine_apart() {
        let mut counters = counters();
        counters.nontemporal(0, 0, 8);
        counters.nontemporal(1, 8, 8);
        counters.nontemporal(0, 16, 8);
        assert_eq!(counters.counts().wpq_nontemporal, 2);
    }

    #[test]
    fn a_partial_nontemporal_copy_saves_a_dirty_cached_line_and_a_whole_one_need_not() {
        let mut counters = counters();
        counters.store(0, 0);
        counters.nontemporal(0, 8, 8);
        assert_eq!(counters.counts().wpq_eviction, 1);
        counters.store(0, 0);
        counters.nontemporal(0, 0, 64);
        assert_eq!(counters.counts().wpq_eviction, 1);
        assert_eq!(counters.counts().wpq_nontemporal, 2);
    }

    #[test]
    fn loads_that_miss_read_an_xpline_and_its_neighbours_are_buffered() {
        let mut counters = counters();
        (0..4).for_each(|line| counters.load(0, line * 64));
        let counts = counters.counts();
        assert_eq!((counts.loads, counts.llc_misses, counts.media_reads), (4, 4, 4));
    }

    #[test]
    fn a_prefetch_warms_the_cache_without_counting_as_a_load() {
        let mut counters = counters();
        counters.prefetch(0, 0);
        counters.load(0, 0);
        let counts = counters.counts();
        assert_eq!((counts.loads, counts.llc_misses), (1, 1));
    }

    #[test]
    fn ordinary_memory_shares_the_caches_and_reaches_no_module() {
        let mut counters = counters();
        counters.read_dram(0, 0, 128);
        counters.read_dram(0, 64, 8);
        let counts = counters.counts();
        assert_eq!((counts.llc_misses, counts.dram_reads, counts.media_reads), (2, 2, 0));
        assert_eq!(counts.wpq_inserts(), 0);
        // The same number of a line in the region is another line.
        counters.load(0, 0);
        assert_eq!(counters.counts().llc_misses, 3);
    }

    #[test]
    fn a_read_of_ordinary_memory_takes_its_latency_and_one_from_a_cache_less() {
        let mut counters = counters();
        let latency = MachineShape::default().timing.dram_read;
        counters.read_dram(0, 4096, 8);
        let first = counters.timing().now(0);
        assert_eq!(first, latency);
        counters.read_dram(0, 4096, 8);
        assert!(counters.timing().now(0).0 - first.0 < latency.0);
    }

    #[test]
    fn ranges_count_aligned_words_and_touch_each_line_once() {
        let mut counters = counters();
        counters.write_range(0, 60, 10);
        counters.read_range(0, 60, 10);
        let counts = counters.counts();
        assert_eq!((counts.stores, counts.loads, counts.llc_misses), (2, 2, 2));
    }

    #[test]
    fn draining_writes_what_the_buffer_holds() {
        let mut counters = counters();
        counters.nontemporal(0, 0, 64);
        assert_eq!(counters.counts().media_writes, 0);
        counters.drain();
        let counts = counters.counts();
        assert_eq!((counts.media_writes, counts.media_reads), (4, 4));
    }

    #[test]
    fn counts_subtract_and_add_by_field() {
        let mut counters = counters();
        counters.store(0, 0);
        let before = counters.counts();
        counters.store(0, 0);
        counters.fence(0);
        let delta = counters.counts() - before;
        assert_eq!(delta, Counts { stores: 1, fences: 1, ..Counts::default() });
        assert_eq!(before + delta, counters.counts());
    }
}
