//! Write transactions.

use lapis::{Direction, Error, Store, Table, TableOptions};

use crate::harness::*;

fn tables(store: &Store) -> Vec<Table> {
    KINDS.into_iter().map(|kind| table_of(store, kind)).collect()
}

fn range(
    transaction: &lapis::Transaction<lapis::Hardware>,
    table: &Table,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = transaction.range(table, b"b".to_vec()..b"y".to_vec(), direction).unwrap();
    entries.map(|entry| entry.map(|(key, value)| (key, value.into_vec())).unwrap()).collect()
}

#[test]
fn writes_to_several_tables_come_together_and_survive_reopening() {
    let directory = directory();
    let store = open(directory.path());
    let all = tables(&store);
    let mut transaction = store.transaction().unwrap();
    for table in &all {
        transaction.put(table, b"k", b"v").unwrap();
        assert!(table.get(b"k").unwrap().is_none(), "not before the commit");
    }
    assert_eq!(transaction.len(), KINDS.len());
    transaction.commit().unwrap();
    assert!(all.iter().all(|table| table.get(b"k").unwrap().unwrap() == b"v"));
    drop((all, store));
    let store = open(directory.path());
    assert!(tables(&store).iter().all(|table| table.get(b"k").unwrap().unwrap() == b"v"));
    assert_sound(&store);
}

#[test]
fn a_transaction_reads_its_own_puts_and_deletes() {
    let store = in_memory();
    for table in tables(&store) {
        table.put(b"old", b"1").unwrap();
        let mut transaction = store.transaction().unwrap();
        transaction.put(&table, b"new", b"2").unwrap();
        transaction.put(&table, b"old", b"3").unwrap();
        assert_eq!(transaction.get(&table, b"new").unwrap().unwrap(), b"2");
        assert_eq!(transaction.get(&table, b"old").unwrap().unwrap(), b"3");
        assert!(transaction.delete(&table, b"old").unwrap());
        assert!(!transaction.delete(&table, b"old").unwrap());
        assert!(transaction.get(&table, b"old").unwrap().is_none());
        assert!(transaction.delete(&table, b"new").unwrap());
        assert!(!transaction.delete(&table, b"never").unwrap());
        transaction.commit().unwrap();
        assert!(table.is_empty().unwrap());
    }
}

#[test]
fn a_range_lays_the_transactions_writes_over_the_committed_state_in_both_directions() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        for key in ["a", "c", "e", "g", "z"] {
            table.put(key.as_bytes(), b"committed").unwrap();
        }
        let mut transaction = store.transaction().unwrap();
        for key in ["a", "b", "d", "e", "x", "y"] {
            transaction.put(&table, key.as_bytes(), b"mine").unwrap();
        }
        transaction.delete(&table, b"c").unwrap();
        let expected: Vec<_> =
            [("b", "mine"), ("d", "mine"), ("e", "mine"), ("g", "committed"), ("x", "mine")]
                .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .into();
        assert_eq!(range(&transaction, &table, Direction::Forward), expected, "{kind}");
        let reversed: Vec<_> = expected.iter().rev().cloned().collect();
        assert_eq!(range(&transaction, &table, Direction::Backward), reversed, "{kind}");
    }
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing() {
    let store = in_memory();
    for table in tables(&store) {
        table.put(b"stays", b"v").unwrap();
        let before = store.info(false).bytes.allocated;
        let mut transaction = store.transaction().unwrap();
        transaction.put(&table, b"k", &[1; 10_000]).unwrap();
        transaction.delete(&table, b"stays").unwrap();
        drop(transaction);
        assert_eq!(contents(&table), [(b"stays".to_vec(), b"v".to_vec())]);
        assert_eq!(store.info(false).bytes.allocated, before);
    }
    assert_sound(&store);
}

#[test]
fn an_empty_transaction_commits() {
    in_memory().transaction().unwrap().commit().unwrap();
}

#[test]
fn a_refused_operation_leaves_the_transaction_as_it_was() {
    let store = in_memory();
    let table = table_of(&store, KINDS[0]);
    let mut transaction = store.transaction().unwrap();
    transaction.put(&table, b"k", b"v").unwrap();
    transaction.put(&table, b"", b"v").unwrap_err();
    transaction.delete(&table, b"").unwrap_err();
    assert_eq!(transaction.len(), 1);
    transaction.commit().unwrap();
    assert_eq!(table.len().unwrap(), 1);
}

#[test]
fn committing_under_a_snapshot_of_the_same_thread_is_refused_and_not_a_deadlock() {
    let store = in_memory();
    let table = table_of(&store, KINDS[0]);
    let snapshot = store.snapshot();
    assert!(matches!(table.put(b"k", b"v"), Err(Error::SnapshotHeld)));
    assert!(matches!(table.delete(b"k"), Err(Error::SnapshotHeld)));
    assert!(matches!(store.drop_table(table.name()), Err(Error::SnapshotHeld)));
    assert!(snapshot.get(&table, b"k").unwrap().is_none());
    drop(snapshot);
    table.put(b"k", b"v").unwrap();
}

#[test]
fn tables_of_another_store_are_refused() {
    let (store, other) = (in_memory(), in_memory());
    let foreign = table_of(&other, KINDS[0]);
    let refused = |error| assert!(matches!(error, Error::ForeignTable { .. }), "{error}");
    let mut transaction = store.transaction().unwrap();
    refused(transaction.put(&foreign, b"k", b"v").unwrap_err());
    refused(transaction.delete(&foreign, b"k").unwrap_err());
    refused(transaction.get(&foreign, b"k").unwrap_err());
    refused(transaction.range(&foreign, .., Direction::Forward).unwrap_err());
    refused(store.snapshot().get(&foreign, b"k").unwrap_err());
    refused(store.snapshot().range(&foreign, .., Direction::Forward).unwrap_err());
}

#[test]
fn a_transaction_of_more_small_writes_than_a_log_entry_holds_is_refused_and_changes_nothing() {
    let store = in_memory();
    let table = table_of(&store, KINDS[0]);
    let before = store.info(false).bytes.storage;
    let mut transaction = store.transaction().unwrap();
    for number in 0..17_000u32 {
        transaction.put(&table, &number.to_be_bytes(), &[1; 4000]).unwrap();
    }
    let error = transaction.commit().unwrap_err();
    assert!(matches!(error, Error::TransactionTooLong { .. }), "{error}");
    assert!(table.is_empty().unwrap());
    assert_eq!(store.info(false).bytes.storage, before);
    table.put(b"k", b"v").unwrap();
    assert_sound(&store);
}

#[test]
fn a_record_larger_than_a_log_segment_commits_and_survives_a_crash() {
    let directory = directory();
    let store = open(directory.path());
    let table = table_of(&store, KINDS[1]);
    let mut transaction = store.transaction().unwrap();
    for number in 0..1000u32 {
        transaction.put(&table, &number.to_be_bytes(), &[number as u8; 300]).unwrap();
    }
    transaction.commit().unwrap();
    drop(table);
    crash(store);
    let store = open(directory.path());
    assert_eq!(table_of(&store, KINDS[1]).len().unwrap(), 1000);
    assert_sound(&store);
}

#[test]
fn a_thread_that_has_a_transaction_is_refused_what_would_wait_for_it() {
    let store = in_memory();
    let table = store.create_table("t", &TableOptions::default()).unwrap();
    let transaction = store.transaction().unwrap();
    let refused = |error: Error| assert!(matches!(error, Error::TransactionHeld), "{error}");
    refused(store.transaction().unwrap_err());
    refused(table.put(b"k", b"v").unwrap_err());
    refused(table.delete(b"k").unwrap_err());
    refused(store.create_table("u", &TableOptions::default()).unwrap_err());
    refused(store.drop_table("t").unwrap_err());
    drop(transaction);
    table.put(b"k", b"v").unwrap();
}

#[test]
fn a_thread_that_has_a_transaction_may_look_at_the_store() {
    let store = in_memory();
    let table = store.create_table("t", &TableOptions::default()).unwrap();
    table.put(b"k", b"v").unwrap();
    let mut transaction = store.transaction().unwrap();
    transaction.put(&table, b"l", b"w").unwrap();
    assert!(store.check().ok);
    assert_eq!(store.info(true).tables.len(), 1);
    assert_eq!(table.len().unwrap(), 1);
    assert!(store.audit().is_clean());
    store.reclaim();
    transaction.commit().unwrap();
    assert_eq!(table.get(b"l").unwrap().unwrap(), b"w"[..]);
}

#[test]
fn a_transaction_of_one_store_leaves_the_thread_free_to_write_to_another() {
    let (store, other) = (in_memory(), in_memory());
    let _transaction = store.transaction().unwrap();
    let table = other.create_table("t", &TableOptions::default()).unwrap();
    table.put(b"k", b"v").unwrap();
}
