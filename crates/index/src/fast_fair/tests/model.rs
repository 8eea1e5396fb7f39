//! Property tests against a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use lapis_pmem::Hardware;
use proptest::prelude::*;

use super::create_in;
use crate::fast_fair::FastFair;
use crate::index::{Direction, Index, OrderedIndex};
use crate::key::IndexKey;

#[derive(Clone, Debug)]
enum Step<B> {
    Insert(B, u64),
    Update(B, u64),
    Put(B, u64),
    Remove(B),
    Get(B),
    Scan(Bound<B>, bool, usize),
    RemoveRange(B, usize),
    FillRange(B, usize),
    Reopen,
}

fn steps<B: Clone + std::fmt::Debug>(
    key: impl Strategy<Value = B> + Clone,
) -> impl Strategy<Value = Vec<Step<B>>> {
    let bound = prop_oneof![
        key.clone().prop_map(Bound::Included),
        key.clone().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ];
    let step = prop_oneof![
        8 => (key.clone(), 0..4u64).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (key.clone(), 0..4u64).prop_map(|(key, value)| Step::Update(key, value)),
        3 => (key.clone(), 0..4u64).prop_map(|(key, value)| Step::Put(key, value)),
        8 => key.clone().prop_map(Step::Remove),
        2 => key.clone().prop_map(Step::Get),
        1 => (bound, any::<bool>(), 0..60usize)
            .prop_map(|(from, backward, length)| Step::Scan(from, backward, length)),
        1 => (key.clone(), 0..80usize).prop_map(|(key, length)| Step::RemoveRange(key, length)),
        1 => (key, 0..80usize).prop_map(|(key, length)| Step::FillRange(key, length)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..300)
}

fn scan<K: IndexKey + ?Sized>(
    tree: &FastFair<Hardware, K>,
    from: Bound<&K>,
    direction: Direction,
    length: usize,
) -> Vec<(K::Buf, u64)> {
    let mut found = Vec::new();
    if length == 0 {
        return found;
    }
    tree.scan(from, direction, &mut |key, value| {
        found.push((key.to_buf(), value));
        if found.len() == length { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// `nearby(key, i)` is a key derived from `key`, for filling and clearing ranges.
fn run<K: IndexKey + ?Sized>(
    node_bytes: usize,
    steps: Vec<Step<K::Buf>>,
    nearby: impl Fn(&K::Buf, usize) -> K::Buf,
) {
    let mut tree: FastFair<Hardware, K> = create_in(&super::pool(), node_bytes);
    let mut model: BTreeMap<K::Buf, u64> = BTreeMap::new();
    let mut reopened = 0;
    for step in steps {
        match step {
            Step::Insert(key, value) => {
                let outcome = tree.insert(K::borrow(&key), value).unwrap();
                assert_eq!(outcome.previous, model.get(&key).copied());
                model.entry(key).or_insert(value);
            }
            Step::Update(key, value) => {
                let outcome = tree.update(K::borrow(&key), value).unwrap();
                assert_eq!(outcome.previous, model.get(&key).copied());
                model.entry(key).and_modify(|old| *old = value);
            }
            Step::Put(key, value) => {
                let outcome = tree.put(K::borrow(&key), value).unwrap();
                assert_eq!(outcome.previous, model.insert(key, value));
            }
            Step::Remove(key) => {
                let outcome = tree.remove(K::borrow(&key)).unwrap();
                assert_eq!(outcome.previous, model.remove(&key));
            }
            Step::Get(key) => assert_eq!(tree.get(K::borrow(&key)), model.get(&key).copied()),
            Step::Scan(from, backward, length) => {
                let borrowed = from.as_ref().map(|key| K::borrow(key));
                if backward {
                    let expected = model.range((Bound::Unbounded, from.clone())).rev();
                    let expected: Vec<_> =
                        expected.take(length).map(|(key, &value)| (key.clone(), value)).collect();
                    assert_eq!(scan(&tree, borrowed, Direction::Backward, length), expected);
                } else {
                    let expected = model.range((from.clone(), Bound::Unbounded));
                    let expected: Vec<_> =
                        expected.take(length).map(|(key, &value)| (key.clone(), value)).collect();
                    assert_eq!(scan(&tree, borrowed, Direction::Forward, length), expected);
                }
            }
            Step::RemoveRange(key, length) => {
                let range = model.range((Bound::Included(key), Bound::Unbounded));
                let keys: Vec<_> = range.take(length).map(|(key, _)| key.clone()).collect();
                for key in keys {
                    let outcome = tree.remove(K::borrow(&key)).unwrap();
                    assert_eq!(outcome.previous, model.remove(&key));
                }
            }
            Step::FillRange(key, length) => {
                for index in 0..length {
                    let key = nearby(&key, index);
                    let outcome = tree.put(K::borrow(&key), index as u64).unwrap();
                    assert_eq!(outcome.previous, model.insert(key, index as u64));
                }
            }
            Step::Reopen => {
                reopened += 1;
                tree = tree.reopened(reopened);
            }
        }
    }
    for (key, &value) in &model {
        assert_eq!(tree.get(K::borrow(key)), Some(value));
    }
    let expected: Vec<_> = model.iter().map(|(key, &value)| (key.clone(), value)).collect();
    assert_eq!(scan(&tree, Bound::Unbounded, Direction::Forward, usize::MAX), expected);
    let mut reversed = scan(&tree, Bound::Unbounded, Direction::Backward, usize::MAX);
    reversed.reverse();
    assert_eq!(reversed, expected);
    assert_eq!(tree.statistics().entries, model.len() as u64);
    tree.assert_sound();
    for key in model.keys() {
        assert!(tree.remove(K::borrow(key)).unwrap().previous.is_some());
    }
    tree.assert_sound();
    assert_eq!(tree.statistics().entries, 0);
    assert_eq!(tree.statistics().blocks, 2, "an empty tree is its root and one leaf");
}

fn any_int() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![8 => 0..400u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn any_string() -> impl Strategy<Value = Vec<u8>> + Clone {
    prop_oneof![
        8 => (0..400u16).prop_map(|number| number.to_be_bytes().to_vec()),
        2 => prop::collection::vec(0..3u8, 1..6),
        1 => prop::collection::vec(any::<u8>(), 1..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn integers_agree_with_a_model(steps in steps(any_int())) {
        run::<u64>(256, steps, |&key, index| key.wrapping_add(index as u64));
    }

    #[test]
    fn byte_strings_agree_with_a_model(steps in steps(any_string())) {
        run::<[u8]>(256, steps, |key, index| {
            let mut key = key.clone();
            key.push(index as u8);
            key
        });
    }

    #[test]
    fn every_node_size_agrees_with_a_model(
        lines in 4..=12usize,
        steps in steps(any_int()),
    ) {
        run::<u64>(lines * 64, steps, |&key, index| key.wrapping_add(index as u64));
    }
}
