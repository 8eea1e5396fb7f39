//! What can be wrong with a pool and its roots.

use super::header::ROOT_NAME_BYTES;
use crate::domain::DomainFault;
use crate::region::RegionError;

/// Why a pool could not be opened or created. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The bytes are something else.
    #[error("this is not a Lapis pool")]
    NotAPool,
    /// A device that was to be made a pool is one.
    #[error(
        "the device holds a Lapis pool already; to give up what is in it, say that it may be overwritten"
    )]
    HoldsAPool,
    /// The file ends before the pool does.
    #[error(
        "the pool is truncated: {found_bytes} of {expected_bytes} bytes are there, and blocks lie in what is missing; restore the file from a copy, or, to save the rest, make it as long again (truncate -s {expected_bytes} FILE), open it and export what can be read"
    )]
    Truncated {
        /// Bytes the header says the file has.
        expected_bytes: u64,
        /// Bytes it has.
        found_bytes: u64,
    },
    /// Written by a newer Lapis.
    #[error("the pool has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u32,
        /// The newest version this code reads.
        supported: u32,
    },
    /// Uses features this code does not know.
    #[error("the pool needs features {unknown:#x} that this Lapis does not know")]
    UnknownFeatures {
        /// The bits that are not known.
        unknown: u64,
    },
    /// The header does not match its checksum.
    #[error("the pool's header has a wrong checksum; it is damaged")]
    WrongChecksum,
    /// A header field contradicts the others although the checksum is right.
    #[error("the pool's header is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// Creation was cut short before anything could be stored.
    #[error("the creation of this pool was interrupted; it holds nothing and can be created anew")]
    InterruptedCreation,
    /// Too small for a pool.
    #[error("a pool takes at least {minimum_bytes} bytes, not {asked_bytes}")]
    TooSmall {
        /// Bytes asked for.
        asked_bytes: usize,
        /// Bytes needed.
        minimum_bytes: usize,
    },
    /// The region could not be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The medium refused to persist the change.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}

/// Why a root could not be published.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootError {
    /// There is a root of that name.
    #[error("a root of that name exists already")]
    Exists,
    /// Empty, longer than [`ROOT_NAME_BYTES`] or with a zero byte.
    #[error("a root's name has 1 to {ROOT_NAME_BYTES} bytes, none of them zero")]
    BadName,
    /// All [`ROOT_CAPACITY`](super::ROOT_CAPACITY) are taken.
    #[error("the pool has no free root")]
    Full,
}
