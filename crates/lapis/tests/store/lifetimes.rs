//! How long entries live that are to be changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis::{Clock, Error, Store, Table, TableOptions, TimeToLive};

use crate::harness::*;

const TEN_SECONDS: Duration = Duration::from_secs(10);
/// After these it is over.
const ELEVEN_SECONDS_MS: u64 = 11_000;

/// A store with a clock, and a table of it whose entries live so long.
fn store_with_table(clock: &'static AtomicU64, time_to_live: Option<Duration>) -> (Store, Table) {
    let directory = directory();
    let store = Store::open(config(directory.path()).clock(Clock::Set(clock))).unwrap();
    let options = TableOptions { time_to_live, ..TableOptions::default() };
    let table = store.create_table_with("t", &options).unwrap();
    (store, table)
}

/// Asserts that this commits nothing.
fn writes_nothing(store: &Store, act: impl FnOnce()) {
    let before = store.metrics();
    act();
    assert_eq!(store.metrics().since(&before).written_bytes, 0);
}

#[test]
fn a_compare_and_swap_that_fails_leaves_an_entry_the_time_that_it_has() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (store, table) = store_with_table(&NOW, None);
    table.put_with(b"lock", b"A", TimeToLive::For(TEN_SECONDS)).unwrap();
    writes_nothing(&store, || {
        assert!(!table.compare_and_swap(b"lock", None, Some(b"B")).unwrap());
        assert!(!table.compare_and_swap(b"lock", Some(b"B"), None).unwrap());
    });
    assert_eq!(table.get(b"lock").unwrap().unwrap(), b"A");
    NOW.store(ELEVEN_SECONDS_MS, Ordering::Relaxed);
    assert_eq!(table.get(b"lock").unwrap(), None);
    assert!(table.compare_and_swap(b"lock", None, Some(b"B")).unwrap());
}

#[test]
fn a_compare_and_swap_that_fails_lets_stay_what_is_to_stay() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (store, table) = store_with_table(&NOW, Some(TEN_SECONDS));
    table.put_with(b"lock", b"A", TimeToLive::Forever).unwrap();
    writes_nothing(&store, || {
        assert!(!table.compare_and_swap(b"lock", None, Some(b"B")).unwrap());
    });
    NOW.store(ELEVEN_SECONDS_MS, Ordering::Relaxed);
    assert_eq!(table.get(b"lock").unwrap().unwrap(), b"A");
}

#[test]
fn a_compare_and_swap_that_swaps_gives_an_entry_the_time_of_its_table() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (_store, table) = store_with_table(&NOW, Some(TEN_SECONDS));
    table.put_with(b"lock", b"A", TimeToLive::Forever).unwrap();
    assert!(table.compare_and_swap(b"lock", Some(b"A"), Some(b"A")).unwrap());
    NOW.store(ELEVEN_SECONDS_MS, Ordering::Relaxed);
    assert_eq!(table.get(b"lock").unwrap(), None);
}

/// An update of a value that is no number.
fn update_as_a_number(table: &Table) {
    let numbers = table.typed::<Vec<u8>, u32>();
    let refused = numbers.update(&b"lock".to_vec(), |_| Some(1)).unwrap_err();
    assert!(matches!(refused, Error::WrongType { .. }), "{refused}");
}

#[test]
fn an_update_of_another_type_leaves_an_entry_the_time_that_it_has() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (store, table) = store_with_table(&NOW, None);
    table.put_with(b"lock", b"A", TimeToLive::For(TEN_SECONDS)).unwrap();
    writes_nothing(&store, || update_as_a_number(&table));
    assert_eq!(table.get(b"lock").unwrap().unwrap(), b"A");
    NOW.store(ELEVEN_SECONDS_MS, Ordering::Relaxed);
    assert_eq!(table.get(b"lock").unwrap(), None);
}

#[test]
fn an_update_of_another_type_lets_stay_what_is_to_stay() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (store, table) = store_with_table(&NOW, Some(TEN_SECONDS));
    table.put_with(b"lock", b"A", TimeToLive::Forever).unwrap();
    writes_nothing(&store, || update_as_a_number(&table));
    NOW.store(ELEVEN_SECONDS_MS, Ordering::Relaxed);
    assert_eq!(table.get(b"lock").unwrap().unwrap(), b"A");
}
