//! The persistence domain: the machine a structure runs on.
//!
//! Every load, store, flush and fence that touches persistent memory goes through a [`Domain`].
//! Structures are generic over it and so have one source for two machines:
//!
//! * [`Hardware`](crate::Hardware) — the machine at hand; each method is the one instruction a
//!   hand-written version would have.
//! * `lapis_device::Modelled` — each call is an event of a model that counts what reaches the
//!   media and can be asked for every state a power cut may leave.
//!
//! What a structure tells a model, and hardware has no use for, is apart in [`Observed`].
//!
//! # The rules a structure may rely on
//!
//! They are those of the synchronous-flush formulation of Px86 (x86 persistency):
//!
//! * R1. Only stores that are globally visible persist.
//! * R2. Within one 64-byte line, stores persist in the order in which they became visible, each
//!   aligned eight bytes whole. Stores with [`Ordering::Release`] become visible in program order
//!   (a `mov` on x86-64, `stlr` on aarch64); relaxed ones may be reordered by the compiler.
//! * R3. Different lines persist independently, and any line may persist at any time.
//! * R4. A flush makes no promise until the same thread's next fence; that fence then promises the
//!   contents that the line had when it was flushed.
//! * R5. A compare-exchange or swap is visible, not durable. On x86-64 it also completes this
//!   thread's earlier flushes and non-temporal stores, like a fence; on aarch64, and where a fence is an `fdatasync`, it does
//!   not. So nothing may rest on that, and crashes are explored without it.
//! * R6. Bytes copied non-temporally may persist in any 8-byte subset until this thread's next
//!   fence, which makes all of them durable.
//!
//! # Persist points
//!
//! [`Domain::flush_range`], [`Domain::copy_nontemporal`] and [`Domain::fence`] are
//! `#[track_caller]`, and so is every wrapper in this crate: the modelled machine knows the source
//! line of each flush and fence, can switch one off, and so can show that each is necessary.
//! Functions of a structure that merely forward to a flush should be `#[track_caller]` too if their
//! callers are the places a reader would name.

use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::PathBuf;

use crate::cell::PCell;
use crate::observed::Observed;
use crate::word::Word;
use crate::word_copy;

/// Bytes in a cache line: the unit of flushing.
pub const LINE_BYTES: usize = 64;
/// Bytes in an XPLine: the unit in which Optane media are written.
pub const XPLINE_BYTES: usize = 256;

/// Why a domain can no longer keep its promises.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DomainFault {
    /// What was persisted may not be durable.
    #[error(
        "the medium refused to persist earlier writes ({reason}); reopen the pool and check it"
    )]
    WritesLost {
        /// What the operating system answered.
        reason: String,
    },
    /// What was read may not be what was written.
    #[error(
        "the memory at offset {offset:#x} of {} cannot be read: the medium is damaged there, or the file was made shorter; close it, and restore it from a backup or export what can be read", path.display()
    )]
    BadMemory {
        /// The file or device.
        path: PathBuf,
        /// The first offset that could not be read.
        offset: u64,
    },
}

/// The machine a persistent structure runs on. See the [module documentation](self).
///
/// Cloning is cheap: all clones are handles of one machine.
pub trait Domain: Observed + Clone + Debug + Send + Sync + 'static {
    /// Loads a word.
    fn load<W: Word>(&self, at: &W::Atomic, order: Ordering) -> W;

    /// Stores a word. Use [`Ordering::Release`] wherever rule R2 is relied on.
    fn store<W: Word>(&self, at: &W::Atomic, value: W, order: Ordering);

    /// Exchanges a word (a locked instruction: rule R5).
    fn swap<W: Word>(&self, at: &W::Atomic, value: W) -> W;

    /// Compares and exchanges a word (a locked instruction: rule R5). `Err` holds what was found.
    fn compare_exchange<W: Word>(&self, at: &W::Atomic, current: W, new: W) -> Result<W, W>;

    /// Copies the bytes of `words` from `offset` on into `into`. Others may store to them meanwhile: who finds that
    /// somebody has may have read anything, torn words too.
    ///
    /// # Panics
    /// If there are not as many.
    fn read_words(&self, words: &[AtomicU64], offset: usize, into: &mut [u8]) {
        word_copy::read(self, words, offset, into);
    }

    /// Stores `from` in `words` from byte `offset` on, in no particular order. Others may load them meanwhile, as in
    /// [`Domain::read_words`], and nobody else stores to them.
    ///
    /// # Panics
    /// If there is no room for it.
    fn write_words(&self, words: &[AtomicU64], offset: usize, from: &[u8]) {
        word_copy::write(self, words, offset, from);
    }

    /// Copies `source` to `destination` with ordinary stores, in no particular order.
    ///
    /// # Safety
    /// `destination` must be valid for writes of `source.len()` bytes inside this domain's region,
    /// and nobody else may read or write those bytes during the call.
    unsafe fn copy(&self, destination: *mut u8, source: &[u8]);

    /// Copies `source` to `destination` past the caches (rule R6): durable at this thread's next
    /// fence, without a flush.
    ///
    /// # Safety
    /// As for [`Domain::copy`].
    #[track_caller]
    unsafe fn copy_nontemporal(&self, destination: *mut u8, source: &[u8]);

    /// Fills `bytes` bytes at `destination` with zero, past the caches (rule R6).
    ///
    /// # Safety
    /// As for [`Domain::copy`].
    #[track_caller]
    unsafe fn zero_nontemporal(&self, destination: *mut u8, bytes: usize);

    /// Writes back every line that `[start, start + bytes)` touches (rule R4). Addresses outside
    /// the region are a programming error that the model reports and hardware may fault on; the
    /// safe wrappers take references and cannot produce one.
    ///
    /// # Safety
    /// The range must lie within mapped memory of this domain's region.
    #[track_caller]
    unsafe fn flush_range(&self, start: *const u8, bytes: usize);

    /// Orders and completes this thread's earlier flushes and non-temporal stores (rules R4, R6).
    #[track_caller]
    fn fence(&self);

    /// Sees to it that `earlier`, which was just stored to, persists before `later`, which is stored to next and
    /// lies in the same line: rule R2 does that. A modelled machine without *flush coalescing* (section IV of the
    /// amplification study, IEEE Access 2021) flushes and fences it as one would who does not know; and one whose
    /// layouts are padded does where that has brought the two into different lines.
    #[inline(always)]
    #[track_caller]
    fn order_in_line<T: ?Sized>(&self, _earlier: &T, _later: &PCell<u64>) {}

    /// Notes that a lock in persistent memory was given back. A machine that is told to writes its line back, without
    /// waiting: nobody needs the word to be durable, but a line that is cast out later, when the media have
    /// written what lies beside it, costs them a write of its own. That is the *early eviction* of section IV of the
    /// amplification study (IEEE Access 2021); it adds no state that a power cut could not leave behind anyway.
    #[inline(always)]
    #[track_caller]
    fn lock_released(&self, _lock: &PCell<u64>) {}

    /// Hints that the line at `at` will be read soon. Never faults, never counts as a load.
    fn prefetch(&self, at: *const u8);

    /// The boot of the machine that this is, 0 if that cannot be found out. None where no process leaves
    /// anything in the caches for another.
    fn boot(&self) -> Option<u128> {
        None
    }

    /// Says whether every fence so far kept its promise, and every load found what was there. Whoever
    /// acknowledges a write to a user asks this after the fence that the acknowledgement rests on, and whoever answers
    /// with what was read asks it after reading.
    ///
    /// # Errors
    /// [`DomainFault`], for good: once the operating system has refused to persist a page, or, where that is
    /// contained ([`RegionOptions::contain_faults`](crate::RegionOptions::contain_faults)), memory could not be read.
    fn health(&self) -> Result<(), DomainFault>;

    /// Writes back the line that `at` lies in (rule R4): what flushing a word is.
    ///
    /// # Safety
    /// As for [`Domain::flush_range`], for the byte at `at`.
    #[inline(always)]
    #[track_caller]
    unsafe fn flush_line(&self, at: *const u8) {
        // SAFETY: as the caller vouches.
        unsafe { self.flush_range(at, 1) }
    }

    /// [`Domain::flush_line`], then [`Domain::fence`]. A method of its own so that hardware chooses
    /// the instruction once for both.
    ///
    /// # Safety
    /// As for [`Domain::flush_line`].
    #[inline(always)]
    #[track_caller]
    unsafe fn persist_line(&self, at: *const u8) {
        // SAFETY: as the caller vouches.
        unsafe { self.flush_line(at) };
        self.fence();
    }

    /// Flushes the lines of `what`.
    #[inline(always)]
    #[track_caller]
    fn flush<T: ?Sized>(&self, what: &T) {
        let start = (&raw const *what).cast();
        // SAFETY: a reference is mapped memory for its whole size; flushing changes no contents.
        unsafe {
            if lies_in_one_line(what) {
                self.flush_line(start);
            } else {
                self.flush_range(start, size_of_val(what));
            }
        }
    }

    /// Flushes the lines of `what`, then fences: `what` is durable on return.
    #[inline(always)]
    #[track_caller]
    fn persist<T: ?Sized>(&self, what: &T) {
        if lies_in_one_line(what) {
            // SAFETY: as in `flush`.
            unsafe { self.persist_line((&raw const *what).cast()) };
        } else {
            self.flush(what);
            self.fence();
        }
    }
}

/// Whether the type of `what` says that it does not cross the end of a line: words and links do
/// not. Known when the program is compiled, unless `what` is a slice.
#[inline(always)]
pub(crate) fn lies_in_one_line<T: ?Sized>(what: &T) -> bool {
    let bytes = size_of_val(what);
    bytes > 0 && bytes <= align_of_val(what) && bytes <= LINE_BYTES
}

/// Completes this thread's flushes so that *other* threads may rely on them.
///
/// Where the calling thread's own later fence would do for itself, and only another thread could
/// make something reachable before that, the fence is taken here. Its necessity shows only when
/// threads interleave; single-threaded crash exploration cannot show it, and therefore does not
/// count it among the persist points of the structure that calls it.
#[inline]
pub fn fence_for_other_threads<D: Domain>(domain: &D) {
    domain.fence();
}
