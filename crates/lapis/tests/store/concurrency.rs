//! Threads.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lapis::{Store, Table};

use crate::harness::*;

#[test]
fn transfers_of_many_threads_keep_the_sum_whoever_looks() {
    const ACCOUNTS: u8 = 8;
    let (_directory, store) = created();
    let table = store.create_table("accounts").unwrap();
    for account in 0..ACCOUNTS {
        table.put(&[account], &100_i64.to_le_bytes()).unwrap();
    }
    let amount = |value: &[u8]| i64::from_le_bytes(value.try_into().unwrap());
    let sum = |store: &lapis::Store| -> i64 {
        let (snapshot, table) = (store.snapshot().unwrap(), store.table("accounts").unwrap());
        snapshot.iter(&table).unwrap().map(|entry| amount(&entry.unwrap().1)).sum()
    };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u32)
            .map(|worker| {
                let (store, table) = (&store, &table);
                scope.spawn(move || {
                    for round in 0..60_u32 {
                        let to = (worker * 3 + round * 5 + 1) % u32::from(ACCOUNTS);
                        let from = (worker + round) % u32::from(ACCOUNTS);
                        store
                            .retry(|transaction| {
                                for (account, change) in [(from as u8, -1), (to as u8, 1)] {
                                    let old = transaction.get(table, &[account])?.unwrap();
                                    let new = (amount(&old) + change).to_le_bytes();
                                    transaction.put(table, &[account], &new)?;
                                }
                                Ok(())
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(sum(&store), 100 * i64::from(ACCOUNTS));
            }
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        ends.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|it| it.unwrap());
    });
    assert_sound(&store);
}

#[test]
fn updates_of_one_key_by_many_threads_all_count() {
    let (_directory, store) = created();
    let table = store.create_table("t").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    table.update(b"n", |old| Some(vec![old.map_or(0, |old| old[0]) + 1])).unwrap();
                }
            });
        }
    });
    assert_eq!(table.get(b"n").unwrap().unwrap(), [100]);
}

/// Writes to a table, alone and in a transaction, and scans it, when a thread ends.
struct AtEnd(Store, Table);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let Self(store, table) = self;
        write_and_scan(store, table, b"last");
    }
}

fn write_and_scan(store: &Store, table: &Table, key: &[u8]) {
    table.put(key, b"words").unwrap();
    let mut transaction = store.transaction().unwrap();
    transaction.put(table, b"more", b"words").unwrap();
    transaction.commit().unwrap();
    assert!(table.iter().unwrap().count() >= 2);
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_that_ends_can_still_use_its_store() {
    let (_directory, store) = created();
    let table = store.create_table("t").unwrap();
    let (of_thread, its_table) = (store.clone(), table.clone());
    // What is spawned in a scope may still end when the scope does.
    let thread = thread::spawn(move || {
        // Before whatever the store keeps for the thread: that is gone by then.
        AT_END.set(Some(AtEnd(of_thread.clone(), its_table.clone())));
        write_and_scan(&of_thread, &its_table, b"first");
    });
    thread.join().unwrap();
    assert_eq!(table.get(b"last").unwrap().unwrap(), b"words");
}
