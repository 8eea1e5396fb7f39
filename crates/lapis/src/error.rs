//! Everything a store can refuse.

use std::path::PathBuf;

use lapis_blocks::log::LogError;
use lapis_index::{IndexError, IndexKind};
use lapis_pmem::{AllocError, DomainFault, PoolError, RegionError};

use crate::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES};

/// Why a store refused. Unless the variant says otherwise the store is as it was and usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no store in the directory and it was not to be created.
    #[error("there is no store in {}; create one with import or put", path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The directory could not be made or read.
    #[error("cannot use the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// The pool file could not be opened or created.
    #[error("{}: {source}", path.display())]
    File {
        /// The pool file.
        path: PathBuf,
        /// Why.
        source: PoolError,
    },
    /// The pool holds something other than a store.
    #[error("the pool holds no store; it was made by something else")]
    NotAStore,
    /// The store was written by a newer Lapis.
    #[error("the store has format version {found}; this Lapis reads up to {supported}")]
    NewerVersion {
        /// The version found.
        found: u64,
        /// The newest this code reads.
        supported: u64,
    },
    /// No table of that name.
    #[error("there is no table {name:?}")]
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// The table has been dropped since the handle was made.
    #[error("the table {name:?} has been dropped")]
    Dropped {
        /// The name.
        name: String,
    },
    /// A table of that name exists.
    #[error("there is a table {name:?} already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// Not a name for a table.
    #[error("a table's name has 1 to {MAX_TABLE_NAME_BYTES} bytes, none of them zero")]
    BadTableName,
    /// The key has no bytes.
    #[error("a key has at least one byte")]
    EmptyKey,
    /// The key is too long.
    #[error("a key of {bytes} bytes is longer than the longest, {MAX_KEY_BYTES}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The value is too long.
    #[error("a value of {bytes} bytes is longer than the longest, {MAX_VALUE_BYTES}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// All writes of the transaction together exceed what one log entry holds.
    #[error(
        "the transaction has {bytes} bytes of small writes, more than {limit}; commit in parts"
    )]
    TransactionTooLong {
        /// Bytes of its log record.
        bytes: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The table's index does not keep keys in order.
    #[error("the table {name:?} is a {kind} hash table and has no ranges; use an ordered index")]
    Unordered {
        /// The table.
        name: String,
        /// Its index.
        kind: IndexKind,
    },
    /// No room. Deleting makes room.
    #[error("the store is full: {0}")]
    Full(AllocError),
    /// This thread holds a snapshot of the store and would wait for itself.
    #[error("this thread holds a snapshot of the store; drop it before committing")]
    SnapshotHeld,
    /// This thread holds a transaction of the store and would wait for itself.
    #[error("this thread holds a transaction of the store; commit or drop it first")]
    TransactionHeld,
    /// A handle of another store was passed.
    #[error("the table {name:?} belongs to another store")]
    ForeignTable {
        /// The table.
        name: String,
    },
    /// The medium failed. What the failed call asked for may or may not be durable; everything
    /// acknowledged before is, as far as the medium kept its promise. Reopen the store.
    #[error(transparent)]
    Fault(#[from] DomainFault),
    /// A committed transaction could not be applied. It is in the log and will be applied when the
    /// store is reopened; until then the store accepts no writes.
    #[error("a committed transaction could not be applied ({why}); reopen the store to finish it")]
    Stopped {
        /// What went wrong.
        why: String,
    },
    /// The bytes of the store cannot be right.
    #[error("the store is damaged: {what}; run check")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// The index refused.
    #[error(transparent)]
    Index(IndexError),
    /// The log refused.
    #[error(transparent)]
    Log(LogError),
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::EmptyKey => Self::EmptyKey,
            IndexError::KeyTooLong { bytes } => Self::KeyTooLong { bytes },
            IndexError::Alloc(error) => Self::Full(error),
            other => Self::Index(other),
        }
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Self {
        Self::Full(error)
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Full(error) => Self::Full(error),
            LogError::Fault(fault) => Self::Fault(fault),
            other => Self::Log(other),
        }
    }
}

impl Error {
    /// Whether somebody else has the store open.
    pub fn is_already_open(&self) -> bool {
        matches!(self, Self::File { source: PoolError::Region(RegionError::AlreadyOpen), .. })
    }
}
