//! What a store that is checked lies on.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lapis_blocks::block_log::BlockLogOptions;
use lapis_buffer::{BufferOptions, Chance, Migration, SpaceOptions};
use lapis_compiled_indexes::ModelledKey;
use lapis_device::{Modelled, ModelledSsd, SsdConfig};
use lapis_engine::{
    Clock, Engine, EngineError, EngineOptions, IndexKind, IndexOptions, LeafLayout,
    PersistentMemoryOptions, Placement, Table, TableStructure,
};
use lapis_pmem::BlockDevice;

use super::operation::TABLES;
use crate::storage::Storage;
use crate::subject::text;

/// A ring of 128 KiB, which comes round, and its headers.
const LOG_BLOCKS: u64 = 2 + 32;
/// The same, before it has grown.
const FIRST_LOG_BLOCKS: u64 = 2 + 16;
/// The time of explorations, which stands still, so that all recoveries have the same.
static NOW_MS: AtomicU64 = AtomicU64::new(1000);

/// Every way between the tiers is taken again and again.
pub const SPITFIRE: Placement = spitfire(None);
/// The same with chances that are tuned, from these on, in rounds that are as short as the runs.
pub const TUNED_SPITFIRE: Placement = spitfire(NonZeroU32::new(64));

const fn spitfire(tuned_each: Option<NonZeroU32>) -> Placement {
    Placement::Spitfire(Migration {
        dram_reads: Chance::thousandths(250),
        dram_writes: Chance::thousandths(250),
        memory_reads: Chance::thousandths(400),
        memory_writes: Chance::thousandths(500),
        tuned_each,
    })
}

/// What an engine that is checked lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiers {
    pub(crate) placement: Placement,
    /// The log is in persistent memory.
    pub(crate) log_in_pool: bool,
    /// Tables are in persistent indexes.
    pub(crate) index_tables: bool,
}

impl Tiers {
    /// Pages and log on SSDs.
    pub(crate) const SSD: Self =
        Self { placement: Placement::Ssd, log_in_pool: false, index_tables: false };

    /// Log, and pages, in persistent memory.
    pub(crate) const fn in_pool(placement: Placement) -> Self {
        Self { placement, log_in_pool: true, index_tables: false }
    }

    /// The log and tables in persistent memory, what is left of pages on an SSD.
    pub(crate) const NVM_DIRECT: Self =
        Self { placement: Placement::Ssd, log_in_pool: true, index_tables: true };

    pub(crate) fn pool_bytes(self) -> usize {
        match (self.log_in_pool, self.index_tables) {
            (_, true) => 4 << 20,
            (true, false) => 2 << 20,
            (false, false) => 0,
        }
    }

    /// Makes a table: in an index of this kind, or in a tree with leaves that are hashed unless it is the first.
    pub(crate) fn create_table(
        self,
        engine: &Engine<Modelled>,
        name: &str,
        kind: IndexKind,
    ) -> Result<Arc<Table<Modelled>>, EngineError> {
        let leaves = if name == TABLES[0] { LeafLayout::Sorted } else { LeafLayout::Hashed };
        let structure = match self.index_tables {
            true => TableStructure::Index(kind, &IndexOptions::DEFAULT),
            false => TableStructure::Tree(leaves),
        };
        engine.create_table_with(name, structure, None)
    }

    pub(crate) fn device_blocks(self) -> Vec<u64> {
        if self.log_in_pool { vec![1] } else { vec![1, FIRST_LOG_BLOCKS] }
    }

    /// Pages of 4 KiB in as few frames as do, and a short log.
    fn options(self) -> EngineOptions {
        let mut options = EngineOptions { placement: self.placement, ..EngineOptions::new(0xE4) };
        options.buffer = BufferOptions {
            frames: 16,
            mini_frames: 8,
            most_changed_frames: 8,
            swizzling: true,
            space: SpaceOptions { page_bytes: 4096, batch_pages: 8 },
        };
        let (segment_bytes, batch_bytes) = (32 << 10, 32 << 10);
        let most_bytes = if self.log_in_pool { 0 } else { 128 << 10 };
        options.log = BlockLogOptions { identity: 0xE4, segment_bytes, batch_bytes, most_bytes };
        options.memory = PersistentMemoryOptions { log_blocks: LOG_BLOCKS, frames: 12, lanes: 2 };
        options.stripes = 16;
        options.clock = Clock::Set(&NOW_MS);
        options
    }
}

/// Where an engine is to be found.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    machine: Modelled,
    pub(super) storage: lapis_engine::Storage<Modelled>,
    pub(super) options: EngineOptions,
}

impl Site {
    pub(crate) fn new(storage: Storage, tiers: Tiers) -> Result<Self, String> {
        let Storage { devices, machine, pool } = storage;
        let mut devices = devices.into_iter().map(|it| Arc::new(it) as Arc<dyn BlockDevice>);
        let pages = Some(devices.next().ok_or("there is no SSD")?);
        let storage = lapis_engine::Storage {
            pages,
            log: devices.next(),
            pool: pool.map(Arc::new),
            indexes: <[u8]>::indexes(),
        };
        Ok(Self { machine, storage, options: tiers.options() })
    }

    /// For another store, on SSDs of its own that no power cut reaches.
    pub(super) fn aside(&self) -> Result<Self, String> {
        let device = |blocks: &u64| ModelledSsd::new(*blocks, SsdConfig::default()).map_err(text);
        let devices = Tiers::SSD.device_blocks().iter().map(device).collect::<Result<_, _>>()?;
        Self::new(Storage { devices, machine: self.machine.clone(), pool: None }, Tiers::SSD)
    }

    pub(crate) fn create(&self) -> Result<Engine<Modelled>, String> {
        Engine::create(self.machine.clone(), self.storage.clone(), &self.options).map_err(text)
    }

    /// None if it was never created, or a restore into it was cut short.
    pub(crate) fn open(&self) -> Result<Option<Engine<Modelled>>, String> {
        match Engine::open(self.machine.clone(), self.storage.clone(), &self.options) {
            Ok(engine) => Ok(Some(engine)),
            Err(EngineError::NotCreated | EngineError::RestoreCutShort) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}
