//! Any sequence of operations, reopenings included, against `BTreeMap`; failures shrink.

use std::collections::BTreeMap;

use lapis_index::{Index, IndexFamily};
use proptest::prelude::*;

use super::harness::{Keys, On, Place, assert_sound, create, open};

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64, u64),
    Update(u64, u64),
    Put(u64, u64),
    Remove(u64),
    Get(u64),
    /// Many at once, so that short sequences reach deep structures.
    InsertRun(u64, u16),
    RemoveRun(u64, u16),
    Reopen,
}

/// Few enough that operations meet, near and far apart.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..48u64,
        2 => (0..32u64).prop_map(|number| u64::MAX - number),
        2 => (0..64u64).prop_map(|number| number << 56 | number),
        1 => (0..64u64).prop_map(|number| number << 20),
    ]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>()]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (number(), value()).prop_map(|(number, value)| Operation::Insert(number, value)),
        3 => (number(), value()).prop_map(|(number, value)| Operation::Update(number, value)),
        4 => (number(), value()).prop_map(|(number, value)| Operation::Put(number, value)),
        6 => number().prop_map(Operation::Remove),
        4 => number().prop_map(Operation::Get),
        2 => (number(), 1..200u16).prop_map(|(number, count)| Operation::InsertRun(number, count)),
        2 => (number(), 1..200u16).prop_map(|(number, count)| Operation::RemoveRun(number, count)),
        1 => Just(Operation::Reopen),
    ]
}

fn run<F: IndexFamily, K: Keys + ?Sized>(operations: &[Operation]) -> Result<(), TestCaseError> {
    let place = Place::of(64 << 20);
    let mut pool = place.create();
    let mut index: On<F, K> = create(&pool, "index");
    let mut model: BTreeMap<K::Buf, u64> = BTreeMap::new();
    for operation in operations {
        match *operation {
            Operation::Insert(number, value) => {
                let key = K::number(number);
                let said = index.insert(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.get(&key).copied());
                model.entry(key).or_insert(value);
            }
            Operation::Update(number, value) => {
                let key = K::number(number);
                let said = index.update(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.get(&key).copied());
                model.entry(key).and_modify(|held| *held = value);
            }
            Operation::Put(number, value) => {
                let key = K::number(number);
                let said = index.put(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.insert(key, value));
            }
            Operation::Remove(number) => {
                let key = K::number(number);
                let said = index.remove(K::borrow(&key)).unwrap().previous;
                prop_assert_eq!(said, model.remove(&key));
            }
            Operation::Get(number) => {
                let key = K::number(number);
                prop_assert_eq!(index.get(K::borrow(&key)), model.get(&key).copied());
            }
            Operation::InsertRun(first, count) => {
                for number in (0..u64::from(count)).map(|step| first.wrapping_add(step * 3)) {
                    let key = K::number(number);
                    let said = index.insert(K::borrow(&key), number).unwrap().previous;
                    prop_assert_eq!(said, model.get(&key).copied());
                    model.entry(key).or_insert(number);
                }
            }
            Operation::RemoveRun(first, count) => {
                for number in (0..u64::from(count)).map(|step| first.wrapping_add(step * 3)) {
                    let key = K::number(number);
                    let said = index.remove(K::borrow(&key)).unwrap().previous;
                    prop_assert_eq!(said, model.remove(&key));
                }
            }
            Operation::Reopen => {
                drop((index, pool));
                pool = place.open();
                index = open(&pool, "index");
            }
        }
    }
    assert_sound(&index, &model);
    Ok(())
}

pub fn behaves_like_a_sorted_map<F: IndexFamily, K: Keys + ?Sized>() {
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() };
    proptest!(config, |(operations in prop::collection::vec(operation(), 1..80))| {
        run::<F, K>(&operations)?;
    });
}
