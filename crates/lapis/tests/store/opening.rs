//! Creating, opening, and refusing to.

use std::sync::{Arc, Barrier, Mutex};

use lapis::{Error, LOG_FILE, PAGES_FILE, Store};

use crate::harness::*;

#[test]
fn a_new_store_is_empty_and_sound() {
    let (_directory, store) = created();
    assert!(store.tables().is_empty());
    assert_sound(&store);
}

#[test]
fn a_store_keeps_its_tables_and_entries_when_reopened() {
    let (directory, store) = created();
    for name in ["one", "two"] {
        store.create_table(name).unwrap().put(b"key", name.as_bytes()).unwrap();
    }
    drop(store);
    let store = open(directory.path());
    let names: Vec<_> = store.tables().iter().map(|table| table.name().to_owned()).collect();
    assert_eq!(names, ["one", "two"]);
    for table in store.tables() {
        assert_eq!(table.get(b"key").unwrap().unwrap(), table.name().as_bytes());
    }
    assert_sound(&store);
}

#[test]
fn a_closed_store_has_nothing_to_do_again_and_a_killed_one_has() {
    let (directory, store) = created();
    store.create_table("t").unwrap().put(b"key", b"value").unwrap();
    let copy = copy_of(directory.path());
    let killed = open(copy.path());
    assert!(killed.recovery().records > 1);
    assert_eq!(killed.table("t").unwrap().get(b"key").unwrap().unwrap(), b"value");
    assert_sound(&killed);
    store.close().unwrap();
    assert_eq!(open(directory.path()).recovery().records, 0);
}

#[test]
fn opening_after_a_kill_tells_how_far_it_has_come_up_to_the_end() {
    let directory = directory();
    let store = Store::open(config(directory.path()).log_bytes(8 << 20)).unwrap();
    let table = store.create_table("t").unwrap();
    (0..3000_u32).for_each(|key| table.put(&key.to_be_bytes(), &[1; 400]).unwrap());
    let copy = copy_of(directory.path());
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let config = config(copy.path()).on_recovery(move |it| telling.lock().unwrap().push(it));
    let _killed = Store::open(config).unwrap();
    let told = told.lock().unwrap();
    assert!(told.is_sorted_by_key(|it| it.done_bytes), "{told:?}");
    let last = told.last().unwrap();
    assert!(last.total_bytes > 0 && last.done_bytes == last.total_bytes, "{last:?}");
}

#[test]
fn a_missing_directory_is_made() {
    let directory = directory();
    let path = directory.path().join("a").join("b");
    open(&path);
    assert!(path.join(PAGES_FILE).is_file() && path.join(LOG_FILE).is_file());
}

#[test]
fn without_permission_to_create_a_missing_store_is_refused_and_nothing_is_made() {
    let directory = directory();
    let path = directory.path().join("missing");
    let error = Store::open(config(&path).create(false)).unwrap_err();
    assert!(matches!(&error, Error::NoStore { path: named } if *named == path), "{error}");
    assert!(!path.exists());
}

#[test]
fn the_remains_of_a_creation_are_made_anew() {
    let directory = directory();
    for name in [PAGES_FILE, LOG_FILE] {
        std::fs::write(directory.path().join(format!("{name}.new")), b"half").unwrap();
    }
    // A log got its name, and the pages did not.
    std::fs::write(directory.path().join(LOG_FILE), b"half").unwrap();
    let error = Store::open(config(directory.path()).create(false)).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. }), "{error}");
    assert_eq!(std::fs::read(directory.path().join(LOG_FILE)).unwrap(), b"half");
    open(directory.path()).create_table("t").unwrap().put(b"k", b"v").unwrap();
    let store = open(directory.path());
    assert_eq!(store.table("t").unwrap().len().unwrap(), 1);
    assert!(!directory.path().join(format!("{PAGES_FILE}.new")).exists());
}

#[test]
fn what_is_left_of_a_store_without_its_pages_is_not_made_anew() {
    let directory = directory();
    open(directory.path()).create_table("t").unwrap().put(b"k", b"v").unwrap();
    std::fs::remove_file(directory.path().join(PAGES_FILE)).unwrap();
    let log = std::fs::read(directory.path().join(LOG_FILE)).unwrap();
    for create in [false, true] {
        let error = Store::open(config(directory.path()).create(create)).unwrap_err();
        assert!(matches!(error, Error::PagesMissing { .. }) && error.is_damage(), "{error}");
    }
    let mut backup = Vec::new();
    Store::in_memory().unwrap().backup(&mut backup).unwrap();
    let error = Store::restore(config(directory.path()), &backup[..]).unwrap_err();
    assert!(matches!(error, Error::PagesMissing { .. }), "{error}");
    assert!(std::fs::read(directory.path().join(LOG_FILE)).unwrap() == log);
    std::fs::remove_file(directory.path().join(LOG_FILE)).unwrap();
    open(directory.path());
}

#[test]
fn a_second_opener_is_refused_in_a_clear_sentence() {
    let (directory, store) = created();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(error.is_already_open(), "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains("this process has it open elsewhere, to write"), "{error}");
    assert!(sentence.contains("close it there first"), "{error}");
    drop(store);
    open(directory.path());
}

#[test]
fn every_kind_of_handle_keeps_the_store_open() {
    let (directory, store) = created();
    let table = store.create_table("t").unwrap();
    let refused = || Store::open(config(directory.path())).unwrap_err().is_already_open();
    let transaction = store.transaction().unwrap();
    let snapshot = store.snapshot().unwrap();
    drop(store);
    assert!(refused());
    drop(table);
    assert!(refused());
    drop(transaction);
    assert!(refused());
    drop(snapshot);
    open(directory.path());
}

#[test]
fn of_many_who_create_a_store_at_once_one_gets_it() {
    for _ in 0..10 {
        let directory = directory();
        let start = Arc::new(Barrier::new(6));
        let openers: Vec<_> = (0..6)
            .map(|_| {
                let (start, config) = (Arc::clone(&start), config(directory.path()));
                std::thread::spawn(move || {
                    start.wait();
                    Store::open(config)
                })
            })
            .collect();
        let results: Vec<_> = openers.into_iter().map(|opener| opener.join().unwrap()).collect();
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert!(error.is_already_open(), "{error}");
        }
        let winners: Vec<_> = results.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        winners[0].create_table("t").unwrap().put(b"k", b"v").unwrap();
        drop(winners);
        assert_eq!(open(directory.path()).table("t").unwrap().len().unwrap(), 1);
    }
}

#[test]
fn a_store_of_the_format_before_the_first_is_refused_by_name_and_stays() {
    let directory = directory();
    let path = directory.path().join("store.lapis");
    std::fs::write(&path, b"an old pool").unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::UnreleasedFormat { .. }), "{error}");
    assert!(error.to_string().contains("format 1"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"an old pool");
    assert!(!directory.path().join(PAGES_FILE).exists());
}

#[test]
fn a_store_without_its_log_is_refused_and_stays() {
    let directory = directory();
    open(directory.path()).create_table("t").unwrap();
    std::fs::remove_file(directory.path().join(LOG_FILE)).unwrap();
    let before = std::fs::read(directory.path().join(PAGES_FILE)).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(LOG_FILE), "{error}");
    assert_eq!(std::fs::read(directory.path().join(PAGES_FILE)).unwrap(), before);
}

#[test]
fn a_store_in_memory_leaves_nothing() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    for number in 0..1000_u32 {
        table.put(&number.to_be_bytes(), &[7; 300]).unwrap();
    }
    assert_eq!(table.len().unwrap(), 1000);
    assert!(store.info(false).unwrap().tiers.iter().all(|tier| tier.path.is_none()));
    assert_sound(&store);
}
