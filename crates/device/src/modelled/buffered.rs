//! Events of a worker that has a store buffer.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{LINE_BYTES, Word};

use crate::modelled::Modelled;
use crate::scheduler::effect::{Effect, OwnedSource};
use crate::scheduler::store_buffer::{Entry, EntryKind};
use crate::scheduler::worker::current_worker;
use crate::scheduler::{Interleaving, Turn};
use crate::trace::{Marker, Source};

/// Where the store buffers place a word of ordinary memory: beyond every region.
fn dram_place(word: &Arc<AtomicU64>) -> usize {
    1 << (usize::BITS - 1) | Arc::as_ptr(word).addr()
}

impl Modelled {
    pub(crate) fn buffer_word<W: Word>(
        &self,
        interleaving: &Interleaving,
        start: usize,
        at: &W::Atomic,
        value: W,
        order: Ordering,
    ) {
        let at = std::ptr::from_ref(at).cast();
        let (bytes, value) = (W::BYTES, value.widen());
        let effect = Effect::Word { at, bytes: bytes as u8, value, order };
        self.buffer(interleaving, Entry { kind: EntryKind::Store, start, bytes, effect });
    }

    /// A load: of memory, and what the worker's own buffer holds for it.
    pub(crate) fn load_buffered<W: Word>(
        &self,
        interleaving: &Interleaving,
        start: usize,
        at: &W::Atomic,
        order: Ordering,
    ) -> W {
        self.turn(interleaving, Turn::Event);
        let mut value = W::load(at, order).widen().to_le_bytes();
        let shared = interleaving.shared.lock();
        let Some(worker) = shared.workers.get(usize::from(current_worker())) else {
            return W::narrow(u64::from_le_bytes(value));
        };
        for entry in worker.buffer.entries().filter(|entry| entry.touches(start, W::BYTES)) {
            let until = (entry.start + entry.bytes).min(start + W::BYTES);
            for at in entry.start.max(start)..until {
                let byte = at - entry.start;
                value[at - start] = match &entry.effect {
                    Effect::Word { value, .. } => value.to_le_bytes()[byte],
                    Effect::Copy { source, .. } | Effect::NonTemporal { source, .. } => {
                        source.byte(byte)
                    }
                    _ => continue,
                };
            }
        }
        W::narrow(u64::from_le_bytes(value))
    }

    /// A store to a word of ordinary memory: in order with all others.
    pub(crate) fn buffer_dram(
        &self,
        interleaving: &Interleaving,
        word: &Arc<AtomicU64>,
        value: u64,
    ) {
        let effect = Effect::Dram { word: Arc::clone(word), value };
        let (kind, start) = (EntryKind::Store, dram_place(word));
        self.buffer(interleaving, Entry { kind, start, bytes: 1, effect });
    }

    /// A load of one: what the worker's own buffer holds for it, or else what is there.
    pub(crate) fn load_dram_buffered(
        &self,
        interleaving: &Interleaving,
        word: &Arc<AtomicU64>,
    ) -> u64 {
        self.turn(interleaving, Turn::Event);
        let shared = interleaving.shared.lock();
        let own = shared.workers.get(usize::from(current_worker()));
        let mut entries = own.into_iter().flat_map(|worker| worker.buffer.entries().rev());
        let forwarded = entries.find_map(|entry| match &entry.effect {
            Effect::Dram { word: stored, value } if Arc::ptr_eq(stored, word) => Some(*value),
            _ => None,
        });
        forwarded.unwrap_or_else(|| word.load(Ordering::Acquire))
    }

    /// Plain loads follow, which the model does not see: what the worker's buffer holds for them
    /// becomes visible first, and in order.
    pub(crate) fn read_buffered(&self, interleaving: &Interleaving, start: usize, bytes: usize) {
        self.turn(interleaving, Turn::Event);
        if interleaving.is_stopped() {
            return;
        }
        let me = current_worker();
        loop {
            let shared = interleaving.shared.lock();
            let own = &shared.workers[usize::from(me)].buffer;
            if own.newest_touching(start, bytes).is_none() {
                return;
            }
            drop(shared);
            self.drain_entry(interleaving, me, 0);
        }
    }

    /// # Safety
    /// As for [`Domain::copy`](lapis_pmem::Domain::copy).
    pub(crate) unsafe fn buffer_copy(
        &self,
        interleaving: &Interleaving,
        start: usize,
        destination: *mut u8,
        source: Source<'_>,
    ) {
        let bytes = source.len();
        let effect = Effect::Copy { destination, source: OwnedSource::of(source) };
        self.buffer(interleaving, Entry { kind: EntryKind::Store, start, bytes, effect });
    }

    /// # Safety
    /// As for [`Domain::copy_nontemporal`](lapis_pmem::Domain::copy_nontemporal).
    pub(crate) unsafe fn buffer_nontemporal(
        &self,
        interleaving: &Interleaving,
        start: usize,
        destination: *mut u8,
        source: Source<'_>,
        at: &'static Location<'static>,
    ) {
        let bytes = source.len();
        let effect = Effect::NonTemporal { destination, source: OwnedSource::of(source), at };
        self.buffer(interleaving, Entry { kind: EntryKind::NonTemporal, start, bytes, effect });
    }

    /// A flush of each line of a range.
    pub(crate) fn buffer_flush(
        &self,
        interleaving: &Interleaving,
        start: usize,
        bytes: usize,
        location: &'static Location<'static>,
    ) {
        for line in start / LINE_BYTES..=(start + bytes - 1) / LINE_BYTES {
            let (start, effect) = (line * LINE_BYTES, Effect::Flush(location));
            let entry = Entry { kind: EntryKind::Flush, start, bytes: LINE_BYTES, effect };
            self.buffer(interleaving, entry);
        }
    }

    pub(crate) fn buffer_fence(
        &self,
        interleaving: &Interleaving,
        location: &'static Location<'static>,
    ) {
        let effect = Effect::Fence(location);
        self.buffer(interleaving, Entry { kind: EntryKind::Fence, start: 0, bytes: 0, effect });
    }

    /// An acknowledgement reaches the outside after the stores before it; other notes at once.
    pub(crate) fn buffer_mark(&self, interleaving: &Interleaving, marker: Marker) {
        if matches!(marker, Marker::End(_)) {
            let kind = EntryKind::Acknowledgement;
            let effect = Effect::Mark(marker);
            return self.buffer(interleaving, Entry { kind, start: 0, bytes: 0, effect });
        }
        self.turn(interleaving, Turn::Event);
        self.mark_now(marker);
    }
}
