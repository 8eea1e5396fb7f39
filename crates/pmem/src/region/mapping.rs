//! Address space and disk space for a region.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::EXTENT_BYTES;
use super::error::{RegionError, os};

/// Pages that the processor maps in one piece where address and storage begin at multiples of this.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Reserves inaccessible address space: `bytes`, or less if the system does not give as much. It begins at a multiple of
/// `align_bytes`, which is one of [`HUGE_PAGE_BYTES`].
pub(super) fn reserve(
    bytes: usize,
    align_bytes: usize,
) -> Result<(NonNull<u8>, usize), RegionError> {
    let mut bytes = bytes.next_multiple_of(EXTENT_BYTES);
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
            Err(Errno::NOMEM) if bytes > (1 << 30) => {
                bytes = (bytes / 2).next_multiple_of(EXTENT_BYTES);
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

/// Gives the file blocks rather than a hole: a full disk is an error here and no SIGBUS later. False where the
/// file system cannot do that and zeroes have to be written.
pub(super) fn allocate(file: &File, from: u64, bytes: u64) -> Result<bool, RegionError> {
    match fallocate(file.as_fd(), FallocateFlags::empty(), from, bytes) {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => {
            Err(RegionError::NoSpace { needed_bytes: bytes as usize })
        }
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(os("allocate disk space")(errno)),
    }
}

/// Writes zeroes, so that the blocks exist and have been written.
pub(super) fn write_zeroes(file: &File, from: u64, bytes: u64) -> Result<(), RegionError> {
    use std::os::unix::fs::FileExt;
    const STEP_BYTES: u64 = 1 << 20;
    let zeroes = vec![0u8; STEP_BYTES.min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let step = STEP_BYTES.min(bytes - done);
        file.write_all_at(&zeroes[..step as usize], from + done).map_err(|source| {
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                RegionError::NoSpace { needed_bytes: bytes as usize }
            } else {
                RegionError::Os { doing: "allocate disk space", source }
            }
        })?;
        done += step;
    }
    Ok(())
}
