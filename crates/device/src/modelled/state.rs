//! What an event does to a machine: tracking, trace, counters, before memory changes.

use lapis_pmem::{LINE_BYTES, Word};

use crate::counting::counters::Counters;
use crate::counting::timing::Picoseconds;
use crate::modelled::dirtied_lines::DirtiedLines;
use crate::modelled::persist_points::PersistPoints;
use crate::scheduler::worker::current_worker;
use crate::trace::{Event, Source, Trace};

/// What changes with events, under the machine's lock.
pub(super) struct State {
    /// Start of the region; kept as a pointer for its provenance.
    pub(super) base: *const u8,
    pub(super) tracking: Option<DirtiedLines>,
    pub(super) tracing: bool,
    pub(super) trace: Trace,
    pub(super) counters: Option<Box<Counters>>,
    /// The counters, while they see nothing.
    pub(super) resting: Option<Box<Counters>>,
    pub(super) points: PersistPoints,
    /// Of the workers, where nothing is counted.
    pub(super) clocks: Vec<Picoseconds>,
    /// Block devices attached so far.
    pub(super) devices: u8,
    /// How often the clocks were reset.
    pub(super) clock_resets: u64,
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
            self.trace.events.push(match event {
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
            self.trace.copy(current_worker(), nontemporal, offset, source);
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
