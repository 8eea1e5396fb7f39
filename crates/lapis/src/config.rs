//! How to open a store, and what to make a table of.

use std::path::{Path, PathBuf};

use lapis_index::IndexKind;
use lapis_pmem::{DEFAULT_RESERVE_BYTES, Durability, RegionOptions};

/// The file in a store's directory that holds the pool.
pub const POOL_FILE: &str = "store.lapis";

/// Where a store is and how it is opened.
///
/// ```
/// # fn main() -> Result<(), lapis::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = lapis::Store::open(lapis::Config::new(directory.path()).create(true))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) directory: PathBuf,
    pub(crate) initial_bytes: usize,
    pub(crate) create: bool,
    pub(crate) region: RegionOptions,
    pub(crate) options: StoreOptions,
}

impl Config {
    /// The store in `directory`, created if it is not there, with everything else at its default.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            initial_bytes: 16 << 20,
            create: true,
            region: RegionOptions::default(),
            options: StoreOptions::default(),
        }
    }

    /// The most that the store may grow to, in bytes; by default what the address space allows, at
    /// most 1 TiB.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.region.reserve_bytes = bytes.min(DEFAULT_RESERVE_BYTES);
        self
    }

    /// The size of a new store, in bytes: 16 MiB by default. It grows as needed.
    #[must_use]
    pub fn initial_bytes(mut self, bytes: usize) -> Self {
        self.initial_bytes = bytes;
        self
    }

    /// What an acknowledged write survives. See [`Durability`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.region.durability = durability;
        self
    }

    /// Whether to create a store where there is none (default), or refuse.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The machine's caches are inside the power-fail domain; see [`RegionOptions::eadr`].
    #[must_use]
    pub fn eadr(mut self, eadr: bool) -> Self {
        self.region.eadr = eadr;
        self
    }

    /// Options of the store proper.
    #[must_use]
    pub fn options(mut self, options: StoreOptions) -> Self {
        self.options = options;
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn pool_path(&self) -> PathBuf {
        self.directory.join(POOL_FILE)
    }
}

/// What can be chosen when a store is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes per segment of the write-ahead log.
    pub log_segment_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { log_segment_bytes: 1 << 20 }
    }
}

/// What can be chosen when a table is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// The index that holds the table.
    pub index: IndexKind,
    /// Entries to make room for at once (hash tables); 0 starts small.
    pub expected_entries: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { index: IndexKind::Wort, expected_entries: 0 }
    }
}

impl TableOptions {
    /// A table held by `index`.
    pub fn with_index(index: IndexKind) -> Self {
        Self { index, ..Self::default() }
    }
}
