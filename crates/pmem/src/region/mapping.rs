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

/// Reserves inaccessible address space: `bytes`, or less if the system does not give as much.
pub(super) fn reserve(bytes: usize) -> Result<(NonNull<u8>, usize), RegionError> {
    let mut bytes = bytes.next_multiple_of(EXTENT_BYTES);
    loop {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        match unsafe { mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) }
        {
            Ok(base) => {
                let base = NonNull::new(base.cast()).ok_or(Errno::FAULT);
                return Ok((base.map_err(os("reserve address space"))?, bytes));
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
