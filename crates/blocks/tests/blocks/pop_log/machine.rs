//! A small machine under test: it counts flushes and fences, knows what is durable, and can be
//! asked what a power cut or the death of the process leaves (rules R1 to R6 of the domain, for one
//! thread).

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lapis_pmem::{Domain, DomainFault, LINE_BYTES, Observed, PlainWord, Pool, Region, Word};
use parking_lot::Mutex;

use super::Numbers;

/// A source line: where a flush or fence is.
pub type Site = (&'static str, u32);

#[derive(Clone, Debug)]
struct Event {
    unit: usize,
    value: u64,
    ordered: bool,
}

#[derive(Clone, Debug, Default)]
struct Line {
    events: Vec<Event>,
    /// So many of them have been flushed and wait for a fence.
    flushed: usize,
}

/// Everything about a moment that matters to what comes after it.
#[derive(Clone, Debug)]
pub struct Moment {
    visible: Vec<u8>,
    durable: Vec<u8>,
    lines: BTreeMap<usize, Line>,
}

impl Moment {
    /// What a power cut leaves: of each line some prefix of its stores.
    pub fn power_cut(&self, seed: u64) -> Vec<u8> {
        let mut numbers = Numbers(seed);
        let mut image = self.durable.clone();
        for line in self.lines.values() {
            let kept = match seed % 4 {
                0 => 0,
                1 => line.events.len(),
                _ => numbers.below(line.events.len() + 1),
            };
            for event in &line.events[..kept] {
                image[event.unit..event.unit + 8].copy_from_slice(&event.value.to_ne_bytes());
            }
        }
        image
    }
}

#[derive(Debug)]
struct State {
    base: usize,
    now: Moment,
    numbers: Numbers,
    lines_flushed: u64,
    fences: u64,
    sites: BTreeMap<Site, u64>,
    disabled: Option<Site>,
    record_every: u64,
    events: u64,
    moments: Vec<Moment>,
}

#[derive(Clone, Debug)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    fn over(region: &Region, now: Moment, disabled: Option<Site>) -> Self {
        Self(Arc::new(Mutex::new(State {
            base: region.base().addr(),
            now,
            numbers: Numbers(7),
            lines_flushed: 0,
            fences: 0,
            sites: BTreeMap::new(),
            disabled,
            record_every: 0,
            events: 0,
            moments: Vec::new(),
        })))
    }

    /// A new pool of `bytes` that cannot grow; the flush or fence at `disabled` does nothing.
    pub fn create(bytes: usize, disabled: Option<Site>) -> Arc<Pool<Self>> {
        let region = Region::anonymous(bytes, bytes).unwrap();
        let zero = vec![0; bytes];
        let now = Moment { visible: Vec::new(), durable: zero, lines: BTreeMap::new() };
        let machine = Self::over(&region, now, disabled);
        Arc::new(Pool::create(region, machine).unwrap())
    }

    /// The pool after a power cut.
    pub fn restart(image: &[u8], disabled: Option<Site>) -> Arc<Pool<Self>> {
        let now =
            Moment { visible: image.to_vec(), durable: image.to_vec(), lines: BTreeMap::new() };
        Self::resume(&now, disabled)
    }

    /// The pool after the death of the process alone: what was visible is visible still, and no
    /// more durable than it was.
    pub fn resume(moment: &Moment, disabled: Option<Site>) -> Arc<Pool<Self>> {
        let bytes = moment.visible.len();
        let region = Region::anonymous(bytes, bytes).unwrap();
        // SAFETY: the region has that many bytes and nobody else uses it.
        unsafe { region.base().copy_from_nonoverlapping(moment.visible.as_ptr(), bytes) };
        let mut now = moment.clone();
        now.visible = Vec::new();
        for line in now.lines.values_mut() {
            line.flushed = 0;
        }
        let machine = Self::over(&region, now, disabled);
        Arc::new(Pool::open(region, machine).unwrap())
    }

    /// Flushed lines and fences so far.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.lines_flushed, state.fences)
    }

    /// Where flushes and fences were made, in files whose path contains `part`.
    pub fn sites(&self, part: &str) -> Vec<Site> {
        self.0.lock().sites.keys().copied().filter(|(file, _)| file.contains(part)).collect()
    }

    /// From now on keeps every `nth` moment; none if zero.
    pub fn record_every(&self, nth: u64) {
        self.0.lock().record_every = nth;
    }

    pub fn take_moments(&self) -> Vec<Moment> {
        std::mem::take(&mut self.0.lock().moments)
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        self.0.lock().capture()
    }
}

impl State {
    fn capture(&self) -> Moment {
        let bytes = self.now.durable.len();
        // SAFETY: the region has that many bytes; the test runs on one thread.
        let visible = unsafe { std::slice::from_raw_parts(self.base as *const u8, bytes) };
        Moment { visible: visible.to_vec(), ..self.now.clone() }
    }

    fn tick(&mut self) {
        self.events += 1;
        if self.record_every > 0 && self.events.is_multiple_of(self.record_every) {
            let moment = self.capture();
            self.moments.push(moment);
        }
    }

    /// Notes the units of `[start, start + bytes)` as stored.
    fn stored(&mut self, start: usize, bytes: usize, ordered: bool, flushed: bool) {
        let first = (start - self.base) & !7;
        let end = start - self.base + bytes;
        for unit in (first..end).step_by(8) {
            // SAFETY: an aligned word inside the region.
            let value = unsafe { ((self.base + unit) as *const u64).read() };
            let line = self.now.lines.entry(unit / LINE_BYTES).or_default();
            // Stores that are not ordered go anywhere behind the last ordered one, the last one
            // to the same word, and what was flushed.
            let barrier = line
                .events
                .iter()
                .rposition(|event| event.ordered || event.unit == unit)
                .map_or(0, |at| at + 1)
                .max(line.flushed);
            let at = if ordered {
                line.events.len()
            } else {
                barrier + self.numbers.below(line.events.len() - barrier + 1)
            };
            line.events.insert(at, Event { unit, value, ordered });
            if flushed {
                line.flushed = line.events.len();
            }
        }
    }

    fn note_site(&mut self, caller: &'static Location<'static>) -> bool {
        let site = (caller.file(), caller.line());
        *self.sites.entry(site).or_default() += 1;
        self.disabled != Some(site)
    }
}

impl Observed for Machine {
    const DETERMINISTIC: bool = true;

    type DramWord<W: Word> = PlainWord<W>;
}

impl Domain for Machine {
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        W::load(at, order)
    }

    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        W::store(at, value, order);
        let mut state = self.0.lock();
        let ordered = order != Ordering::Relaxed;
        state.stored((&raw const *at).addr(), W::BYTES, ordered, false);
        state.tick();
    }

    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        let before = W::swap(at, value, Ordering::AcqRel);
        self.0.lock().stored((&raw const *at).addr(), W::BYTES, true, false);
        before
    }

    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        let before = W::compare_exchange(at, current, new)?;
        self.0.lock().stored((&raw const *at).addr(), W::BYTES, true, false);
        Ok(before)
    }

    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { destination.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        let mut state = self.0.lock();
        state.stored(destination.addr(), source.len(), false, false);
        state.tick();
    }

    #[track_caller]
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        let caller = Location::caller();
        // SAFETY: as the caller vouches.
        unsafe { destination.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        let mut state = self.0.lock();
        let enabled = state.note_site(caller);
        state.stored(destination.addr(), source.len(), false, enabled);
        state.tick();
    }

    #[track_caller]
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        let zeroes = vec![0; bytes];
        // SAFETY: as the caller vouches.
        unsafe { self.copy_nontemporal(destination, &zeroes) };
    }

    #[track_caller]
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        let caller = Location::caller();
        let mut state = self.0.lock();
        if bytes == 0 || !state.note_site(caller) {
            return;
        }
        let first = start.addr() - state.base;
        for line in first / LINE_BYTES..=(first + bytes - 1) / LINE_BYTES {
            state.lines_flushed += 1;
            if let Some(line) = state.now.lines.get_mut(&line) {
                line.flushed = line.events.len();
            }
        }
        state.tick();
    }

    #[track_caller]
    fn fence(&self) {
        let caller = Location::caller();
        let mut state = self.0.lock();
        if !state.note_site(caller) {
            return;
        }
        state.fences += 1;
        let now = &mut state.now;
        for line in now.lines.values_mut() {
            for event in line.events.drain(..std::mem::take(&mut line.flushed)) {
                now.durable[event.unit..event.unit + 8].copy_from_slice(&event.value.to_ne_bytes());
            }
        }
        now.lines.retain(|_, line| !line.events.is_empty());
        state.tick();
    }

    fn prefetch(&self, _at: *const u8) {}

    fn health(&self) -> Result<(), DomainFault> {
        Ok(())
    }
}
