//! A store that is full.

use std::path::Path;

use lapis::{Config, Error, IndexKind, Store, StoreOptions, Table};

use crate::harness::*;

const CAPACITY_BYTES: usize = 4 << 20;

fn small(directory: &Path, log_segment_bytes: usize) -> Config {
    Config::new(directory)
        .initial_bytes(1 << 20)
        .capacity_bytes(CAPACITY_BYTES)
        .options(StoreOptions { log_segment_bytes })
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    vec![number as u8; bytes]
}

/// Puts until the store is full; returns how many puts were acknowledged.
fn fill(table: &Table, bytes: usize) -> u32 {
    for number in 0u32.. {
        match table.put(&number.to_be_bytes(), &value(number, bytes)) {
            Ok(()) => {}
            Err(Error::Full(_)) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn assert_has(table: &Table, numbers: impl Iterator<Item = u32>, bytes: usize) {
    for number in numbers {
        let found = table.get(&number.to_be_bytes()).unwrap();
        assert_eq!(&*found.unwrap(), value(number, bytes), "{number}");
    }
}

/// For each index, value size and size of log segments.
fn each(run: impl Fn(&Path, &dyn Fn() -> Store, IndexKind, usize)) {
    for kind in KINDS {
        for (bytes, segment) in [(100, 1 << 16), (3000, 1 << 17), (4096, 4096), (40_000, 1 << 16)] {
            let directory = directory();
            let open = || Store::open(small(directory.path(), segment)).unwrap();
            run(directory.path(), &open, kind, bytes);
        }
    }
}

#[test]
fn a_full_store_refuses_and_everything_acknowledged_is_there() {
    each(|_, open, kind, bytes| {
        let store = open();
        let table = table_of(&store, kind);
        let count = fill(&table, bytes);
        assert!(count as usize * bytes > CAPACITY_BYTES / 10, "{kind} {bytes}: {count}");
        assert_has(&table, 0..count, bytes);
        assert_eq!(table.len().unwrap(), u64::from(count));
        assert_sound(&store);
    });
}

#[test]
fn a_full_store_deletes_and_then_puts_again() {
    each(|_, open, kind, bytes| {
        let store = open();
        let table = table_of(&store, kind);
        let count = fill(&table, bytes);
        for number in 0..count {
            assert!(table.delete(&number.to_be_bytes()).unwrap(), "{kind} {bytes} {number}");
        }
        let again = fill(&table, bytes);
        assert!(again > count / 2, "{kind} {bytes}: {count}, then {again}");
        assert_has(&table, 0..again, bytes);
        assert_sound(&store);
    });
}

#[test]
fn a_full_store_reopens_deletes_and_puts_again() {
    each(|_, open, kind, bytes| {
        let store = open();
        let count = fill(&table_of(&store, kind), bytes);
        drop(store);
        let store = open();
        let table = table_of(&store, kind);
        assert_has(&table, 0..count, bytes);
        for number in 0..count {
            assert!(table.delete(&number.to_be_bytes()).unwrap(), "{kind} {bytes} {number}");
        }
        assert!(fill(&table, bytes) > count / 2);
        assert_sound(&store);
    });
}

#[test]
fn a_full_store_opens_after_a_crash_deletes_and_puts_again() {
    each(|_, open, kind, bytes| {
        let store = open();
        let count = fill(&table_of(&store, kind), bytes);
        crash(store);
        let store = open();
        let table = table_of(&store, kind);
        assert_has(&table, 0..count, bytes);
        for number in 0..count {
            assert!(table.delete(&number.to_be_bytes()).unwrap(), "{kind} {bytes} {number}");
        }
        let again = fill(&table, bytes);
        assert!(again > count / 2, "{kind} {bytes}: {count}, then {again}");
        assert_has(&table, 0..again, bytes);
        store.reclaim();
        assert_sound(&store);
    });
}

#[test]
fn a_table_dropped_in_a_full_store_makes_room() {
    each(|_, open, kind, bytes| {
        let store = open();
        let count = fill(&table_of(&store, kind), bytes);
        store.drop_table(&kind.to_string()).unwrap();
        let again = fill(&table_of(&store, kind), bytes);
        assert!(again > count / 2, "{kind} {bytes}: {count}, then {again}");
        assert_sound(&store);
    });
}

#[test]
fn a_value_larger_than_the_store_is_refused_and_small_ones_still_go_in() {
    let directory = directory();
    let store = Store::open(small(directory.path(), 4096)).unwrap();
    let table = table_of(&store, KINDS[0]);
    let error = table.put(b"large", &vec![0; CAPACITY_BYTES]).unwrap_err();
    assert!(matches!(error, Error::Full(_)), "{error}");
    table.put(b"small", b"v").unwrap();
    assert!(table.get(b"large").unwrap().is_none());
    assert_sound(&store);
}

#[test]
fn values_of_mixed_sizes_fill_a_store_without_stopping_it() {
    for kind in KINDS {
        let directory = directory();
        let store = Store::open(small(directory.path(), 1 << 16)).unwrap();
        let table = table_of(&store, kind);
        let mut random = 7u64;
        let mut refused = 0;
        for step in 0..6000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize;
            let key = ((at % 900) as u32).to_be_bytes();
            let bytes = [10, 200, 1000, 2500, 4090, 4096, 9000, 50_000][at / 900 % 8];
            if step % 3 == 2 {
                table.delete(&key).unwrap();
                continue;
            }
            match table.put(&key, &value(step, bytes)) {
                Ok(()) => {}
                Err(Error::Full(_)) => refused += 1,
                Err(error) => panic!("{kind} {step}: {error}"),
            }
        }
        assert!(refused > 0);
        assert_sound(&store);
    }
}
