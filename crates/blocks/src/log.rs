//! What every log shares: where an entry stands, and what can go wrong.

use lapis_pmem::{AllocError, DomainFault};

/// The largest entry of a log: 64 MiB.
pub const LARGEST_ENTRY_BYTES: usize = 64 << 20;

/// The log sequence number of an entry: the first entry ever appended has [`Position::FIRST`],
/// each later one the next number. Numbers are never used again, truncated or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Where a new log begins.
    pub const FIRST: Self = Self(1);

    /// The position with this number, for instance one that was stored elsewhere.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Something in a log that no sequence of appends, truncations and crashes leaves behind: the
/// medium or another writer has changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub what: &'static str,
    /// The entry that stands there, or would.
    pub position: Position,
    /// Where in the pool, in bytes from its start.
    pub pool_offset: u64,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (entry {}, pool offset {:#x})", self.what, self.position, self.pool_offset)
    }
}

/// Why a log could not do what it was asked. Unless said otherwise the log is as it was and can
/// be used further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// An entry has at least one byte.
    #[error("a log entry cannot be empty; append at least one byte")]
    EmptyEntry,
    /// An entry has at most [`LARGEST_ENTRY_BYTES`].
    #[error(
        "a log entry of {asked_bytes} bytes is larger than the largest, {LARGEST_ENTRY_BYTES}; \
         split it"
    )]
    EntryTooLarge {
        /// Bytes of the entry.
        asked_bytes: usize,
    },
    /// The options cannot be met.
    #[error(
        "log segments of {segment_bytes} bytes are impossible; choose a multiple of 64 between \
         {smallest_bytes} and {largest_bytes}"
    )]
    BadSegmentSize {
        /// The size asked for.
        segment_bytes: usize,
        /// The smallest there is.
        smallest_bytes: usize,
        /// The largest there is.
        largest_bytes: usize,
    },
    /// No room for another segment. Truncating the log or enlarging the pool makes room.
    #[error("the log cannot grow: {0}")]
    Full(#[from] AllocError),
    /// The position does not lie in the log.
    #[error("entry {asked} does not exist yet; the log ends before {end}")]
    BeyondEnd {
        /// The position asked for.
        asked: Position,
        /// The position that the next entry will have.
        end: Position,
    },
    /// The block is not the root of such a log.
    #[error("there is no log of this kind at pool offset {pool_offset:#x}")]
    NotALog {
        /// Where it was looked for.
        pool_offset: u64,
    },
    /// Written by a newer Lapis.
    #[error("the log has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u64,
        /// The newest version this code reads.
        supported: u64,
    },
    /// The log holds what no crash leaves behind.
    #[error("the log is damaged: {0}")]
    Damaged(Damage),
    /// The medium refused to persist. What was appended may or may not be durable.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}
