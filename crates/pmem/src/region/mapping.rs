//! Address space and disk space for a region.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

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

/// For file systems without `fallocate`: writes real zeroes, so that the blocks exist.
pub(super) fn write_zeroes(file: &File, from: u64, bytes: u64) -> Result<(), RegionError> {
    use std::os::unix::fs::FileExt;
    let zeroes = vec![0u8; EXTENT_BYTES];
    let mut at = from;
    while at < from + bytes {
        let step = usize::try_from(from + bytes - at).unwrap_or(EXTENT_BYTES).min(EXTENT_BYTES);
        file.write_all_at(&zeroes[..step], at).map_err(|source| {
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
                RegionError::NoSpace { needed_bytes: bytes as usize }
            } else {
                RegionError::Os { doing: "allocate disk space", source }
            }
        })?;
        at += step as u64;
    }
    Ok(())
}
