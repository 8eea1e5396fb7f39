//! The modelled machine as a [`Domain`]: what structures call.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{
    Domain, DomainFault, LINE_BYTES, LockGeneration, Mutant, Observed, Optimisation, PCell, Word,
    word_copy,
};

use super::state::WordEvent;
use super::{Modelled, ModelledWord, StructuralEvent};
use crate::counting::counters::Counters;
use crate::modelled::persist_points::PersistKind;
use crate::scheduler::Turn;
use crate::scheduler::worker::current_worker;
use crate::trace::{Source, StorageGrowth};

impl Domain for Modelled {
    #[inline(always)]
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        let machine = &*self.machine;
        if !machine.only_watches_loads.load(Ordering::Relaxed) {
            return self.load_observed(at, order);
        }
        // A recovery of an image is made of these: most are of lines that nobody watches.
        let offset = std::ptr::from_ref(at).addr().wrapping_sub(machine.base);
        if let Some(watch) = &machine.watch
            && watch.is_watched(offset / LINE_BYTES)
        {
            watch.read_word(offset, W::BYTES);
        }
        W::load(at, order)
    }

    #[inline]
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        let Some(offset) = self.atomic_offset(at) else {
            return W::store(at, value, order);
        };
        if self.machine.watch.is_some() || self.machine.interleaving.is_some() {
            return self.store_observed::<W>(offset, at, value, order);
        }
        self.store_now::<W>(offset, at, value, order);
    }

    fn read_words(&self, words: &[AtomicU64], offset: usize, into: &mut [u8]) {
        // Ordinary memory makes no events.
        match self.offset(words.as_ptr().addr()) {
            Some(_) => word_copy::read(self, words, offset, into),
            None => word_copy::read_at_once(self, words, offset, into),
        }
    }

    fn write_words(&self, words: &[AtomicU64], offset: usize, from: &[u8]) {
        match self.offset(words.as_ptr().addr()) {
            Some(_) => word_copy::write(self, words, offset, from),
            None => word_copy::write_at_once(self, words, offset, from),
        }
    }

    #[inline]
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        let Some(offset) = self.atomic_offset(at) else {
            return W::swap(at, value, Ordering::AcqRel);
        };
        self.watch_read(std::ptr::from_ref(at).addr(), W::BYTES);
        self.watch_written(offset, W::BYTES);
        if let Some(interleaving) = self.interleaving() {
            self.empty_buffer(interleaving);
        }
        self.prefetch_counted::<W>(at);
        let mut state = self.machine.state.lock();
        state.before_word(offset, value, WordEvent::Locked);
        W::swap(at, value, Ordering::AcqRel)
    }

    #[inline]
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        let Some(offset) = self.atomic_offset(at) else {
            return W::compare_exchange(at, current, new);
        };
        self.watch_read(std::ptr::from_ref(at).addr(), W::BYTES);
        if let Some(interleaving) = self.interleaving() {
            self.empty_buffer(interleaving);
        }
        self.prefetch_counted::<W>(at);
        let mut state = self.machine.state.lock();
        // Stores to the region happen under the lock, so this decides the exchange. One that
        // fails is a load: that it also fences is an accident of x86 nothing should rest on.
        if W::load(at, Ordering::Acquire) == current {
            self.watch_written(offset, W::BYTES);
            state.before_word(offset, new, WordEvent::Locked);
        } else if let Some(counters) = &mut state.counters {
            counters.locked(current_worker(), offset, false);
        }
        W::compare_exchange(at, current, new)
    }

    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        if source.is_empty() {
            return;
        }
        let source = Source::Bytes(source);
        self.watch_written(self.range_offset(destination, source.len()), source.len());
        if let Some(interleaving) = self.interleaving() {
            let offset = self.range_offset(destination, source.len());
            // SAFETY: as the caller vouches.
            return unsafe { self.buffer_copy(interleaving, offset, destination, source) };
        }
        // SAFETY: as the caller vouches.
        unsafe { self.copy_now(destination, source) };
    }

    #[track_caller]
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { self.fill_nontemporal(destination, Source::Bytes(source), Location::caller()) };
    }

    #[track_caller]
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as the caller vouches.
        unsafe { self.fill_nontemporal(destination, Source::Zeroes(bytes), Location::caller()) };
    }

    #[track_caller]
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let offset = self.range_offset(start, bytes);
        let caller = Location::caller();
        match self.interleaving() {
            None => self.flush_now(offset, bytes, caller),
            Some(_) if self.omits(caller, PersistKind::Flush) => {}
            Some(interleaving) => self.buffer_flush(interleaving, offset, bytes, caller),
        }
    }

    fn boot(&self) -> Option<u128> {
        self.machine.same_boot.load(Ordering::Relaxed).then_some(0)
    }

    #[track_caller]
    fn lock_released(&self, lock: &PCell<u64>) {
        if self.machine.optimisations.has(Optimisation::EarlyEviction) {
            self.flush(lock);
        }
    }

    #[track_caller]
    fn order_in_line<T: ?Sized>(&self, earlier: &T, later: &PCell<u64>) {
        let line = |at: usize| at / LINE_BYTES;
        let (start, later) = ((&raw const *earlier).addr(), (&raw const *later).addr());
        let is_in_line = [start, start + size_of_val(earlier) - 1].map(line) == [line(later); 2];
        if !is_in_line || !self.machine.optimisations.has(Optimisation::FlushCoalescing) {
            self.persist(earlier);
        }
    }

    #[track_caller]
    fn fence(&self) {
        let caller = Location::caller();
        match self.interleaving() {
            None => self.fence_now(caller),
            Some(_) if self.omits(caller, PersistKind::Fence) => {}
            Some(interleaving) => self.buffer_fence(interleaving, caller),
        }
    }

    #[inline]
    fn prefetch(&self, at: *const u8) {
        if self.machine.counts_loads {
            self.count_reads(at.addr(), Counters::prefetch);
        }
    }

    fn health(&self) -> Result<(), DomainFault> {
        Ok(())
    }
}

impl Observed for Modelled {
    const DETERMINISTIC: bool = true;

    type DramWord<W: Word> = ModelledWord<W>;

    #[inline]
    fn note_read(&self, source: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if self.machine.observes_loads {
            self.watch_read(source.addr(), bytes);
        }
        if self.machine.counts_loads {
            self.count_reads(source.addr(), |counters, worker, offset| {
                counters.read_range(worker, offset, bytes);
            });
        }
        if let Some(interleaving) = self.interleaving()
            && let Some(offset) = self.offset(source.addr())
        {
            self.read_buffered(interleaving, offset, bytes);
        }
    }

    fn pause(&self) {
        match self.interleaving() {
            Some(interleaving) => self.turn(interleaving, Turn::Waits),
            None => std::hint::spin_loop(),
        }
    }

    #[inline]
    fn synchronize(&self) {
        self.empty_own_buffer();
    }

    fn synchronize_all(&self) {
        if let Some(interleaving) = self.interleaving() {
            self.empty_all_buffers(interleaving);
        }
    }

    #[inline]
    fn prefetches(&self) -> bool {
        self.machine.counts_loads
    }

    #[inline]
    fn touch_dram(&self, offset_bytes: usize, bytes: usize) {
        self.count_dram(|counters, worker| counters.read_dram(worker, offset_bytes, bytes));
    }

    #[inline]
    fn prefetch_dram(&self, offset_bytes: usize, bytes: usize) {
        self.count_dram(|counters, worker| counters.prefetch_dram(worker, offset_bytes, bytes));
    }

    #[inline]
    fn worker(&self) -> Option<usize> {
        Some(usize::from(current_worker()))
    }

    #[inline]
    fn note_lock(&self, at: *const u8) {
        if let Some(watch) = &self.machine.watch {
            watch.lock_access(at.addr().wrapping_sub(self.machine.base));
        }
    }

    fn note_storage(&self, bytes: usize, is_durable: bool) {
        self.record(|trace, _| {
            let position = trace.events.len();
            trace.growths.push(StorageGrowth { position, bytes, is_durable });
        });
    }

    fn note_generation(&self, generation: LockGeneration) {
        if let Some(watch) = &self.machine.watch {
            watch.generation(generation);
        }
    }

    fn happens(&self, event: &'static str) {
        let first = self.traced_events();
        let fresh = StructuralEvent { count: 0, first };
        self.machine.happened.lock().entry(event).or_insert(fresh).count += 1;
    }

    #[inline]
    fn padding_bytes(&self) -> usize {
        if self.machine.optimisations.has(Optimisation::RemovalOfBloat) { 0 } else { 8 }
    }

    #[inline]
    fn commits(&self, mutant: Mutant) -> bool {
        self.machine.mutant == Some(mutant)
    }
}

impl Modelled {
    /// A store that is watched, or that a store buffer may take.
    #[inline(never)]
    fn store_observed<W: Word>(&self, offset: usize, at: &W::Atomic, value: W, order: Ordering) {
        self.watch_written(offset, W::BYTES);
        if let Some(interleaving) = self.interleaving() {
            return self.buffer_word::<W>(interleaving, offset, at, value, order);
        }
        self.store_now::<W>(offset, at, value, order);
    }

    /// A load that is counted, or that a store buffer may answer.
    #[inline(never)]
    fn load_observed<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        let machine = &*self.machine;
        if machine.observes_loads {
            let address = std::ptr::from_ref(at).addr();
            self.watch_read(address, W::BYTES);
            if machine.counts_loads {
                self.count_reads(address, Counters::load);
            }
        }
        if let Some(interleaving) = self.interleaving()
            && let Some(offset) = self.atomic_offset(at)
        {
            return self.load_buffered::<W>(interleaving, offset, at, order);
        }
        W::load(at, order)
    }
}
