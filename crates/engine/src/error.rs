//! Why the engine refused.

use std::sync::Arc;

use lapis_blocks::block_log::BlockLogError;
use lapis_buffer::{BufferError, SpaceError, TierError};
use lapis_index::{IndexError, IndexKind};
use lapis_pmem::{AllocError, BlockError, DomainFault, PoolDeviceError, RootError};
use lapis_tree::TreeError;

use crate::tables::MAX_TABLE_NAME_BYTES;

/// Why the engine refused. Unless the variant says otherwise, everything is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Another transaction has written what this one read. Begun again, it may succeed.
    #[error("another transaction changed what this one has read; begin it again")]
    Conflict,
    /// The devices hold no engine, or one whose creation was cut short.
    #[error("there is no store here, or its creation was cut short")]
    NotCreated,
    /// A backup was being restored, and did not come to its end.
    #[error("a restore into this store was cut short; restore the backup into a new one")]
    RestoreCutShort,
    /// It was opened to be read.
    #[error("the store was opened to read only")]
    ReadOnly,
    /// The parts of the storage do not make an engine of this placement.
    #[error("{what}")]
    Storage {
        /// What is missing.
        what: &'static str,
    },
    /// The engine has no persistent memory, which the table would be in.
    #[error("there is no persistent memory here for a table in an index")]
    NoPersistentMemory,
    /// The table's index has no order.
    #[error("the table {name:?} is a {kind} index, whose keys have no order")]
    Unordered {
        /// The name.
        name: String,
        /// The index.
        kind: IndexKind,
    },
    /// Keys of tables in indexes have at least one byte.
    #[error("a key of a table in an index has at least one byte")]
    EmptyKey,
    /// Not a name for a table.
    #[error("a table's name has 1 to {MAX_TABLE_NAME_BYTES} bytes, none of them zero")]
    BadTableName,
    /// There is no such table.
    #[error("there is no table {name:?}")]
    NoSuchTable {
        /// The name.
        name: String,
    },
    /// There is one already.
    #[error("there is a table {name:?} already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// The table has been dropped since the handle was made.
    #[error("the table {name:?} has been dropped")]
    Dropped {
        /// The name.
        name: String,
    },
    /// An entry of the load was refused before.
    #[error("an entry was refused before, so the load cannot go on; begin it again")]
    LoadFailed,
    /// The savepoint is another transaction's, or one before it was gone back to.
    #[error("the transaction has no such savepoint any more")]
    NoSuchSavepoint,
    /// The key is too long.
    #[error("a key of {bytes} bytes is longer than the longest, {most}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        most: usize,
    },
    /// The value is too long.
    #[error("a value of {bytes} bytes is longer than the longest, {most}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The longest for this key.
        most: usize,
    },
    /// The transaction would be longer than the log allows.
    #[error(
        "the transaction would have {bytes} bytes of writes, more than {most}; commit in parts, or give the log more room"
    )]
    TransactionTooLong {
        /// Bytes of its writes.
        bytes: u64,
        /// The most there may be.
        most: u64,
    },
    /// A committed transaction could not be applied, or the medium failed. What was acknowledged is in the log
    /// and will be there when the store is opened again; until then nothing is written.
    #[error("the store accepts no more writes ({why}); open it again")]
    Stopped {
        /// What went wrong.
        why: Arc<str>,
    },
    /// The log, or a table of tables, says what it cannot say.
    #[error("the store is damaged: {what}")]
    Damaged {
        /// What is wrong, and where.
        what: String,
    },
    /// Persistent memory has failed. Nothing is read from it or written any more.
    #[error(transparent)]
    Memory(#[from] DomainFault),
    /// A tree refused.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The buffer manager refused.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The log refused.
    #[error(transparent)]
    Log(#[from] BlockLogError),
    /// The log's place in persistent memory cannot be had.
    #[error(transparent)]
    PoolDevice(#[from] PoolDeviceError),
    /// The place of pages in persistent memory cannot be had.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// An index refused.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Persistent memory is full.
    #[error(transparent)]
    Pool(#[from] AllocError),
    /// A name in the pool is taken.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl EngineError {
    /// Whether there was no room on the device of the pages, or in persistent memory. Removals and compaction make
    /// some; what was refused may succeed then.
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::Buffer(error) | Self::Tree(TreeError::Buffer(error)) => matches!(
                error,
                BufferError::Space(
                    SpaceError::NoRoom { .. } | SpaceError::Device(BlockError::NoSpace { .. })
                )
            ),
            Self::Pool(_) | Self::Index(IndexError::Alloc(_)) => true,
            _ => false,
        }
    }
}
