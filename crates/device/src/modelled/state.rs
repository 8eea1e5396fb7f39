//! What an event does to a machine: tracking, trace, counters, before memory changes.

use lapis_pmem::{LINE_BYTES, Word};

use crate::counters::Counters;
use crate::persist_points::PersistPoints;
use crate::trace::{Event, unit_value, units};
use crate::tracking::Tracking;
use crate::worker::current_worker;

/// What changes with events, under the machine's lock.
pub(super) struct State {
    /// Start of the region; kept as a pointer for its provenance.
    pub(super) base: *const u8,
    pub(super) tracking: Option<Tracking>,
    pub(super) tracing: bool,
    pub(super) events: Vec<Event>,
    pub(super) counters: Option<Box<Counters>>,
    /// The counters, while they see nothing.
    pub(super) resting: Option<Box<Counters>>,
    pub(super) points: PersistPoints,
}

// SAFETY: `base` is only read through while a caller of a domain method vouches for the memory.
unsafe impl Send for State {}

impl State {
    #[inline(always)]
    fn touch(&mut self, offset: usize) {
        if let Some(tracking) = &mut self.tracking {
            let line = offset / LINE_BYTES;
            // SAFETY: the caller of the domain's store vouches that a byte of the line is mapped,
            // and so is the whole line; stores to the region happen under the lock.
            unsafe { tracking.touch(line as u32, self.base.add(line * LINE_BYTES)) };
        }
    }

    /// A word is about to be stored.
    #[inline(always)]
    pub(super) fn before_word<W: Word>(&mut self, offset: usize, value: W, event: WordEvent) {
        self.touch(offset);
        if self.tracing {
            let (line, start) = ((offset / LINE_BYTES) as u32, (offset % LINE_BYTES) as u8);
            let (worker, bytes, value) = (current_worker(), W::BYTES as u8, value.widen());
            self.events.push(match event {
                WordEvent::Relaxed => Event::Store { worker, start, bytes, line, value },
                WordEvent::Ordered => Event::OrderedStore { worker, start, bytes, line, value },
                WordEvent::Locked => Event::Locked { worker, start, bytes, line, value },
            });
        }
        if let Some(counters) = &mut self.counters {
            match event {
                WordEvent::Relaxed | WordEvent::Ordered => counters.store(current_worker(), offset),
                WordEvent::Locked => counters.locked(current_worker(), offset, true),
            }
        }
    }

    /// A range is about to be stored.
    pub(super) fn before_range(&mut self, offset: usize, source: Source<'_>, nontemporal: bool) {
        let bytes = source.len();
        if self.tracking.is_some() {
            let mut at = offset;
            while at < offset + bytes {
                self.touch(at);
                at = (at / LINE_BYTES + 1) * LINE_BYTES;
            }
        }
        if self.tracing {
            let worker = current_worker();
            self.events.extend(units(offset, bytes).map(|(line, start, bytes, at)| {
                let value = source.value(at, bytes);
                if nontemporal {
                    Event::NonTemporal { worker, start, bytes, line, value }
                } else {
                    Event::Store { worker, start, bytes, line, value }
                }
            }));
        }
        if let Some(counters) = &mut self.counters {
            if nontemporal {
                counters.nontemporal(current_worker(), offset, bytes);
            } else {
                counters.write_range(current_worker(), offset, bytes);
            }
        }
    }
}

/// How a word is stored.
#[derive(Clone, Copy)]
pub(super) enum WordEvent {
    Relaxed,
    Ordered,
    Locked,
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
    fn value(self, at: usize, bytes: u8) -> u64 {
        match self {
            Self::Bytes(source) => unit_value(&source[at..at + usize::from(bytes)]),
            Self::Zeroes(_) => 0,
        }
    }

    /// # Safety
    /// `destination` is valid for writes of the source's length and exclusively the caller's.
    pub(super) unsafe fn write(self, destination: *mut u8) {
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
