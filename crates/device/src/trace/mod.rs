//! Traces: what a program did to persistent memory, in the order in which it became visible.
//!
//! An event takes 16 bytes. A store of one lies within one aligned 8-byte unit, the unit of
//! persistence (rule R2 of [`lapis_pmem::domain`]). What is done to a range is one event however long
//! the range, its bytes beside the events; [`Trace::units`] takes it apart.
//!
//! ```text
//!  byte   0     1        2       3      4      8              16
//!        +-----+--------+-------+------+------+---------------+
//!        | tag | worker | start | bytes| line | value         |   a store; value little-endian,
//!        +-----+--------+-------+------+------+-------+-------+   its low `bytes` bytes
//!        | tag | worker | start | past | line | bytes |payload|   a copy of `bytes` bytes
//!        +-----+--------+-------+------+------+-------+-------+
//! ```

pub(crate) mod block_devices;
pub mod trace_file;

use std::mem;
use std::ops::Range;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use crate::modelled::persist_points::PersistPoint;
use crate::trace::block_devices::{BlockEvent, BlockWrite};

const UNIT_BYTES: usize = 8;
/// Longer copies are several events.
const LONGEST_COPY_BYTES: usize = 1 << 30;

/// A note of the program under observation to whoever reads its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Marker {
    /// The operation of this number begins.
    Begin(u32),
    /// The operation of this number has been acknowledged: from here on it must survive.
    End(u32),
    /// Anything else.
    Note(u32),
}

/// One event. `line` is the number of the 64-byte line in the region, `start` the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A store that the compiler may reorder with its neighbours: relaxed, or part of a copy.
    Store {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1 to 8, within one aligned unit.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A store with release ordering: later than all earlier stores to its line.
    OrderedStore {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// The store of a successful swap or compare-exchange (rule R5).
    Locked {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A store past the caches (rule R6).
    NonTemporal {
        /// Who stored.
        worker: u8,
        /// Offset in the line.
        start: u8,
        /// 1 to 8, within one aligned unit.
        bytes: u8,
        /// The line.
        line: u32,
        /// The bytes, little-endian.
        value: u64,
    },
    /// A range is stored to, unit by unit in no particular order.
    Copy {
        /// Who stored.
        worker: u8,
        /// Past the caches (rule R6).
        nontemporal: bool,
        /// Offset in the first line.
        start: u8,
        /// The first line.
        line: u32,
        /// Length of the range.
        bytes: u32,
        /// Where the bytes are among those of the trace, or [`Trace::ZEROES`].
        payload: u32,
    },
    /// Several lines in a row are written back (rule R4), each for itself.
    FlushLines {
        /// Who flushes.
        worker: u8,
        /// Index into [`Trace::points`].
        point: u16,
        /// The first line.
        line: u32,
        /// How many.
        lines: u32,
    },
    /// A line is written back (rule R4).
    Flush {
        /// Who flushes.
        worker: u8,
        /// Index into [`Trace::points`].
        point: u16,
        /// The line.
        line: u32,
    },
    /// A line is written back by `clflush`, which waits: what the line held then is durable. The
    /// domain's flushes are never this, for not every machine has it; litmus tests and recorded
    /// traces may be.
    StrongFlush {
        /// Who flushes.
        worker: u8,
        /// The line.
        line: u32,
    },
    /// A fence (rules R4, R6).
    Fence {
        /// Who fences.
        worker: u8,
        /// Index into [`Trace::points`].
        point: u16,
    },
    /// A request to a block device, or its answer.
    Block {
        /// Whose request.
        worker: u8,
        /// Which device, in the order in which they were attached.
        device: u8,
        /// What.
        what: BlockEvent,
    },
    /// A note of the program.
    Marker {
        /// Who notes it.
        worker: u8,
        /// The note.
        marker: Marker,
    },
}

const _: () = assert!(size_of::<Event>() == 16);

impl Event {
    /// Who did it.
    pub fn worker(&self) -> u8 {
        match *self {
            Self::Store { worker, .. }
            | Self::OrderedStore { worker, .. }
            | Self::Locked { worker, .. }
            | Self::NonTemporal { worker, .. }
            | Self::Copy { worker, .. }
            | Self::FlushLines { worker, .. }
            | Self::Block { worker, .. }
            | Self::Flush { worker, .. }
            | Self::StrongFlush { worker, .. }
            | Self::Fence { worker, .. }
            | Self::Marker { worker, .. } => worker,
        }
    }

    /// The persist point of a flush or a fence: an index into [`Trace::points`].
    pub fn point(&self) -> Option<u16> {
        match *self {
            Self::FlushLines { point, .. }
            | Self::Flush { point, .. }
            | Self::Fence { point, .. } => Some(point),
            _ => None,
        }
    }

    /// What it stores within one unit; a copy is none, but those that [`Trace::in_units`] makes of it are.
    pub fn stored(&self) -> Option<Stored> {
        match *self {
            Self::Store { start, bytes, line, value, .. }
            | Self::OrderedStore { start, bytes, line, value, .. }
            | Self::Locked { start, bytes, line, value, .. }
            | Self::NonTemporal { start, bytes, line, value, .. } => {
                Some(Stored { start, bytes, line, value })
            }
            _ => None,
        }
    }

    /// The lines that it stores to.
    pub fn stored_lines(&self) -> Range<u32> {
        match *self {
            Self::Store { line, .. }
            | Self::OrderedStore { line, .. }
            | Self::Locked { line, .. }
            | Self::NonTemporal { line, .. } => line..line + 1,
            Self::Copy { start, line, bytes, .. } => {
                line..line + (usize::from(start) + bytes as usize).div_ceil(LINE_BYTES) as u32
            }
            _ => 0..0,
        }
    }

    /// The lines that it flushes.
    pub fn flushed_lines(&self) -> Range<u32> {
        match *self {
            Self::Flush { line, .. } | Self::StrongFlush { line, .. } => line..line + 1,
            Self::FlushLines { line, lines, .. } => line..line + lines,
            _ => 0..0,
        }
    }
}

/// The storage of the region has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageGrowth {
    /// How many events came before.
    pub position: usize,
    /// How long it is.
    pub bytes: usize,
    /// Whether a power cut leaves it so long.
    pub is_durable: bool,
}

/// A sequence of events in the order of their visibility.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What happened.
    pub events: Vec<Event>,
    /// The persist points that flushes and fences refer to.
    pub points: Vec<PersistPoint>,
    /// The writes to block devices that events refer to.
    pub block_writes: Vec<BlockWrite>,
    /// How the storage of the region has grown.
    pub growths: Vec<StorageGrowth>,
    /// What copies copied and block devices were given, each at a multiple of eight bytes.
    payload: Vec<u8>,
}

impl Trace {
    /// The payload of a copy of zeroes.
    pub const ZEROES: u32 = u32::MAX;

    /// A trace of these events, of which none is a copy of a range.
    pub fn of(events: Vec<Event>, points: Vec<PersistPoint>) -> Self {
        Self { events, points, ..Self::default() }
    }

    /// Notes a copy; `from` is the bytes, or how many zeroes.
    pub(crate) fn copy(&mut self, worker: u8, nontemporal: bool, offset: usize, from: Source<'_>) {
        let (mut offset, mut from) = (offset, from);
        while from.len() > 0 {
            let (now, later) = from.split_at(LONGEST_COPY_BYTES);
            self.copy_part(worker, nontemporal, offset, now);
            (offset, from) = (offset + now.len(), later);
        }
    }

    fn copy_part(&mut self, worker: u8, nontemporal: bool, offset: usize, from: Source<'_>) {
        let (line, start) = ((offset / LINE_BYTES) as u32, (offset % LINE_BYTES) as u8);
        if offset % UNIT_BYTES + from.len() <= UNIT_BYTES {
            let (bytes, value) = (from.len() as u8, from.unit_value());
            return self.events.push(if nontemporal {
                Event::NonTemporal { worker, start, bytes, line, value }
            } else {
                Event::Store { worker, start, bytes, line, value }
            });
        }
        let (bytes, payload) = (from.len() as u32, self.keep(from));
        self.events.push(Event::Copy { worker, nontemporal, start, line, bytes, payload });
    }

    /// Keeps bytes beside the events.
    pub(crate) fn keep(&mut self, from: Source<'_>) -> u32 {
        let Source::Bytes(bytes) = from else { return Self::ZEROES };
        let at = (self.payload.len() / UNIT_BYTES) as u32;
        self.payload.extend_from_slice(bytes);
        self.payload.resize(self.payload.len().next_multiple_of(UNIT_BYTES), 0);
        at
    }

    #[inline]
    pub(crate) fn bytes_at(&self, payload: u32, bytes: usize) -> &[u8] {
        &self.payload[payload as usize * UNIT_BYTES..][..bytes]
    }

    /// The stores of a copy, each within an aligned unit.
    #[inline]
    pub(crate) fn stores(
        &self,
        line: u32,
        start: u8,
        bytes: u32,
        payload: u32,
    ) -> impl Iterator<Item = Stored> + Clone + '_ {
        let source = match payload {
            Self::ZEROES => Source::Zeroes(bytes as usize),
            at => Source::Bytes(self.bytes_at(at, bytes as usize)),
        };
        units(line as usize * LINE_BYTES + usize::from(start), bytes as usize).map(
            move |(line, start, bytes, at)| {
                let value = source.part(at, usize::from(bytes)).unit_value();
                Stored { start, bytes, line, value }
            },
        )
    }

    /// What an event consists of: of a copy the stores, of a flush of several lines the flush of
    /// each, of any other itself.
    pub fn units(&self, event: Event) -> impl Iterator<Item = Event> + Clone + '_ {
        let (mut stores, mut flushes, mut other) = (None, None, None);
        match event {
            Event::Copy { worker, nontemporal, start, line, bytes, payload } => {
                stores = Some(self.stores(line, start, bytes, payload).map(move |stored| {
                    let Stored { start, bytes, line, value } = stored;
                    if nontemporal {
                        Event::NonTemporal { worker, start, bytes, line, value }
                    } else {
                        Event::Store { worker, start, bytes, line, value }
                    }
                }));
            }
            Event::FlushLines { worker, point, line, lines } => {
                let lines = line..line + lines;
                flushes = Some(lines.map(move |line| Event::Flush { worker, point, line }));
            }
            event => other = Some(event),
        }
        stores.into_iter().flatten().chain(flushes.into_iter().flatten()).chain(other)
    }

    /// The units of the first `position` events.
    pub fn units_before(&self, position: usize) -> Vec<Event> {
        let events = &self.events[..position.min(self.events.len())];
        events.iter().flat_map(|event| self.units(*event)).collect()
    }

    /// The same with every event in units.
    #[must_use]
    pub fn in_units(self) -> Self {
        Self { events: self.units_before(self.events.len()), ..self }
    }

    /// The first `position` events, and then those of `more`.
    #[must_use]
    pub fn continued(&self, position: usize, more: &Self) -> Self {
        let (points, units) = (self.points.len() as u16, (self.payload.len() / UNIT_BYTES) as u32);
        let shift = |payload: u32| if payload == Self::ZEROES { payload } else { payload + units };
        let writes = self.block_writes.len() as u32;
        let mut continued = self.clone();
        continued.events.truncate(position);
        continued.growths.retain(|growth| growth.position <= position);
        continued.growths.extend(
            more.growths.iter().map(|it| StorageGrowth { position: position + it.position, ..*it }),
        );
        continued.points.extend_from_slice(&more.points);
        continued.payload.extend_from_slice(&more.payload);
        let block_writes = more.block_writes.iter();
        continued.block_writes.extend(
            block_writes.map(|write| BlockWrite { payload: shift(write.payload), ..*write }),
        );
        continued.events.extend(more.events.iter().map(|event| {
            let mut event = *event;
            match &mut event {
                Event::Flush { point, .. }
                | Event::FlushLines { point, .. }
                | Event::Fence { point, .. } => *point += points,
                Event::Copy { payload, .. } => *payload = shift(*payload),
                Event::Block { what, .. } => match what {
                    BlockEvent::Write { write } => *write += writes,
                    // What is everywhere is marked as zeroes are.
                    BlockEvent::Written { landed: payload, .. }
                    | BlockEvent::Rot { payload }
                    | BlockEvent::Capacity { payload } => *payload = shift(*payload),
                    BlockEvent::Flush { .. } | BlockEvent::Flushed { .. } => {}
                },
                _ => {}
            }
            event
        }));
        continued
    }

    /// Takes the events, which refer to `points`.
    pub(crate) fn take(&mut self, points: Vec<PersistPoint>) -> Self {
        Self { points, ..mem::take(self) }
    }

    /// Forgets the events.
    pub(crate) fn clear_events(&mut self) {
        self.events.clear();
        self.block_writes.clear();
        self.growths.clear();
        self.payload.clear();
    }
}

/// What a store writes where, within an aligned unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Offset in the line.
    pub start: u8,
    /// 1 to 8.
    pub bytes: u8,
    /// The line.
    pub line: u32,
    /// The bytes, little-endian.
    pub value: u64,
}

impl Stored {
    /// Whether the line holds it.
    pub fn is_held_by(&self, line: &[u8; LINE_BYTES]) -> bool {
        let mut stored = *line;
        self.apply(&mut stored);
        stored == *line
    }

    /// Stores it to the line.
    pub fn apply(&self, line: &mut [u8; LINE_BYTES]) {
        let (start, bytes) = (usize::from(self.start), usize::from(self.bytes));
        line[start..start + bytes].copy_from_slice(&self.value.to_le_bytes()[..bytes]);
    }
}

/// What a range is filled with.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    Zeroes(usize),
}

impl Source<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeroes(bytes) => bytes,
        }
    }

    #[inline]
    fn part(self, at: usize, bytes: usize) -> Self {
        match self {
            Self::Bytes(source) => Self::Bytes(&source[at..at + bytes]),
            Self::Zeroes(_) => Self::Zeroes(bytes),
        }
    }

    /// The first bytes, up to so many, and the rest.
    fn split_at(self, most: usize) -> (Self, Self) {
        let middle = most.min(self.len());
        (self.part(0, middle), self.part(middle, self.len() - middle))
    }

    #[inline]
    fn unit_value(self) -> u64 {
        match self {
            Self::Bytes(bytes) => unit_value(bytes),
            Self::Zeroes(_) => 0,
        }
    }

    /// # Safety
    /// `destination` is valid for writes of the source's length and exclusively the caller's.
    pub(crate) unsafe fn write(self, destination: *mut u8) {
        match self {
            // SAFETY: as the caller vouches.
            Self::Bytes(bytes) => unsafe {
                destination.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            },
            // SAFETY: as the caller vouches.
            Self::Zeroes(bytes) => unsafe { destination.write_bytes(0, bytes) },
        }
    }
}

/// The aligned units that `bytes` bytes at `offset` fall into: (line, start in it, bytes,
/// position in the range).
pub(crate) fn units(
    offset: usize,
    bytes: usize,
) -> impl Iterator<Item = (u32, u8, u8, usize)> + Clone {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done;
        let step = (8 - at % 8).min(bytes - done);
        let unit = ((at / LINE_BYTES) as u32, (at % LINE_BYTES) as u8, step as u8, done);
        done += step;
        Some(unit)
    })
}

/// The value of up to eight bytes, little-endian.
pub(crate) fn unit_value(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(from: u8, count: u8) -> Vec<u8> {
        (from..from + count).collect()
    }

    #[test]
    fn a_copy_is_one_event_that_holds_its_bytes_and_has_a_store_for_each_unit() {
        let mut trace = Trace::default();
        trace.copy(1, false, 3, Source::Bytes(&bytes(0, 30)));
        trace.copy(2, true, 60, Source::Bytes(&bytes(100, 12)));
        trace.copy(3, true, 128, Source::Zeroes(16));
        assert_eq!(trace.events.len(), 3);
        assert_eq!(trace.events[1].stored_lines(), 0..2);
        let units = trace.in_units().events;
        let held = |place: usize| match units[place] {
            Event::Store { worker, start, bytes, line, value }
            | Event::NonTemporal { worker, start, bytes, line, value } => {
                (worker, line, start, value.to_le_bytes()[..usize::from(bytes)].to_vec())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(units.len(), 5 + 2 + 2);
        assert_eq!(held(0), (1, 0, 3, bytes(0, 5)));
        assert_eq!(held(4), (1, 0, 32, bytes(29, 1)));
        assert_eq!(held(5), (2, 0, 60, bytes(100, 4)));
        assert_eq!(held(6), (2, 1, 0, bytes(104, 8)));
        assert_eq!(held(8), (3, 2, 8, vec![0; 8]));
        assert!(
            matches!(units[4], Event::Store { .. })
                && matches!(units[5], Event::NonTemporal { .. })
        );
    }

    #[test]
    fn what_fits_into_a_unit_is_a_store() {
        let mut trace = Trace::default();
        trace.copy(0, false, 66, Source::Bytes(&[1, 2]));
        let (worker, start, bytes, line, value) = (0, 2, 2, 1, 0x0201);
        assert_eq!(trace.events, [Event::Store { worker, start, bytes, line, value }]);
    }

    #[test]
    fn a_trace_that_is_continued_keeps_the_bytes_of_both() {
        let copy = |from| {
            let mut trace = Trace::default();
            trace.copy(0, false, 8, Source::Bytes(&bytes(from, 24)));
            trace.copy(0, false, 64, Source::Bytes(&bytes(from + 50, 20)));
            trace
        };
        let (first, second) = (copy(0), copy(100));
        let expected = [first.units_before(1), second.units_before(2)].concat();
        assert_eq!(first.continued(1, &second).in_units().events, expected);
    }

    #[test]
    fn a_range_is_split_at_aligned_units_and_lines() {
        let found: Vec<_> = units(61, 14).collect();
        assert_eq!(found, [(0, 61, 3, 0), (1, 0, 8, 3), (1, 8, 3, 11)]);
    }

    #[test]
    fn an_empty_range_has_no_units() {
        assert_eq!(units(5, 0).count(), 0);
    }
}
