//! Transactions and snapshots through the store's handles.

use lapis::{Error, Store};

use crate::harness::*;

#[test]
fn a_transaction_spans_tables_and_shows_nothing_before_it_commits() {
    let store = Store::in_memory().unwrap();
    let (left, right) = (store.create_table("l").unwrap(), store.create_table("r").unwrap());
    let mut transaction = store.transaction().unwrap();
    transaction.put(&left, b"k", b"1").unwrap();
    transaction.put(&right, b"k", b"2").unwrap();
    assert_eq!(transaction.get(&left, b"k").unwrap().unwrap(), b"1");
    assert!(left.get(b"k").unwrap().is_none());
    assert_eq!(transaction.len(), 2);
    transaction.commit().unwrap();
    assert_eq!(left.get(b"k").unwrap().unwrap(), b"1");
    assert_eq!(right.get(b"k").unwrap().unwrap(), b"2");
}

#[test]
fn one_that_is_dropped_leaves_no_trace() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    transaction.put(&table, b"k", &[1; 100_000]).unwrap();
    assert!(!transaction.is_empty());
    drop(transaction);
    assert!(table.is_empty().unwrap());
    assert_sound(&store);
}

#[test]
fn what_was_read_and_has_changed_is_a_conflict_that_retry_resolves() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    assert!(transaction.get(&table, b"k").unwrap().is_none());
    transaction.put(&table, b"mine", b"").unwrap();
    table.put(b"k", b"theirs").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Conflict)));
    assert_eq!(table.len().unwrap(), 1);
    let mut attempts = 0;
    store
        .retry(|transaction| {
            attempts += 1;
            let found = transaction.get(&table, b"k")?.unwrap();
            if attempts == 1 {
                table.put(b"k", b"changed")?;
            }
            transaction.put(&table, b"seen", &found)
        })
        .unwrap();
    assert_eq!((attempts, table.get(b"seen").unwrap().unwrap()), (2, b"changed".to_vec()));
}

#[test]
fn ranges_of_a_transaction_have_its_own_writes() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    for key in ["a", "b", "c"] {
        table.put(key.as_bytes(), b"old").unwrap();
    }
    let mut transaction = store.transaction().unwrap();
    assert!(transaction.delete(&table, b"a").unwrap());
    assert!(!transaction.delete(&table, b"x").unwrap());
    transaction.put(&table, b"bb", b"new").unwrap();
    let keys = |entries: lapis::Entries<'_>| -> Vec<Vec<u8>> {
        entries.map(|entry| entry.unwrap().0).collect()
    };
    assert_eq!(keys(transaction.iter(&table).unwrap()), [&b"b"[..], b"bb", b"c"]);
    assert_eq!(keys(transaction.prefix(&table, b"b").unwrap()), [&b"b"[..], b"bb"]);
    let backward = transaction.range(&table, .."c").unwrap().rev();
    assert_eq!(backward.map(|entry| entry.unwrap().0).collect::<Vec<_>>(), [&b"bb"[..], b"b"]);
}

#[test]
fn a_snapshot_stays_as_it_was_and_keeps_nobody_waiting() {
    let store = Store::in_memory().unwrap();
    let table = store.create_table("t").unwrap();
    table.put(b"k", b"old").unwrap();
    let snapshot = store.snapshot().unwrap();
    table.put(b"k", b"new").unwrap();
    table.put(b"l", b"more").unwrap();
    assert_eq!(snapshot.get(&table, b"k").unwrap().unwrap(), b"old");
    assert_eq!(snapshot.iter(&table).unwrap().count(), 1);
    assert_eq!(snapshot.prefix(&table, b"l").unwrap().count(), 0);
    assert_eq!(snapshot.range(&table, "a"..).unwrap().count(), 1);
    assert_eq!(table.get(b"k").unwrap().unwrap(), b"new");
}

#[test]
fn tables_of_another_store_are_refused() {
    let (store, other) = (Store::in_memory().unwrap(), Store::in_memory().unwrap());
    let foreign = other.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    let is_foreign = |error: Error| matches!(error, Error::ForeignTable { .. });
    assert!(is_foreign(transaction.put(&foreign, b"k", b"v").unwrap_err()));
    assert!(is_foreign(transaction.get(&foreign, b"k").unwrap_err()));
    assert!(is_foreign(store.snapshot().unwrap().get(&foreign, b"k").unwrap_err()));
}

#[test]
fn more_writes_than_the_log_takes_are_refused_when_they_are_made() {
    let (_directory, store) = created();
    let table = store.create_table("t").unwrap();
    let mut transaction = store.transaction().unwrap();
    let mut number = 0_u32;
    let error = loop {
        number += 1;
        if let Err(error) = transaction.put(&table, &number.to_be_bytes(), &[1; 200]) {
            break error;
        }
    };
    assert!(matches!(error, Error::TransactionTooLong { .. }), "{error}");
    assert!((1000..2000).contains(&number), "a quarter of a mebibyte: {number} writes");
    transaction.commit().unwrap();
    assert_eq!(table.len().unwrap(), u64::from(number) - 1);
}
