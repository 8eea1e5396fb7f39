//! How to open a store.

use std::path::{Path, PathBuf};

use lapis_blocks::block_log::BlockLogOptions;
use lapis_buffer::BufferOptions;
use lapis_engine::{Durability, EngineOptions};
use lapis_pmem::BLOCK_BYTES;

/// The log is not shorter.
const SHORTEST_LOG_BYTES: u64 = 1 << 20;
/// Segments of a log, where they are not longer than their default.
const SEGMENTS: u64 = 16;
/// Pages in DRAM at least.
const FEWEST_FRAMES: usize = 16;

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
    pub(crate) durability: Durability,
    cache_bytes: usize,
    page_bytes: usize,
    log_bytes: u64,
}

impl Config {
    /// The store in `directory`, created if it is not there, with everything else at its default.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            create: true,
            durability: Durability::Immediate,
            cache_bytes: 256 << 20,
            page_bytes: 16 << 10,
            log_bytes: 64 << 20,
        }
    }

    /// Whether to create a store where there is none (default), or refuse.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How long commits wait that do not say so themselves: [`Durability::Immediate`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// DRAM for pages: 256 MiB by default. It is taken when it is needed.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Bytes of a page of a store that is created, a power of two from 4 KiB to 64 KiB: 16 KiB by default.
    /// The longest key is about an eighth of a page.
    #[must_use]
    pub fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// The size of the log of a store that is created, 1 MiB at least: 64 MiB by default. A longer one takes
    /// longer transactions and fewer checkpoints, and opening after a crash has more to read.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes.max(SHORTEST_LOG_BYTES);
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes of DRAM for pages.
    pub(crate) fn cache(&self) -> usize {
        self.cache_bytes
    }

    /// Blocks of the log's device: the ring and its headers.
    pub(crate) fn log_blocks(&self) -> u64 {
        self.log_bytes.div_ceil(BLOCK_BYTES as u64) + 2
    }

    /// The engine's options, with a log of this identity.
    pub(crate) fn engine_options(&self, identity: u64) -> EngineOptions {
        let mut options = EngineOptions::new(identity);
        let frames = (self.cache_bytes / self.page_bytes.max(1)).max(FEWEST_FRAMES);
        options.buffer =
            BufferOptions { frames, most_changed_frames: frames / 2, ..BufferOptions::default() };
        options.buffer.space.page_bytes = self.page_bytes;
        let default = BlockLogOptions::new(identity);
        let block = BLOCK_BYTES as u64;
        let segment_bytes = (self.log_bytes / SEGMENTS / block * block).min(default.segment_bytes);
        let batch_bytes = default.batch_bytes.min(segment_bytes);
        options.log = BlockLogOptions { segment_bytes, batch_bytes, ..default };
        options
    }
}
