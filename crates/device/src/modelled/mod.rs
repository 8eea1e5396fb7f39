//! [`Modelled`]: the domain whose every call is an event of the model.
//!
//! Memory is real memory of the host; the model knows where the region lies and turns addresses
//! into offsets. One lock makes each event and its memory access one step, so the trace is in the
//! order in which stores became visible. Words outside of the region (a cell on the stack) are
//! DRAM: they are accessed and otherwise none of the model's business. Flushing them is a
//! programming error and panics.

mod buffered;
mod config;
mod devices;
pub(crate) mod dirtied_lines;
mod domain;
mod dram;
mod effects;
pub(crate) mod persist_points;
pub(crate) mod read_watch;
mod state;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_pmem::{LINE_BYTES, Mutant, Optimisations, OwnerLock, Region, Word};
use parking_lot::Mutex;

pub use self::config::Config;
pub use self::dram::ModelledWord;
use self::state::State;

use crate::counting::counters::{Counters, Counts};
use crate::counting::hierarchy::DRAM_FIRST_LINE;
use crate::crash_states::bytes_of_line::{BytesOfLine, differing_bytes};
use crate::modelled::dirtied_lines::DirtiedLines;
use crate::modelled::persist_points::{PersistPointCount, PersistPoints};
use crate::modelled::read_watch::{LineRead, ReadWatch};
use crate::scheduler::worker::current_worker;
use crate::scheduler::{Interleaving, is_scheduled};
use crate::trace::{Event, Marker, Trace};

/// The model covers this much of a region, 64 GiB: line numbers have 31 bits in the caches, and the upper half of them
/// stand for ordinary memory.
pub const MODELLED_BYTES_LIMIT: usize = LINE_BYTES * DRAM_FIRST_LINE as usize;

/// The modelled machine over one region. Clones are handles of one machine. See the
/// [crate documentation](crate).
#[derive(Clone)]
pub struct Modelled {
    machine: Arc<Machine>,
}

/// How often something has happened that a structure tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructuralEvent {
    /// How often.
    pub count: u64,
    /// After how many events of the trace for the first time.
    pub first: usize,
}

struct Machine {
    base: usize,
    /// Length that is modelled.
    bytes: usize,
    reserved_bytes: usize,
    counts_loads: bool,
    optimisations: Optimisations,
    /// Whether the counters see nothing for now.
    rests: AtomicBool,
    /// Whether loads are anybody's business: they are counted or watched.
    observes_loads: bool,
    /// Whether only the watched ones are, and nothing else happens at a load. Not while lines are
    /// logged.
    only_watches_loads: AtomicBool,
    watch: Option<ReadWatch>,
    interleaving: Option<Box<Interleaving>>,
    mutant: Option<Mutant>,
    /// Whether the caches hold what a process that died has stored.
    same_boot: AtomicBool,
    /// How often what happened that structures tell of.
    happened: Mutex<BTreeMap<&'static str, StructuralEvent>>,
    state: OwnerLock<State>,
}

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
                optimisations: config.optimisations,
                rests: AtomicBool::new(false),
                observes_loads: config.counting.is_some() || config.watching,
                only_watches_loads: AtomicBool::new(
                    config.counting.is_none() && !config.concurrent,
                ),
                watch: config.watching.then(|| ReadWatch::over(reserved_bytes)),
                interleaving: config.concurrent.then(Box::default),
                mutant: config.mutant,
                same_boot: AtomicBool::new(false),
                happened: Mutex::default(),
                state: OwnerLock::new(State {
                    base,
                    tracking: config.tracking.then(DirtiedLines::default),
                    tracing: config.tracing,
                    trace: Trace::default(),
                    counters,
                    resting: None,
                    points: PersistPoints::new(config.suppress),
                    clocks: Vec::new(),
                    devices: 0,
                    clock_resets: 0,
                }),
            }),
        }
    }

    /// Says whether pools are opened on the boot of the machine on which the process before died, so that they
    /// write back what it has stored.
    pub fn set_same_boot(&self, is_same: bool) {
        self.machine.same_boot.store(is_same, Ordering::Relaxed);
    }

    /// Notes something in the trace.
    pub fn mark(&self, marker: Marker) {
        if let Some(interleaving) = self.interleaving() {
            return self.buffer_mark(interleaving, marker);
        }
        self.mark_now(marker);
    }

    pub(crate) fn mark_now(&self, marker: Marker) {
        self.record(|trace, worker| trace.events.push(Event::Marker { worker, marker }));
    }

    /// Switches the recording of the trace on or off. What happened while it was off counts as
    /// durable for the crash points of what is recorded later.
    pub fn set_tracing(&self, on: bool) {
        self.machine.state.lock().tracing = on;
    }

    /// Takes what has been recorded; recording goes on with an empty trace.
    pub fn take_trace(&self) -> Trace {
        let mut state = self.machine.state.lock();
        let points = state.points.points();
        state.trace.take(points)
    }

    /// Events recorded since the last [`Modelled::take_trace`].
    pub fn traced_events(&self) -> usize {
        self.machine.state.lock().trace.events.len()
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

    /// What has happened that structures tell of ([`Observed::happens`](
    /// lapis_pmem::Observed::happens)), by name.
    pub fn events(&self) -> BTreeMap<&'static str, StructuralEvent> {
        self.machine.happened.lock().clone()
    }

    /// Lines dirtied since the last [`Modelled::revert`], with what they held before; none unless
    /// [`Config::tracking`].
    pub fn dirtied(&self) -> Vec<(u32, [u8; LINE_BYTES])> {
        let state = self.machine.state.lock();
        let lines = state.tracking.iter().flat_map(DirtiedLines::lines);
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
        state.trace.clear_events();
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

    /// Logs every read from here on, of watched lines or not, or no longer. Nothing unless
    /// [`Config::watching`].
    pub fn set_read_log(&self, on: bool) {
        let machine = &*self.machine;
        if let Some(watch) = &machine.watch {
            watch.set_read_log(on);
            let otherwise = machine.counts_loads || machine.interleaving.is_some();
            machine.only_watches_loads.store(!on && !otherwise, Ordering::Relaxed);
        }
    }

    /// Appends what was logged since this was last called, in order.
    pub fn take_read_log(&self, reads: &mut Vec<BytesOfLine>) {
        if let Some(watch) = &self.machine.watch {
            watch.take_read_log(reads);
        }
    }

    /// Says that these bytes count as read, as if they had been loaded now.
    pub fn note_read_of(&self, read: BytesOfLine) {
        if let Some(watch) = &self.machine.watch {
            watch.note_read(read);
        }
    }

    /// Tells of the lines dirtied since the last [`Modelled::revert`] and the bytes in which they
    /// differ from what they held before. Nothing unless [`Config::tracking`].
    pub fn for_each_dirtied(&self, mut visit: impl FnMut(BytesOfLine)) {
        let state = self.machine.state.lock();
        for (line, before) in state.tracking.iter().flat_map(DirtiedLines::lines) {
            // SAFETY: the line was stored to through this domain, so it is mapped as long as the
            // region is, which outlives all accesses; stores happen under the mutex.
            let now = unsafe {
                state.base.add(line as usize * LINE_BYTES).cast::<[u8; LINE_BYTES]>().read()
            };
            visit(BytesOfLine { line, bytes: differing_bytes(before, &now) });
        }
    }

    /// How many lines have been dirtied since the last [`Modelled::revert`].
    pub fn dirtied_count(&self) -> usize {
        self.machine.state.lock().tracking.as_ref().map_or(0, DirtiedLines::len)
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

    /// Lets the stores of the calling worker become visible, as a locked instruction does.
    #[inline]
    fn empty_own_buffer(&self) {
        if let Some(interleaving) = self.interleaving() {
            self.empty_buffer(interleaving);
        }
    }

    /// Counts reads of the region; others are DRAM's.
    #[inline(never)]
    fn count_reads(&self, address: usize, count: impl FnOnce(&mut Counters, u8, usize)) {
        if self.machine.rests.load(Ordering::Relaxed) {
            return;
        }
        // The host's own miss, if it is one, goes on while the model works.
        crate::counting::host_processor::prefetch(std::ptr::without_provenance(address));
        if let Some(offset) = self.offset(address)
            && let Some(counters) = &mut self.machine.state.lock().counters
        {
            count(counters, current_worker(), offset);
        }
    }

    /// Counts reads of ordinary memory that a structure tells of.
    #[inline]
    fn count_dram(&self, count: impl FnOnce(&mut Counters, u8)) {
        if self.machine.counts_loads
            && !self.machine.rests.load(Ordering::Relaxed)
            && let Some(counters) = &mut self.machine.state.lock().counters
        {
            count(counters, current_worker());
        }
    }

    /// The host's own miss, if it is one, goes on while the lock is taken and the model works.
    #[inline(always)]
    fn prefetch_counted<W: Word>(&self, at: &W::Atomic) {
        if self.machine.counts_loads {
            crate::counting::host_processor::prefetch(std::ptr::from_ref(at).cast());
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
