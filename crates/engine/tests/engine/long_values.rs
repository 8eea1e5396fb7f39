//! Values that are longer than a record can be.

use lapis_engine::{Durability, Engine};
use lapis_pmem::Hardware;

use crate::harness::{Rig, contents, small};

const NOW: Durability = Durability::Immediate;

fn value(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Lets the background do all it has to.
fn settle(engine: &Engine<Hardware>) {
    while engine.maintain().unwrap() {}
    engine.checkpoint().unwrap();
}

fn used_pages(engine: &Engine<Hardware>) -> u64 {
    engine.buffer_manager().space().unwrap().used_pages()
}

#[test]
fn values_of_any_length_are_read_as_they_were_written_and_after_a_power_cut() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    let lengths = [0, 1, 800, 1000, 1020, 1100, 4096, 70_000, 3 << 20];
    for (key, bytes) in (0_u8..).zip(lengths) {
        rig.engine.put(&table, &[key], &value(bytes, key), NOW).unwrap();
    }
    let rig = rig.after_power_cut();
    let table = rig.engine.table("t").unwrap();
    for (key, bytes) in (0_u8..).zip(lengths) {
        let found = rig.engine.get(&table, &[key]).unwrap().unwrap();
        assert!(found == value(bytes, key), "{bytes} bytes");
    }
    let found = contents(&rig.engine, "t");
    assert!(found.iter().zip(lengths).all(|((key, found), bytes)| *found == value(bytes, key[0])));
}

#[test]
fn a_transaction_sees_its_own_long_values_and_leaves_nothing_behind_if_it_is_dropped() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"a", &value(100_000, 1)).unwrap();
    transaction.put(&table, b"a", &value(90_000, 2)).unwrap();
    assert!(transaction.get(&table, b"a").unwrap().unwrap() == value(90_000, 2));
    assert!(used_pages(&rig.engine) > before + 20);
    drop(transaction);
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) <= before + 1);
    assert!(rig.engine.check().is_empty(), "{:?}", rig.engine.check());
}

#[test]
fn the_pages_of_values_that_are_replaced_or_removed_are_used_again() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    rig.engine.put(&table, b"a", &value(200_000, 0), NOW).unwrap();
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    for round in 0..10 {
        rig.engine.put(&table, b"a", &value(200_000, round), NOW).unwrap();
        settle(&rig.engine);
    }
    assert!(used_pages(&rig.engine) <= before + 2);
    rig.engine.remove(&table, b"a", NOW).unwrap();
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) < before - 40);
}

#[test]
fn a_snapshot_keeps_the_long_values_that_it_can_see() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    rig.engine.put(&table, b"a", &value(50_000, 1), NOW).unwrap();
    let snapshot = rig.engine.snapshot().unwrap();
    rig.engine.put(&table, b"a", &value(50_000, 2), NOW).unwrap();
    settle(&rig.engine);
    assert!(snapshot.get(&table, b"a").unwrap().unwrap() == value(50_000, 1));
    drop(snapshot);
    let used = used_pages(&rig.engine);
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) < used - 8);
}

#[test]
fn what_a_power_cut_leaves_of_long_values_without_a_record_is_taken_away() {
    let rig = Rig::new(small());
    let table = rig.engine.create_table("t").unwrap();
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    let mut transaction = rig.engine.begin().unwrap();
    transaction.put(&table, b"a", &value(300_000, 1)).unwrap();
    rig.engine.sync().unwrap();
    let rig = rig.after_power_cut();
    assert!(used_pages(&rig.engine) > before + 60);
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) <= before + 1);
    assert!(rig.engine.check().is_empty(), "{:?}", rig.engine.check());
}
