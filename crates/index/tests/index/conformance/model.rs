//! Any sequence of operations, reopenings included, against `BTreeMap`; failures shrink.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use lapis_index::{Direction, IndexMaker, IndexOptions};
use proptest::prelude::*;

use super::harness::{Keys, Place, Tested, assert_sound};
use crate::hold_ups::Here;

#[derive(Clone, Debug)]
enum Operation<B> {
    Insert(B, u64),
    Update(B, u64),
    Put(B, u64),
    Remove(B),
    Get(B),
    /// So many entries, backward or forward.
    Scan(Bound<B>, bool, usize),
    /// Many at once, so that short sequences reach deep structures.
    InsertRun(u64, u16),
    RemoveRun(u64, u16),
    Reopen,
}

fn operation<K: Keys + ?Sized>() -> impl Strategy<Value = Operation<K::Buf>> {
    // Values that are often equal, and extreme ones.
    let value = || prop_oneof![0..4u64, Just(u64::MAX), any::<u64>()];
    let bound = prop_oneof![
        K::any().prop_map(Bound::Included),
        K::any().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ];
    prop_oneof![
        8 => (K::any(), value()).prop_map(|(key, value)| Operation::Insert(key, value)),
        3 => (K::any(), value()).prop_map(|(key, value)| Operation::Update(key, value)),
        4 => (K::any(), value()).prop_map(|(key, value)| Operation::Put(key, value)),
        6 => K::any().prop_map(Operation::Remove),
        4 => K::any().prop_map(Operation::Get),
        2 => (bound, any::<bool>(), 1..60usize)
            .prop_map(|(from, backward, entries)| Operation::Scan(from, backward, entries)),
        2 => (0..400u64, 1..200u16).prop_map(|(first, count)| Operation::InsertRun(first, count)),
        2 => (0..400u64, 1..200u16).prop_map(|(first, count)| Operation::RemoveRun(first, count)),
        1 => Just(Operation::Reopen),
    ]
}

fn of_a_run(first: u64, count: u16) -> impl Iterator<Item = u64> {
    (0..u64::from(count)).map(move |step| first.wrapping_add(step * 3))
}

/// Nodes of the default size, of the size at which the checker explores the structure, and of other
/// sizes as far as the structure takes them.
fn options<K: Keys + ?Sized>(tested: Tested, place: &Place, node_lines: usize) -> IndexOptions {
    let explored = tested.explored_options();
    let node_bytes = match node_lines {
        0 => 0,
        1 => explored.node_bytes,
        lines => lines * 64,
    };
    let options = IndexOptions { node_bytes, ..tested.default_options() };
    match IndexMaker::<Here, K>::HERE.create(tested.kind, &place.create(), &options) {
        Ok(_) => options,
        Err(_) => explored,
    }
}

fn run<K: Keys + ?Sized>(
    tested: Tested,
    node_lines: usize,
    operations: Vec<Operation<K::Buf>>,
) -> Result<(), TestCaseError> {
    let options = options::<K>(tested, &Place::of(64 << 20), node_lines);
    let place = Place::of(64 << 20);
    let mut pool = place.create();
    let mut index = tested.create_with::<_, K>(&pool, "index", &options);
    let mut model: BTreeMap<K::Buf, u64> = BTreeMap::new();
    for operation in operations {
        match operation {
            Operation::Insert(key, value) => {
                let said = index.insert(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.get(&key).copied());
                model.entry(key).or_insert(value);
            }
            Operation::Update(key, value) => {
                let said = index.update(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.get(&key).copied());
                model.entry(key).and_modify(|held| *held = value);
            }
            Operation::Put(key, value) => {
                let said = index.put(K::borrow(&key), value).unwrap().previous;
                prop_assert_eq!(said, model.insert(key, value));
            }
            Operation::Remove(key) => {
                let said = index.remove(K::borrow(&key)).unwrap().previous;
                prop_assert_eq!(said, model.remove(&key));
            }
            Operation::Get(key) => {
                prop_assert_eq!(index.get(K::borrow(&key)), model.get(&key).copied());
            }
            Operation::Scan(from, backward, entries) => {
                let direction = if backward { Direction::Backward } else { Direction::Forward };
                let mut found = Vec::new();
                let bound = from.as_ref().map(K::borrow);
                let ordered = index.scan(bound, direction, &mut |key, value| {
                    found.push((key.to_buf(), value));
                    match found.len() < entries {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
                let own = |(key, value): (&K::Buf, &u64)| (key.clone(), *value);
                let expected: Vec<_> = match direction {
                    Direction::Forward => {
                        model.range((from, Bound::Unbounded)).map(own).take(entries).collect()
                    }
                    Direction::Backward => {
                        let range = model.range((Bound::Unbounded, from));
                        range.rev().map(own).take(entries).collect()
                    }
                };
                prop_assert!(!ordered || found == expected, "{found:?} is not {expected:?}");
            }
            Operation::InsertRun(first, count) => {
                for number in of_a_run(first, count) {
                    let key = K::number(number);
                    let said = index.insert(K::borrow(&key), number).unwrap().previous;
                    prop_assert_eq!(said, model.get(&key).copied());
                    model.entry(key).or_insert(number);
                }
            }
            Operation::RemoveRun(first, count) => {
                for number in of_a_run(first, count) {
                    let key = K::number(number);
                    let said = index.remove(K::borrow(&key)).unwrap().previous;
                    prop_assert_eq!(said, model.remove(&key));
                }
            }
            Operation::Reopen if cfg!(miri) => {}
            Operation::Reopen => {
                drop((index, pool));
                pool = place.open();
                index = tested.open(&pool, "index");
            }
        }
    }
    assert_sound(&index, &model);
    // What is emptied gives everything back.
    for (key, value) in std::mem::take(&mut model) {
        prop_assert_eq!(index.remove(K::borrow(&key)).unwrap().previous, Some(value));
    }
    assert_sound(&index, &model);
    Ok(())
}

pub fn behaves_like_a_sorted_map<K: Keys + ?Sized>(tested: Tested) {
    let (cases, most) = if cfg!(miri) { (2, 40) } else { (64, 120) };
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let operations = prop::collection::vec(operation::<K>(), 1..most);
    proptest!(config, |(node_lines in 0..=12usize, operations in operations)| {
        run::<K>(tested, node_lines, operations)?;
    });
}
