//! Memory that cannot be read: a signal that would end the process becomes an error of one region.
//!
//! A load from a mapped page that the medium cannot give (a bad block, a file that was made shorter) raises `SIGBUS`.
//! Where a region asks for it, a handler takes the signal. It looks whether the address lies in a region that asked. If so,
//! it notes the fault with the region, for good, puts a page of zeroes there and returns: the load goes on and
//! finds zeroes. Whoever answers or acknowledges asks [`Domain::health`](crate::Domain::health) first, so that
//! nothing that was read so is told to anybody.
//!
//! Before that it lets the region go of its file: all of it is mapped again, as a copy of the process's own. So nothing that
//! is done with zeroes reaches the medium, whoever does it: recovery, a search for lost blocks, a thread in the background.
//! What was stored and not flushed before may be lost, as in a power cut; nobody was told of it. Device-DAX knows no such
//! mappings: asked for one, the kernel refuses when it has taken away what was mapped. There the rest of the region stays
//! the medium.
//!
//! Everybody else's faults, and signals that a process sent, go to whoever handled them before; so the process ends as
//! it did. The handler is installed once, with the first region that asks, and stays. It takes no lock and
//! allocates nothing: it reads atomics and makes one system call.

use std::mem;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::domain::DomainFault;
use crate::file_lock::LockedFile;

/// The first fault of a region.
#[derive(Debug)]
pub(crate) struct MemoryFault {
    path: PathBuf,
    /// None of a device.
    file: Option<Arc<LockedFile>>,
    /// Its offset and one; 0 for none.
    first: AtomicU64,
    /// Whether stores do not reach the file any more, or always will.
    is_contained: AtomicBool,
}

impl MemoryFault {
    pub(crate) fn health(&self) -> Result<(), DomainFault> {
        match self.first.load(Ordering::Acquire).checked_sub(1) {
            None => Ok(()),
            Some(offset) => Err(DomainFault::BadMemory { path: self.path.clone(), offset }),
        }
    }
}

/// Regions that ask at the same time; others are not guarded.
const SLOTS: usize = 64;

/// Where a region is. `fault` is written last and cleared first: null while the slot is nobody's.
struct Slot {
    taken: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Bytes from the start that are mapped.
    mapped: AtomicUsize,
    page_bytes: AtomicUsize,
    fault: AtomicPtr<MemoryFault>,
}

static GUARDED: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        mapped: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        fault: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SLOTS];

/// Who handled the signal before; leaked, since the handler may run at any time.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static INSTALL: Once = Once::new();

/// Faults in a range of addresses are noted as long as this lives.
#[derive(Debug)]
pub(super) struct FaultGuard {
    slot: usize,
    fault: Arc<MemoryFault>,
}

impl FaultGuard {
    /// Guards a range of addresses for the start of a file, or for a device, in whose mapping pages of so many bytes can be
    /// replaced. None if too many are guarded already, or the handler cannot be installed.
    pub(super) fn over(
        start: usize,
        bytes: usize,
        page_bytes: usize,
        (path, file): (PathBuf, Option<Arc<LockedFile>>),
    ) -> Option<Self> {
        INSTALL.call_once(install);
        if PREVIOUS.load(Ordering::Acquire).is_null() {
            return None;
        }
        let free = |slot: &Slot| {
            slot.taken.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = GUARDED.iter().position(free)?;
        let fault = Arc::new(MemoryFault {
            path,
            file,
            first: AtomicU64::new(0),
            is_contained: AtomicBool::new(false),
        });
        let place = &GUARDED[slot];
        place.start.store(start, Ordering::Relaxed);
        place.end.store(start + bytes, Ordering::Relaxed);
        place.mapped.store(0, Ordering::Relaxed);
        place.page_bytes.store(page_bytes, Ordering::Relaxed);
        place.fault.store(Arc::as_ptr(&fault).cast_mut(), Ordering::Release);
        Some(Self { slot, fault })
    }

    pub(super) fn fault(&self) -> &Arc<MemoryFault> {
        &self.fault
    }

    /// Notes that so many bytes from the start are mapped. False if there was a fault before: it did not know of them.
    pub(super) fn note_mapped(&self, bytes: usize) -> bool {
        // Either this sees the fault, or the fault sees these.
        GUARDED[self.slot].mapped.store(bytes, Ordering::SeqCst);
        self.fault.first.load(Ordering::SeqCst) == 0
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        let slot = &GUARDED[self.slot];
        // A fault in the range would be an access to a region that is being dropped: there is none.
        slot.fault.store(std::ptr::null_mut(), Ordering::Release);
        slot.taken.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: an all-zero sigaction is a value of it; the old one is written by the call. `on_bus_error` has the signature
    // that SA_SIGINFO asks for and does only what a signal handler may.
    unsafe {
        let mut previous: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return;
        }
        // Before the handler can run.
        let kept = Box::into_raw(Box::new(previous));
        PREVIOUS.store(kept, Ordering::Release);
        let mut ours: libc::sigaction = mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) != 0 {
            PREVIOUS.store(std::ptr::null_mut(), Ordering::Release);
            drop(Box::from_raw(kept));
        }
    }
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes what SA_SIGINFO promises.
    let (code, address) = unsafe { ((*information).si_code, (*information).si_addr().addr()) };
    // What a process sent has no address.
    let is_fault = code > 0;
    if !(is_fault && contain(address)) {
        // SAFETY: the arguments are those of this call.
        unsafe { pass_on(signal, is_fault, information, context) };
    }
}

/// Whether the address lay in a guarded region, and can be read now.
fn contain(address: usize) -> bool {
    for slot in &GUARDED {
        let fault = slot.fault.load(Ordering::Acquire);
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        if fault.is_null() || address < start || address >= end {
            continue;
        }
        let noted = (address - start) as u64 + 1;
        // SAFETY: the guard, and with it the fault, lives as long as the region, of which this is a load.
        let fault = unsafe { &*fault };
        // The first one is told of. Noted before zeroes can be read: another thread that finds them raises no signal.
        match fault.first.compare_exchange(0, noted, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                let mapped = slot.mapped.load(Ordering::SeqCst);
                if let Some(file) = &fault.file {
                    // SAFETY: so much is mapped of the file, from its start.
                    unsafe { map_over(start, mapped, Some(file)) };
                }
                fault.is_contained.store(true, Ordering::Release);
            }
            // Whoever saw the first one does not wait for anybody.
            Err(_) => {
                while !fault.is_contained.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            }
        }
        let page_bytes = slot.page_bytes.load(Ordering::Relaxed);
        let page = address - (address - start) % page_bytes;
        // SAFETY: the page lies in a region that is mapped as long as its slot is taken, and whoever else reads there finds
        // zeroes too.
        return unsafe { map_over(page, page_bytes, None) };
    }
    false
}

/// Puts a copy of the start of a file, or zeroes, where something is mapped. Stores to it reach no file.
///
/// # Safety
/// The range is mapped, on page boundaries, and what is read there may become what is put there.
unsafe fn map_over(at: usize, bytes: usize, file: Option<&LockedFile>) -> bool {
    let (descriptor, of_file) = match file {
        Some(file) => (file.as_raw_fd(), libc::MAP_NORESERVE),
        None => (-1, libc::MAP_ANONYMOUS),
    };
    // SAFETY: as the caller vouches. errno is put back for whoever was interrupted.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(
            std::ptr::without_provenance_mut(at),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED | of_file,
            descriptor,
            0,
        );
        *errno = before;
        mapped != libc::MAP_FAILED
    }
}

/// Does what would have been done without us.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn pass_on(
    signal: libc::c_int,
    is_fault: bool,
    information: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: it was stored before the handler was installed, is never freed after that, and never changes.
    let previous = unsafe { &*PREVIOUS.load(Ordering::Acquire) };
    match previous.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain system calls. The signal is raised again, or the instruction repeated, when this returns,
            // and ends the process.
            unsafe {
                let mut default: libc::sigaction = mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed it said that it has this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { mem::transmute(handler) };
            handler(signal, information, context);
        }
        handler => {
            // SAFETY: as above.
            let handler: extern "C" fn(libc::c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}
