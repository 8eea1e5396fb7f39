//! Stores that are opened to be read.

use std::path::Path;

use lapis::{Config, Error, IndexKind, LOG_FILE, MEMORY_FILE, PAGES_FILE, Store, TableOptions};

use crate::harness::*;

fn to_read(directory: &Path) -> Config {
    config(directory).read_only(true)
}

/// All bytes of a store.
fn files(directory: &Path) -> Vec<Vec<u8>> {
    let names = [PAGES_FILE, LOG_FILE, MEMORY_FILE];
    names.iter().filter_map(|name| std::fs::read(directory.join(name)).ok()).collect()
}

fn filled(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = store.create_table("t").unwrap();
    for number in 0..300_u32 {
        table.put(&number.to_be_bytes(), &[number as u8; 200]).unwrap();
    }
    table.put(b"long", &[3; 9000]).unwrap();
    contents(&table)
}

#[test]
fn many_read_a_closed_store_at_a_time_and_not_one_byte_of_it_changes() {
    let directory = directory();
    let right = filled(&open(directory.path()));
    let before = files(directory.path());
    let stores = [(); 3].map(|()| Store::open(to_read(directory.path())).unwrap());
    for store in &stores {
        let table = store.table("t").unwrap();
        assert_eq!(contents(&table), right);
        assert_eq!(table.get(b"long").unwrap().unwrap(), [3; 9000]);
        let transaction = store.transaction().unwrap();
        assert_eq!(transaction.get(&table, &[0; 4]).unwrap().unwrap(), [0; 200]);
        transaction.commit().unwrap();
        store.backup(&mut Vec::new()).unwrap();
        assert_eq!(store.info(true).unwrap().tables[0].entries, Some(right.len() as u64));
        assert_sound(store);
    }
    for store in stores {
        store.sync().unwrap();
        store.close().unwrap();
    }
    assert!(files(directory.path()) == before);
}

#[test]
fn what_was_not_closed_is_recovered_in_memory_alone() {
    let (directory, store) = created();
    let right = filled(&store);
    let copy = copy_of(directory.path());
    let before = files(copy.path());
    for _ in 0..2 {
        let killed = Store::open(to_read(copy.path())).unwrap();
        assert!(killed.recovery().records > 1);
        assert_eq!(contents(&killed.table("t").unwrap()), right);
        assert_sound(&killed);
    }
    assert!(files(copy.path()) == before);
    assert_eq!(contents(&open(copy.path()).table("t").unwrap()), right);
}

#[test]
fn every_write_is_refused() {
    let directory = directory();
    let right = filled(&open(directory.path()));
    let store = Store::open(to_read(directory.path())).unwrap();
    let table = store.table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    let entries = [(b"k", b"v")];
    let refused = [
        table.put(b"k", b"v"),
        table.delete(&[0; 4]).map(|_| ()),
        table.update(&[0; 4], |_| Some(vec![1])),
        transaction.put(&table, b"k", &[1; 9000]),
        transaction.delete(&table, &[0; 4]).map(|_| ()),
        store.create_table("other").map(|_| ()),
        store.drop_table("t"),
        store.load_table("other", entries).map(|_| ()),
        store.compact().map(|_| ()),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    }
    assert_eq!(contents(&table), right);
}

#[test]
fn a_reader_and_a_writer_exclude_each_other_and_are_told_so() {
    let directory = directory();
    let writer = open(directory.path());
    filled(&writer);
    let error = Store::open(to_read(directory.path())).unwrap_err();
    assert!(error.is_already_open() && error.to_string().contains("to write"), "{error}");
    drop(writer);
    let reader = Store::open(to_read(directory.path())).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(error.is_already_open() && error.to_string().contains("close it there"), "{error}");
    drop(reader);
    open(directory.path());
}

#[test]
fn where_no_store_is_none_is_made() {
    let directory = directory();
    let path = directory.path().join("missing");
    let error = Store::open(to_read(&path)).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. }) && !path.exists(), "{error}");
}

#[test]
fn persistent_memory_is_read_and_does_not_change_either() {
    let directory = directory();
    let writing = config(directory.path()).persistent_memory(directory.path(), 16 << 20);
    let store = Store::open(writing).unwrap();
    let options = TableOptions::with_index(IndexKind::Wort);
    let table = store.create_table_with("wort", &options).unwrap();
    for number in 1..100_u8 {
        table.put(&[number], &[number; 500]).unwrap();
    }
    let (right, in_tree) = (contents(&table), filled(&store));
    drop((table, store));
    let before = files(directory.path());
    let stores = [(); 2].map(|()| Store::open(to_read(directory.path())).unwrap());
    for store in &stores {
        assert_eq!(contents(&store.table("wort").unwrap()), right);
        assert_eq!(contents(&store.table("t").unwrap()), in_tree);
        let refused = store.table("wort").unwrap().put(b"k", b"v");
        assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
        assert_sound(store);
    }
    drop(stores);
    assert!(files(directory.path()) == before);
}
