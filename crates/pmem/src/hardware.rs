//! The machine at hand: plain loads and stores, and the best flush instruction it has.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::sync::Arc;

use crate::cell::PCell;
use crate::domain::{Domain, DomainFault, LINE_BYTES};
use crate::dram_cell::PlainWord;
use crate::hold_ups;
use crate::instructions;
use crate::nontemporal::{self, CopyMethod};
use crate::observed::Observed;
use crate::region::MemoryFault;
use crate::sync_file::SyncFile;
use crate::word::Word;
use crate::word_copy;

/// How lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum FlushMethod {
    /// `clwb`: writes back, may keep the line. x86-64.
    Clwb,
    /// `clflushopt`: writes back and evicts, weakly ordered. x86-64.
    ClflushOpt,
    /// `clflush`: writes back and evicts, ordered with stores. x86-64.
    Clflush,
    /// `dc cvap`: cleans to the point of persistence. aarch64.
    DcCvap,
    /// No flush, because caches are inside the power-fail domain (eADR); fences stay.
    EadrNone,
    /// No flush, because the medium is the page cache or anonymous memory: stores survive the
    /// process as soon as they are executed, and no instruction makes them survive more.
    PageCacheNone,
    /// `msync`/`fdatasync` at each fence: the medium is an ordinary file and power failure counts.
    FileSync,
}

impl FlushMethod {
    /// The best flush instruction of this processor, from CPUID (x86-64) or the feature registers
    /// (aarch64).
    pub fn detect() -> Self {
        instructions::detect()
    }

    /// Whether this processor can execute the method.
    pub fn is_available(self) -> bool {
        match self {
            Self::EadrNone | Self::PageCacheNone | Self::FileSync => true,
            instruction => instructions::is_available(instruction),
        }
    }

    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::DcCvap => "dc cvap",
            Self::EadrNone => "none (eADR)",
            Self::PageCacheNone => "none (page cache)",
            Self::FileSync => "fdatasync",
        }
    }
}

impl fmt::Display for FlushMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The machine at hand. See [`Domain`].
#[derive(Clone)]
pub struct Hardware {
    method: FlushMethod,
    copy: CopyMethod,
    writes_back_locks: bool,
    sync: Option<Arc<SyncFile>>,
    memory: Option<Arc<MemoryFault>>,
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hardware({}, {:?})", self.method, self.copy)
    }
}

/// The processor has no such flush instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this processor has no {0}; leave the flush method to be detected")]
pub struct UnavailableFlush(pub FlushMethod);

impl Hardware {
    /// The machine with its best flush instruction.
    pub fn detect() -> Self {
        Self::of(FlushMethod::detect(), None)
    }

    /// The machine with a flush method of the caller's choice.
    ///
    /// # Errors
    /// [`UnavailableFlush`] if the processor lacks the instruction, or if `method` is
    /// [`FlushMethod::FileSync`], which needs a file ([`Region::domain`](crate::Region::domain)
    /// makes that one).
    pub fn with_method(method: FlushMethod) -> Result<Self, UnavailableFlush> {
        if method == FlushMethod::FileSync || !method.is_available() {
            return Err(UnavailableFlush(method));
        }
        Ok(Self::of(method, None))
    }

    fn of(method: FlushMethod, sync: Option<Arc<SyncFile>>) -> Self {
        let copy = CopyMethod::detect();
        Self { method, copy, writes_back_locks: false, sync, memory: None }
    }

    /// The same machine, which writes a lock's line back when it is given back, or does not
    /// ([`Domain::lock_released`]).
    pub fn writing_back_locks(self, writes_back_locks: bool) -> Self {
        Self { writes_back_locks, ..self }
    }

    pub(crate) fn with_sync(sync: Arc<SyncFile>) -> Self {
        Self::of(FlushMethod::FileSync, Some(sync))
    }

    pub(crate) fn with_memory(self, memory: Option<Arc<MemoryFault>>) -> Self {
        Self { memory, ..self }
    }

    /// How this domain writes lines back.
    pub fn method(&self) -> FlushMethod {
        self.method
    }

    /// Whether a fence is an instruction.
    #[inline(always)]
    fn fences_by_instruction(&self) -> bool {
        // One comparison: the methods without a fence come last.
        const {
            assert!((FlushMethod::EadrNone as u8) < FlushMethod::PageCacheNone as u8);
            assert!((FlushMethod::PageCacheNone as u8) < FlushMethod::FileSync as u8);
        }
        (self.method as u8) < FlushMethod::PageCacheNone as u8
    }

    /// Flushes where no instruction does it: notes the range if the medium is a file that is
    /// synchronised, does nothing otherwise.
    #[inline(always)]
    fn flush_without_instruction(&self, start: *const u8, bytes: usize) {
        compiler_fence(Ordering::Release);
        if let Some(sync) = &self.sync {
            note_unsynced(sync, start.addr(), bytes);
        }
    }

    #[inline(always)]
    fn fence_without_instruction(&self) {
        compiler_fence(Ordering::SeqCst);
        if let Some(sync) = &self.sync {
            complete_sync(sync);
        }
    }
}

// Functions of the C calling convention do not unwind: callers of a flush or fence need no code for
// that, which is what keeps values out of memory on the paths that are hot.

#[cold]
#[inline(never)]
extern "C" fn note_unsynced(sync: &SyncFile, start: usize, bytes: usize) {
    sync.note(start, bytes);
}

#[cold]
#[inline(never)]
extern "C" fn complete_sync(sync: &SyncFile) {
    sync.complete();
}

#[cold]
#[inline(never)]
extern "C" fn persist_sync(sync: &SyncFile, at: usize) {
    sync.note(at, 1);
    sync.complete();
}

/// Chooses what the flush instruction of this machine is told to do: `$one` with the instruction in
/// place of `$flush`, or `$none` where there is no instruction. Few enough alternatives to become
/// comparisons, which are predicted, rather than a jump through a table.
macro_rules! by_instruction {
    ($method:expr, |$flush:ident| $one:expr, $none:expr) => {
        match $method {
            #[cfg(target_arch = "x86_64")]
            FlushMethod::Clwb => {
                use instructions::clwb as $flush;
                $one
            }
            #[cfg(target_arch = "x86_64")]
            FlushMethod::ClflushOpt => {
                use instructions::clflushopt as $flush;
                $one
            }
            #[cfg(target_arch = "x86_64")]
            FlushMethod::Clflush => {
                use instructions::clflush as $flush;
                $one
            }
            #[cfg(target_arch = "aarch64")]
            FlushMethod::DcCvap => {
                use instructions::dc_cvap as $flush;
                $one
            }
            _ => $none,
        }
    };
}

impl Observed for Hardware {
    type DramWord<W: Word> = PlainWord<W>;

    #[inline(always)]
    fn order(&self, order: Ordering) {
        hold_ups::step();
        fence(order);
    }

    #[inline(always)]
    fn synchronize(&self) {
        hold_ups::step();
    }

    #[inline(always)]
    fn happens(&self, _event: &'static str) {
        hold_ups::happening();
    }
}

impl Domain for Hardware {
    #[inline(always)]
    fn lock_released(&self, lock: &PCell<u64>) {
        if self.writes_back_locks {
            self.flush(lock);
        }
    }

    #[inline(always)]
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W {
        hold_ups::step();
        W::load(at, order)
    }

    #[inline(always)]
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering) {
        hold_ups::step();
        W::store(at, value, order);
    }

    #[inline(always)]
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W {
        hold_ups::step();
        W::swap(at, value, Ordering::AcqRel)
    }

    #[inline(always)]
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W> {
        hold_ups::step();
        W::compare_exchange(at, current, new)
    }

    #[inline]
    fn read_words(&self, words: &[AtomicU64], offset: usize, into: &mut [u8]) {
        hold_ups::step();
        word_copy::read_at_once(self, words, offset, into);
    }

    #[inline]
    fn write_words(&self, words: &[AtomicU64], offset: usize, from: &[u8]) {
        hold_ups::step();
        word_copy::write_at_once(self, words, offset, from);
    }

    #[inline(always)]
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]) {
        // SAFETY: the caller vouches for `destination`; a slice cannot overlap memory that nobody
        // else may read.
        unsafe { destination.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    }

    #[inline]
    #[track_caller]
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]) {
        match self.method {
            FlushMethod::Clwb | FlushMethod::ClflushOpt | FlushMethod::Clflush => {
                // SAFETY: as the caller vouches.
                unsafe { nontemporal::copy(self, self.copy, destination, source) };
            }
            _ => {
                // SAFETY: as the caller vouches; flushing gives the promise that the non-temporal
                // path would have given.
                unsafe {
                    nontemporal::copy_words(destination, source);
                    self.flush_range(destination, source.len());
                }
            }
        }
    }

    #[inline]
    #[track_caller]
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize) {
        const ZEROES: [u8; 4096] = [0; 4096];
        if cfg!(miri) {
            // At once: Miri has something to note of every access, and pools are mostly zeroes.
            // SAFETY: as the caller vouches.
            return unsafe { destination.write_bytes(0, bytes) };
        }
        let mut done = 0;
        while done < bytes {
            let step = ZEROES.len().min(bytes - done);
            // SAFETY: within the range that the caller vouches for.
            unsafe { self.copy_nontemporal(destination.add(done), &ZEROES[..step]) };
            done += step;
        }
    }

    #[inline(always)]
    unsafe fn flush_range(&self, start: *const u8, bytes: usize) {
        // Of no bytes at most the line is flushed that they would lie in, which does no harm.
        let first = start.addr() & !(LINE_BYTES - 1);
        let end = start.addr() + bytes;
        // One loop per instruction keeps the choice out of the loop.
        by_instruction!(
            self.method,
            |flush| {
                let mut line = first;
                while line < end {
                    // SAFETY: the line holds at least one byte of the mapped range.
                    unsafe { flush(start.with_addr(line)) };
                    line += LINE_BYTES;
                }
            },
            self.flush_without_instruction(start, bytes)
        );
    }

    #[inline(always)]
    unsafe fn flush_line(&self, at: *const u8) {
        by_instruction!(
            self.method,
            // SAFETY: the caller vouches for `at`.
            |flush| unsafe { flush(at) },
            self.flush_without_instruction(at, 1)
        );
    }

    #[inline(always)]
    unsafe fn persist_line(&self, at: *const u8) {
        by_instruction!(
            self.method,
            |flush| {
                // SAFETY: the caller vouches for `at`.
                unsafe { flush(at) };
                instructions::store_fence();
            },
            {
                if let Some(sync) = &self.sync {
                    persist_sync(sync, at.addr());
                } else if self.fences_by_instruction() {
                    instructions::store_fence();
                } else {
                    compiler_fence(Ordering::SeqCst);
                }
            }
        );
    }

    #[inline(always)]
    fn fence(&self) {
        hold_ups::step();
        if self.fences_by_instruction() {
            instructions::store_fence();
        } else {
            self.fence_without_instruction();
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: *const u8) {
        instructions::prefetch(at);
    }

    fn boot(&self) -> Option<u128> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Some(uuid::Uuid::parse_str(text.trim()).map_or(0, |id| id.as_u128()))
    }

    fn health(&self) -> Result<(), DomainFault> {
        if let Some(sync) = &self.sync {
            sync.health()?;
        }
        match &self.memory {
            Some(memory) => memory.health(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_method_flushes_and_fences() {
        for method in [
            FlushMethod::Clwb,
            FlushMethod::ClflushOpt,
            FlushMethod::Clflush,
            FlushMethod::DcCvap,
            FlushMethod::EadrNone,
            FlushMethod::PageCacheNone,
        ] {
            let Ok(hardware) = Hardware::with_method(method) else { continue };
            let buffer = vec![7u8; 1000];
            hardware.persist(&buffer[..]);
            assert!(buffer.iter().all(|&byte| byte == 7), "{method}");
        }
    }

    #[test]
    fn file_sync_needs_a_file() {
        assert_eq!(
            Hardware::with_method(FlushMethod::FileSync).unwrap_err(),
            UnavailableFlush(FlushMethod::FileSync)
        );
    }
}
