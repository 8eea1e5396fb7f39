//! Disk space for a region.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use super::error::{RegionError, os};

/// Gives the file blocks rather than a hole: a full disk is an error here and no SIGBUS later. False where the
/// file system cannot do that and zeroes have to be written.
pub(super) fn allocate(file: &File, from: u64, bytes: u64) -> Result<bool, RegionError> {
    let all = || fallocate(file.as_fd(), FallocateFlags::empty(), from, bytes);
    match retry_on_intr(all) {
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
