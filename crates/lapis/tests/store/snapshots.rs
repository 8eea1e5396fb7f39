//! Snapshots.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis::Direction;

use crate::harness::*;

#[test]
fn a_snapshot_shows_what_was_committed_before_it() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        table.put(b"k", b"v").unwrap();
        let snapshot = store.snapshot();
        assert_eq!(snapshot.get(&table, b"k").unwrap().unwrap(), b"v");
        assert!(snapshot.get(&table, b"other").unwrap().is_none());
    }
}

#[test]
fn ranges_of_a_snapshot_go_both_ways() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        for number in 0..150u8 {
            table.put(&[number], b"").unwrap();
        }
        let snapshot = store.snapshot();
        let keys = |direction| -> Vec<u8> {
            let entries = snapshot.range(&table, vec![10]..=vec![140], direction).unwrap();
            entries.map(|entry| entry.unwrap().0[0]).collect()
        };
        assert_eq!(keys(Direction::Forward), (10..=140).collect::<Vec<_>>());
        assert_eq!(keys(Direction::Backward), (10..=140).rev().collect::<Vec<_>>());
    }
}

#[test]
fn a_thread_may_hold_several_snapshots_and_drop_them_in_any_order() {
    let store = in_memory();
    let table = table_of(&store, KINDS[0]);
    let (first, second) = (store.snapshot(), store.snapshot());
    drop(first);
    assert!(table.put(b"k", b"v").is_err());
    assert!(second.get(&table, b"k").unwrap().is_none());
    drop(second);
    table.put(b"k", b"v").unwrap();
}

#[test]
fn a_second_snapshot_of_a_thread_does_not_wait_for_a_writer_that_waits_for_the_first() {
    let store = in_memory();
    let table = table_of(&store, KINDS[0]);
    let first = store.snapshot();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| table.put(b"k", b"v").unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let second = store.snapshot();
        assert!(second.get(&table, b"k").unwrap().is_none());
        assert!(table.get(b"k").unwrap().is_none());
        assert_eq!(table.iter().unwrap().count(), 0);
        drop((first, second));
        writer.join().unwrap();
    });
    assert!(table.get(b"k").unwrap().is_some());
}

#[test]
fn a_snapshot_shows_one_state_while_writers_commit() {
    let store = in_memory();
    let tables = KINDS.map(|kind| table_of(&store, kind));
    let write = |number: u64| {
        let mut transaction = store.transaction().unwrap();
        for table in &tables {
            for key in 0..4u8 {
                transaction.put(table, &[key], &number.to_le_bytes()).unwrap();
            }
        }
        transaction.commit().unwrap();
    };
    write(0);
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                write(number);
                committed.store(number, Ordering::Release);
            }
        });
        let mut last = 0;
        for _ in 0..300 {
            let at_least = committed.load(Ordering::Acquire);
            let snapshot = store.snapshot();
            let value = |table, key: u8| {
                let bytes = snapshot.get(table, &[key]).unwrap().unwrap();
                u64::from_le_bytes((*bytes).try_into().unwrap())
            };
            let seen = value(&tables[0], 0);
            assert!(seen >= at_least && seen >= last);
            last = seen;
            for table in &tables {
                assert!((0..4).all(|key| value(table, key) == seen));
            }
            for (_, bytes) in
                snapshot.range(&tables[1], .., Direction::Backward).unwrap().map(Result::unwrap)
            {
                assert_eq!(bytes, &seen.to_le_bytes());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
