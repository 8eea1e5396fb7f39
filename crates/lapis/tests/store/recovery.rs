//! After a crash of the process, and after a clean shutdown.

use std::process::Command;

use lapis::{Durability, Error, IndexKind, Store, StoreOptions, TableOptions};
use lapis_pmem::{PersistCounts, Pool, PoolError, Region, RegionError};

use crate::harness::*;

#[test]
fn after_a_clean_shutdown_info_says_so_and_after_a_crash_it_does_not() {
    let directory = directory();
    drop(open(directory.path()));
    let store = open(directory.path());
    assert!(store.info(false).opened_clean);
    crash(store);
    let store = open(directory.path());
    assert!(!store.info(false).opened_clean);
    drop(store);
    assert!(open(directory.path()).info(false).opened_clean);
}

#[test]
fn everything_acknowledged_is_there_after_a_crash() {
    for kind in KINDS {
        let directory = directory();
        let store = open(directory.path());
        let table = table_of(&store, kind);
        for number in 0..500u32 {
            table.put(&number.to_be_bytes(), &vec![number as u8; number as usize * 20]).unwrap();
        }
        for number in (0..500u32).step_by(3) {
            table.delete(&number.to_be_bytes()).unwrap();
        }
        drop(table);
        crash(store);
        let store = open(directory.path());
        let table = table_of(&store, kind);
        for number in 0..500u32 {
            let expected = (number % 3 != 0).then(|| vec![number as u8; number as usize * 20]);
            assert_eq!(table.get(&number.to_be_bytes()).unwrap().map(Vec::from), expected);
        }
        assert_sound(&store);
        store.reclaim();
        assert_sound(&store);
    }
}

#[test]
fn the_last_transaction_is_redone_without_changing_what_is_there() {
    for bytes in [10, 5000] {
        let directory = directory();
        let store = open(directory.path());
        let tables = KINDS.map(|kind| table_of(&store, kind));
        for table in &tables {
            table.put(b"goes", b"1").unwrap();
        }
        let mut transaction = store.transaction().unwrap();
        for table in &tables {
            transaction.put(table, b"comes", &vec![7; bytes]).unwrap();
            transaction.delete(table, b"goes").unwrap();
        }
        transaction.commit().unwrap();
        drop((tables, store.pool().abandon(), store));
        // Twice: recovery leaves nothing to redo, and redoing is idempotent.
        for _ in 0..2 {
            let store = open(directory.path());
            for kind in KINDS {
                let expected = [(b"comes".to_vec(), vec![7; bytes])];
                assert_eq!(contents(&table_of(&store, kind)), expected);
            }
            store.reclaim();
            assert_sound(&store);
            crash(store);
        }
    }
}

#[test]
fn a_transaction_before_the_last_is_not_redone() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[0]);
    table.put(b"k", b"first").unwrap();
    table.delete(b"k").unwrap();
    table.put(b"other", b"v").unwrap();
    drop(table);
    crash(store);
    let store = open(directory.path());
    assert!(table_of(&store, KINDS[0]).get(b"k").unwrap().is_none());
}

#[test]
fn crashing_after_a_drop_of_the_table_last_written_reopens() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[0]);
    table.put(b"k", b"v").unwrap();
    store.drop_table(table.name()).unwrap();
    drop(table);
    crash(store);
    let store = open(directory.path());
    assert!(store.tables().is_empty());
    store.reclaim();
    assert_sound(&store);
}

#[test]
fn reclaim_finds_the_space_that_a_crash_hid() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[0]);
    for number in 0..400u32 {
        table.put(&number.to_be_bytes(), &[1; 4000]).unwrap();
    }
    for number in 10..400u32 {
        table.delete(&number.to_be_bytes()).unwrap();
    }
    drop(table);
    crash(store);
    let store = open(directory.path());
    assert!(!store.info(false).bytes.exact);
    let report = store.reclaim();
    assert!(report.freed_chunks > 10, "{report:?}");
    assert!(store.info(false).bytes.exact);
    let before = store.info(false).bytes.storage;
    let table = table_of(&store, KINDS[0]);
    for number in 10..300u32 {
        table.put(&number.to_be_bytes(), &[2; 4000]).unwrap();
    }
    assert!(store.info(false).bytes.storage <= before + (1 << 20));
    assert!(store.audit().is_clean());
    assert_sound(&store);
}

#[test]
fn the_store_does_not_grow_with_every_crash() {
    let directory = directory();
    let config = || config(directory.path()).capacity_bytes(8 << 20);
    for round in 0..60u32 {
        let store = Store::open(config()).unwrap();
        let table = table_of(&store, KINDS[round as usize % 3]);
        for number in 0..100u32 {
            table.put(&number.to_be_bytes(), &[round as u8; 2000]).unwrap();
        }
        drop(table);
        crash(store);
    }
    let store = Store::open(config()).unwrap();
    store.reclaim();
    assert_sound(&store);
}

/// What opening a store with so many entries reads, in words and lines.
fn reads_of_opening(kind: IndexKind, entries: u32, crashed: bool) -> u64 {
    let directory = directory();
    let path = directory.path().join("pool");
    let pool = Pool::create_file(&path, 1 << 20, &region_options()).unwrap();
    let store = Store::create_on(pool, &StoreOptions { log_segment_bytes: 4096 }).unwrap();
    let table = store.create_table("t", &TableOptions::with_index(kind)).unwrap();
    for number in 0..entries {
        table.put(&number.to_be_bytes(), &number.to_be_bytes()).unwrap();
    }
    // The same last transaction whatever the number of entries.
    table.put(&0u32.to_be_bytes(), b"last").unwrap();
    if crashed {
        store.pool().abandon();
    }
    drop((table, store));
    let region = Region::open_file(&path, &region_options()).unwrap();
    let counts = PersistCounts::default();
    let store = Store::open_on(Pool::open(region, Counting::new(counts.clone())).unwrap()).unwrap();
    let reads = counts.loads();
    assert_eq!(store.table("t").unwrap().len().unwrap(), u64::from(entries));
    reads
}

#[test]
fn opening_reads_no_more_of_a_store_that_holds_more() {
    // Those with volatile inner nodes read all their leaves.
    for kind in KINDS.into_iter().filter(|kind| !kind.rebuilds()) {
        for crashed in [false, true] {
            let few = reads_of_opening(kind, 1000, crashed);
            let many = reads_of_opening(kind, 20_000, crashed);
            // The log is as full as it happens to be; a tree may be a level or two deeper.
            assert!(many < few + 2500, "{kind}: {few} reads, then {many} for 20 times the entries");
        }
    }
}

const CHILD_DIRECTORY: &str = "LAPIS_TEST_ABORT_IN";

#[test]
#[ignore = "is run by a_process_that_aborts_loses_nothing_acknowledged as a child"]
fn aborting_child() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let store = open(directory.as_ref());
    for kind in KINDS {
        let table = table_of(&store, kind);
        for number in 0..200u32 {
            table.put(&number.to_be_bytes(), &vec![1; number as usize * 30]).unwrap();
        }
    }
    let mut unfinished = store.transaction().unwrap();
    unfinished.put(&store.table("wort").unwrap(), b"unfinished", b"v").unwrap();
    std::process::abort();
}

#[test]
fn a_process_that_aborts_loses_nothing_acknowledged() {
    let directory = directory();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovery::aborting_child", "--ignored", "--nocapture"])
        .env(CHILD_DIRECTORY, directory.path())
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    let store = open(directory.path());
    assert!(!store.info(false).opened_clean);
    for kind in KINDS {
        let table = table_of(&store, kind);
        assert_eq!(table.len().unwrap(), 200);
        for number in 0..200u32 {
            let value = table.get(&number.to_be_bytes()).unwrap().unwrap();
            assert_eq!(&*value, vec![1; number as usize * 30]);
        }
        assert!(table.get(b"unfinished").unwrap().is_none());
    }
    store.reclaim();
    assert_sound(&store);
}

#[test]
fn power_fail_durability_works_on_a_file_and_is_refused_where_there_is_none() {
    let directory = directory();
    let config = || config(directory.path()).durability(Durability::PowerFail);
    let store = match Store::open(config()) {
        Ok(store) => store,
        Err(Error::File {
            source: PoolError::Region(RegionError::DurabilityUnavailable { .. }),
            ..
        }) => {
            eprintln!("skipped: the temporary directory is in memory");
            assert!(!pool_file(directory.path()).exists());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(store.info(false).durability, "power-fail");
    for kind in KINDS {
        let table = table_of(&store, kind);
        for size in [1usize, 5000, 100_000] {
            table.put(&size.to_be_bytes(), &vec![3; size]).unwrap();
        }
    }
    crash(store);
    let store = Store::open(config()).unwrap();
    for kind in KINDS {
        let table = table_of(&store, kind);
        for size in [1usize, 5000, 100_000] {
            assert_eq!(&*table.get(&size.to_be_bytes()).unwrap().unwrap(), vec![3; size]);
        }
    }
    assert_sound(&store);
}
