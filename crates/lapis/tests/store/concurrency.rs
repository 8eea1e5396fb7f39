//! Many threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis::Table;

use crate::harness::*;

fn number(table: &Table, key: &[u8]) -> u64 {
    u64::from_le_bytes((*table.get(key).unwrap().unwrap()).try_into().unwrap())
}

#[test]
fn four_threads_with_keys_of_their_own_always_read_what_they_wrote() {
    let directory = directory();
    let store = open(directory.path());
    let tables = KINDS.map(|kind| table_of(&store, kind));
    let models: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let (tables, store) = (&tables, &store);
                scope.spawn(move || {
                    let mut models = [const { BTreeMap::<Vec<u8>, Vec<u8>>::new() }; KINDS.len()];
                    let mut random = u64::from(thread) + 1;
                    for step in 0..1500u32 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let at = (random >> 33) as usize;
                        let (table, model) =
                            (&tables[at % KINDS.len()], &mut models[at % KINDS.len()]);
                        let key = vec![b'k', (at / 3 % 60) as u8, thread];
                        let value = vec![thread; at / 180 % 700];
                        match at / 7 % 10 {
                            0..=3 => {
                                table.put(&key, &value).unwrap();
                                model.insert(key, value);
                            }
                            4 => assert_eq!(
                                table.delete(&key).unwrap(),
                                model.remove(&key).is_some()
                            ),
                            5 => {
                                let mut transaction = store.transaction().unwrap();
                                for (table, model) in tables.iter().zip(&mut models) {
                                    transaction.put(table, &key, &value).unwrap();
                                    model.insert(key.clone(), value.clone());
                                }
                                transaction.commit().unwrap();
                            }
                            6 if step % 10 == 0 => {
                                let mine =
                                    contents(table).into_iter().filter(|(key, _)| key[2] == thread);
                                assert_eq!(mine.collect::<BTreeMap<_, _>>(), *model);
                            }
                            _ => assert_eq!(
                                table.get(&key).unwrap().map(Vec::from),
                                model.get(&key).cloned()
                            ),
                        }
                    }
                    models
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let expected = |table: usize| -> BTreeMap<_, _> {
        models.iter().flat_map(|models| models[table].clone()).collect()
    };
    for (index, table) in tables.iter().enumerate() {
        assert_eq!(contents(table).into_iter().collect::<BTreeMap<_, _>>(), expected(index));
    }
    assert_sound(&store);
    drop(tables);
    crash(store);
    let store = open(directory.path());
    for (index, kind) in KINDS.into_iter().enumerate() {
        let found: BTreeMap<_, _> = contents(&table_of(&store, kind)).into_iter().collect();
        assert_eq!(found, expected(index), "{kind}");
    }
    store.reclaim();
    assert_sound(&store);
}

#[test]
fn money_moved_between_two_tables_is_never_made_or_lost() {
    const ACCOUNTS: u8 = 10;
    for (left, right) in [(0, 1), (1, 2), (2, 0)] {
        let store = in_memory();
        let tables = [table_of(&store, KINDS[left]), table_of(&store, KINDS[right])];
        for table in &tables {
            for account in 0..ACCOUNTS {
                table.put(&[account], &100u64.to_le_bytes()).unwrap();
            }
        }
        let total = u64::from(ACCOUNTS) * 200;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2u8 {
                let (store, tables, stop) = (&store, &tables, &stop);
                scope.spawn(move || {
                    for step in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let from = &tables[(step % 2) as usize];
                        let to = &tables[(step / 2 % 2) as usize];
                        let (payer, payee) = ((step % 10) as u8, (step / 7 % 10) as u8 ^ thread);
                        let payee = payee % ACCOUNTS;
                        let mut transaction = store.transaction().unwrap();
                        let balance = |transaction: &lapis::Transaction<_>, table, key: u8| {
                            let bytes = transaction.get(table, &[key]).unwrap().unwrap();
                            u64::from_le_bytes((*bytes).try_into().unwrap())
                        };
                        let had = balance(&transaction, from, payer);
                        let amount = had.min(step % 30);
                        transaction.put(from, &[payer], &(had - amount).to_le_bytes()).unwrap();
                        let has = balance(&transaction, to, payee);
                        transaction.put(to, &[payee], &(has + amount).to_le_bytes()).unwrap();
                        if step % 5 != 0 {
                            transaction.commit().unwrap();
                        }
                    }
                });
            }
            for _ in 0..200 {
                let snapshot = store.snapshot();
                let mut sum = 0;
                for table in &tables {
                    for account in 0..ACCOUNTS {
                        let bytes = snapshot.get(table, &[account]).unwrap().unwrap();
                        sum += u64::from_le_bytes((*bytes).try_into().unwrap());
                    }
                }
                assert_eq!(sum, total);
                drop(snapshot);
                for account in 0..ACCOUNTS {
                    assert!(number(&tables[0], &[account]) <= total);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_sound(&store);
    }
}

#[test]
fn single_gets_in_either_order_never_see_half_a_transaction_after_the_whole() {
    let store = in_memory();
    let (first, second) = (table_of(&store, KINDS[0]), table_of(&store, KINDS[2]));
    let write = |number: u64| {
        let mut transaction = store.transaction().unwrap();
        transaction.put(&first, b"k", &number.to_le_bytes()).unwrap();
        transaction.put(&second, b"k", &number.to_le_bytes()).unwrap();
        transaction.commit().unwrap();
    };
    write(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for order in [[&first, &second], [&second, &first]] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (earlier, later) = (number(order[0], b"k"), number(order[1], b"k"));
                    assert!(earlier <= later, "{earlier} then {later}");
                }
            });
        }
        for number in 1..3000 {
            write(number);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
