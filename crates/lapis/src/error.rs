//! Everything a store can refuse.

use std::path::PathBuf;
use std::sync::Arc;

use lapis_blocks::block_log::BlockLogError;
use lapis_buffer::{BufferError, SpaceError};
use lapis_engine::{BackupError, EngineError, IndexKind, Placement};
use lapis_index::IndexError;
use lapis_pmem::{BlockError, BlockOpenError, DomainFault, PoolError, RegionError};
use lapis_tree::TreeError;

use crate::MAX_TABLE_NAME_BYTES;

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
    /// There is a log, or persistent memory, of a store in the directory, and its pages are not there. Nothing is made over
    /// that: [`crate::salvage`] reads what is left.
    #[error(
        "{} has what is left of a store whose {} is missing; `lapis export --salvage` reads that, and a store can be made there once it is removed",
        path.display(),
        crate::PAGES_FILE
    )]
    PagesMissing {
        /// The directory.
        path: PathBuf,
    },
    /// The store is of the format before the first, which nothing reads any more.
    #[error(
        "{} is of format 1, which was never released and is not read; export it with the Lapis that made it",
        path.display()
    )]
    UnreleasedFormat {
        /// The file.
        path: PathBuf,
    },
    /// The store was opened to be read ([`crate::Config::read_only`]).
    #[error("the store was opened to read only; open it to write")]
    ReadOnly,
    /// The directory could not be made or read.
    #[error("cannot use the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the operating system answered.
        source: std::io::Error,
    },
    /// A file of the store could not be opened or created.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BlockOpenError,
    },
    /// Persistent memory could not be had.
    #[error("{}: {source}", path.display())]
    Memory {
        /// The file or device.
        path: PathBuf,
        /// Why.
        source: PoolError,
    },
    /// A store that is to be made would lie on what is there.
    #[error("{} is there already; name a file that is not, for the store's persistent memory", path.display())]
    MemoryInUse {
        /// The file.
        path: PathBuf,
    },
    /// What persistent memory of a store is called until there is a store is there already, in a directory that is not
    /// the store's: left by a creation that was cut short, or anybody's.
    #[error(
        "{} is there already, left of making a store or somebody's own; remove it if nothing needs it, or name another file for the store's persistent memory",
        path.display()
    )]
    MemoryUnfinished {
        /// The file.
        path: PathBuf,
    },
    /// Pages cannot be where [`crate::Config::placement`] says, in this store.
    #[error(
        "pages cannot be placed as {placement}: {}",
        if *has_memory {
            "the store has persistent memory; choose basic-nvm, three-tier or spitfire"
        } else {
            "the store has no persistent memory; choose ssd"
        }
    )]
    Placement {
        /// What was asked for.
        placement: Placement,
        /// Whether the store has persistent memory.
        has_memory: bool,
    },
    /// The store has no persistent memory, which a table in a persistent index needs.
    #[error("the store was made without persistent memory, which a table in an index lies in")]
    NoPersistentMemory,
    /// A table is there, and is not as it was asked for.
    #[error(
        "the table {name:?} is there, with another index, other leaves or another time to live"
    )]
    OtherTable {
        /// The table.
        name: String,
    },
    /// The table's index does not keep keys in order.
    #[error("the table {name:?} is a {kind} hash table and has no ranges; use an ordered index")]
    Unordered {
        /// The table.
        name: String,
        /// Its index.
        kind: IndexKind,
    },
    /// A backup was to be restored where a store is.
    #[error("{} is there already; restore into another directory", path.display())]
    StoreExists {
        /// What is there.
        path: PathBuf,
    },
    /// A backup could not be written, or not be read.
    #[error(transparent)]
    Backup(BackupError),
    /// Another transaction has written what this one read. Begun again, it may succeed ([`crate::Store::retry`]).
    #[error("another transaction changed what this one has read; begin it again")]
    Conflict,
    /// The savepoint is another transaction's, or one before it was gone back to.
    #[error("the transaction has no such savepoint any more")]
    NoSuchSavepoint,
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
    /// A handle of another store was passed.
    #[error("the table {name:?} belongs to another store")]
    ForeignTable {
        /// The table.
        name: String,
    },
    /// The key has no bytes.
    #[error("a key has at least one byte")]
    EmptyKey,
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
        /// The longest.
        most: usize,
    },
    /// The writes of the transaction are more than the log takes.
    #[error(
        "the transaction would have {bytes} bytes of writes, more than {most}; commit in parts, or make the store with a longer log"
    )]
    TransactionTooLong {
        /// Bytes of its writes.
        bytes: u64,
        /// The most there may be.
        most: u64,
    },
    /// No room. Deleting makes room.
    #[error("there is no room: {0}")]
    Full(String),
    /// The medium failed. What the failed call asked for may or may not be durable; everything
    /// acknowledged before is, as far as the medium kept its promise. Reopen the store.
    #[error("the medium failed: {0}")]
    Medium(String),
    /// A committed transaction could not be applied, or the medium failed. What was acknowledged is in
    /// the log and will be there when the store is opened again; until then nothing is written.
    #[error("the store accepts no more writes ({why}); open it again")]
    Stopped {
        /// What went wrong.
        why: Arc<str>,
    },
    /// Persistent memory cannot be read: the medium is damaged there, or its file was made shorter. The store answers
    /// nothing more that may be wrong, and accepts no writes.
    #[error(
        "persistent memory cannot be read at offset {offset:#x} of {}: the medium is damaged there, or the file was made shorter; close the store, and restore a backup, or save what is left with export --salvage", path.display()
    )]
    BadMemory {
        /// The file or device.
        path: PathBuf,
        /// The first offset that could not be read.
        offset: u64,
    },
    /// The bytes of the store cannot be right. What lies elsewhere can still be read.
    #[error("the store is damaged: {what}; run check")]
    Damaged {
        /// What is wrong, and where.
        what: String,
    },
    /// An entry of a [`crate::TypedTable`] is none of its types.
    #[error("{what} is not of the type that was asked for")]
    WrongType {
        /// Which.
        what: String,
    },
    /// Anything else.
    #[error(transparent)]
    Engine(EngineError),
}

impl From<BackupError> for Error {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Engine(error) => error.into(),
            error => Self::Backup(error),
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Conflict => Self::Conflict,
            EngineError::ReadOnly => Self::ReadOnly,
            EngineError::NoSuchSavepoint => Self::NoSuchSavepoint,
            EngineError::NoPersistentMemory => Self::NoPersistentMemory,
            EngineError::Unordered { name, kind } => Self::Unordered { name, kind },
            EngineError::EmptyKey => Self::EmptyKey,
            EngineError::Pool(error) => Self::Full(error.to_string()),
            EngineError::Index(IndexError::Alloc(error)) => Self::Full(error.to_string()),
            EngineError::Index(error @ IndexError::Damaged { .. }) => {
                Self::Damaged { what: error.to_string() }
            }
            EngineError::BadTableName => Self::BadTableName,
            EngineError::NoSuchTable { name } => Self::NoSuchTable { name },
            EngineError::TableExists { name } => Self::TableExists { name },
            EngineError::Dropped { name } => Self::Dropped { name },
            EngineError::KeyTooLong { bytes, most } => Self::KeyTooLong { bytes, most },
            EngineError::ValueTooLong { bytes, most } => Self::ValueTooLong { bytes, most },
            EngineError::TransactionTooLong { bytes, most } => {
                Self::TransactionTooLong { bytes, most }
            }
            EngineError::Stopped { why } => Self::Stopped { why },
            EngineError::Damaged { what } => Self::Damaged { what },
            EngineError::Tree(TreeError::Buffer(error)) | EngineError::Buffer(error) => {
                of_pages(error)
            }
            EngineError::Tree(
                error @ (TreeError::Damaged { .. } | TreeError::BadRecord { .. }),
            ) => Self::Damaged { what: error.to_string() },
            EngineError::Log(error) => of_log(error),
            EngineError::Memory(fault) => of_memory(&fault),
            error => Self::Engine(error),
        }
    }
}

fn of_memory(fault: &DomainFault) -> Error {
    match fault {
        DomainFault::BadMemory { path, offset } => {
            Error::BadMemory { path: path.clone(), offset: *offset }
        }
        fault => Error::Medium(fault.to_string()),
    }
}

fn of_device(error: &BlockError) -> Error {
    match error {
        BlockError::Memory(fault) => of_memory(fault),
        BlockError::NoSpace { .. } => Error::Full(error.to_string()),
        // The file is shorter than what is in it.
        BlockError::OutOfRange { .. } => Error::Damaged { what: error.to_string() },
        _ => Error::Medium(error.to_string()),
    }
}

fn of_pages(error: BufferError) -> Error {
    match error {
        BufferError::Space(SpaceError::Device(error)) => of_device(&error),
        BufferError::Space(error @ SpaceError::NoRoom { .. }) => Error::Full(error.to_string()),
        BufferError::Space(
            error @ (SpaceError::WritesLost { .. }
            | SpaceError::JournalUnreadable { .. }
            | SpaceError::MapUnreadable { .. }),
        ) => Error::Medium(error.to_string()),
        BufferError::Space(error) => Error::Damaged { what: error.to_string() },
        error @ BufferError::BadReference { .. } => Error::Damaged { what: error.to_string() },
        BufferError::Log(error) => Error::Medium(error.to_string()),
        error => Error::Engine(error.into()),
    }
}

fn of_log(error: BlockLogError) -> Error {
    use BlockLogError as Log;
    match error {
        Log::Device(error) => of_device(&error),
        Log::Failed(error) => Error::Medium(error.to_string()),
        error @ (Log::Damaged(_)
        | Log::DamagedHeader
        | Log::NotALog
        | Log::NotARecord { .. }
        | Log::DeviceTooSmall { .. }
        | Log::Options { .. }) => Error::Damaged { what: error.to_string() },
        error => Error::Engine(error.into()),
    }
}

impl Error {
    pub(crate) fn of_pool(path: PathBuf, source: PoolError) -> Self {
        match source {
            PoolError::Fault(fault) => of_memory(&fault),
            source => Self::Memory { path, source },
        }
    }

    /// Whether somebody else has the store open.
    pub fn is_already_open(&self) -> bool {
        matches!(
            self,
            Self::File { source: BlockOpenError::AlreadyOpen(_), .. }
                | Self::Memory { source: PoolError::Region(RegionError::AlreadyOpen(_)), .. }
        )
    }

    /// Whether it is refused because of what the files hold.
    pub fn is_damage(&self) -> bool {
        use BlockOpenError as Open;
        match self {
            Self::Damaged { .. } | Self::PagesMissing { .. } => true,
            Self::Memory { source, .. } => matches!(
                source,
                PoolError::NotAPool
                    | PoolError::Truncated { .. }
                    | PoolError::WrongChecksum
                    | PoolError::Damaged { .. }
                    | PoolError::Region(RegionError::NotFound)
            ),
            Self::File { source, .. } => matches!(
                source,
                Open::NotFound | Open::TooSmall { .. } | Open::NotWholeBlocks { .. }
            ),
            _ => false,
        }
    }
}
