//! Engines on modelled SSDs.

use std::sync::Arc;

use lapis_blocks::block_log::BlockLogOptions;
use lapis_buffer::{BufferOptions, SpaceOptions};
use lapis_device::{Config, Modelled, ModelledSsd, SsdConfig};
use lapis_engine::{
    Engine, EngineError, EngineOptions, LeafLayout, Storage, Table, TableStructure,
};
use lapis_pmem::{BlockDevice, Domain, FlushMethod, Hardware, Region};

/// This machine, of which pages in DRAM need no flush: a domain that an interpreter can be, too.
pub fn hardware() -> Hardware {
    Hardware::with_method(FlushMethod::PageCacheNone).unwrap()
}

/// An engine, and what it stands on.
pub struct Rig {
    pub engine: Engine<Hardware>,
    pub pages: Arc<ModelledSsd>,
    pub log: Arc<ModelledSsd>,
    options: EngineOptions,
}

/// Small pages, few frames, a short log: everything happens often.
pub fn small() -> EngineOptions {
    let mut options = EngineOptions::new(7);
    options.buffer = BufferOptions {
        frames: 64,
        mini_frames: 32,
        most_changed_frames: 32,
        swizzling: true,
        space: SpaceOptions { page_bytes: 4096, batch_pages: 8 },
    };
    options.log = BlockLogOptions {
        segment_bytes: 64 << 10,
        batch_bytes: 64 << 10,
        ..BlockLogOptions::new(7)
    };
    options
}

/// A table whose leaves are hashed.
pub const HASHED: TableStructure<'static> = TableStructure::Tree(LeafLayout::Hashed);

/// Blocks of the log's device: of a ring of 2 MiB.
pub const LOG_BLOCKS: u64 = 2 + 512;

impl Rig {
    pub fn new(options: EngineOptions) -> Self {
        let pages = Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap());
        let log = Arc::new(ModelledSsd::new(LOG_BLOCKS, SsdConfig::default()).unwrap());
        let (on, to) = (Arc::clone(&pages) as Arc<dyn BlockDevice>, Arc::clone(&log) as _);
        let engine = Engine::create(hardware(), Storage::ssd(on, to), &options).unwrap();
        Self { engine, pages, log, options }
    }

    /// A small one with a table.
    pub fn with_table() -> (Self, Arc<Table<Hardware>>) {
        let rig = Self::new(small());
        let table = rig.engine.create_table("t").unwrap();
        (rig, table)
    }

    /// Cuts the power and opens what is left. The old engine may be in use; nobody learns of what it does.
    pub fn after_power_cut(&self) -> Self {
        self.after_power_cut_limited_to(u64::MAX)
    }

    /// The same, on a disk that has room for so many blocks of pages.
    pub fn after_power_cut_limited_to(&self, blocks: u64) -> Self {
        let pages = Arc::new(self.pages.after_power_cut());
        pages.limit_to(blocks);
        let log = Arc::new(self.log.after_power_cut());
        Self::over(pages, log, self.options)
    }

    /// Opens it again as it is, after an end without a close.
    pub fn opened_again(self) -> Self {
        let Self { engine, pages, log, options } = self;
        drop(engine);
        Self::over(pages, log, options)
    }

    /// What is on two devices, opened.
    pub fn over(pages: Arc<ModelledSsd>, log: Arc<ModelledSsd>, options: EngineOptions) -> Self {
        let engine = open(&pages, &log, &options).unwrap();
        Self { engine, pages, log, options }
    }
}

/// Opens what is on two devices.
pub fn open(
    pages: &Arc<ModelledSsd>,
    log: &Arc<ModelledSsd>,
    options: &EngineOptions,
) -> Result<Engine<Hardware>, EngineError> {
    let (on, to) = (Arc::clone(pages) as Arc<dyn BlockDevice>, Arc::clone(log) as _);
    Engine::open(hardware(), Storage::ssd(on, to), options)
}

/// An engine on a modelled machine.
pub fn modelled(config: Config) -> (Modelled, Engine<Modelled>) {
    let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
    let machine = Modelled::over(&region, config);
    let device = |blocks| {
        Arc::new(ModelledSsd::attached_to(&machine, blocks, SsdConfig::default()).unwrap()) as _
    };
    let storage = Storage::ssd(device(1), device(LOG_BLOCKS));
    let engine = Engine::create(machine.clone(), storage, &small()).unwrap();
    (machine, engine)
}

/// All entries of a table.
pub fn contents(engine: &Engine<Hardware>, table: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = engine.table(table).unwrap();
    engine.range::<&[u8]>(&table, ..).unwrap().map(Result::unwrap).collect()
}

/// Lets the background do all it has to.
pub fn settle<D: Domain>(engine: &Engine<D>) {
    while engine.maintain().unwrap() {}
    engine.checkpoint().unwrap();
}

pub fn used_pages(engine: &Engine<Hardware>) -> u64 {
    engine.buffer_manager().space().unwrap().used_pages()
}

pub fn assert_sound(engine: &Engine<Hardware>) {
    assert_eq!(engine.check(), Vec::<String>::new());
    let audit = engine.reclaim_and_audit();
    assert!(audit.is_clean(), "{audit:?}");
}

/// A generator of numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }
}
