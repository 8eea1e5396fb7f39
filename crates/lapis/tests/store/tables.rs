//! Tables: making, finding, dropping.

use lapis::{Error, MAX_TABLE_NAME_BYTES, TableOptions};

use crate::harness::*;

#[test]
fn a_table_is_there_after_it_was_made() {
    let store = in_memory();
    assert!(matches!(store.table("t"), Err(Error::NoSuchTable { .. })));
    store.create_table("t", &TableOptions::default()).unwrap();
    assert_eq!(store.table("t").unwrap().name(), "t");
    assert_eq!(store.tables().len(), 1);
}

#[test]
fn a_second_table_of_one_name_is_refused() {
    let store = in_memory();
    store.create_table("t", &TableOptions::default()).unwrap().put(b"k", b"v").unwrap();
    let error = store.create_table("t", &TableOptions::with_index(KINDS[1])).unwrap_err();
    assert!(matches!(error, Error::TableExists { .. }), "{error}");
    assert!(store.table("t").unwrap().get(b"k").unwrap().is_some());
}

#[test]
fn table_or_create_finds_what_is_there_whatever_its_index() {
    let store = in_memory();
    store.create_table("t", &TableOptions::with_index(KINDS[2])).unwrap();
    let table = store.table_or_create("t", &TableOptions::with_index(KINDS[0])).unwrap();
    assert_eq!(table.index_kind(), KINDS[2]);
}

#[test]
fn names_that_are_empty_too_long_or_have_a_zero_byte_are_refused() {
    let store = in_memory();
    for name in ["", "a\0b", &"n".repeat(MAX_TABLE_NAME_BYTES + 1)] {
        let error = store.create_table(name, &TableOptions::default()).unwrap_err();
        assert!(matches!(error, Error::BadTableName), "{error}");
    }
    assert!(store.tables().is_empty());
}

#[test]
fn the_longest_and_strangest_names_work_after_reopening() {
    let directory = directory();
    let names = ["n".repeat(MAX_TABLE_NAME_BYTES), "ä/../ \n\u{1}".into(), " ".into()];
    let store = open(directory.path());
    for name in &names {
        store.create_table(name, &TableOptions::default()).unwrap();
    }
    drop(store);
    let store = open(directory.path());
    for name in &names {
        store.table(name).unwrap();
    }
}

#[test]
fn an_impossible_number_of_expected_entries_is_an_error() {
    let store = lapis::Store::in_memory(1 << 20).unwrap();
    let options = TableOptions { expected_entries: 1 << 50, ..TableOptions::with_index(KINDS[2]) };
    store.create_table("t", &options).unwrap_err();
    assert!(store.tables().is_empty());
    assert_sound(&store);
}

#[test]
fn a_dropped_table_is_gone_at_once_and_after_reopening() {
    let directory = directory();
    let store = open(directory.path());
    for kind in KINDS {
        table_of(&store, kind).put(b"k", b"v").unwrap();
    }
    store.drop_table(&KINDS[1].to_string()).unwrap();
    assert!(store.table(&KINDS[1].to_string()).is_err());
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.tables().len(), KINDS.len() - 1);
    assert!(table_of(&store, KINDS[0]).get(b"k").unwrap().is_some());
    assert_sound(&store);
}

#[test]
fn dropping_a_table_that_is_not_there_is_refused() {
    assert!(matches!(in_memory().drop_table("t"), Err(Error::NoSuchTable { .. })));
}

#[test]
fn a_table_made_again_under_its_name_is_empty() {
    let store = in_memory();
    for kind in KINDS {
        table_of(&store, kind).put(b"k", b"v").unwrap();
        store.drop_table(&kind.to_string()).unwrap();
        assert!(table_of(&store, kind).is_empty().unwrap());
    }
}

#[test]
fn dropping_frees_the_memory_of_the_table() {
    for kind in KINDS {
        let directory = directory();
        let store = open(directory.path());
        table_of(&store, KINDS[0]).put(b"stays", b"v").unwrap();
        drop(store);
        let store = open(directory.path());
        let before = store.info(false).bytes.allocated;
        let table = store.create_table("t", &TableOptions::with_index(kind)).unwrap();
        for number in 0..500u32 {
            table.put(&number.to_be_bytes(), &vec![1; number as usize * 20]).unwrap();
        }
        assert!(store.info(false).bytes.allocated > before + (1 << 20));
        drop(table);
        store.drop_table("t").unwrap();
        drop(store);
        let store = open(directory.path());
        assert!(store.info(false).bytes.allocated <= before + (1 << 18), "{kind}");
        assert_sound(&store);
    }
}

#[test]
fn handles_of_a_dropped_table_refuse_everything() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"k", b"v").unwrap();
        let mut entries = table.iter().unwrap();
        store.drop_table(&kind.to_string()).unwrap();
        let dropped = |error| assert!(matches!(error, Error::Dropped { .. }), "{error}");
        dropped(table.get(b"k").unwrap_err());
        dropped(table.put(b"k", b"v").unwrap_err());
        dropped(table.delete(b"k").unwrap_err());
        dropped(table.iter().unwrap_err());
        dropped(table.len().unwrap_err());
        dropped(entries.next().unwrap().unwrap_err());
        assert!(entries.next().is_none());
        dropped(store.transaction().unwrap().put(&table, b"k", b"v").unwrap_err());
        dropped(store.snapshot().get(&table, b"k").unwrap_err());
    }
}

#[test]
fn readers_of_a_table_that_is_dropped_see_it_or_an_error() {
    let store = in_memory();
    for round in 0..30 {
        let table = table_of(&store, KINDS[round % 3]);
        for number in 0..200u32 {
            table.put(&number.to_be_bytes(), &number.to_be_bytes()).unwrap();
        }
        let name = table.name().to_owned();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        for number in (0..200u32).step_by(17) {
                            match table.get(&number.to_be_bytes()) {
                                Ok(found) => assert_eq!(found.unwrap(), &number.to_be_bytes()),
                                Err(Error::Dropped { .. }) => return,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
            store.drop_table(&name).unwrap();
            let other = table_of(&store, KINDS[0]);
            for number in 0..500u32 {
                other.put(&number.to_le_bytes(), &[9; 100]).unwrap();
            }
            store.drop_table(other.name()).unwrap();
        });
    }
    assert_sound(&store);
}

#[test]
fn three_hundred_tables_live_side_by_side() {
    let directory = directory();
    let store = open(directory.path());
    for number in 0..300usize {
        let options = TableOptions::with_index(KINDS[number % 3]);
        let table = store.create_table(&format!("table {number}"), &options).unwrap();
        table.put(b"k", &number.to_le_bytes()).unwrap();
    }
    drop(store);
    let store = open(directory.path());
    assert_eq!(store.tables().len(), 300);
    for number in 0..300usize {
        let table = store.table(&format!("table {number}")).unwrap();
        assert_eq!(table.get(b"k").unwrap().unwrap(), &number.to_le_bytes());
    }
    assert_sound(&store);
}
