//! Finding out what a file is.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mm::{self, MapFlags, ProtFlags};

use super::HUGE_PAGE_BYTES;
use super::error::{RegionError, os};
use super::medium::Medium;
use super::memory_module;

/// Finds out whether a file is DAX by asking for `MAP_SYNC`, which only DAX file systems grant.
pub(super) fn detect_medium(file: &File) -> Result<Medium, RegionError> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a fresh read-only mapping that is never dereferenced and is unmapped at once.
    let probe = unsafe { mm::mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, flags, file, 0) };
    if let Ok(address) = probe {
        // SAFETY: mapped just above, not used.
        let _ = unsafe { mm::munmap(address, 4096) };
        return Ok(Medium::Dax);
    }
    let in_memory = is_in_memory(file).map_err(os("examine the file system"))?;
    Ok(if in_memory { Medium::MemoryFile } else { Medium::File })
}

/// Whether a file's file system itself lives in memory.
pub(crate) fn is_in_memory(file: &File) -> rustix::io::Result<bool> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let system = rustix::fs::fstatfs(file.as_fd())?;
    Ok(matches!(system.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

/// The size of a device-DAX device of this directory, which `stat` does not tell, and the size of its pages.
pub(super) fn device_dax_shape(directory: Option<&Path>) -> Result<(usize, usize), RegionError> {
    let directory = directory.ok_or(RegionError::NotAFile)?;
    let is_dax = std::fs::read_link(directory.join("subsystem"))
        .is_ok_and(|target| target.file_name().is_some_and(|name| name == "dax"));
    if !is_dax {
        return Err(RegionError::NotAFile);
    }
    let bytes = memory_module::number(&directory.join("size")).ok_or(RegionError::NotAFile)?;
    let align = ["align", "../dax_region/align"];
    let page_bytes = align.iter().find_map(|name| memory_module::number(&directory.join(name)));
    let page_bytes = page_bytes.filter(|bytes| bytes.is_power_of_two());
    let page_bytes = page_bytes.map_or(HUGE_PAGE_BYTES, |bytes| bytes as usize);
    Ok((bytes as usize / page_bytes.max(1) * page_bytes, page_bytes))
}
