//! What every log shares: the trait [`Log`], where an entry stands, and what can go wrong.
//!
//! | log | barriers per append | bytes of an entry of `n` bytes before padding | what says that it is there |
//! |---|---|---|---|
//! | [`ClassicLog`](crate::classic_log::ClassicLog) | 2 | 16 + `n` + 8 | a footer behind it |
//! | [`HeaderLog`](crate::header_log::HeaderLog), one size field | 2 | 16 + `n` | the size in the log's header |
//! | [`HeaderLog`](crate::header_log::HeaderLog), dancing | 2 | 16 + `n` | the greatest of many sizes |
//! | [`Rawl`](crate::rawl::Rawl) | 1 | (128 + 8`n`) / 63 blocks of 8 | a bit in each eight bytes |
//! | [`PopLog`](crate::pop_log::PopLog) | 1 | 16 + `n` | the number of its set bits |
//!
//! A barrier is a flush of everything that was stored, and a fence. All but PopLog lie in a ring of
//! a size that is chosen once; PopLog grows by segments. [`PopLog`](crate::pop_log::PopLog) is the
//! one to use unless there is a reason for another: `docs/logs.md` has the figures.

use std::ops::Range;
use std::sync::Arc;

use lapis_pmem::{
    AllocError, BlockVisitor, Committed, Domain, DomainFault, InFlight, Link, Owned, Persistent,
    Pool, RootError,
};

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

/// How entries lie with respect to lines. Persisting a line that was persisted shortly before is slow
/// (the thesis, Fig. 1 and 8), so an entry that begins in the line that the one before it ended in
/// costs more than one that begins a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// One behind the other, to eight bytes: least space, and the last line of an entry is stored to
    /// and flushed again by the next.
    Dense,
    /// Each entry begins a line: no line is persisted twice, at up to 63 bytes per entry (twice
    /// that for the classic log, whose footer gets a line of its own).
    #[default]
    Padded,
    /// One behind the other as with [`Placement::Dense`], but the line that is not full yet is
    /// kept in DRAM as well and written whole past the caches: it is written again, and never
    /// loaded again. In the two PopLogs entries share a line only whole: what is left of it stays
    /// free where another entry as long would not fit.
    Streamed,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dense, Self::Padded, Self::Streamed];

    /// The name in tables and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Padded => "padded",
            Self::Streamed => "streamed",
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How to lay out a new log, whatever its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each segment of a log that has some, or for the entries of a ring: then a multiple of
    /// 64 from [`SMALLEST_CAPACITY_BYTES`](crate::ring_log::SMALLEST_CAPACITY_BYTES) to
    /// [`LARGEST_CAPACITY_BYTES`](crate::ring_log::LARGEST_CAPACITY_BYTES).
    pub bytes: usize,
    /// How entries lie with respect to lines.
    pub placement: Placement,
    /// How many size fields a header log has, 1 to
    /// [`MOST_SIZE_FIELDS`](crate::ring_log::MOST_SIZE_FIELDS); of no meaning to others.
    pub size_fields: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self { bytes: 4 << 20, placement: Placement::Padded, size_fields: 64 }
    }
}

/// What a log holds, and what it has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStatistics {
    /// Entries that are retained.
    pub entries: u64,
    /// Bytes they take, with headers, footers, validity bits and padding.
    pub entry_bytes: u64,
    /// Bytes set aside for entries.
    pub capacity_bytes: u64,
}

/// A log in a pool: entries are appended at the end, read from the oldest and dropped from there.
/// One entry is durable, whole, when its append returns; an append that a crash interrupts leaves
/// the whole entry or nothing. All methods may be called from several threads; appends take turns.
/// For appends side by side see [SharedLog and
/// [`ThreadLogs`](crate::thread_logs::ThreadLogs).
pub trait Log<D: Domain>: Sized + Send + Sync {
    /// The name on the command line, in JSON and in files.
    const NAME: &'static str;
    /// The block that the caller publishes.
    type Root: Persistent;
    /// How to lay out a new log.
    type Options: Clone + Default;

    /// Barriers of an append.
    const BARRIERS: u64;
    /// Whether it grows by segments; the other logs have an end, and their batches are whole.
    const GROWS: bool;

    /// How to lay out a log of its kind.
    fn options(layout: Layout) -> Self::Options;

    /// Lays out an empty log, durable with the caller's next fence. The caller then publishes it
    /// where he likes and calls [`Log::open`] with its link.
    ///
    /// # Errors
    /// Those of the log's options; [`LogError::Full`].
    fn create(
        pool: &Pool<D>,
        options: Self::Options,
    ) -> Result<Owned<'_, D, Self::Root, InFlight>, LogError>;

    /// Opens a log, after a crash or not.
    ///
    /// # Errors
    /// [`LogError::NotALog`], [`LogError::NewerVersion`], [`LogError::InUse`], [`LogError::Damaged`]:
    /// nothing was written. [`LogError::Fault`].
    fn open(pool: Arc<Pool<D>>, root: Link<Self::Root>) -> Result<Self, LogError>;

    /// Lays out an empty log, publishes it as the pool's root of that name, and opens it. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Log::create`] and [`Log::open`]; [`LogError::Root`].
    fn create_named(
        pool: &Arc<Pool<D>>,
        name: &str,
        options: Self::Options,
    ) -> Result<Self, LogError> {
        let root = pool.fence(Self::create(pool, options)?);
        let link = root.link();
        let _: Committed = pool.publish_root(name, 0, root)?.persist();
        Self::open(Arc::clone(pool), link)
    }

    /// Appends an entry. Durable on return.
    ///
    /// # Errors
    /// [`LogError::EmptyEntry`], [`LogError::EntryTooLarge`], [`LogError::LargerThanLog`],
    /// [`LogError::Full`], [`LogError::NoRoom`]: nothing was appended. [`LogError::Fault`].
    #[inline]
    fn append(&self, payload: &[u8]) -> Result<Position, LogError> {
        self.append_parts(&[payload])
    }

    /// Appends one entry whose payload is `parts` end to end.
    ///
    /// # Errors
    /// As [`Log::append`].
    fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, LogError>;

    /// Appends several entries. All are durable on return. No entries: nothing happens.
    ///
    /// The logs in a ring take the barriers of one append for all of them, and a crash in between
    /// leaves all or none. [`PopLog`](crate::pop_log::PopLog), whose format has nothing to tell a
    /// batch by, takes a barrier for each, and a crash leaves the first so many.
    ///
    /// # Errors
    /// As [`Log::append`]; nothing was appended then.
    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Range<Position>, LogError>;

    /// The retained entries, oldest first.
    fn entries(&self) -> impl Iterator<Item = Result<(Position, Vec<u8>), LogError>> + '_;

    /// Drops every entry before `up_to`, which becomes the oldest retained one. Durable on return;
    /// nothing happens if the entries are gone already.
    ///
    /// # Errors
    /// [`LogError::BeyondEnd`], [`LogError::Damaged`], [`LogError::Fault`].
    fn truncate(&self, up_to: Position) -> Result<Committed, LogError>;

    /// The position of the oldest retained entry; equal to [`Log::end`] if there is none.
    fn start(&self) -> Position;

    /// The position that the next entry will have.
    fn end(&self) -> Position;

    /// What the log holds.
    fn log_statistics(&self) -> LogStatistics;

    /// Reads the whole log anew and compares it with what is known of it. Empty if all is well.
    fn check(&self) -> Vec<Damage>;

    /// Visits every block of the log. Nobody may append or truncate meanwhile.
    fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>);

    /// The pool the log lies in.
    fn pool(&self) -> &Arc<Pool<D>>;
}

/// What a type has as methods of its own, for [`Log`] as well.
macro_rules! forward_to_own_methods {
    ($domain:ident) => {
        fn create(
            pool: &Pool<$domain>,
            options: Self::Options,
        ) -> Result<Owned<'_, $domain, Self::Root, InFlight>, LogError> {
            Self::create(pool, options)
        }
        fn open(pool: Arc<Pool<$domain>>, root: Link<Self::Root>) -> Result<Self, LogError> {
            Self::open(pool, root)
        }
        #[inline]
        fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, LogError> {
            Self::append_parts(self, parts)
        }
        fn entries(&self) -> impl Iterator<Item = Result<(Position, Vec<u8>), LogError>> + '_ {
            self.iter()
        }
        fn truncate(&self, up_to: Position) -> Result<Committed, LogError> {
            Self::truncate(self, up_to)
        }
        fn start(&self) -> Position {
            Self::start(self)
        }
        fn end(&self) -> Position {
            Self::end(self)
        }
        fn check(&self) -> Vec<Damage> {
            Self::check(self)
        }
        fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, $domain>) {
            Self::visit_blocks(self, visitor);
        }
        fn pool(&self) -> &Arc<Pool<$domain>> {
            Self::pool(self)
        }
    };
}
pub(crate) use forward_to_own_methods;

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
    /// The options of a ring cannot be met.
    #[error(
        "a log of {capacity_bytes} bytes is impossible; choose a multiple of 64 between \
         {smallest_bytes} and {largest_bytes}"
    )]
    BadCapacity {
        /// The capacity asked for.
        capacity_bytes: usize,
        /// The smallest there is.
        smallest_bytes: usize,
        /// The largest there is.
        largest_bytes: usize,
    },
    /// The options of a header log cannot be met.
    #[error("a log with {size_fields} size fields is impossible; choose 1 to {most}")]
    BadSizeFields {
        /// The number asked for.
        size_fields: usize,
        /// The most there are.
        most: usize,
    },
    /// The entry, or the batch, does not fit into the log even if it is empty.
    #[error(
        "{asked_bytes} bytes for the entry and what goes with it are more than the log has, \
         {capacity_bytes}; split it or make a larger log"
    )]
    LargerThanLog {
        /// Bytes of the entry with all that goes with it.
        asked_bytes: u64,
        /// Bytes of the log.
        capacity_bytes: u64,
    },
    /// The ring is full. Truncating the log makes room.
    #[error(
        "the log is full: {free_bytes} bytes are free and the entry takes {asked_bytes}; \
         truncate it first"
    )]
    NoRoom {
        /// Bytes of the entry with all that goes with it.
        asked_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// Threads can only fill a log side by side whose entries do not share lines.
    #[error("entries of this log share lines ({placement}); a shared log needs padded ones")]
    SharedLines {
        /// How its entries lie.
        placement: Placement,
    },
    /// No room for another segment. Truncating the log or enlarging the pool makes room.
    #[error("the log cannot grow: {0}")]
    Full(#[from] AllocError),
    /// The pool has no root of that name to give.
    #[error(transparent)]
    Root(#[from] RootError),
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
    /// It is open in this opening of the pool: where its end is, that handle knows.
    #[error("the log is open already: its handle is to be shared")]
    InUse,
    /// The log holds what no crash leaves behind.
    #[error("the log is damaged: {0}")]
    Damaged(Damage),
    /// The medium refused to persist. What was appended may or may not be durable.
    #[error(transparent)]
    Fault(#[from] DomainFault),
}
