//! Values that are longer than a record can be.

use lapis_engine::{
    Durability, Engine, EngineError, MAX_VALUE_BYTES, TableStructure, TimeToLive, ValueReader,
};
use lapis_pmem::Hardware;

use crate::harness::{HASHED, Rig, contents, settle, small, used_pages};

const NOW: Durability = Durability::Immediate;

fn value(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn values_of_any_length_are_read_as_they_were_written_and_after_a_power_cut() {
    let (rig, table) = Rig::with_table();
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
    let (rig, table) = Rig::with_table();
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
    let (rig, table) = Rig::with_table();
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
    let (rig, table) = Rig::with_table();
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
    let (rig, table) = Rig::with_table();
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

/// Records of a dropped table may be in the log alone, and they say which values are to go.
#[test]
fn the_long_values_of_a_table_that_was_dropped_before_a_power_cut_go_with_it() {
    let rig = Rig::new(small());
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    for (name, structure) in [("sorted", TableStructure::default()), ("hashed", HASHED)] {
        let table = rig.engine.create_table_with(name, structure, None).unwrap();
        for key in 0..8_u8 {
            rig.engine.put(&table, &[key], &value(50_000, key), NOW).unwrap();
        }
        rig.engine.put(&table, &[0], b"short", NOW).unwrap();
        rig.engine.drop_table(name).unwrap();
    }
    let rig = rig.after_power_cut();
    assert!(rig.engine.tables().is_empty());
    assert!(used_pages(&rig.engine) > before + 100, "{} {before}", used_pages(&rig.engine));
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    // Once more, when some have gone and others have not.
    assert!(rig.engine.maintain().unwrap());
    rig.engine.sync().unwrap();
    let rig = rig.after_power_cut();
    assert_eq!(rig.engine.check(), Vec::<String>::new());
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) <= before + 1, "{} {before}", used_pages(&rig.engine));
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

/// Reads the rest, so much at a time.
fn read_rest(reader: &mut ValueReader<Hardware>, step: usize) -> Vec<u8> {
    let (mut value, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match reader.read(&mut buffer).unwrap() {
            0 => return value,
            count => value.extend_from_slice(&buffer[..count]),
        }
    }
}

#[test]
fn values_are_written_and_read_piece_by_piece() {
    let (rig, table) = Rig::with_table();
    // Short; around one chunk, and what is committed together; far more than the log takes.
    for (key, bytes) in (0_u8..).zip([0, 5, 1100, 64_000, 65_535, 65_536, 65_537, 200_000, 3 << 20])
    {
        let right = value(bytes, key);
        for step in [777, 1 << 20] {
            let mut writer = rig.engine.value_writer(&table, &[key], TimeToLive::OfTable).unwrap();
            for piece in right.chunks(step) {
                writer.append(piece).unwrap();
            }
            assert_eq!(writer.bytes(), bytes as u64);
            writer.finish(NOW).unwrap();
            let mut reader = rig.engine.value_reader(&table, &[key]).unwrap().unwrap();
            assert_eq!(reader.bytes(), bytes as u64);
            assert!(read_rest(&mut reader, step) == right, "{bytes}");
            for at in [bytes / 2, bytes.saturating_sub(3), bytes + 9, 0] {
                reader.set_position(at as u64);
                assert!(read_rest(&mut reader, step) == right.get(at..).unwrap_or_default());
            }
        }
        assert!(rig.engine.get(&table, &[key]).unwrap().unwrap() == right);
    }
    settle(&rig.engine);
    assert!(rig.engine.check().is_empty(), "{:?}", rig.engine.check());
}

#[test]
fn a_long_value_that_came_piece_by_piece_goes_with_its_record_in_a_table_that_had_none() {
    let (rig, table) = Rig::with_table();
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    let mut writer = rig.engine.value_writer(&table, b"a", TimeToLive::OfTable).unwrap();
    writer.append(&value(500_000, 1)).unwrap();
    writer.finish(NOW).unwrap();
    rig.engine.put(&table, b"a", b"short", NOW).unwrap();
    settle(&rig.engine);
    assert!(used_pages(&rig.engine) <= before + 1, "{} {before}", used_pages(&rig.engine));
    assert_eq!(rig.engine.check(), Vec::<String>::new());
}

#[test]
fn a_value_that_is_not_finished_leaves_nothing_after_a_power_cut_either() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", b"old", NOW).unwrap();
    settle(&rig.engine);
    let before = used_pages(&rig.engine);
    let write = |engine: &Engine<Hardware>| {
        let table = engine.table("t").unwrap();
        let mut writer = engine.value_writer(&table, b"a", TimeToLive::OfTable).unwrap();
        writer.append(&value(500_000, 1)).unwrap();
        engine.sync().unwrap();
        writer
    };
    let under_way = write(&rig.engine);
    let after = rig.after_power_cut();
    drop(under_way);
    drop(write(&after.engine));
    for engine in [&rig.engine, &after.engine] {
        settle(engine);
        assert!(used_pages(engine) <= before + 1, "{} {before}", used_pages(engine));
        assert_eq!(engine.get(&engine.table("t").unwrap(), b"a").unwrap().unwrap(), b"old");
        assert!(engine.check().is_empty(), "{:?}", engine.check());
    }
}

#[test]
fn a_reader_keeps_the_value_that_it_reads() {
    let (rig, table) = Rig::with_table();
    rig.engine.put(&table, b"a", &value(90_000, 1), NOW).unwrap();
    let mut reader = rig.engine.value_reader(&table, b"a").unwrap().unwrap();
    reader.read(&mut [0; 10]).unwrap();
    rig.engine.put(&table, b"a", b"short", NOW).unwrap();
    settle(&rig.engine);
    assert!(read_rest(&mut reader, 4096) == value(90_000, 1)[10..]);
    assert!(rig.engine.value_reader(&table, b"b").unwrap().is_none());
}

#[test]
fn the_piece_that_makes_a_value_too_long_is_refused() {
    let (rig, table) = Rig::with_table();
    let mut writer = rig.engine.value_writer(&table, b"a", TimeToLive::OfTable).unwrap();
    writer.append(b"12345").unwrap();
    let long = vec![0; MAX_VALUE_BYTES - 4];
    let error = writer.append(&long).unwrap_err();
    assert!(
        matches!(error, EngineError::ValueTooLong { bytes, .. } if bytes == MAX_VALUE_BYTES + 1)
    );
    writer.finish(NOW).unwrap();
    assert_eq!(rig.engine.get(&table, b"a").unwrap().unwrap(), b"12345");
}
