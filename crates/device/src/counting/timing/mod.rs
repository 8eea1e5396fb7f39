//! Virtual time: what each event costs the worker that causes it.
//!
//! Every worker has a clock, every module two: when it can take the next line, and when its media
//! will have written all that they were given. An event moves them by the delays of the profile:
//!
//! ```text
//!            core                    module takes the line         media
//!  store ─▶ flush ──every 12 ns──▶ one after another         ─▶ 116 ns a unit, at most
//!            │                        │                         16 units behind
//!            ▼                        │ accepted, 32 ns later,
//!          fence waits ◀──────────────┘ more if of another stripe than the last
//! ```
//!
//! (The figures are those of `optane-100`.)
//!
//! * A load waits for its line. A store, a prefetch and each line of a range read only occupy one
//!   of the core's line fill buffers until the line is there; when all are taken the core waits.
//! * Stores to lines that no cache held are carried out at a certain rate, in order.
//! * A flush of a dirty line leaves the core when the line is there, at a certain rate; a fence
//!   is passed when every line that the worker sent has been accepted.
//! * A store fence orders stores, and the core runs ahead of it: loads go on, lines that stores will
//!   need are asked for; stores themselves, and flushes of them, wait in the store buffer. It runs ahead of one
//!   fence, not of two, and not across a locked instruction.
//! * Lines wait at a module while it is busy, and so does a core whose lines are too many.
//! * A read that the module's buffer cannot answer takes a turn at its media, before the writes that
//!   wait there; but when there is no room for another write, one of them goes before each read.
//! * A module that has written one block of its media often, and much more often than all others,
//!   takes nothing for as long as it needs to move the block.
//!
//! Time is in whole picoseconds, so that it is the same on every machine.

mod core_clock;
mod module;
mod timeline;

use serde::Serialize;

use self::core_clock::Clock;
use self::module::{Module, Services};
use crate::counting::cache::{Cache, CacheShape};
use crate::counting::divider::Divider;
use crate::counting::hierarchy::Level;
use crate::counting::xp_buffer::{Fetched, Place};

/// A time or a span of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Picoseconds(pub u64);

impl Picoseconds {
    /// Of a profile's nanoseconds.
    pub fn from_ns(ns: f64) -> Self {
        Self((ns * 1000.0).round() as u64)
    }
}

/// The delays of a machine. The names are those of the profile's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "each is the field of the same name of a profile, bytes in stripes"
)]
pub struct TimingShape {
    pub l1_load: Picoseconds,
    pub l2_load: Picoseconds,
    pub l3_load: Picoseconds,
    pub other_core_load: Picoseconds,
    pub dram_read: Picoseconds,
    pub line_fill_buffers: usize,
    pub store: Picoseconds,
    pub store_miss_interval: Picoseconds,
    pub locked: Picoseconds,
    pub flush_issue: Picoseconds,
    pub write_back_interval: Picoseconds,
    pub nontemporal_interval: Picoseconds,
    pub fence: Picoseconds,
    pub fence_holds_loads: bool,
    pub read_buffer: Picoseconds,
    pub read_buffer_other_unit: Picoseconds,
    pub read_media: Picoseconds,
    pub read_service: Picoseconds,
    pub read_beside_write: Picoseconds,
    pub write_service: Picoseconds,
    pub translation_entries: usize,
    pub translation_miss: Picoseconds,
    pub wpq_lines: u64,
    pub flush_accept: Picoseconds,
    pub nontemporal_accept: Picoseconds,
    pub flush_line_interval: Picoseconds,
    pub nontemporal_line_interval: Picoseconds,
    pub other_stripe: Picoseconds,
    pub write_backlog_units: u64,
    pub same_line: Picoseconds,
    pub read_after_persist: Picoseconds,
    pub wear_block_stripes: u32,
    pub wear_stall_writes: u32,
    pub wear_stall: Picoseconds,
}

/// Why a line goes to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Flush,
    NonTemporal,
    /// Nobody waits for it.
    Eviction,
}

/// All clocks of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    shape: TimingShape,
    /// A power of two.
    lines_per_unit: u32,
    by_wear_block: Divider,
    modules: Vec<Module>,
    clocks: Vec<Clock>,
}

impl Timing {
    pub(crate) fn new(shape: TimingShape, modules: usize, lines_per_unit: u32) -> Self {
        let entries = shape.translation_entries.max(1);
        let ways = entries.min(16);
        let capacity_bytes = entries.next_multiple_of(ways) * 64;
        let translations =
            (shape.translation_miss.0 > 0).then(|| Cache::new(CacheShape { capacity_bytes, ways }));
        let module = Module::new(translations);
        Self {
            shape,
            lines_per_unit: lines_per_unit.next_power_of_two(),
            by_wear_block: Divider::new(shape.wear_block_stripes.max(1)),
            modules: vec![module; modules.max(1)],
            clocks: vec![Clock::default()],
        }
    }

    #[inline(always)]
    fn clock(&mut self, worker: u8) -> &mut Clock {
        let at = usize::from(worker);
        if at >= self.clocks.len() {
            self.grow(at);
        }
        &mut self.clocks[at]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, worker: usize) {
        self.clocks.resize(worker + 1, Clock::default());
    }

    pub(crate) fn now(&self, worker: u8) -> Picoseconds {
        Picoseconds(self.clocks.get(usize::from(worker)).map_or(0, Clock::done_at))
    }

    /// A core waits for its last fence.
    pub(crate) fn pass_fence(&mut self, worker: u8) {
        self.clock(worker).pass_fence();
    }

    #[inline]
    pub(crate) fn spend(&mut self, worker: u8, span: Picoseconds) {
        let clock = self.clock(worker);
        clock.now = clock.now.saturating_add(span.0);
    }

    /// Lets every worker of `workers`, and all that appeared before, wait for the latest of them
    /// and for all that they sent.
    pub(crate) fn align(&mut self, workers: usize) {
        if let Some(last) = workers.checked_sub(1) {
            self.clock(last.min(255) as u8);
        }
        let latest = |clock: &Clock| clock.done_at().max(clock.accepted_at).max(clock.fills_until);
        let now = self.clocks.iter().map(latest).max().unwrap_or_default();
        for clock in &mut self.clocks {
            clock.now = now;
            clock.forget_fills();
        }
    }

    /// Sets every clock to zero, with nothing on its way anywhere.
    pub(crate) fn reset(&mut self) {
        self.clocks.fill(Clock::default());
        for module in &mut self.modules {
            module.reset();
        }
    }

    fn load_time(&self, level: Level) -> u64 {
        match level {
            Level::L1 => self.shape.l1_load.0,
            Level::L2 => self.shape.l2_load.0,
            Level::L3 => self.shape.l3_load.0,
            Level::OtherCore | Level::Memory => self.shape.other_core_load.0,
        }
    }

    /// A core waits for a line that caches hold.
    #[inline]
    pub(crate) fn load(&mut self, worker: u8, line: u32, level: Level) {
        let time = self.load_time(level);
        let clock = self.clock(worker);
        clock.wait_for(line);
        clock.now += time;
    }

    /// A core waits for a line from memory.
    #[inline]
    pub(crate) fn load_missing(&mut self, worker: u8, place: Place, fetched: Fetched) {
        self.clock(worker);
        let lines_per_unit = self.lines_per_unit;
        let clock = &mut self.clocks[usize::from(worker)];
        let now = clock.free_buffer(self.shape.line_fill_buffers);
        clock.now =
            Self::fetch(&self.shape, lines_per_unit, &mut self.modules, now, place, fetched);
    }

    /// A core wants a line from memory and goes on. When it will be there.
    #[inline]
    pub(crate) fn begin_missing(&mut self, worker: u8, place: Place, fetched: Fetched) -> u64 {
        self.clock(worker);
        let lines_per_unit = self.lines_per_unit;
        let clock = &mut self.clocks[usize::from(worker)];
        let now = clock.free_buffer(self.shape.line_fill_buffers);
        let ready =
            Self::fetch(&self.shape, lines_per_unit, &mut self.modules, now, place, fetched);
        clock.expect(place.line, ready);
        ready
    }

    /// A module reads a unit again that has left its buffer before a line of it was sent. The core has
    /// gone on.
    pub(crate) fn read_again(&mut self, worker: u8, place: Place, fetched: Fetched) {
        let now = self.clock(worker).now;
        Self::fetch(&self.shape, self.lines_per_unit, &mut self.modules, now, place, fetched);
    }

    /// A core stores to a line from memory and goes on. When the line will be there.
    ///
    /// Lines are asked for at once; the stores to them are carried out in order.
    #[inline]
    pub(crate) fn store_missing(&mut self, worker: u8, place: Place, fetched: Fetched) -> u64 {
        self.clock(worker);
        let lines_per_unit = self.lines_per_unit;
        let clock = &mut self.clocks[usize::from(worker)];
        let now = clock.free_buffer(self.shape.line_fill_buffers);
        let ready =
            Self::fetch(&self.shape, lines_per_unit, &mut self.modules, now, place, fetched);
        let stored = clock.stores_at.max(now) + self.shape.store_miss_interval.0;
        clock.stores_at = stored;
        let ready = ready.max(stored);
        clock.expect(place.line, ready);
        ready
    }

    /// A core wants a line of ordinary memory and goes on. When it will be there.
    pub(crate) fn begin_dram(&mut self, worker: u8, line: u32) -> u64 {
        let (time, buffers) = (self.shape.dram_read.0, self.shape.line_fill_buffers);
        let clock = self.clock(worker);
        let ready = clock.free_buffer(buffers) + time;
        clock.expect(line, ready);
        ready
    }

    /// A core wants a line that caches hold and goes on. When it will be there.
    #[inline]
    pub(crate) fn begin(&mut self, worker: u8, line: u32, level: Level) -> u64 {
        let (time, buffers) = (self.load_time(level), self.shape.line_fill_buffers);
        let clock = self.clock(worker);
        if level == Level::L1 {
            return clock.ready(line);
        }
        let ready = clock.free_buffer(buffers).max(clock.ready(line)) + time;
        clock.expect(line, ready);
        ready
    }

    /// A core waits.
    #[inline]
    pub(crate) fn wait_until(&mut self, worker: u8, time: u64) {
        let clock = self.clock(worker);
        clock.now = clock.now.max(time);
    }

    #[inline]
    pub(crate) fn stored(&mut self, worker: u8) {
        let span = self.shape.store;
        self.spend(worker, span);
    }

    /// A locked instruction: the store buffer is empty before it.
    pub(crate) fn locked(&mut self, worker: u8) {
        let span = self.shape.locked;
        self.pass_fence(worker);
        self.spend(worker, span);
    }

    pub(crate) fn flush_issued(&mut self, worker: u8) {
        let span = self.shape.flush_issue;
        self.spend(worker, span);
    }

    pub(crate) fn fence(&mut self, worker: u8) {
        let (span, holds_loads) = (self.shape.fence.0, self.shape.fence_holds_loads);
        let clock = self.clock(worker);
        clock.pass_fence();
        clock.fenced_at = clock.now.max(clock.accepted_at) + span;
        if holds_loads {
            clock.pass_fence();
        }
    }

    /// A module answers a read.
    #[inline]
    fn fetch(
        shape: &TimingShape,
        lines_per_unit: u32,
        modules: &mut [Module],
        now: u64,
        place: Place,
        fetched: Fetched,
    ) -> u64 {
        let module = &mut modules[place.module as usize];
        module.media_wrote(now, fetched.media_writes, shape.write_service.0);
        let now = match module.taken_at(place.line) {
            Some(taken) => now.max(taken + shape.read_after_persist.0),
            None => now,
        };
        // The line after the last one is in the open row of a DRAM module.
        let open_row = lines_per_unit == 1 && place.line == module.last_read.wrapping_add(1);
        module.last_read = place.line;
        let of_last_unit = (place.line ^ module.last_from_media) < lines_per_unit;
        if open_row {
            return now + shape.read_buffer.0;
        }
        if !fetched.from_media && of_last_unit {
            return (now + shape.read_buffer.0).max(module.unit_there);
        }
        if !fetched.from_media {
            return now + shape.read_buffer_other_unit.0;
        }
        module.last_from_media = place.line;
        let services = Services {
            read: shape.read_service.0,
            read_beside_write: shape.read_beside_write.0,
            write: shape.write_service.0,
        };
        let start = module.read_media(now, services, shape.write_backlog_units);
        let mut ready = start + shape.read_media.0;
        if let Some(translations) = &mut module.translations
            && translations.take_in(place.row, false).is_err()
        {
            ready += shape.translation_miss.0;
        }
        module.unit_there = ready;
        ready
    }

    /// A line goes to its module.
    pub(crate) fn send(&mut self, worker: u8, place: Place, way: Way) {
        self.clock(worker);
        let shape = &self.shape;
        let clock = &mut self.clocks[usize::from(worker)];
        let (interval, accept, line) = match way {
            Way::Flush | Way::Eviction => {
                (shape.write_back_interval.0, shape.flush_accept.0, shape.flush_line_interval.0)
            }
            Way::NonTemporal => (
                shape.nontemporal_interval.0,
                shape.nontemporal_accept.0,
                shape.nontemporal_line_interval.0,
            ),
        };
        let (there, free) = match way {
            Way::Flush => (clock.ready(place.line).max(clock.fenced_at), clock.writes_back_at),
            Way::NonTemporal => (clock.done_at(), clock.streams_at),
            Way::Eviction => (clock.now, 0),
        };
        let leaves = there.max(free);
        let buffers = shape.line_fill_buffers;
        if way != Way::Eviction {
            clock.leaves(leaves, buffers);
        }

        let module = &mut self.modules[place.module as usize];
        let backlog = shape.write_backlog_units * shape.write_service.0;
        // Meanwhile the module takes lines of others.
        let comes = module.comes_at(place.stripe, leaves, shape.other_stripe.0);
        let earliest = comes.max(module.media_written_at.saturating_sub(backlog));
        let begins = module.begin(earliest, line);
        let (taken, again) = module.take(place.line, begins + line, shape.same_line.0);
        // Lines wait in the queue of the module, then in the core's fill buffers, then the core waits.
        let waiting = (shape.wpq_lines + buffers as u64) * line;
        clock.now += begins.saturating_sub(comes).saturating_sub(waiting);
        if way == Way::Eviction {
            return;
        }
        // A line that waits for its predecessor holds up this core and nobody else.
        clock.accepted_at = clock.accepted_at.max(taken + accept);
        let next = (leaves + interval).max(again);
        match way {
            Way::NonTemporal => clock.streams_at = next,
            Way::Flush | Way::Eviction => clock.writes_back_at = next,
        }
    }

    /// A line of a worker has come to the module's buffer, which gave the media so many writes.
    #[inline]
    pub(crate) fn arrive(&mut self, worker: u8, place: Place, media_writes: u32) {
        self.clock(worker);
        let shape = &self.shape;
        let module = &mut self.modules[place.module as usize];
        module.media_wrote(module.takes_at(), media_writes, shape.write_service.0);
        if media_writes > 0 && shape.wear_stall.0 > 0 {
            let block = self.by_wear_block.divide(place.row).0;
            if module.wears(block, media_writes, shape.wear_stall_writes) {
                module.stall(shape.wear_stall.0);
                let clock = &mut self.clocks[usize::from(worker)];
                clock.accepted_at = clock.accepted_at.max(module.takes_at());
            }
        }
    }
}
