//! What an engine lies on.

use std::sync::Arc;

use lapis_blocks::block_log::BlockLog;
use lapis_buffer::{
    BufferManager, PersistentTier, Placement, TierError, TierOptions, TierRoot, WriteAheadLog,
};
use lapis_index::IndexMaker;
use lapis_pmem::{BlockDevice, Committed, Domain, OverlayDevice, Pool, PoolDevice};

use crate::engine::EngineOptions;
use crate::error::EngineError;
use crate::persistent_memory::PersistentMemory;

/// The roots of what an engine keeps in its pool.
const LOG_ROOT: &str = "log";
const TIER_ROOT: &str = "pages";

/// What an engine lies on. One code runs on all of it; which parts there are, and
/// [`EngineOptions::placement`], say where pages and log are.
///
/// | placement | `pages` | `log` | `pool` |
/// |---|---|---|---|
/// | `main-memory` | none | either: nothing is durable | either |
/// | `ssd` | an SSD | an SSD; none: in the pool | for the log, if that is there |
/// | `basic-nvm`, `three-tier` | an SSD | none: in the pool | with a tier of pages |
#[derive(Clone, Debug)]
pub struct Storage<D: Domain> {
    /// Pages that are not in DRAM.
    pub pages: Option<Arc<dyn BlockDevice>>,
    /// The log, if it does not lie in the pool.
    pub log: Option<Arc<dyn BlockDevice>>,
    /// Persistent memory. Of an engine that is created it holds nothing else of that engine's names.
    pub pool: Option<Arc<Pool<D>>>,
    /// Makes the indexes in it: [`IndexMaker::HERE`], or one that is compiled already.
    pub indexes: &'static IndexMaker<D, [u8]>,
}

impl<D: Domain> Storage<D> {
    /// Pages and log on block devices.
    pub fn ssd(pages: Arc<dyn BlockDevice>, log: Arc<dyn BlockDevice>) -> Self {
        Self { pages: Some(pages), log: Some(log), pool: None, indexes: &IndexMaker::HERE }
    }

    /// Pages on an SSD, the log, and pages if there is to be a tier of them, in persistent memory.
    pub fn with_pool(pages: Arc<dyn BlockDevice>, pool: Arc<Pool<D>>) -> Self {
        Self { pages: Some(pages), log: None, pool: Some(pool), indexes: &IndexMaker::HERE }
    }

    /// Nothing but DRAM, and a log in this pool.
    pub fn main_memory(pool: Arc<Pool<D>>) -> Self {
        Self { pages: None, log: None, pool: Some(pool), indexes: &IndexMaker::HERE }
    }

    /// The same devices, of which nothing is changed: what is written stays in memory. Of the pool, its region sees to that.
    pub(crate) fn overlaid(self) -> Self {
        let over = |device| Arc::new(OverlayDevice::over(device)) as Arc<dyn BlockDevice>;
        Self { pages: self.pages.map(over), log: self.log.map(over), ..self }
    }

    /// The tier of pages in the pool, if there is one.
    pub(crate) fn tier(&self) -> Option<Result<PersistentTier<D>, TierError>> {
        let pool = self.pool.as_ref()?;
        let root = pool.root::<TierRoot>(TIER_ROOT)?;
        Some(PersistentTier::open(Arc::clone(pool), root))
    }

    fn missing(what: &'static str) -> EngineError {
        EngineError::Storage { what }
    }

    fn pool(&self) -> Result<&Arc<Pool<D>>, EngineError> {
        self.pool.as_ref().ok_or(Self::missing("there is neither a device for the log nor a pool"))
    }

    /// An empty log.
    pub(crate) fn create_log(
        &self,
        domain: &D,
        options: &EngineOptions,
    ) -> Result<(BlockLog<D>, PersistentMemory<D>), EngineError> {
        let (device, in_pool) = match &self.log {
            Some(device) => (Arc::clone(device), None),
            None => {
                let blocks = options.memory.log_blocks;
                let device = PoolDevice::create_named(self.pool()?, LOG_ROOT, blocks)?;
                (Arc::new(device.clone()) as Arc<dyn BlockDevice>, Some(device))
            }
        };
        let log = BlockLog::create(domain.clone(), device, options.log)?;
        Ok((log, PersistentMemory::new(self, in_pool)))
    }

    /// The device of the log as it is; none if it was never made.
    pub(crate) fn find_log(&self) -> Result<Option<FoundLog<D>>, EngineError> {
        if let Some(device) = &self.log {
            let memory = PersistentMemory::new(self, None);
            return Ok(Some((Arc::clone(device), memory)));
        }
        let found = PoolDevice::open_named(self.pool()?, LOG_ROOT)?;
        Ok(found.map(|device| {
            let memory = PersistentMemory::new(self, Some(device.clone()));
            (Arc::new(device) as Arc<dyn BlockDevice>, memory)
        }))
    }

    /// A manager of no pages yet.
    pub(crate) fn create_pages(
        &self,
        domain: &D,
        log: Arc<dyn WriteAheadLog>,
        options: &EngineOptions,
    ) -> Result<BufferManager<D>, EngineError> {
        let (buffer, placement) = (&options.buffer, options.placement);
        if placement == Placement::MainMemory {
            return Ok(BufferManager::in_memory(domain.clone(), buffer)?);
        }
        let pages = self.pages.clone().ok_or(Self::missing("there is no device for pages"))?;
        if !placement.has_persistent_memory() {
            return Ok(BufferManager::create(domain.clone(), pages, log, buffer)?);
        }
        let pool = self.pool.as_ref();
        let pool = pool.ok_or(Self::missing("there is no pool for pages in persistent memory"))?;
        let tier = TierOptions {
            frames: options.memory.frames,
            page_bytes: buffer.space.page_bytes,
            lanes: options.memory.lanes,
            identity: options.log.identity,
        };
        let tier = pool.fence(PersistentTier::create(pool, &tier)?);
        let root = tier.link();
        let _: Committed = pool.publish_root(TIER_ROOT, 0, tier)?.persist();
        let tier = PersistentTier::open(Arc::clone(pool), root)?;
        Ok(BufferManager::create_with_tier(tier, pages, log, buffer, placement)?)
    }

    /// The manager of the pages that there are.
    pub(crate) fn open_pages(
        &self,
        domain: &D,
        log: Arc<dyn WriteAheadLog>,
        options: &EngineOptions,
    ) -> Result<BufferManager<D>, EngineError> {
        let (buffer, placement) = (&options.buffer, options.placement);
        let pages = self.pages.clone().ok_or(Self::missing("there is no device for pages"))?;
        match self.tier() {
            None => Ok(BufferManager::open(domain.clone(), pages, log, buffer)?),
            Some(tier) => Ok(BufferManager::open_with_tier(tier?, pages, log, buffer, placement)?),
        }
    }
}

/// The device of a log, and the persistent memory that it may be in.
type FoundLog<D> = (Arc<dyn BlockDevice>, PersistentMemory<D>);

/// How an engine uses persistent memory. Of no meaning without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentMemoryOptions {
    /// Blocks of 4 KiB of a log in it, when it is created.
    pub log_blocks: u64,
    /// Pages in it at most, when the engine is created.
    pub frames: usize,
    /// Several times the threads that evict or write pages.
    pub lanes: usize,
}

impl Default for PersistentMemoryOptions {
    /// A log of 64 MiB, and four times as many pages as are in DRAM.
    fn default() -> Self {
        Self { log_blocks: 16 << 10, frames: 16 << 10, lanes: 16 }
    }
}
