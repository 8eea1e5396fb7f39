//! Stores, flushes and fences that take effect now: those of a machine without store buffers, and
//! what leaves a store buffer.

use std::panic::Location;
use std::sync::atomic::{Ordering, fence};

use lapis_pmem::{LINE_BYTES, Omission, Word};

use super::Modelled;
use super::state::WordEvent;
use crate::modelled::persist_points::PersistKind;
use crate::scheduler::is_scheduled;
use crate::scheduler::worker::current_worker;
use crate::trace::{Event, Source};

/// Whether what takes effect now is left out. What leaves a store buffer is not: that was decided
/// when it was executed, perhaps by another thread than the one that lets it leave.
fn is_left_out() -> bool {
    Omission::is_in_force() && !is_scheduled()
}

impl Modelled {
    /// # Safety
    /// As for [`Domain::copy_nontemporal`].
    pub(super) unsafe fn fill_nontemporal(
        &self,
        destination: *mut u8,
        source: Source<'_>,
        caller: &'static Location<'static>,
    ) {
        if source.len() == 0 {
            return;
        }
        if let Some(interleaving) = self.interleaving() {
            let offset = self.range_offset(destination, source.len());
            let suppressed = self.omits(caller, PersistKind::NonTemporal);
            // SAFETY: as the caller vouches.
            return unsafe {
                if suppressed {
                    self.buffer_copy(interleaving, offset, destination, source);
                } else {
                    self.buffer_nontemporal(interleaving, offset, destination, source, caller);
                }
            };
        }
        // SAFETY: as the caller vouches.
        unsafe { self.fill_nontemporal_now(destination, source, caller) };
    }

    /// Whether a flush, fence or non-temporal copy of a scheduled worker is not performed. It has been
    /// passed all the same, and comes no further than here to be counted.
    pub(super) fn omits(&self, caller: &'static Location<'static>, kind: PersistKind) -> bool {
        let points = &mut self.machine.state.lock().points;
        let is_omitted = Omission::is_in_force() || points.suppresses(caller, kind);
        if is_omitted {
            points.pass(caller, kind);
        }
        is_omitted
    }

    pub(crate) fn store_now<W: Word>(
        &self,
        offset: usize,
        at: &W::Atomic,
        value: W,
        order: Ordering,
    ) {
        let event =
            if order == Ordering::Relaxed { WordEvent::Relaxed } else { WordEvent::Ordered };
        self.prefetch_counted::<W>(at);
        let mut state = self.machine.state.lock();
        state.before_word(offset, value, event);
        W::store(at, value, order);
    }

    pub(crate) fn flush_now(
        &self,
        offset: usize,
        bytes: usize,
        caller: &'static Location<'static>,
    ) {
        let mut state = self.machine.state.lock();
        let Some(point) = state.points.pass(caller, PersistKind::Flush) else { return };
        if is_left_out() {
            return;
        }
        if state.tracing {
            let worker = current_worker();
            let line = (offset / LINE_BYTES) as u32;
            let lines = ((offset + bytes - 1) / LINE_BYTES) as u32 - line + 1;
            state.trace.events.push(match lines {
                1 => Event::Flush { worker, point, line },
                _ => Event::FlushLines { worker, point, line, lines },
            });
        }
        if let Some(counters) = &mut state.counters {
            counters.flush(current_worker(), offset, bytes);
        }
    }

    pub(crate) fn fence_now(&self, caller: &'static Location<'static>) {
        // Of host memory, whether or not the model sees it.
        fence(Ordering::Release);
        let mut state = self.machine.state.lock();
        let Some(point) = state.points.pass(caller, PersistKind::Fence) else { return };
        if is_left_out() {
            return;
        }
        if state.tracing {
            state.trace.events.push(Event::Fence { worker: current_worker(), point });
        }
        if let Some(counters) = &mut state.counters {
            counters.fence(current_worker());
        }
    }

    /// # Safety
    /// As for [`Domain::copy`].
    pub(crate) unsafe fn copy_now(&self, destination: *mut u8, source: Source<'_>) {
        let offset = self.range_offset(destination, source.len());
        let mut state = self.machine.state.lock();
        state.before_range(offset, source, false);
        // SAFETY: as the caller vouches; a slice cannot overlap memory that is being written.
        unsafe { source.write(destination) };
    }

    /// # Safety
    /// As for [`Domain::copy_nontemporal`].
    pub(crate) unsafe fn fill_nontemporal_now(
        &self,
        destination: *mut u8,
        source: Source<'_>,
        caller: &'static Location<'static>,
    ) {
        let offset = self.range_offset(destination, source.len());
        self.watch_written(offset, source.len());
        let mut state = self.machine.state.lock();
        let performed =
            state.points.pass(caller, PersistKind::NonTemporal).is_some() && !is_left_out();
        state.before_range(offset, source, performed);
        // SAFETY: as the caller vouches.
        unsafe { source.write(destination) };
    }
}
