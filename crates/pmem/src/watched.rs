//! This machine with somebody looking on: for tests that assert what an operation costs, or that
//! do something at the moment of a fence.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cell::PCell;
use crate::domain::{Domain, DomainFault, LINE_BYTES};
use crate::dram_cell::PlainWord;
use crate::hardware::Hardware;
use crate::observed::Observed;
use crate::word::Word;

/// Who looks on. Called by the thread that loads, flushes or fences, before it does.
pub trait Watcher: Clone + Debug + Send + Sync + 'static {
    /// What [`Observed::DETERMINISTIC`] is to be.
    const DETERMINISTIC: bool = true;

    /// A word is loaded, or a range of so many lines read.
    fn loading(&self, _reads: u64) {}

    /// A word is stored or exchanged, or a range written.
    fn storing(&self) {}

    /// Ordinary memory is read that a structure tells of ([`Observed::touch_dram`]).
    fn touching(&self) {}

    /// Something happens that does not happen in every run ([`Observed::happens`]).
    fn happening(&self) {}

    /// So many lines are flushed by one call.
    fn flushing(&self, _lines: u64) {}

    /// So many lines are stored to non-temporally by one call.
    fn streaming(&self, _lines: u64) {}

    /// A fence.
    fn fencing(&self) {}
}

/// [`Hardware`] that tells a [`Watcher`] what it is asked for. What it costs is what the watcher
/// costs.
///
/// ```
/// use lapis_pmem::{PCell, PersistCounts, Pool, Region, Watched};
///
/// let counts = PersistCounts::default();
/// let region = Region::anonymous(1 << 20, 1 << 20)?;
/// let pool = Pool::create(region, Watched::new(counts.clone()))?;
/// // The first block of a size has the allocator make a slab.
/// drop(pool.allocate::<PCell<u64>>()?);
/// counts.take();
/// let block = pool.allocate::<PCell<u64>>()?;
/// block.store(pool.domain(), 7);
/// let block = pool.fence(block.flush());
/// assert_eq!(counts.take(), (1, 1));
/// # drop(block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watched<T> {
    hardware: Hardware,
    watcher: T,
}

impl<T: Watcher> Watched<T> {
    /// This machine, watched.
    pub fn new(watcher: T) -> Self {
        Self { hardware: Hardware::detect(), watcher }
    }

    /// Who looks on.
    pub fn watcher(&self) -> &T {
        &self.watcher
    }
}

fn lines(start: *const u8, bytes: usize) -> u64 {
    ((start.addr() + bytes).div_ceil(LINE_BYTES) - start.addr() / LINE_BYTES) as u64
}

impl<T: Watcher> Observed for Watched<T> {
    const DETERMINISTIC: bool = T::DETERMINISTIC;

    type DramWord<W: Word> = PlainWord<W>;

    fn note_read(&self, source: *const u8, bytes: usize) {
        self.watcher.loading(lines(source, bytes));
    }

    fn touch_dram(&self, _offset_bytes: usize, _bytes: usize) {
        self.watcher.touching();
    }

    fn happens(&self, _event: &'static str) {
        self.watcher.happening();
    }
}

impl<T: Watcher> Domain for Watched<T> {
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        self.watcher.loading(1);
        self.hardware.load::<W>(at, order)
    }

    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        self.watcher.storing();
        self.hardware.store::<W>(at, value, order);
    }

    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        self.watcher.storing();
        self.hardware.swap::<W>(at, value)
    }

    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        self.watcher.storing();
        self.hardware.compare_exchange::<W>(at, current, new)
    }

    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        self.watcher.storing();
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy(destination, source) };
    }

    #[track_caller]
    fn lock_released(&self, lock: &PCell<u64>) {
        self.hardware.lock_released(lock);
    }

    #[track_caller]
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        self.watcher.streaming(lines(destination, source.len()));
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy_nontemporal(destination, source) };
    }

    #[track_caller]
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        self.watcher.streaming(lines(destination, bytes));
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.zero_nontemporal(destination, bytes) };
    }

    #[track_caller]
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        self.watcher.flushing(lines(start, bytes));
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.flush_range(start, bytes) };
    }

    #[track_caller]
    fn fence(&self) {
        self.watcher.fencing();
        self.hardware.fence();
    }

    fn prefetch(&self, at: *const u8) {
        self.hardware.prefetch(at);
    }

    fn health(&self) -> Result<(), DomainFault> {
        self.hardware.health()
    }
}

/// A [`Watcher`] that counts, for all threads together. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct PersistCounts {
    counts: Arc<[AtomicU64; 4]>,
}

impl PersistCounts {
    /// Words loaded and lines read.
    pub fn loads(&self) -> u64 {
        self.counts[0].load(Ordering::Relaxed)
    }

    /// Lines flushed.
    pub fn flushes(&self) -> u64 {
        self.counts[1].load(Ordering::Relaxed)
    }

    /// Lines stored to non-temporally.
    pub fn streamed(&self) -> u64 {
        self.counts[3].load(Ordering::Relaxed)
    }

    /// Fences.
    pub fn fences(&self) -> u64 {
        self.counts[2].load(Ordering::Relaxed)
    }

    /// Flushes and fences since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.counts[1].swap(0, Ordering::Relaxed), self.counts[2].swap(0, Ordering::Relaxed))
    }
}

impl Watcher for PersistCounts {
    fn loading(&self, reads: u64) {
        self.counts[0].fetch_add(reads, Ordering::Relaxed);
    }

    fn flushing(&self, lines: u64) {
        self.counts[1].fetch_add(lines, Ordering::Relaxed);
    }

    fn streaming(&self, lines: u64) {
        self.counts[3].fetch_add(lines, Ordering::Relaxed);
    }

    fn fencing(&self) {
        self.counts[2].fetch_add(1, Ordering::Relaxed);
    }
}

/// Two who look on, one after the other.
impl<A: Watcher, B: Watcher> Watcher for (A, B) {
    const DETERMINISTIC: bool = A::DETERMINISTIC && B::DETERMINISTIC;

    fn loading(&self, reads: u64) {
        self.0.loading(reads);
        self.1.loading(reads);
    }

    fn storing(&self) {
        self.0.storing();
        self.1.storing();
    }

    fn touching(&self) {
        self.0.touching();
        self.1.touching();
    }

    fn happening(&self) {
        self.0.happening();
        self.1.happening();
    }

    fn flushing(&self, lines: u64) {
        self.0.flushing(lines);
        self.1.flushing(lines);
    }

    fn streaming(&self, lines: u64) {
        self.0.streaming(lines);
        self.1.streaming(lines);
    }

    fn fencing(&self) {
        self.0.fencing();
        self.1.fencing();
    }
}
