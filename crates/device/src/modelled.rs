//! [`Modelled`]: the domain whose every call is an event of the model.
//!
//! Memory is real memory of the host; the model knows where the region lies and turns addresses
//! into offsets. One mutex makes each event and its memory access one step, so the trace is in the
//! order in which stores became visible. Words outside of the region (a cell on the stack) are
//! DRAM: they are accessed and otherwise none of the model's business. Flushing them is a
//! programming error and panics.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_pmem::{Domain, DomainFault, LINE_BYTES, LockGeneration, Mutant, Omission, Region, Word};
use parking_lot::Mutex;

use crate::counters::{Counters, Counts, MachineShape};
use crate::persist_points::{PersistKind, PersistPoint, PersistPointCount, PersistPoints};
use crate::read_watch::{LineRead, ReadWatch};
use crate::scheduler::{Interleaving, is_scheduled};
use crate::timing::TimingShape;
use crate::trace::{Event, Marker, Trace, unit_value, units};
use crate::tracking::Tracking;
use crate::worker::current_worker;

/// The model covers this much of a region: line numbers have 31 bits.
pub const MODELLED_BYTES_LIMIT: usize = LINE_BYTES << 31;

/// What a [`Modelled`] observes.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Record a [`Trace`] from the start. [`Modelled::set_tracing`] switches later.
    pub tracing: bool,
    /// Keep what dirtied lines held before, for [`Modelled::revert`].
    pub tracking: bool,
    /// Notice which bytes of given lines are read: [`Modelled::watch_reads`].
    pub watching: bool,
    /// Count what happens on a machine of this shape. Counting costs a lock per load.
    pub counting: Option<MachineShape>,
    /// Further delays to keep clocks with while counting ([`Modelled::all_now`]): what the same
    /// program takes on machines that differ in nothing else.
    pub other_timings: Vec<TimingShape>,
    /// A flush or fence that is not performed (no guarantee, no count), or a non-temporal copy
    /// that is done with ordinary stores and no flush. Host memory is ordered all the same.
    pub suppress: Option<PersistPoint>,
    /// A known error that structures are to commit.
    pub mutant: Option<Mutant>,
    /// Made for [`Modelled::run_workers`]: several workers, each with a store buffer.
    pub concurrent: bool,
}

impl Config {
    /// Counts, on a machine of the default shape.
    pub fn counting() -> Self {
        Self { counting: Some(MachineShape::default()), ..Self::default() }
    }

    /// Records a trace, for crash exploration.
    pub fn tracing() -> Self {
        Self { tracing: true, ..Self::default() }
    }

    /// Tracks dirtied lines, nothing else: for recoveries on crash images.
    pub fn tracking() -> Self {
        Self { tracking: true, ..Self::default() }
    }

    /// Tracks dirtied lines and records a trace: for crashes during recovery.
    pub fn tracking_and_tracing() -> Self {
        Self { tracing: true, tracking: true, ..Self::default() }
    }

    /// Records a trace of several workers.
    pub fn concurrent() -> Self {
        Self { concurrent: true, ..Self::tracing() }
    }

    /// The same with one persist point switched off.
    pub fn suppressing(self, point: PersistPoint) -> Self {
        Self { suppress: Some(point), ..self }
    }

    /// The same with one known error committed.
    pub fn committing(self, mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..self }
    }
}

/// The modelled machine over one region. Clones are handles of one machine. See the
/// [crate documentation](crate).
#[derive(Clone)]
pub struct Modelled {
    machine: Arc<Machine>,
}

struct Machine {
    base: usize,
    /// Length that is modelled.
    bytes: usize,
    reserved_bytes: usize,
    counts_loads: bool,
    /// Whether the counters see nothing for now.
    rests: AtomicBool,
    /// Whether loads are anybody's business: they are counted or watched.
    observes_loads: bool,
    /// Whether they are watched, if at all, and nothing else happens at a load.
    only_watches_loads: bool,
    watch: Option<ReadWatch>,
    interleaving: Option<Box<Interleaving>>,
    mutant: Option<Mutant>,
    state: Mutex<State>,
}

struct State {
    /// Start of the region; kept as a pointer for its provenance.
    base: *const u8,
    tracking: Option<Tracking>,
    tracing: bool,
    events: Vec<Event>,
    counters: Option<Box<Counters>>,
    /// The counters, while they see nothing.
    resting: Option<Box<Counters>>,
    points: PersistPoints,
}

// SAFETY: `base` is only read through while a caller of a domain method vouches for the memory.
unsafe impl Send for State {}

impl fmt::Debug for Modelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Modelled({} bytes)", self.machine.bytes)
    }
}

impl Modelled {
    /// The modelled machine whose persistent memory is `region`, up to the length the region can
    /// grow to. The region outlives all accesses through the domain, as it must on any domain.
    pub fn over(region: &Region, config: Config) -> Self {
        let base = region.base();
        let reserved_bytes = region.reserved_bytes();
        let counters = config
            .counting
            .map(|shape| Box::new(Counters::with_timings(shape, &config.other_timings)));
        Self {
            machine: Arc::new(Machine {
                base: base.addr(),
                bytes: reserved_bytes.min(MODELLED_BYTES_LIMIT),
                reserved_bytes,
                counts_loads: config.counting.is_some(),
                rests: AtomicBool::new(false),
                observes_loads: config.counting.is_some() || config.watching,
                only_watches_loads: config.counting.is_none() && !config.concurrent,
                watch: config.watching.then(|| ReadWatch::over(reserved_bytes)),
                interleaving: config.concurrent.then(Box::default),
                mutant: config.mutant,
                state: Mutex::new(State {
                    base,
                    tracking: config.tracking.then(Tracking::default),
                    tracing: config.tracing,
                    events: Vec::new(),
                    counters,
                    resting: None,
                    points: PersistPoints::new(config.suppress),
                }),
            }),
        }
    }

    /// Notes something in the trace.
    pub fn mark(&self, marker: Marker) {
        if let Some(interleaving) = self.interleaving() {
            return self.buffer_mark(interleaving, marker);
        }
        self.mark_now(marker);
    }

    pub(crate) fn mark_now(&self, marker: Marker) {
        let mut state = self.machine.state.lock();
        if state.tracing {
            state.events.push(Event::Marker { worker: current_worker(), marker });
        }
    }

    /// Switches the recording of the trace on or off. What happened while it was off counts as
    /// durable for the crash points of what is recorded later.
    pub fn set_tracing(&self, on: bool) {
        self.machine.state.lock().tracing = on;
    }

    /// Takes what has been recorded; recording goes on with an empty trace.
    pub fn take_trace(&self) -> Trace {
        let mut state = self.machine.state.lock();
        Trace { events: std::mem::take(&mut state.events), points: state.points.points() }
    }

    /// Events recorded since the last [`Modelled::take_trace`].
    pub fn traced_events(&self) -> usize {
        self.machine.state.lock().events.len()
    }

    /// What has been counted so far; zeroes unless [`Config::counting`].
    pub fn counts(&self) -> Counts {
        self.with_counters(Counters::counts).unwrap_or_default()
    }

    /// Lets the counters see nothing until this is called with `true`: for filling a structure at
    /// several times the speed before counting begins. Caches and clocks stay as they are meanwhile, so
    /// whoever goes on counting warms them first. Nothing unless [`Config::counting`].
    pub fn set_counting(&self, on: bool) {
        let mut state = self.machine.state.lock();
        let (from, to) = {
            let State { counters, resting, .. } = &mut *state;
            if on { (resting, counters) } else { (counters, resting) }
        };
        if let Some(counters) = from.take() {
            *to = Some(counters);
        }
        self.machine.rests.store(!on, Ordering::Relaxed);
    }

    /// Writes what the XPLine buffers hold to the media, as the end of a measurement that is to
    /// account for every write. Dirty lines stay in the cache.
    pub fn drain(&self) {
        self.with_counters(Counters::drain);
    }

    /// Every persist point passed so far, in the order of their first passing.
    pub fn persist_points(&self) -> Vec<PersistPointCount> {
        self.machine.state.lock().points.counts()
    }

    /// Lines dirtied since the last [`Modelled::revert`], with what they held before; none unless
    /// [`Config::tracking`].
    pub fn dirtied(&self) -> Vec<(u32, [u8; LINE_BYTES])> {
        let state = self.machine.state.lock();
        let lines = state.tracking.iter().flat_map(Tracking::lines);
        lines.map(|(line, before)| (line, *before)).collect()
    }

    /// Puts every line dirtied since the last revert back to what it held, and drops the trace
    /// recorded meanwhile. Returns how many lines that were. Costs time in proportion to them.
    ///
    /// # Panics
    /// If `region` is not the one of this machine.
    pub fn revert(&self, region: &mut Region) -> usize {
        assert_eq!(region.base().addr(), self.machine.base, "reverting another region");
        let mut state = self.machine.state.lock();
        state.events.clear();
        let Some(tracking) = &mut state.tracking else { return 0 };
        let count = tracking.len();
        for (line, before) in tracking.lines() {
            let offset = line as usize * LINE_BYTES;
            // Lines beyond were mapped by an alias of the region and are gone with it or blank.
            if offset + LINE_BYTES <= region.mapped_bytes() {
                // SAFETY: inside mapped memory of the region, which is borrowed exclusively.
                unsafe { region.base().add(offset).cast::<[u8; LINE_BYTES]>().write(*before) };
            }
        }
        tracking.clear();
        count
    }

    /// Watches the reads of these lines, which are in ascending order, instead of those watched
    /// before. Nothing unless [`Config::watching`].
    pub fn watch_reads(&self, lines: impl IntoIterator<Item = u32>) {
        if let Some(watch) = &self.machine.watch {
            watch.watch(lines.into_iter());
        }
    }

    /// How many entries [`Modelled::take_reads`] would give.
    pub fn read_count(&self) -> usize {
        self.machine.watch.as_ref().map_or(0, ReadWatch::count)
    }

    /// Takes what has been read of the watched lines since they were named or this was last called,
    /// in order: each byte once, and only if it was not written before it was read.
    pub fn take_reads(&self, reads: &mut Vec<LineRead>) {
        reads.clear();
        if let Some(watch) = &self.machine.watch {
            watch.take(reads);
        }
    }

    #[inline(always)]
    fn watch_written(&self, offset: usize, bytes: usize) {
        if let Some(watch) = &self.machine.watch {
            watch.written(offset, bytes);
        }
    }

    #[inline(always)]
    fn watch_read(&self, address: usize, bytes: usize) {
        if let Some(watch) = &self.machine.watch {
            // Addresses outside wrap around to offsets beyond every line.
            let offset = address.wrapping_sub(self.machine.base);
            if offset < self.machine.bytes {
                watch.read(offset, bytes);
            }
        }
    }

    pub(crate) fn scheduler(&self) -> Option<&Interleaving> {
        self.machine.interleaving.as_deref()
    }

    /// The scheduler, if the calling thread is one of its workers.
    #[inline(always)]
    fn interleaving(&self) -> Option<&Interleaving> {
        self.machine.interleaving.as_deref().filter(|_| is_scheduled())
    }

    /// Counts reads of the region; others are DRAM's.
    #[inline(never)]
    fn count_reads(&self, address: usize, count: impl FnOnce(&mut Counters, u8, usize)) {
        if self.machine.rests.load(Ordering::Relaxed) {
            return;
        }
        // The host's own miss, if it is one, goes on while the model works.
        crate::host::prefetch(std::ptr::without_provenance(address));
        if let Some(offset) = self.offset(address)
            && let Some(counters) = &mut self.machine.state.lock().counters
        {
            count(counters, current_worker(), offset);
        }
    }

    /// The host's own miss, if it is one, goes on while the lock is taken and the model works.
    #[inline(always)]
    fn prefetch_counted<W: Word>(&self, at: &W::Atomic) {
        if self.machine.counts_loads {
            crate::host::prefetch(std::ptr::from_ref(at).cast());
        }
    }

    /// Lets `look` at the counters; none unless [`Config::counting`].
    pub(crate) fn with_counters<T>(&self, look: impl FnOnce(&mut Counters) -> T) -> Option<T> {
        let mut state = self.machine.state.lock();
        let State { counters, resting, .. } = &mut *state;
        counters.as_deref_mut().or(resting.as_deref_mut()).map(look)
    }

    /// Offset of an address; `None` if it is not in the region.
    #[inline(always)]
    fn offset(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.machine.base);
        if offset < self.machine.bytes {
            return Some(offset);
        }
        self.outside(offset)
    }

    #[cold]
    fn outside(&self, offset: usize) -> Option<usize> {
        assert!(
            offset >= self.machine.reserved_bytes,
            "the model covers the first {MODELLED_BYTES_LIMIT} bytes of a region, not {offset:#x}"
        );
        None
    }

    #[inline(always)]
    fn atomic_offset<A>(&self, at: &A) -> Option<usize> {
        self.offset(std::ptr::from_ref(at).addr())
    }

    /// Offset of a whole range.
    #[track_caller]
    fn range_offset(&self, start: *const u8, bytes: usize) -> usize {
        match self.offset(start.addr()) {
            Some(offset) if bytes <= self.machine.bytes - offset => offset,
            _ => panic!("a persistent access of {bytes} bytes at {start:p}, outside of the region"),
        }
    }
}

impl State {
    #[inline(always)]
    fn touch(&mut self, offset: usize) {
        if let Some(tracking) = &mut self.tracking {
            let line = offset / LINE_BYTES;
            // SAFETY: the caller of the domain's store vouches that a byte of the line is mapped,
            // and so is the whole line; stores to the region happen under the mutex.
            unsafe { tracking.touch(line as u32, self.base.add(line * LINE_BYTES)) };
        }
    }

    /// A word is about to be stored.
    #[inline(always)]
    fn before_word<W: Word>(&mut self, offset: usize, value: W, event: WordEvent) {
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
    fn before_range(&mut self, offset: usize, source: Source<'_>, nontemporal: bool) {
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

/// Whether what takes effect now is left out. What leaves a store buffer is not: that was decided
/// when it was executed, perhaps by another thread than the one that lets it leave.
fn is_left_out() -> bool {
    Omission::is_in_force() && !is_scheduled()
}

#[derive(Clone, Copy)]
enum WordEvent {
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
    unsafe fn write(self, destination: *mut u8) {
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

impl Modelled {
    /// # Safety
    /// As for [`Domain::copy_nontemporal`].
    unsafe fn fill_nontemporal(
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

    /// Whether a flush, fence or non-temporal copy is not performed.
    fn omits(&self, caller: &'static Location<'static>, kind: PersistKind) -> bool {
        Omission::is_in_force() || self.machine.state.lock().points.suppresses(caller, kind)
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
            let lines = offset / LINE_BYTES..=(offset + bytes - 1) / LINE_BYTES;
            state.events.extend(lines.map(|line| Event::Flush {
                worker,
                point,
                line: line as u32,
            }));
        }
        if let Some(counters) = &mut state.counters {
            counters.flush(current_worker(), offset, bytes);
        }
    }

    pub(crate) fn fence_now(&self, caller: &'static Location<'static>) {
        let mut state = self.machine.state.lock();
        // The mutex orders host memory, whether or not the model sees the fence.
        let Some(point) = state.points.pass(caller, PersistKind::Fence) else { return };
        if is_left_out() {
            return;
        }
        if state.tracing {
            state.events.push(Event::Fence { worker: current_worker(), point });
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

impl Domain for Modelled {
    const DETERMINISTIC: bool = true;

    #[inline]
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        let machine = &*self.machine;
        if machine.only_watches_loads {
            let offset = std::ptr::from_ref(at).addr().wrapping_sub(machine.base);
            if let Some(watch) = &machine.watch
                && watch.is_watched(offset / LINE_BYTES)
            {
                watch.read(offset, W::BYTES);
            }
            return W::load(at, order);
        }
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

    #[inline]
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        let Some(offset) = self.atomic_offset(at) else {
            return W::store(at, value, order);
        };
        self.watch_written(offset, W::BYTES);
        if let Some(interleaving) = self.interleaving() {
            return self.buffer_word::<W>(interleaving, offset, at, value, order);
        }
        self.store_now::<W>(offset, at, value, order);
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
        // Stores to the region happen under the mutex, so this decides the exchange. One that
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

    #[track_caller]
    fn fence(&self) {
        let caller = Location::caller();
        match self.interleaving() {
            None => self.fence_now(caller),
            Some(_) if self.omits(caller, PersistKind::Fence) => {}
            Some(interleaving) => self.buffer_fence(interleaving, caller),
        }
    }

    fn pause(&self) {
        match self.interleaving() {
            Some(interleaving) => self.turn(interleaving, true),
            None => std::hint::spin_loop(),
        }
    }

    fn synchronize(&self) {
        if let Some(interleaving) = self.interleaving() {
            self.empty_buffer(interleaving);
        }
    }

    #[inline]
    fn prefetches(&self) -> bool {
        self.machine.counts_loads
    }

    #[inline]
    fn prefetch(&self, at: *const u8) {
        if self.machine.counts_loads {
            self.count_reads(at.addr(), Counters::prefetch);
        }
    }

    #[inline]
    fn touch_dram(&self, offset_bytes: usize, bytes: usize) {
        if self.machine.counts_loads
            && !self.machine.rests.load(Ordering::Relaxed)
            && let Some(counters) = &mut self.machine.state.lock().counters
        {
            counters.read_dram(current_worker(), offset_bytes, bytes);
        }
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

    fn note_generation(&self, generation: LockGeneration) {
        if let Some(watch) = &self.machine.watch {
            watch.generation(generation);
        }
    }

    #[inline]
    fn commits(&self, mutant: Mutant) -> bool {
        self.machine.mutant == Some(mutant)
    }

    fn health(&self) -> Result<(), DomainFault> {
        Ok(())
    }
}
