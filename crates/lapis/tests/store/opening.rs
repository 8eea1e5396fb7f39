//! Creating, opening, and refusing to.

use std::sync::{Arc, Barrier};

use lapis::{Config, Error, Store, StoreOptions, TableOptions};
use lapis_pmem::{PCell, Pool, PoolError};

use crate::harness::*;

#[test]
fn a_new_store_is_empty_and_sound() {
    let directory = directory();
    let store = open(directory.path());
    assert!(store.tables().is_empty());
    assert_sound(&store);
}

#[test]
fn a_store_keeps_its_tables_and_entries_when_reopened() {
    let directory = directory();
    let store = open(directory.path());
    for kind in KINDS {
        table_of(&store, kind).put(b"key", kind.to_string().as_bytes()).unwrap();
    }
    drop(store);
    let store = open(directory.path());
    for kind in KINDS {
        let table = store.table(&kind.to_string()).unwrap();
        assert_eq!(table.index_kind(), kind);
        assert_eq!(&*table.get(b"key").unwrap().unwrap(), kind.to_string().as_bytes());
    }
    assert_sound(&store);
}

#[test]
fn a_missing_directory_is_made() {
    let directory = directory();
    let path = directory.path().join("a").join("b");
    open(&path);
    assert!(pool_file(&path).is_file());
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
fn without_permission_to_create_the_remains_of_a_creation_are_refused_and_stay() {
    let directory = directory();
    drop(Pool::create_file(&pool_file(directory.path()), 1 << 17, &region_options()).unwrap());
    let error = Store::open(config(directory.path()).create(false)).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. }), "{error}");
    assert_eq!(std::fs::metadata(pool_file(directory.path())).unwrap().len(), 1 << 17);
}

#[test]
fn a_second_opener_is_refused_in_a_clear_sentence() {
    let directory = directory();
    let store = open(directory.path());
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(error.is_already_open(), "{error}");
    assert!(error.to_string().contains("open"), "{error}");
    drop(store);
    open(directory.path());
}

#[test]
fn a_table_handle_keeps_the_store_open() {
    let directory = directory();
    let table = table_of(&open(directory.path()), KINDS[0]);
    assert!(Store::open(config(directory.path())).unwrap_err().is_already_open());
    table.put(b"k", b"v").unwrap();
    drop(table);
    open(directory.path());
}

#[test]
fn of_many_who_create_a_store_at_once_one_gets_it() {
    for round in 0..20 {
        let directory = directory();
        if round % 2 == 1 {
            std::fs::write(pool_file(directory.path()), b"").unwrap();
        }
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
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        let winner = results.into_iter().flatten().next().unwrap();
        table_of(&winner, KINDS[0]).put(b"k", b"v").unwrap();
        drop(winner);
        assert!(table_of(&open(directory.path()), KINDS[0]).get(b"k").unwrap().is_some());
    }
}

fn is_created_anew(bytes: &[u8]) {
    let directory = directory();
    std::fs::write(pool_file(directory.path()), bytes).unwrap();
    let store = open(directory.path());
    table_of(&store, KINDS[0]).put(b"k", b"v").unwrap();
    assert_sound(&store);
}

#[test]
fn an_empty_file_is_created_anew() {
    is_created_anew(b"");
}

#[test]
fn a_blank_file_is_created_anew() {
    is_created_anew(&vec![0; 1 << 20]);
}

#[test]
fn a_header_that_was_not_finished_is_created_anew() {
    let mut bytes = vec![0; 1 << 20];
    bytes[..8].copy_from_slice(b"LAPISNEW");
    bytes[300..4000].fill(7);
    is_created_anew(&bytes);
}

#[test]
fn a_pool_without_a_store_is_created_anew() {
    let directory = directory();
    drop(Pool::create_file(&pool_file(directory.path()), 1 << 17, &region_options()).unwrap());
    assert_sound(&open(directory.path()));
}

#[test]
fn a_pool_of_something_else_is_refused_and_keeps_its_contents() {
    let directory = directory();
    let path = pool_file(directory.path());
    let pool = Pool::create_file(&path, 1 << 17, &region_options()).unwrap();
    let mut block = pool.allocate::<PCell<u64>>().unwrap();
    block.zero();
    block.store(pool.domain(), 42);
    let _ = pool.publish_root("other", 7, pool.fence(block.flush())).unwrap().persist();
    drop(pool);
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::NotAStore), "{error}");
    let pool = Pool::open_file(&path, &region_options()).unwrap();
    let root = pool.root::<PCell<u64>>("other").unwrap();
    assert_eq!(pool.at(root).load(pool.domain()), 42);
    assert_eq!(pool.roots().len(), 1);
}

#[test]
fn a_file_of_something_else_is_refused_and_untouched() {
    for length in [10, 5000, 1 << 20] {
        let directory = directory();
        let path = pool_file(directory.path());
        let text = b"not a pool ".repeat(length / 11 + 1);
        std::fs::write(&path, &text).unwrap();
        let error = Store::open(config(directory.path())).unwrap_err();
        assert!(matches!(error, Error::File { source: PoolError::NotAPool, .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), text);
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let directory = directory();
    drop(open(directory.path()));
    let file = std::fs::File::options().write(true).open(pool_file(directory.path())).unwrap();
    file.set_len(1 << 18).unwrap();
    let error = Store::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, Error::File { source: PoolError::Truncated { .. }, .. }), "{error}");
}

#[test]
fn a_directory_that_is_a_file_is_refused_and_untouched() {
    let directory = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let error = Store::open(config(&path)).unwrap_err();
    assert!(matches!(error, Error::File { .. } | Error::Directory { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"text");
}

#[test]
fn options_that_cannot_be_met_are_refused_and_leave_no_file() {
    let directory = directory();
    let too_small = StoreOptions { log_segment_bytes: 100 };
    let error = Store::open(config(directory.path()).options(too_small)).unwrap_err();
    assert!(matches!(error, Error::Log(_)), "{error}");
    assert!(!pool_file(directory.path()).exists());
    let too_large = StoreOptions { log_segment_bytes: 1 << 30 };
    let config = Config::new(directory.path()).initial_bytes(1 << 20).capacity_bytes(1 << 21);
    let error = Store::open(config.options(too_large)).unwrap_err();
    assert!(matches!(error, Error::Full(_)), "{error}");
    assert!(!pool_file(directory.path()).exists());
}

#[test]
fn a_store_opens_with_less_capacity_than_it_has_bytes() {
    let directory = directory();
    let store = open(directory.path());
    table_of(&store, KINDS[0]).put(b"k", &vec![1; 4 << 20]).unwrap();
    drop(store);
    let store = Store::open(config(directory.path()).capacity_bytes(1 << 20)).unwrap();
    assert_eq!(table_of(&store, KINDS[0]).get(b"k").unwrap().unwrap().len(), 4 << 20);
}

#[test]
fn info_counts_the_openings_and_keeps_the_identity() {
    let directory = directory();
    let first = open(directory.path()).info(false);
    let second = open(directory.path()).info(true);
    assert_eq!(first.uuid, second.uuid);
    assert!(second.generation > first.generation);
}

#[test]
fn info_names_the_guarantee_and_the_tables() {
    let directory = directory();
    let store = open(directory.path());
    store.create_table("b", &TableOptions::default()).unwrap();
    store.create_table("a", &TableOptions::default()).unwrap().put(b"k", b"v").unwrap();
    let info = store.info(true);
    assert_eq!(info.durability, "process-crash");
    let names: Vec<_> = info.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(info.tables[0].statistics.as_ref().unwrap().entries, 1);
    assert!(info.bytes.exact && info.bytes.allocated > 0);
}
