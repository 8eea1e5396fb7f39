//! Backup, restore, salvage, compaction, bulk load, through the store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapis::{
    BackupError, Error, LOG_FILE, PAGES_FILE, SalvagedTable, Store, salvage, verify_backup,
};

use crate::harness::*;

fn filled(directory: &std::path::Path) -> Store {
    let store = open(directory);
    let entries = (0..2000_u32).map(|number| (number.to_be_bytes(), [number as u8; 100]));
    let table = store.load_table("t", entries).unwrap();
    table.put(b"long", &[3; 9000]).unwrap();
    store.create_table("empty").unwrap();
    store
}

#[test]
fn a_backup_that_is_made_while_others_write_is_one_state() {
    let (directory, other) = (directory(), directory());
    let store = filled(directory.path());
    let table = store.table("t").unwrap();
    let (mut backup, before) = (Vec::new(), contents(&table));
    let report = std::thread::scope(|scope| {
        let report = store.backup(&mut backup).unwrap();
        scope.spawn(|| table.put(b"later", b"1").unwrap());
        report
    });
    assert_eq!((report.tables, report.entries), (2, 2001));
    assert_eq!(verify_backup(&backup[..]).unwrap(), report);
    let (restored, found) = Store::restore(config(other.path()), &backup[..]).unwrap();
    assert_eq!(found, report);
    assert_eq!(contents(&restored.table("t").unwrap()), before);
    assert!(restored.table("empty").unwrap().is_empty().unwrap());
    assert_sound(&restored);
    drop(restored);
    assert_eq!(contents(&open(other.path()).table("t").unwrap()), before);
}

#[test]
fn a_backup_that_is_cut_off_or_changed_makes_no_store_and_a_store_is_not_overwritten() {
    let (directory, other) = (directory(), directory());
    let store = filled(directory.path());
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    drop(store);
    let cut = &backup[..backup.len() / 2];
    let error = Store::restore(config(other.path()), cut).unwrap_err();
    assert!(matches!(error, Error::Backup(BackupError::CutOff { .. })), "{error}");
    let at = backup.len() / 3;
    backup[at] ^= 4;
    assert!(matches!(Store::restore(config(other.path()), &backup[..]), Err(Error::Backup(_))));
    assert!(matches!(Store::open(config(other.path()).create(false)), Err(Error::NoStore { .. })));
    let error = Store::restore(config(directory.path()), &backup[..]).unwrap_err();
    assert!(matches!(error, Error::StoreExists { .. }), "{error}");
    assert_eq!(open(directory.path()).table("t").unwrap().len().unwrap(), 2001);
}

#[test]
fn what_can_be_read_of_a_damaged_store_is_salvaged_and_the_rest_is_listed() {
    let directory = directory();
    let right: BTreeMap<_, _> =
        contents(&filled(directory.path()).table("t").unwrap()).into_iter().collect();
    let path = directory.path().join(PAGES_FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    // A leaf, and the superblock.
    let at = bytes.windows(100).rposition(|window| window == [77; 100]).unwrap();
    bytes[at] ^= 1;
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::remove_file(directory.path().join(LOG_FILE)).unwrap();
    let mut found = 0;
    let report = salvage(directory.path(), &mut |table, key, value| {
        assert_eq!(*table, SalvagedTable::Named("t".to_owned()));
        assert_eq!(right.get(key).map(Vec::as_slice), Some(value));
        found += 1;
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!((1900..2001).contains(&found), "{found}");
    assert_eq!(report.entries, found);
    assert!(
        report.lost.iter().any(|lost| lost.to_string().contains(LOG_FILE)),
        "{:?}",
        report.lost
    );
    assert!(report.lost.iter().any(|lost| lost.page.is_some()), "{:?}", report.lost);
    let nothing = crate::harness::directory();
    let missing = salvage(nothing.path(), &mut |_, _, _| ControlFlow::Continue(()));
    assert!(matches!(missing, Err(Error::NoStore { .. })));
}

#[test]
fn a_file_becomes_shorter_by_compaction() {
    let (_directory, store) = created();
    let entries = (0..20_000_u32).map(|number| (number.to_be_bytes(), [number as u8; 100]));
    let table = store.load_table("t", entries).unwrap();
    for first in (0..19_000_u32).step_by(1000) {
        let mut transaction = store.transaction().unwrap();
        for number in first..first + 1000 {
            transaction.delete(&table, &number.to_be_bytes()).unwrap();
        }
        transaction.commit().unwrap();
    }
    let (before, expected) = (store.info(false).unwrap().bytes.storage, contents(&table));
    let report = store.compact().unwrap();
    let after = store.info(false).unwrap().bytes.storage;
    assert!(report.freed_pages > 0 && after < before, "{report:?}: {before} and {after} bytes");
    assert_eq!(contents(&table), expected);
    assert_sound(&store);
}

#[test]
fn metrics_tell_what_a_store_does() {
    let directory = directory();
    let store = filled(directory.path());
    let before = store.metrics();
    let table = store.table("t").unwrap();
    for number in 0..50_u32 {
        table.put(&number.to_be_bytes(), b"new").unwrap();
    }
    let metrics = store.metrics().since(&before);
    assert_eq!(metrics.commits.count(), 50);
    assert!(metrics.write_amplification().unwrap() > 1.0, "{metrics:?}");
    assert!(metrics.dram_hit_ratio().is_some() && metrics.log_bytes_per_second() > 0.0);
}
