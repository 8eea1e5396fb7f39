//! Virtual time: what each event costs the worker that causes it.
//!
//! Every worker has a clock, every module two: when it can take the next line, and when its media
//! will have written all that they were given. An event moves them by the delays of the profile:
//!
//! ```text
//!            core                     module takes the line              media
//!  store ─▶ flush ──every 12 ns──▶ 19.5 ns a line, +38 ns for a  ─▶ 116 ns a unit, at most
//!            │                     stripe that is not open,         16 units behind
//!            │                     +36 ns at a complete unit
//!            ▼                        │ accepted, 32 ns later
//!          fence waits ◀──────────────┘
//! ```
//!
//! (The figures are those of `optane-100`.)
//!
//! * A load waits for its line. A store, a prefetch and each line of a range read only occupy one
//!   of the core's line fill buffers until the line is there; when all are taken the core waits.
//! * A flush of a dirty line leaves the core when the line is there, at a certain rate; a fence
//!   waits until every line that the worker sent has been accepted.
//! * Lines wait at a module while it is busy, and so does a core whose lines are too many.
//! * A read that the module's buffer cannot answer takes a turn at its media, before writes.
//!
//! Time is in whole picoseconds, so that it is the same on every machine.

use serde::Serialize;

use crate::cache::{Cache, CacheShape};
use crate::hierarchy::Level;
use crate::xp_buffer::{Fetched, Place, Written};

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
#[expect(missing_docs, reason = "each is the field of the same name of a profile")]
pub struct TimingShape {
    pub l1_load: Picoseconds,
    pub l2_load: Picoseconds,
    pub l3_load: Picoseconds,
    pub other_core_load: Picoseconds,
    pub dram_read: Picoseconds,
    pub line_fill_buffers: usize,
    pub lines_on_their_way: u64,
    pub store: Picoseconds,
    pub locked: Picoseconds,
    pub flush_issue: Picoseconds,
    pub write_back_interval: Picoseconds,
    pub nontemporal_interval: Picoseconds,
    pub fence: Picoseconds,
    pub read_buffer: Picoseconds,
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
    pub open_streams: usize,
    pub unit_complete: Picoseconds,
    pub stream_switch: Picoseconds,
    pub write_backlog_units: u64,
    pub same_line_flush: Picoseconds,
    pub same_line_nontemporal: Picoseconds,
    pub read_after_persist: Picoseconds,
}

/// Lines of which a module remembers when it took them, and idle spans.
const REMEMBERED: usize = 8;
const NO_LINE: u32 = u32::MAX;
/// Most stripes that a module keeps open.
const MOST_OPEN: usize = 8;

/// Why a line goes to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Flush,
    NonTemporal,
    /// Nobody waits for it.
    Eviction,
}

#[derive(Clone, Debug)]
struct Module {
    takes_at: u64,
    /// Spans before `takes_at` in which it had nothing to do, for lines that were sent later but
    /// leave earlier.
    idle: [(u64, u64); REMEMBERED],
    next_idle: usize,
    /// The stripes of the last lines, the latest first.
    open: [u32; MOST_OPEN],
    last_read: u32,
    reads_at: u64,
    media_written_at: u64,
    media_wrote_last: bool,
    translations: Option<Cache>,
    /// The lines that it took last, and when.
    taken_lines: [u32; REMEMBERED],
    taken_at: [u64; REMEMBERED],
    next_taken: usize,
}

/// Lines, and when they will be there. Apart, so that a search is one sweep over few words.
#[derive(Clone, Debug, Default)]
struct Fills {
    lines: Vec<u32>,
    ready: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Clock {
    now: u64,
    /// Lines on their way to the core, and when they will be there.
    fills: Fills,
    fills_until: u64,
    /// When the next line can leave the core.
    writes_back_at: u64,
    streams_at: u64,
    /// When all that was sent will have been accepted.
    accepted_at: u64,
}

/// All clocks of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    shape: TimingShape,
    lines_per_unit: u32,
    /// What the lines of a unit bear each of its completion.
    unit_complete_of_a_line: u64,
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
        let module = Module {
            takes_at: 0,
            idle: [(0, 0); REMEMBERED],
            next_idle: 0,
            open: [NO_LINE; MOST_OPEN],
            last_read: NO_LINE - 1,
            reads_at: 0,
            media_written_at: 0,
            media_wrote_last: false,
            translations,
            taken_lines: [NO_LINE; REMEMBERED],
            taken_at: [0; REMEMBERED],
            next_taken: 0,
        };
        Self {
            shape,
            lines_per_unit,
            unit_complete_of_a_line: shape.unit_complete.0 / u64::from(lines_per_unit),
            modules: vec![module; modules.max(1)],
            clocks: vec![Clock::default()],
        }
    }

    #[inline]
    fn clock(&mut self, worker: u8) -> &mut Clock {
        let at = usize::from(worker);
        if at >= self.clocks.len() {
            self.clocks.resize(at + 1, Clock::default());
        }
        &mut self.clocks[at]
    }

    pub(crate) fn now(&self, worker: u8) -> Picoseconds {
        Picoseconds(self.clocks.get(usize::from(worker)).map_or(0, |clock| clock.now))
    }

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
        let latest = |clock: &Clock| clock.now.max(clock.accepted_at).max(clock.fills_until);
        let now = self.clocks.iter().map(latest).max().unwrap_or_default();
        for clock in &mut self.clocks {
            clock.now = now;
            clock.fills.clear();
        }
    }

    /// Sets every clock to zero, with nothing on its way anywhere.
    pub(crate) fn reset(&mut self) {
        self.clocks.fill(Clock::default());
        for module in &mut self.modules {
            module.takes_at = 0;
            module.idle = [(0, 0); REMEMBERED];
            module.reads_at = 0;
            module.media_written_at = 0;
            module.taken_lines = [NO_LINE; REMEMBERED];
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
    pub(crate) fn load_missing(&mut self, worker: u8, place: Place, fetched: Fetched) {
        let buffers = self.shape.line_fill_buffers;
        let now = self.clock(worker).free_buffer(buffers);
        let ready = self.fetch(now, place, fetched);
        self.clock(worker).now = ready;
    }

    /// A core wants a line from memory and goes on. When it will be there.
    pub(crate) fn begin_missing(&mut self, worker: u8, place: Place, fetched: Fetched) -> u64 {
        let buffers = self.shape.line_fill_buffers;
        let now = self.clock(worker).free_buffer(buffers);
        let ready = self.fetch(now, place, fetched);
        self.clock(worker).expect(place.line, ready);
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

    pub(crate) fn locked(&mut self, worker: u8) {
        let span = self.shape.locked;
        self.spend(worker, span);
    }

    pub(crate) fn flush_issued(&mut self, worker: u8) {
        let span = self.shape.flush_issue;
        self.spend(worker, span);
    }

    pub(crate) fn fence(&mut self, worker: u8) {
        let span = self.shape.fence.0;
        let clock = self.clock(worker);
        clock.now = clock.now.max(clock.accepted_at) + span;
    }

    /// Lets the host fetch what a read of the media needs.
    #[inline]
    pub(crate) fn prefetch_tables(&self, place: Place) {
        if let Some(translations) = &self.modules[place.module].translations {
            translations.prefetch(place.row);
        }
    }

    /// A module answers a read.
    fn fetch(&mut self, now: u64, place: Place, fetched: Fetched) -> u64 {
        let shape = &self.shape;
        let module = &mut self.modules[place.module];
        module.media_wrote(now, fetched.media_writes, shape.write_service.0);
        let now = match module.taken_at(place.line) {
            Some(taken) => now.max(taken + shape.read_after_persist.0),
            None => now,
        };
        // The line after the last one is in the open row of a DRAM module.
        let open_row = self.lines_per_unit == 1 && place.line == module.last_read.wrapping_add(1);
        module.last_read = place.line;
        if !fetched.from_media || open_row {
            return now + shape.read_buffer.0;
        }
        let start = now.max(module.reads_at);
        let service = if std::mem::take(&mut module.media_wrote_last) {
            shape.read_beside_write.0
        } else {
            shape.read_service.0
        };
        module.reads_at = start + service;
        if module.media_written_at > start {
            module.media_written_at += service;
        }
        let mut ready = start + shape.read_media.0;
        if let Some(translations) = &mut module.translations
            && !translations.touch(place.row, false)
        {
            translations.insert(place.row, false);
            ready += shape.translation_miss.0;
        }
        ready
    }

    /// A line goes to its module.
    pub(crate) fn send(&mut self, worker: u8, place: Place, written: Written, way: Way) {
        self.clock(worker);
        let shape = &self.shape;
        let clock = &mut self.clocks[usize::from(worker)];
        let (interval, accept, same_line, line) = match way {
            Way::Flush | Way::Eviction => (
                shape.write_back_interval.0,
                shape.flush_accept.0,
                shape.same_line_flush.0,
                shape.flush_line_interval.0,
            ),
            Way::NonTemporal => (
                shape.nontemporal_interval.0,
                shape.nontemporal_accept.0,
                shape.same_line_nontemporal.0,
                shape.nontemporal_line_interval.0,
            ),
        };
        let (there, free) = match way {
            Way::Flush => (clock.ready(place.line), clock.writes_back_at),
            Way::NonTemporal => (clock.now, clock.streams_at),
            Way::Eviction => (clock.now, 0),
        };
        // So many lines wait to leave the core; then the core waits.
        let waiting = shape.lines_on_their_way * interval;
        clock.now += free.saturating_sub(there).saturating_sub(waiting);
        let leaves = there.max(free);

        let module = &mut self.modules[place.module];
        let switched = module.switch(place.stripe, shape.open_streams);
        let switching = if switched { shape.stream_switch.0 } else { 0 };
        let completing = if written.completed { shape.unit_complete.0 } else { 0 };
        let takes = switching + line + completing;
        let backlog = shape.write_backlog_units * shape.write_service.0;
        let earliest = leaves.max(module.media_written_at.saturating_sub(backlog));
        let begins = module.begin(earliest, takes);
        let taken = begins + takes;
        module.media_wrote(taken, written.media_writes, shape.write_service.0);
        let again = module.taken_at(place.line).map_or(0, |before| before + same_line);
        let taken = taken.max(again);
        module.remember(place.line, taken);
        if way == Way::Eviction {
            return;
        }

        let each = line + self.unit_complete_of_a_line;
        // A line that waits for its predecessor holds up this core and nobody else.
        clock.accepted_at = clock.accepted_at.max(taken + accept);
        let next = (leaves + interval).max(again);
        match way {
            Way::NonTemporal => clock.streams_at = next,
            Way::Flush | Way::Eviction => clock.writes_back_at = next,
        }
        // Lines wait in the queue of the module, then on their way to it, then the core waits.
        let waiting = (shape.wpq_lines + shape.lines_on_their_way) * each;
        clock.now += begins.saturating_sub(leaves).saturating_sub(waiting);
    }
}

impl Module {
    /// Goes to a stripe. Whether it was not among the open ones.
    fn switch(&mut self, stripe: u32, streams: usize) -> bool {
        let open = &mut self.open[..streams.clamp(1, MOST_OPEN)];
        let found = open.iter().position(|&other| other == stripe);
        let at = found.unwrap_or(open.len() - 1);
        open[..=at].rotate_right(1);
        open[0] = stripe;
        found.is_none()
    }

    /// When the module begins to take a line that could be taken at `earliest`.
    fn begin(&mut self, earliest: u64, takes: u64) -> u64 {
        // What was sent before it may have been on its way for longer, and left the module idle.
        if earliest < self.takes_at {
            for idle in &mut self.idle {
                let begins = earliest.max(idle.0);
                if begins + takes <= idle.1 {
                    idle.0 = begins + takes;
                    return begins;
                }
            }
        }
        let begins = earliest.max(self.takes_at);
        if begins > self.takes_at {
            self.idle[self.next_idle] = (self.takes_at, begins);
            self.next_idle = (self.next_idle + 1) % REMEMBERED;
        }
        self.takes_at = begins + takes;
        begins
    }

    fn media_wrote(&mut self, now: u64, writes: u32, service: u64) {
        if writes > 0 {
            self.media_written_at = self.media_written_at.max(now) + u64::from(writes) * service;
            self.media_wrote_last = true;
        }
    }

    fn remembered(&self, line: u32) -> Option<usize> {
        let mut found = 0;
        for (at, &other) in self.taken_lines.iter().enumerate() {
            found |= u32::from(other == line) << at;
        }
        (found != 0).then_some(found.trailing_zeros() as usize % REMEMBERED)
    }

    fn taken_at(&self, line: u32) -> Option<u64> {
        self.remembered(line).map(|at| self.taken_at[at])
    }

    fn remember(&mut self, line: u32, taken: u64) {
        let at = self.remembered(line).unwrap_or_else(|| {
            let at = self.next_taken;
            self.next_taken = (at + 1) % REMEMBERED;
            at
        });
        (self.taken_lines[at], self.taken_at[at]) = (line, taken);
    }
}

impl Fills {
    fn clear(&mut self) {
        self.lines.clear();
        self.ready.clear();
    }

    /// When a line will be there, the first of its name.
    #[inline]
    fn of(&self, line: u32) -> Option<u64> {
        let found = self.lines.iter().position(|&other| other == line);
        found.map(|at| self.ready[at])
    }

    fn push(&mut self, line: u32, ready: u64) {
        self.lines.push(line);
        self.ready.push(ready);
    }

    /// Of those that will be there first, the first.
    #[inline]
    fn first(&self) -> (usize, u64) {
        let (mut first, mut least) = (0, u64::MAX);
        for (at, &ready) in self.ready.iter().enumerate() {
            if ready < least {
                (first, least) = (at, ready);
            }
        }
        (first, least)
    }

    /// Forgets those that are there; the others keep their order.
    fn forget(&mut self, now: u64) {
        let mut kept = 0;
        for at in 0..self.lines.len() {
            if self.ready[at] > now {
                (self.lines[kept], self.ready[kept]) = (self.lines[at], self.ready[at]);
                kept += 1;
            }
        }
        self.lines.truncate(kept);
        self.ready.truncate(kept);
    }
}

impl Clock {
    /// When a line will be here; now if it is.
    #[inline]
    fn ready(&mut self, line: u32) -> u64 {
        if self.fills.lines.is_empty() {
            return self.now;
        }
        if self.fills_until <= self.now {
            self.fills.clear();
            return self.now;
        }
        self.fills.of(line).map_or(self.now, |ready| ready.max(self.now))
    }

    #[inline]
    fn wait_for(&mut self, line: u32) {
        self.now = self.ready(line);
    }

    /// Waits until there is a line fill buffer for one more. The time by then.
    fn free_buffer(&mut self, buffers: usize) -> u64 {
        if self.fills.lines.len() >= buffers {
            let (at, ready) = self.fills.first();
            if ready <= self.now {
                self.fills.forget(self.now);
            } else {
                self.fills.lines.swap_remove(at);
                self.fills.ready.swap_remove(at);
                self.now = ready;
            }
        }
        self.now
    }

    fn expect(&mut self, line: u32, ready: u64) {
        if self.fills_until <= self.now {
            self.fills.clear();
        }
        self.fills.push(line, ready);
        self.fills_until = self.fills_until.max(ready);
    }
}
