//! A disk that is full: what needs room is refused, and everything else goes on.

use std::sync::Arc;

use lapis_engine::{Durability, Engine, Table};
use lapis_pmem::{BlockDevice, Hardware};

use crate::harness::{Random, Rig, contents};

const NOW: Durability = Durability::Immediate;
const LATER: Durability = Durability::Eventual;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn key(number: u64) -> Vec<u8> {
    format!("key {:06}", number.wrapping_mul(0x9E37_79B9) % 1_000_000).into_bytes()
}

/// An engine with a table on a device that is as long as it will ever be.
fn on_full_disk() -> (Rig, Arc<Table<Hardware>>) {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"first", b"", NOW).unwrap();
    rig.pages.limit_to(rig.pages.capacity_blocks() + 300);
    (rig, table)
}

/// Puts until one is refused for want of room; returns what was acknowledged.
fn fill(engine: &Engine<Hardware>, table: &Arc<Table<Hardware>>) -> Entries {
    let mut put = vec![(b"first".to_vec(), Vec::new())];
    for number in 0..100_000 {
        let (key, value) = (key(number), vec![number as u8; 300]);
        match engine.put(table, &key, &value, LATER) {
            Ok(_) => put.push((key, value)),
            Err(error) => {
                assert!(error.is_no_room(), "{error}");
                put.sort();
                return put;
            }
        }
    }
    panic!("it was never full")
}

fn refuses(engine: &Engine<Hardware>, table: &Arc<Table<Hardware>>) {
    let refused = engine.put(table, b"one more", &[1; 300], NOW).unwrap_err();
    assert!(refused.is_no_room(), "{refused}");
}

#[test]
fn a_full_disk_refuses_puts_and_nothing_else() {
    let (rig, table) = on_full_disk();
    let engine = &rig.engine;
    let put = fill(engine, &table);
    assert!(put.len() > 1000, "{}", put.len());
    refuses(engine, &table);
    assert_eq!(contents(engine, "t"), put, "what was acknowledged can be read");
    assert!(engine.create_table("another").unwrap_err().is_no_room());
    assert!(engine.load_table("loaded", put.iter().cloned()).unwrap_err().is_no_room());
    let long = engine.put(&table, b"long", &[7; 100_000], NOW).unwrap_err();
    assert!(long.is_no_room(), "{long}");
    let mut transaction = engine.begin().unwrap();
    (0..1000).for_each(|number| transaction.put(&table, &key(number), &[9; 400]).unwrap());
    assert!(transaction.commit(NOW).unwrap_err().is_no_room());
    while engine.maintain().unwrap() {}
    assert_eq!(contents(engine, "t"), put);
    assert!(engine.check().is_empty(), "{:?}", engine.check());
    engine.close().unwrap();
}

#[test]
fn removals_and_compaction_make_room_on_a_full_disk() {
    let (rig, table) = on_full_disk();
    let engine = &rig.engine;
    let put = fill(engine, &table);
    let (gone, kept) = put.split_at(put.len() / 2);
    for (key, _) in gone {
        assert!(engine.remove(&table, key, LATER).unwrap());
    }
    engine.put(&table, b"one more", &[1; 300], NOW).unwrap();
    engine.remove(&table, b"one more", NOW).unwrap();
    let before = rig.engine.metrics().device.used;
    engine.compact().unwrap();
    assert!(engine.metrics().device.used < before * 3 / 4);
    assert_eq!(contents(engine, "t"), kept);
    let again = fill(engine, &table);
    assert!(again.len() > gone.len() / 2, "what was given back is used");
    assert!(engine.check().is_empty(), "{:?}", engine.check());
}

#[test]
fn a_table_with_long_values_is_dropped_on_a_full_disk_and_leaves_room() {
    let (rig, table) = on_full_disk();
    let engine = &rig.engine;
    let long = engine.create_table("long").unwrap();
    (0..10).for_each(|number| _ = engine.put(&long, &key(number), &[3; 20_000], NOW).unwrap());
    let put = fill(engine, &table);
    engine.drop_table("long").unwrap();
    while engine.maintain().unwrap() {}
    engine.put(&table, b"one more", &[1; 300], NOW).unwrap();
    assert_eq!(contents(engine, "t").len(), put.len() + 1);
    assert!(engine.check().is_empty(), "{:?}", engine.check());
}

#[test]
fn a_store_that_was_killed_on_a_full_disk_opens_there() {
    for seed in 0..6 {
        let (rig, table) = on_full_disk();
        let mut put = fill(&rig.engine, &table);
        let mut random = Random::new(seed);
        for _ in 0..random.below(300) {
            let (key, _) = put.remove(random.below(put.len() as u64) as usize);
            rig.engine.remove(&table, &key, LATER).unwrap();
        }
        rig.engine.sync().unwrap();
        let blocks = rig.pages.capacity_blocks();
        let opened = rig.after_power_cut_limited_to(blocks);
        assert_eq!(contents(&opened.engine, "t"), put);
        let table = opened.engine.table("t").unwrap();
        let more = fill(&opened.engine, &table);
        assert!(contents(&opened.engine, "t").len() >= put.len().max(more.len()));
        assert!(opened.engine.check().is_empty(), "{:?}", opened.engine.check());
    }
}

#[test]
fn writing_goes_on_when_the_disk_has_room_again() {
    let (rig, table) = on_full_disk();
    let put = fill(&rig.engine, &table);
    refuses(&rig.engine, &table);
    rig.pages.limit_to(u64::MAX);
    rig.engine.put(&table, b"one more", &[1; 300], NOW).unwrap();
    rig.engine.create_table("another").unwrap();
    assert_eq!(contents(&rig.engine, "t").len(), put.len() + 1);
}

#[test]
fn writers_side_by_side_fill_a_disk_and_none_stops_the_engine() {
    let (rig, table) = on_full_disk();
    let acknowledged: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let (engine, table) = (rig.engine.clone(), Arc::clone(&table));
                scope.spawn(move || {
                    let (mut acknowledged, mut refused) = (0, 0);
                    for number in 0..100_000 {
                        let mut transaction = engine.begin().unwrap();
                        for part in 0..5 {
                            let key = [writer, number, part].map(|it| it.rotate_left(56));
                            let key = key.map(u64::to_be_bytes).concat();
                            transaction.put(&table, &key, &[5; 200]).unwrap();
                        }
                        match transaction.commit(LATER) {
                            Ok(_) => acknowledged += 5,
                            Err(error) => {
                                assert!(error.is_no_room(), "{error}");
                                refused += 1;
                            }
                        }
                        if refused == 20 {
                            return acknowledged;
                        }
                    }
                    panic!("it was never full")
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(contents(&rig.engine, "t").len(), acknowledged + 1);
    assert!(rig.engine.check().is_empty(), "{:?}", rig.engine.check());
}
