//! A machine that counts what it is asked to do and can be interrupted at each fence.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lapis_pmem::{Domain, DomainFault, Hardware, LINE_BYTES, Pool, Region, Word};

type Hook = Arc<dyn Fn() + Send + Sync>;

/// Flushes and fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `flush_range`.
    pub flushes: u64,
    /// Lines that they covered.
    pub lines: u64,
    /// Fences.
    pub fences: u64,
}

#[derive(Default)]
struct State {
    flushes: AtomicU64,
    lines: AtomicU64,
    fences: AtomicU64,
    before_fence: Mutex<Option<Hook>>,
}

/// The machine at hand, watched.
#[derive(Clone)]
pub struct Watched {
    hardware: Hardware,
    state: Arc<State>,
}

impl Watched {
    /// A pool of `bytes` in anonymous memory on a watched machine.
    pub fn pool(bytes: usize) -> Arc<Pool<Self>> {
        let region = Region::anonymous(bytes, bytes.max(256 << 20)).unwrap();
        let domain = Self { hardware: Hardware::detect(), state: Arc::default() };
        Arc::new(Pool::create(region, domain).unwrap())
    }

    /// What `action` costs.
    pub fn counting<R>(&self, action: impl FnOnce() -> R) -> (R, Counts) {
        let before = self.counts();
        let result = action();
        let after = self.counts();
        let counts = Counts {
            flushes: after.flushes - before.flushes,
            lines: after.lines - before.lines,
            fences: after.fences - before.fences,
        };
        (result, counts)
    }

    fn counts(&self) -> Counts {
        Counts {
            flushes: self.state.flushes.load(Ordering::SeqCst),
            lines: self.state.lines.load(Ordering::SeqCst),
            fences: self.state.fences.load(Ordering::SeqCst),
        }
    }

    /// Has `hook` called before each fence, except for fences that it causes itself.
    pub fn before_each_fence(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.state.before_fence.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Ends [`Watched::before_each_fence`].
    pub fn let_be(&self) {
        *self.state.before_fence.lock().unwrap() = None;
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.counts())
    }
}

impl Domain for Watched {
    const DETERMINISTIC: bool = true;

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
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy(destination, source) };
    }
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.copy_nontemporal(destination, source) };
    }
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.zero_nontemporal(destination, bytes) };
    }
    fn note_read(&self, source: *const u8, bytes: usize) {
        self.hardware.note_read(source, bytes);
    }
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        let first = start.addr() / LINE_BYTES;
        let last = (start.addr() + bytes - 1) / LINE_BYTES;
        self.state.flushes.fetch_add(1, Ordering::SeqCst);
        self.state.lines.fetch_add((last - first + 1) as u64, Ordering::SeqCst);
        // SAFETY: as the caller vouches.
        unsafe { self.hardware.flush_range(start, bytes) };
    }
    fn fence(&self) {
        let hook = self.state.before_fence.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
            *self.state.before_fence.lock().unwrap() = Some(hook);
        }
        self.state.fences.fetch_add(1, Ordering::SeqCst);
        self.hardware.fence();
    }
    fn prefetch(&self, at: *const u8) {
        self.hardware.prefetch(at);
    }
    fn health(&self) -> Result<(), DomainFault> {
        self.hardware.health()
    }
}
