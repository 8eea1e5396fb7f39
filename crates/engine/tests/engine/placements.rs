//! One engine on all tiers.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_device::{ModelledSsd, SsdConfig};
use lapis_engine::{Durability, Engine, EngineError, EngineOptions, Placement, Storage};
use lapis_pmem::{BlockDevice, Hardware, Pool};

use crate::harness::{Random, assert_sound, contents, hardware, small};

/// More pages than DRAM and persistent memory have together.
const KEYS: u64 = 3000;

pub fn options(placement: Placement) -> EngineOptions {
    let mut options = EngineOptions { placement, ..small() };
    options.memory.log_blocks = 2 + 512;
    options.memory.frames = 96;
    options.memory.lanes = 4;
    if placement == Placement::MainMemory {
        options.buffer.frames = 2048;
    }
    options
}

fn pool() -> Arc<Pool<Hardware>> {
    let region = lapis_pmem::Region::anonymous(8 << 20, 8 << 20).unwrap();
    Arc::new(Pool::create(region, hardware()).unwrap())
}

fn ssd() -> Arc<dyn BlockDevice> {
    Arc::new(ModelledSsd::new(1, SsdConfig::default()).unwrap())
}

pub fn storage(placement: Placement) -> Storage<Hardware> {
    match placement {
        Placement::MainMemory => Storage::main_memory(pool()),
        _ => Storage::with_pool(ssd(), pool()),
    }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn fill(engine: &Engine<Hardware>, expected: &mut Contents, seed: u64) {
    let table = engine.table("table").unwrap();
    let mut random = Random::new(seed);
    for _ in 0..KEYS {
        let key = random.below(KEYS).to_be_bytes().to_vec();
        let later = Durability::Eventual;
        if random.below(5) == 0 {
            engine.remove(&table, &key, later).unwrap();
            expected.remove(&key);
        } else {
            let value = vec![random.below(256) as u8; random.below(900) as usize];
            engine.put(&table, &key, &value, later).unwrap();
            expected.insert(key, value);
        }
        engine.maintain().unwrap();
    }
    engine.sync().unwrap();
}

fn check(engine: &Engine<Hardware>, expected: &Contents) {
    let found: Contents = contents(engine, "table").into_iter().collect();
    assert!(found == *expected);
    assert_sound(engine);
}

#[test]
fn every_placement_keeps_the_same_tables() {
    for placement in Placement::ALL {
        let (options, mut expected) = (options(placement), Contents::new());
        let engine = Engine::create(hardware(), storage(placement), &options).unwrap();
        engine.create_table("table").unwrap();
        (1..3).for_each(|seed| fill(&engine, &mut expected, seed));
        check(&engine, &expected);
        let statistics = engine.statistics();
        println!("{placement}: {statistics:?}");
        assert!(statistics.checkpoints > 2, "{placement}: {statistics:?}");
        let tier = statistics.buffer.tier;
        let has_tier = placement.has_persistent_memory();
        assert_eq!(tier.admissions > 100 && tier.evictions > 100, has_tier, "{tier:?}");
    }
}

#[test]
fn what_was_committed_is_there_when_an_engine_with_tiers_is_opened_again() {
    for placement in Placement::ALL.into_iter().filter(|it| *it != Placement::MainMemory) {
        let (options, mut expected) = (options(placement), Contents::new());
        let storage = storage(placement);
        let engine = Engine::create(hardware(), storage.clone(), &options).unwrap();
        engine.create_table("table").unwrap();
        drop(engine);
        for (seed, closed) in [(1, false), (2, true), (3, false)] {
            let engine = Engine::open(hardware(), storage.clone(), &options);
            let engine = engine.unwrap();
            check(&engine, &expected);
            fill(&engine, &mut expected, seed);
            if closed {
                engine.close().unwrap();
            }
        }
        check(&Engine::open(hardware(), storage, &options).unwrap(), &expected);
    }
}

#[test]
fn parts_that_do_not_make_a_placement_are_refused() {
    let refused = |storage, placement| {
        let made = Engine::create(hardware(), storage, &options(placement));
        assert!(matches!(made, Err(EngineError::Storage { .. })), "{made:?}");
    };
    refused(Storage { log: None, ..Storage::ssd(ssd(), ssd()) }, Placement::Ssd);
    refused(Storage::main_memory(pool()), Placement::Ssd);
    let log: Arc<dyn BlockDevice> = Arc::new(ModelledSsd::new(600, SsdConfig::default()).unwrap());
    refused(Storage::ssd(ssd(), log), Placement::ThreeTier);
}

#[test]
fn pages_in_persistent_memory_are_not_opened_without_it() {
    let (options, storage) = (options(Placement::ThreeTier), storage(Placement::ThreeTier));
    drop(Engine::create(hardware(), storage.clone(), &options).unwrap());
    let other = Storage { pool: Some(pool()), ..storage };
    let opened = Engine::open(hardware(), other, &options);
    assert!(matches!(opened, Err(EngineError::NotCreated)), "the log is in it, too: {opened:?}");
}
