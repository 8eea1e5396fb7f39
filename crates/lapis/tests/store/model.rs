//! Random operations against sorted maps, with clean and unclean reopening.

use std::collections::BTreeMap;
use std::path::Path;

use lapis::{Direction, Store, Table};
use proptest::prelude::*;

use crate::harness::*;

#[derive(Clone, Debug)]
enum Step {
    Put(usize, u16, usize),
    Delete(usize, u16),
    Get(usize, u16),
    Commit(Vec<(usize, u16, Option<usize>)>, bool),
    Range(usize, u16, u16, bool),
    Recreate(usize),
    Reopen { crash: bool, reclaim: bool },
}

/// Two tables for each kind of index.
const TABLES: usize = 6;

fn value_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..100, 2 => 1000usize..6000, 1 => 30_000usize..70_000]
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..TABLES, 0u16..80, prop::option::of(value_bytes()));
    prop_oneof![
        8 => (0..TABLES, 0u16..80, value_bytes()).prop_map(|(table, key, bytes)| Step::Put(table, key, bytes)),
        4 => (0..TABLES, 0u16..80).prop_map(|(table, key)| Step::Delete(table, key)),
        3 => (0..TABLES, 0u16..80).prop_map(|(table, key)| Step::Get(table, key)),
        3 => (prop::collection::vec(write, 0..12), any::<bool>())
            .prop_map(|(writes, commit)| Step::Commit(writes, commit)),
        2 => (0..TABLES, 0u16..80, 0u16..80, any::<bool>())
            .prop_map(|(table, from, to, forward)| Step::Range(table, from, to, forward)),
        1 => (0..TABLES).prop_map(Step::Recreate),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(crash, reclaim)| Step::Reopen { crash, reclaim }),
    ]
}

/// Keys that share prefixes, have zero bytes and differ in length.
fn key(number: u16) -> Vec<u8> {
    match number % 4 {
        0 => vec![b'p'; 1 + usize::from(number / 4)],
        1 => vec![0, number as u8],
        2 => format!("a longer key with number {number}").into_bytes(),
        _ => [vec![b'p'; usize::from(number / 8)], vec![0, number as u8]].concat(),
    }
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at + bytes) as u8).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open_tables(path: &Path) -> (Store, Vec<Table>) {
    let store = open(path);
    let tables = (0..TABLES).map(|number| table(&store, number)).collect();
    (store, tables)
}

fn table(store: &Store, number: usize) -> Table {
    let options = lapis::TableOptions::with_index(KINDS[number % KINDS.len()]);
    store.table_or_create(&format!("table {number}"), &options).unwrap()
}

fn sorted(table: &Table) -> Model {
    contents(table).into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_store_does_what_sorted_maps_do(steps in prop::collection::vec(step(), 1..150)) {
        let directory = directory();
        let (mut store, mut tables) = open_tables(directory.path());
        let mut models = vec![Model::new(); TABLES];
        for step in steps {
            match step {
                Step::Put(at, number, bytes) => {
                    tables[at].put(&key(number), &value(bytes)).unwrap();
                    models[at].insert(key(number), value(bytes));
                }
                Step::Delete(at, number) => {
                    let present = models[at].remove(&key(number)).is_some();
                    prop_assert_eq!(tables[at].delete(&key(number)).unwrap(), present);
                }
                Step::Get(at, number) => {
                    let found = tables[at].get(&key(number)).unwrap().map(Vec::from);
                    prop_assert_eq!(found.as_ref(), models[at].get(&key(number)));
                }
                Step::Commit(writes, commit) => {
                    let mut after = models.clone();
                    let mut transaction = store.transaction().unwrap();
                    for (at, number, bytes) in writes {
                        match bytes {
                            Some(bytes) => {
                                transaction.put(&tables[at], &key(number), &value(bytes)).unwrap();
                                after[at].insert(key(number), value(bytes));
                            }
                            None => {
                                let present = transaction.delete(&tables[at], &key(number)).unwrap();
                                prop_assert_eq!(after[at].remove(&key(number)).is_some(), present);
                            }
                        }
                    }
                    for (at, model) in after.iter().enumerate().filter(|(at, _)| at % 3 < 2) {
                        let entries = transaction.range(&tables[at], .., Direction::Backward).unwrap();
                        let found: Vec<_> = entries.map(|entry| entry.unwrap().0).collect();
                        prop_assert!(found.iter().eq(model.keys().rev()));
                    }
                    if commit {
                        transaction.commit().unwrap();
                        models = after;
                    }
                }
                Step::Range(at, from, to, forward) => {
                    let (from, to) = (key(from).min(key(to)), key(from).max(key(to)));
                    if !tables[at].is_ordered() {
                        continue;
                    }
                    let mut expected: Vec<_> =
                        models[at].range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
                    let mut entries = tables[at].range(from..to).unwrap();
                    if !forward {
                        entries = entries.backward();
                        expected.reverse();
                    }
                    let found: Vec<_> = entries.map(|entry| entry.unwrap().0).collect();
                    prop_assert_eq!(found, expected);
                }
                Step::Recreate(at) => {
                    store.drop_table(&format!("table {at}")).unwrap();
                    tables[at] = table(&store, at);
                    models[at].clear();
                }
                Step::Reopen { crash, reclaim } => {
                    if crash {
                        store.pool().abandon();
                    }
                    drop((store, tables));
                    (store, tables) = open_tables(directory.path());
                    if reclaim {
                        store.reclaim();
                    }
                }
            }
        }
        let report = store.check();
        prop_assert!(report.ok, "{:?}", report.problems);
        for (table, model) in tables.iter().zip(&models) {
            prop_assert_eq!(&sorted(table), model);
        }
        store.reclaim();
        let audit = store.audit();
        prop_assert!(audit.is_clean(), "{:?}", audit);
    }
}
