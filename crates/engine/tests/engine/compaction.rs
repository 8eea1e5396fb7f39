//! The end of the pages is given back.

use std::sync::Arc;

use lapis_engine::{Durability, Engine, EngineOptions, Storage};
use lapis_pmem::{BlockDevice, DirectTransfers, FileDevice, Hardware};

use crate::harness::{HASHED, Rig, contents, hardware, settle, small, used_pages};

const LATER: Durability = Durability::Eventual;

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 60 + number as usize % 80]
}

/// A large table, and a small one whose pages come behind it.
fn fill(engine: &Engine<Hardware>) {
    let large = engine.create_table("large").unwrap();
    let small = engine.create_table_with("small", HASHED, None).unwrap();
    for number in 0..6000_u32 {
        engine.put(&large, &number.to_be_bytes(), &value(number), LATER).unwrap();
    }
    for number in 0..800_u32 {
        let bytes = if number.is_multiple_of(200) { 6000 } else { 100 };
        engine.put(&small, &number.to_be_bytes(), &vec![7; bytes], LATER).unwrap();
    }
}

fn highest_page(engine: &Engine<Hardware>) -> u64 {
    engine.buffer_manager().space().unwrap().numbers().last().unwrap().get()
}

#[test]
fn pages_move_to_where_others_were_and_the_engine_goes_on() {
    let rig = Rig::new(small());
    fill(&rig.engine);
    rig.engine.drop_table("large").unwrap();
    settle(&rig.engine);
    let (before, expected) = (highest_page(&rig.engine), contents(&rig.engine, "small"));
    let report = rig.engine.compact().unwrap();
    assert!(report.moved_pages > 20 && report.freed_pages > 100, "{report:?}");
    let used = used_pages(&rig.engine);
    let after = highest_page(&rig.engine);
    assert!(after <= used + 2 && after < before / 3, "{before} to {after}, of {used}");
    assert!(contents(&rig.engine, "small") == expected);
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    assert_eq!(rig.engine.compact().unwrap().moved_pages, 0);
    let rig = rig.after_power_cut();
    assert!(contents(&rig.engine, "small") == expected);
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    fill_again(&rig.engine);
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

fn fill_again(engine: &Engine<Hardware>) {
    let table = engine.create_table("again").unwrap();
    for number in 0..2000_u32 {
        engine.put(&table, &number.to_be_bytes(), &value(number), LATER).unwrap();
    }
    assert_eq!(contents(engine, "again").len(), 2000);
}

#[test]
fn a_power_cut_after_any_move_loses_nothing() {
    let rig = Rig::new(small());
    fill(&rig.engine);
    let large = rig.engine.table("large").unwrap();
    for number in (0..6000_u32).filter(|number| !number.is_multiple_of(50)) {
        rig.engine.remove(&large, &number.to_be_bytes(), LATER).unwrap();
    }
    let expected = [contents(&rig.engine, "large"), contents(&rig.engine, "small")];
    for writes in (1..60).step_by(7) {
        let rig = rig.after_power_cut();
        rig.pages.fail_after(lapis_pmem::BlockOperation::Write, writes * 10);
        let _ = rig.engine.compact();
        let rig = rig.after_power_cut();
        let found = [contents(&rig.engine, "large"), contents(&rig.engine, "small")];
        assert!(found == expected, "cut after {writes} writes");
        assert_eq!(rig.engine.check(), Vec::<String>::new());
    }
}

#[test]
fn others_read_and_write_while_pages_move() {
    let rig = Rig::new(small());
    fill(&rig.engine);
    rig.engine.drop_table("large").unwrap();
    let table = rig.engine.table("small").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (engine, table) = (&rig.engine, Arc::clone(&table));
            scope.spawn(move || {
                for number in 0..3000_u32 {
                    let key = (number * 7 % 800).to_be_bytes();
                    assert!(engine.get(&table, &key).unwrap().is_some());
                    if number % 3 == thread {
                        let key = (1000 + thread * 10_000 + number).to_be_bytes();
                        engine.put(&table, &key, &value(number), LATER).unwrap();
                    }
                    if number % 500 == 0 {
                        let scan = engine.range::<&[u8]>(&table, ..).unwrap();
                        assert!(scan.map(Result::unwrap).count() >= 800);
                    }
                }
            });
        }
        for _ in 0..4 {
            rig.engine.compact().unwrap();
        }
    });
    assert_eq!(contents(&rig.engine, "small").len(), 800 + 3000);
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_file_becomes_shorter() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, blocks| {
        let path = directory.path().join(name);
        FileDevice::create(&path, blocks, DirectTransfers::Never).map(Arc::new).unwrap()
    };
    let (pages, log) = (file("pages", 1), file("log", 514));
    let options: EngineOptions = small();
    let (on, to) = (Arc::clone(&pages) as Arc<dyn BlockDevice>, Arc::clone(&log) as _);
    let engine = Engine::create(hardware(), Storage::ssd(on, to), &options).unwrap();
    fill(&engine);
    let before = pages.capacity_blocks();
    engine.drop_table("large").unwrap();
    engine.compact().unwrap();
    let after = pages.capacity_blocks();
    assert!(after < before / 2, "{before} to {after} blocks");
    let bytes = std::fs::metadata(directory.path().join("pages")).unwrap().len();
    assert_eq!(bytes, after * 4096);
    let expected = contents(&engine, "small");
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(hardware(), Storage::ssd(pages, log), &options).unwrap();
    assert!(contents(&engine, "small") == expected);
    fill_again(&engine);
    assert_eq!(engine.check(), Vec::<String>::new());
}
