//! How to open a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lapis_blocks::block_log::BlockLogOptions;
use lapis_buffer::{BufferOptions, MINI_FRAME_BYTES};
use lapis_engine::{
    Clock, Durability, EngineOptions, IndexKind, LeafLayout, Placement, RecoveryProgress,
};
use lapis_pmem::{Access, BLOCK_BYTES, Caches, DirectTransfers, EXTENT_BYTES, RegionOptions};

use crate::error::Error;

/// The log is not shorter, however long it may grow: a segment has sixteen pages then, and a record that changes a tree's
/// structure has a few.
const SHORTEST_LOG_PAGES: u64 = 256;
/// Segments of a log that is as long as it may be, where they are not longer than their default.
const SEGMENTS: u64 = 16;
const LARGEST_PAGE_BYTES: usize = 64 << 10;
/// Persistent memory at least: four times the shortest log, and with small pages as much as with those of 16 KiB.
const LEAST_MEMORY_BYTES: usize = 16 << 20;
/// Pages in DRAM at least.
const FEWEST_FRAMES: usize = 16;
/// Where there is persistent memory, this part of the DRAM for pages is for mini pages. With half of it,
/// skewed reads of a table that lies there take 7 % fewer lines than with a quarter; but a table that has room in DRAM has no use for it.
const MINI_PART: usize = 4;

/// Where a store is and how it is opened.
///
/// ```
/// # fn main() -> Result<(), lapis::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// let config = lapis::Config::new(directory.path()).cache_bytes(64 << 20);
/// let store = lapis::Store::open(config)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) directory: PathBuf,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) durability: Durability,
    cache_bytes: usize,
    page_bytes: usize,
    log_bytes: u64,
    direct: bool,
    contain_faults: bool,
    caches: Caches,
    overwrite: bool,
    clock: Clock,
    memory: Option<Memory>,
    placement: Option<Placement>,
    most_time_to_redo: Duration,
    on_recovery: Option<OnRecovery>,
}

/// Who is told how far an opening has come.
#[derive(Clone)]
struct OnRecovery(Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

impl std::fmt::Debug for OnRecovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnRecovery")
    }
}

/// Persistent memory of a store that is created.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
}

impl Config {
    /// The store in `directory`, created if it is not there, with everything else at its default.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            create: true,
            read_only: false,
            durability: Durability::Immediate,
            cache_bytes: 256 << 20,
            page_bytes: 16 << 10,
            log_bytes: 64 << 20,
            direct: false,
            contain_faults: false,
            caches: Caches::Detect,
            overwrite: false,
            clock: Clock::System,
            memory: None,
            placement: None,
            most_time_to_redo: Duration::from_secs(2),
            on_recovery: None,
        }
    }

    /// Whether to create a store where there is none (default), or refuse.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether to open a store that is there to be read, without writing one byte: by any number of processes at a time, on
    /// a medium that is read-only too, and while nobody has it open to write (what a writer has committed is in its
    /// memory and in the log before it is in the files' pages, so a reader beside it would see neither). A store whose
    /// last user crashed is recovered in memory, each time, which takes as much of it as pages were written since the
    /// last checkpoint. Writes fail with [`Error::ReadOnly`](crate::Error::ReadOnly). A store whose persistent memory is a device-DAX
    /// device cannot be opened so.
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// use lapis::{Config, Store};
    ///
    /// Store::open(Config::new(directory.path()))?.create_table("t")?.put(b"key", b"value")?;
    /// let store = Store::open(Config::new(directory.path()).read_only(true))?;
    /// assert_eq!(store.table("t")?.get(b"key")?.unwrap(), b"value");
    /// assert!(store.table("t")?.put(b"key", b"other").is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// How long commits wait that do not say so themselves: [`Durability::Immediate`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// DRAM for pages: 256 MiB by default. It is taken when it is needed. With persistent memory, a quarter of it is for
    /// pages there of which few lines are used.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Whether pages go past the kernel's page cache, where the file system lets them. By default they do not: what
    /// has no room in [`Config::cache_bytes`] is then read from memory as long as the machine has some to spare.
    /// With it, DRAM holds each page once, and no more than was asked for. Commits wait as long either way.
    #[must_use]
    pub fn direct_transfers(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    /// Bytes of a page of a store that is created, a power of two from 4 KiB to 64 KiB: 16 KiB by default.
    /// The longest key is about an eighth of a page.
    #[must_use]
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// The most that the log of a store that is created may grow to, 256 pages at least: 64 MiB by default. It begins
    /// with a segment (4 MiB or a sixteenth of that) or 256 pages, and is as short again when the store is closed. A longer one takes
    /// longer transactions and fewer checkpoints, and opening after a crash has more to read.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// How long an opening after a crash may take to do the log again, as it is estimated for this machine
    /// ([`Info::seconds_to_redo`](crate::Info::seconds_to_redo)): 2 s by default. A checkpoint is made at half of that in the
    /// background, and before a commit that would exceed it. Of a log of less than 1 MiB, none is made.
    #[must_use]
    pub fn most_time_to_redo(mut self, most: Duration) -> Self {
        self.most_time_to_redo = most;
        self
    }

    /// Has opening tell how far it has come, if it has the log to do again: each time that a MiB more was read, and at the end.
    #[must_use]
    pub fn on_recovery(mut self, tell: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Self {
        self.on_recovery = Some(OnRecovery(Arc::new(tell)));
        self
    }

    /// Tells it.
    pub(crate) fn tell_of_recovery(&self, progress: RecoveryProgress) {
        if let Some(OnRecovery(tell)) = &self.on_recovery {
            tell(progress);
        }
    }

    /// What was asked for.
    pub(crate) fn longest_redo(&self) -> Duration {
        self.most_time_to_redo
    }

    /// Gives a store that is created `bytes` of persistent memory, 16 MiB and 1,024 pages at least: a directory for a file,
    /// a file that is not there yet, or a device-DAX device. It holds the log, so that a commit waits for a fence
    /// and no disk; pages that have no room in DRAM; and tables in persistent indexes, for which it grows
    /// ([`TableOptions::index`]). An ordinary file is persistent memory to try things with: it survives the
    /// process, not a power cut, and neither does the store then, as [`crate::Store::info`] says. The store
    /// remembers where it is.
    #[must_use]
    pub fn persistent_memory(mut self, path: impl Into<PathBuf>, bytes: usize) -> Self {
        self.memory = Some(Memory { path: path.into(), bytes });
        self
    }

    /// Which way pages take between DRAM, persistent memory and the SSD, as long as the store is open: with persistent
    /// memory [`Placement::ThreeTier`] by default, [`Placement::BasicNvm`], or [`Placement::Spitfire`] with its four chances, which are
    /// fixed, or tuned from these on by the work in the background ([`Migration::tuned_each`](crate::Migration)); without,
    /// [`Placement::Ssd`] alone. What is on the media is the same, so it may be another one each time.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = Some(placement);
        self
    }

    /// Where pages may be, with persistent memory or without.
    ///
    /// # Errors
    /// [`Error::Placement`].
    fn placement_of(&self, has_memory: bool) -> Result<Placement, Error> {
        let default = if has_memory { Placement::ThreeTier } else { Placement::Ssd };
        let placement = self.placement.unwrap_or(default);
        let is_possible = match has_memory {
            true => placement.has_persistent_memory(),
            false => placement == Placement::Ssd,
        };
        is_possible.then_some(placement).ok_or(Error::Placement { placement, has_memory })
    }

    /// Persistent memory of a store that is created, whatever was asked for.
    pub(crate) fn memory(&self) -> Option<Memory> {
        let least = 4 * self.shortest_log() as usize;
        self.memory.as_ref().map(|Memory { path, bytes }| {
            let bytes = (*bytes).max(LEAST_MEMORY_BYTES).max(least);
            Memory { path: path.clone(), bytes: bytes.next_multiple_of(EXTENT_BYTES) }
        })
    }

    /// Whether persistent memory that cannot be read (a bad block of the medium, a file that somebody made shorter) is
    /// an error of the store, [`Error::BadMemory`](crate::Error::BadMemory), after which it answers and accepts nothing more. For that, a
    /// store with persistent memory installs a handler of the signal `SIGBUS` in the process, once; whatever does not concern such
    /// memory is passed on to whoever handled it before. By default it does not, and the process ends by that signal.
    #[must_use]
    pub fn contain_memory_faults(mut self, contain: bool) -> Self {
        self.contain_faults = contain;
        self
    }

    /// Whether commits write back the processor's caches to persistent memory: as the platform says, by default.
    #[must_use]
    pub fn caches(mut self, caches: Caches) -> Self {
        self.caches = caches;
        self
    }

    /// Whether a store that is created may overwrite what a device named by [`Config::persistent_memory`] holds of
    /// another one. By default it is refused. Files are never overwritten.
    #[must_use]
    pub fn overwrite_device(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// What tells the time for entries that expire: the clock of the wall, by default.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How the file of pages is read and written.
    pub(crate) fn transfers_of_pages(&self) -> DirectTransfers {
        if self.direct { DirectTransfers::IfPossible } else { DirectTransfers::Never }
    }

    /// How persistent memory is mapped.
    pub(crate) fn region_options(&self) -> RegionOptions {
        let (contain_faults, caches, overwrite) =
            (self.contain_faults, self.caches, self.overwrite);
        let access = if self.read_only { Access::Read } else { Access::Write };
        RegionOptions { contain_faults, caches, overwrite, access, ..RegionOptions::default() }
    }

    /// Bytes of DRAM for pages.
    pub(crate) fn cache(&self) -> usize {
        self.cache_bytes
    }

    /// Bytes that the log may grow to, whatever was asked for.
    fn log(&self) -> u64 {
        self.log_bytes.max(self.shortest_log())
    }

    /// Of pages that are larger than any, the engine will not hear.
    fn shortest_log(&self) -> u64 {
        SHORTEST_LOG_PAGES * self.page_bytes.min(LARGEST_PAGE_BYTES) as u64
    }

    /// Bytes of a segment of a log that may have so many.
    fn segment_bytes(log_bytes: u64) -> u64 {
        let (block, most) = (BLOCK_BYTES as u64, BlockLogOptions::new(0).segment_bytes);
        (log_bytes / SEGMENTS / block * block).clamp(block, most)
    }

    /// Blocks that the log's device begins with: so many segments, and the headers.
    pub(crate) fn first_log_blocks(&self) -> u64 {
        let bytes = self.shortest_log().max(1).next_multiple_of(Self::segment_bytes(self.log()));
        bytes / BLOCK_BYTES as u64 + 2
    }

    /// The engine's options, with a log of this identity, where there is persistent memory or not.
    ///
    /// # Errors
    /// [`Error::Placement`].
    pub(crate) fn engine_options(
        &self,
        identity: u64,
        has_memory: bool,
    ) -> Result<EngineOptions, Error> {
        let mut options = EngineOptions::new(identity.max(1));
        options.clock = self.clock;
        options.most_time_to_redo = Some(self.most_time_to_redo);
        options.placement = self.placement_of(has_memory)?;
        let mut log_bytes = self.log();
        if let Some(memory) = self.memory() {
            log_bytes = log_bytes.min(memory.bytes as u64 / 4);
            options.memory.log_blocks = log_bytes.div_ceil(BLOCK_BYTES as u64) + 2;
            options.memory.frames = memory.bytes / 2 / self.page_bytes.max(1);
        }
        let for_minis =
            if options.placement.moves_lines() { self.cache_bytes / MINI_PART } else { 0 };
        let frames = (self.cache_bytes - for_minis) / self.page_bytes.max(1);
        let frames = frames.max(FEWEST_FRAMES);
        let mini_frames = for_minis / MINI_FRAME_BYTES;
        // What is changed again and again is written once for many changes; a quarter is there for what is read.
        let most_changed_frames = frames / 4 * 3;
        let default = BufferOptions::default();
        options.buffer = BufferOptions { frames, mini_frames, most_changed_frames, ..default };
        options.buffer.space.page_bytes = self.page_bytes;
        let default = options.log;
        let segment_bytes = Self::segment_bytes(log_bytes);
        let batch_bytes = default.batch_bytes.min(segment_bytes);
        let most_bytes = if has_memory { 0 } else { log_bytes };
        options.log = BlockLogOptions { segment_bytes, batch_bytes, most_bytes, ..default };
        Ok(options)
    }
}

/// What can be chosen when a table is created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The persistent index that holds the table, in persistent memory; none for a B+-tree on pages, which
    /// may lie in DRAM, persistent memory and on the SSD.
    pub index: Option<IndexKind>,
    /// How the leaves of a B+-tree find a record. Hashed ones are for tables of short records in persistent memory
    /// ([`Config::persistent_memory`]) that are read one by one and at random: a get loads 3.2 lines of 64 bytes of a leaf
    /// instead of 7.4 with keys and values of 8 bytes, 4.7 instead of 6.9 with values of 100. Reading in order sorts each leaf
    /// that it comes to, which takes several times as long for a short range.
    pub leaves: LeafLayout,
    /// Entries to make room for at once (hash tables); 0 starts small.
    pub expected_entries: usize,
    /// How long an entry lives that is not given a time ([`TimeToLive`](crate::TimeToLive)), to the millisecond; none: for ever.
    pub time_to_live: Option<Duration>,
}

impl TableOptions {
    /// A table held by `index`.
    pub fn with_index(index: IndexKind) -> Self {
        Self { index: Some(index), ..Self::default() }
    }

    /// What a table that is made so says of its time to live: a catalog keeps milliseconds, in 64 bits.
    pub(crate) fn time_to_live_as_kept(&self) -> Option<Duration> {
        let kept = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.time_to_live.map(|time| Duration::from_millis(kept(time)))
    }
}
