//! How long commits wait, and what a killed process leaves.

use std::time::{Duration, Instant};

use lapis::Durability;

use crate::harness::*;

fn within_a_minute(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_acknowledged_is_on_the_disk_when_the_call_returns() {
    let (directory, store) = created();
    let table = store.create_table("t").unwrap();
    for number in 0..20_u8 {
        table.put(&[number, 1], &[number; 100]).unwrap();
        let copy = copy_of(directory.path());
        let killed = open(copy.path());
        let found = killed.table("t").unwrap();
        assert_eq!(found.len().unwrap(), u64::from(number) + 1);
        assert_sound(&killed);
    }
}

#[test]
fn a_commit_for_the_group_is_durable_by_itself_and_says_when() {
    let (_directory, store) = created();
    let table = store.create_table("t").unwrap();
    for durability in [Durability::Group, Durability::Eventual] {
        let mut transaction = store.transaction().unwrap();
        transaction.put(&table, b"k", b"v").unwrap();
        let commit = transaction.commit_with(durability).unwrap();
        within_a_minute(|| commit.is_durable());
        commit.wait().unwrap();
    }
    let mut transaction = store.transaction().unwrap();
    transaction.put(&table, b"l", b"v").unwrap();
    assert!(transaction.commit_with(Durability::Immediate).unwrap().is_durable());
    assert!(store.transaction().unwrap().commit_with(Durability::Eventual).unwrap().is_durable());
}

#[test]
fn waiting_and_sync_make_durable_what_did_not_wait() {
    let directory = directory();
    let store =
        lapis::Store::open(config(directory.path()).durability(Durability::Eventual)).unwrap();
    let table = store.create_table("t").unwrap();
    table.put(b"a", b"1").unwrap();
    store.sync().unwrap();
    let copy = copy_of(directory.path());
    assert_eq!(open(copy.path()).table("t").unwrap().len().unwrap(), 1);
    let mut transaction = store.transaction().unwrap();
    transaction.put(&table, b"b", b"2").unwrap();
    transaction.commit_with(Durability::Eventual).unwrap().wait().unwrap();
    let copy = copy_of(directory.path());
    assert_eq!(open(copy.path()).table("t").unwrap().len().unwrap(), 2);
}
