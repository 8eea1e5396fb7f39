//! Why a region could not be had.

use std::io;

use rustix::io::Errno;

use super::medium::Medium;
use crate::file_lock::LockHolder;

/// Why a region could not be opened, created or grown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// Somebody else has it open.
    #[error("{0}")]
    AlreadyOpen(LockHolder),
    /// The file may not be written.
    #[error("the file may not be written; open it to read only, or make it writable")]
    ReadOnly,
    /// It was to be opened to read only.
    #[error(
        "a device-DAX device cannot be opened to read only: the kernel maps it shared or not at all"
    )]
    AlwaysShared,
    /// The disk is full.
    #[error("no space left on the device for {needed_bytes} more bytes")]
    NoSpace {
        /// Bytes that were asked for.
        needed_bytes: usize,
    },
    /// The region has reached the size it reserved or the device has.
    #[error("the region is full at {capacity_bytes} bytes and cannot grow")]
    Full {
        /// Bytes the region can hold.
        capacity_bytes: usize,
    },
    /// A device, which cannot grow, is shorter than what was asked for.
    #[error("the device has {device_bytes} bytes, and {asked_bytes} are asked for")]
    DeviceTooShort {
        /// Bytes of the device.
        device_bytes: usize,
        /// Bytes that were asked for.
        asked_bytes: usize,
    },
    /// The medium cannot give the durability asked for.
    #[error("{} cannot survive a power cut; use another medium or ask for less", medium.name())]
    DurabilityUnavailable {
        /// The medium in question.
        medium: Medium,
    },
    /// The medium knows that bytes of it are lost.
    #[error(
        "{bad_bytes} bytes cannot be read, at offset {offset:#x} first: the medium has bad blocks there; restore a backup, and clear the blocks before they are used again (ndctl clear-errors)"
    )]
    BadBlocks {
        /// Where the first are.
        offset: u64,
        /// How many bytes there are.
        bad_bytes: u64,
    },
    /// Neither a regular file nor a device-DAX device.
    #[error("not a regular file or device-DAX device")]
    NotAFile,
    /// The file exists already and was to be created.
    #[error("the file exists already")]
    Exists,
    /// No such file.
    #[error("no such file")]
    NotFound,
    /// Anything else the operating system refused.
    #[error("the operating system refused to {doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// What it answered.
        source: io::Error,
    },
}

pub(super) fn os(doing: &'static str) -> impl Fn(Errno) -> RegionError {
    move |errno| RegionError::Os { doing, source: errno.into() }
}

pub(super) fn open_error(source: io::Error) -> RegionError {
    match source.kind() {
        io::ErrorKind::NotFound => RegionError::NotFound,
        io::ErrorKind::AlreadyExists => RegionError::Exists,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            RegionError::ReadOnly
        }
        io::ErrorKind::IsADirectory => RegionError::NotAFile,
        _ => RegionError::Os { doing: "open the file", source },
    }
}
