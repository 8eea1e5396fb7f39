//! Machines for the tests: one that counts, one that can be made to stall.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use lapis_pmem::{Domain, DomainFault, Hardware, Pool, Region, Word};

/// What a [`Watched`] machine does at a flush and at a fence.
pub trait Watcher: Clone + std::fmt::Debug + Default + Send + Sync + 'static {
    fn flushed(&self, lines: u64);
    fn fenced(&self);
}

/// Hardware that is watched.
#[derive(Clone, Debug)]
pub struct Watched<T> {
    hardware: Hardware,
    pub watcher: T,
}

/// A pool on a watched machine.
pub fn watched_pool<T: Watcher>(bytes: usize) -> Arc<Pool<Watched<T>>> {
    let region = Region::anonymous(bytes, 1 << 30).unwrap();
    let domain = Watched { hardware: Hardware::detect(), watcher: T::default() };
    Arc::new(Pool::create(region, domain).unwrap())
}

impl<T: Watcher> Domain for Watched<T> {
    const DETERMINISTIC: bool = false;
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        self.hardware.load::<W>(at, order)
    }
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        self.hardware.store::<W>(at, value, order);
    }
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        self.hardware.swap::<W>(at, value)
    }
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        self.hardware.compare_exchange::<W>(at, current, new)
    }
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: the caller vouches for the destination.
        unsafe { self.hardware.copy(destination, source) };
    }
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as above.
        unsafe { self.hardware.copy_nontemporal(destination, source) };
    }
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as above.
        unsafe { self.hardware.zero_nontemporal(destination, bytes) };
    }
    fn note_read(&self, source: *const u8, bytes: usize) {
        self.hardware.note_read(source, bytes);
    }
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        let lines = (start.addr() + bytes).div_ceil(64) - start.addr() / 64;
        self.watcher.flushed(lines as u64);
        // SAFETY: the caller vouches for the range.
        unsafe { self.hardware.flush_range(start, bytes) };
    }
    fn fence(&self) {
        self.watcher.fenced();
        self.hardware.fence();
    }
    fn prefetch(&self, at: *const u8) {
        self.hardware.prefetch(at);
    }
    fn health(&self) -> Result<(), DomainFault> {
        self.hardware.health()
    }
}

/// Counts flushed lines and fences.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    counts: Arc<[AtomicU64; 2]>,
}

impl Counts {
    /// Flushed lines and fences so far.
    pub fn read(&self) -> (u64, u64) {
        (self.counts[0].load(Ordering::Relaxed), self.counts[1].load(Ordering::Relaxed))
    }
}

impl Watcher for Counts {
    fn flushed(&self, lines: u64) {
        self.counts[0].fetch_add(lines, Ordering::Relaxed);
    }
    fn fenced(&self) {
        self.counts[1].fetch_add(1, Ordering::Relaxed);
    }
}

impl<A: Watcher, B: Watcher> Watcher for (A, B) {
    fn flushed(&self, lines: u64) {
        self.0.flushed(lines);
        self.1.flushed(lines);
    }
    fn fenced(&self) {
        self.0.fenced();
        self.1.fenced();
    }
}

thread_local! {
    static STALLS: Cell<bool> = const { Cell::new(false) };
}

/// Where a stalled thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Shut,
    /// Somebody stands before it.
    Waiting,
    Open,
}

/// Makes threads that asked for it stop at their next fence until the gate opens.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

impl Stall {
    /// From here on the calling thread stops at fences while the gate is shut.
    pub fn this_thread(&self) {
        STALLS.set(true);
    }

    /// Waits until a thread has stopped.
    pub fn wait_for_one(&self) {
        let (gate, changed) = &*self.gate;
        drop(changed.wait_while(gate.lock().unwrap(), |gate| *gate != Gate::Waiting).unwrap());
    }

    /// Lets everybody go on.
    pub fn open(&self) {
        *self.gate.0.lock().unwrap() = Gate::Open;
        self.gate.1.notify_all();
    }
}

impl Watcher for Stall {
    fn flushed(&self, _lines: u64) {}
    fn fenced(&self) {
        if !STALLS.get() {
            return;
        }
        let (gate, changed) = &*self.gate;
        let mut state = gate.lock().unwrap();
        while *state != Gate::Open {
            *state = Gate::Waiting;
            changed.notify_all();
            state = changed.wait(state).unwrap();
        }
    }
}
