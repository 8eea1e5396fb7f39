//! Address space for a region, and anonymous memory in it.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::error::{RegionError, os};
use super::whole_extents;

/// Reserves inaccessible address space: `bytes`, or less if the system does not give as much, but `least_bytes` at
/// least. It begins at a multiple of `align_bytes`, which is one of 2 MiB.
pub(super) fn reserve(
    bytes: usize,
    least_bytes: usize,
    align_bytes: usize,
) -> Result<(NonNull<u8>, usize), RegionError> {
    let least_bytes = whole_extents(least_bytes);
    let mut bytes = whole_extents(bytes).max(least_bytes);
    loop {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let more = bytes.saturating_add(align_bytes);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        match unsafe { mm::mmap_anonymous(std::ptr::null_mut(), more, ProtFlags::empty(), flags) } {
            Ok(start) => {
                let start = NonNull::new(start.cast::<u8>()).ok_or(Errno::FAULT);
                let start = start.map_err(os("reserve address space"))?;
                let before = start.as_ptr().align_offset(align_bytes);
                // SAFETY: both lie within what was just mapped, before and behind what is kept, and nobody uses them.
                unsafe {
                    let base = start.add(before);
                    unreserve(start, before);
                    unreserve(base.add(bytes), align_bytes - before);
                    return Ok((base, bytes));
                }
            }
            Err(Errno::NOMEM) if bytes > least_bytes.max(1 << 30) => {
                bytes = whole_extents(bytes / 2).max(least_bytes);
            }
            Err(errno) => return Err(os("reserve address space")(errno)),
        }
    }
}

/// # Safety
/// `base` and `bytes` come from [`reserve`], and nothing refers into the range any more.
pub(super) unsafe fn unreserve(base: NonNull<u8>, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: as the caller vouches.
    let _ = unsafe { mm::munmap(base.as_ptr().cast(), bytes) };
}

/// Maps zeroed memory.
///
/// # Safety
/// The range lies within what [`reserve`] gave, and nobody uses it.
pub(super) unsafe fn map_zeroed(at: *mut u8, bytes: usize) -> Result<(), RegionError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: as the caller vouches; MAP_FIXED replaces pages of the reservation only.
    unsafe {
        mm::mmap_anonymous(at.cast(), bytes, protection, flags).map_err(os("map memory"))?;
        // A hint only: fewer TLB misses where the kernel has huge pages to give.
        let _ = mm::madvise(at.cast(), bytes, mm::Advice::LinuxHugepage);
    }
    Ok(())
}
