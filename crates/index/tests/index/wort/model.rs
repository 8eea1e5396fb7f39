//! Against `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_index::{Direction, Index, IndexKey, OrderedIndex, Wort};
use lapis_pmem::Pool;
use proptest::collection::vec;
use proptest::prelude::*;

use super::watched::{Watched, watched_pool};
use super::{audited_blocks, create, open};

#[derive(Clone, Debug)]
enum Step<B> {
    Insert(B, u64),
    Update(B, u64),
    Put(B, u64),
    Remove(B),
    Get(B),
    Scan(Bound<B>, bool, usize),
    Reopen,
}

fn steps<B: Clone + std::fmt::Debug + 'static>(
    key: impl Strategy<Value = B> + Clone + 'static,
) -> impl Strategy<Value = Vec<Step<B>>> {
    let bound = prop_oneof![
        key.clone().prop_map(Bound::Included),
        key.clone().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ];
    let step = prop_oneof![
        6 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Update(key, value)),
        3 => (key.clone(), any::<u64>()).prop_map(|(key, value)| Step::Put(key, value)),
        5 => key.clone().prop_map(Step::Remove),
        2 => key.prop_map(Step::Get),
        3 => (bound, any::<bool>(), 1..20usize)
            .prop_map(|(from, forward, limit)| Step::Scan(from, forward, limit)),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..250)
}

fn integers() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        0..40u64,
        any::<u64>(),
        (0..4u64, 0..4u64, 0..16u64).prop_map(|(a, b, c)| a << 60 | b << 32 | c),
        Just(u64::MAX),
    ]
}

fn strings() -> impl Strategy<Value = Vec<u8>> + Clone {
    let digit = prop_oneof![Just(0u8), Just(1), Just(0x10), Just(0x11), Just(0xFF)];
    prop_oneof![
        4 => vec(digit, 1..6),
        1 => vec(any::<u8>(), 1..300),
        1 => (1..300usize).prop_map(|length| vec![0; length]),
    ]
}

fn borrow<K: IndexKey + ?Sized>(bound: &Bound<K::Buf>) -> Bound<&K> {
    match bound {
        Bound::Included(key) => Bound::Included(K::borrow(key)),
        Bound::Excluded(key) => Bound::Excluded(K::borrow(key)),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn scanned<K: IndexKey + ?Sized>(
    index: &Wort<Watched, K>,
    from: Bound<&K>,
    direction: Direction,
    limit: usize,
) -> Vec<(K::Buf, u64)> {
    let mut found = Vec::new();
    index.scan(from, direction, &mut |key, value| {
        found.push((key.to_buf(), value));
        if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

fn expected<B: Ord + Clone>(
    model: &BTreeMap<B, u64>,
    from: &Bound<B>,
    forward: bool,
    limit: usize,
) -> Vec<(B, u64)> {
    let own = |(key, value): (&B, &u64)| (key.clone(), *value);
    if forward {
        model.range((from.clone(), Bound::Unbounded)).take(limit).map(own).collect()
    } else {
        model.range((Bound::Unbounded, from.clone())).rev().take(limit).map(own).collect()
    }
}

fn behaves_like_a_map<K: IndexKey + ?Sized>(steps: Vec<Step<K::Buf>>) {
    let pool: Arc<Pool<Watched>> = watched_pool(4 << 20);
    let mut index: Wort<_, K> = create(&pool);
    let mut model = BTreeMap::new();
    for step in steps {
        match step {
            Step::Insert(key, value) => {
                let previous = index.insert(K::borrow(&key), value).unwrap().previous;
                assert_eq!(previous, model.get(&key).copied());
                model.entry(key).or_insert(value);
            }
            Step::Update(key, value) => {
                let previous = index.update(K::borrow(&key), value).unwrap().previous;
                assert_eq!(previous, model.get(&key).copied());
                model.entry(key).and_modify(|old| *old = value);
            }
            Step::Put(key, value) => {
                let previous = index.put(K::borrow(&key), value).unwrap().previous;
                assert_eq!(previous, model.insert(key, value));
            }
            Step::Remove(key) => {
                let previous = index.remove(K::borrow(&key)).unwrap().previous;
                assert_eq!(previous, model.remove(&key));
            }
            Step::Get(key) => {
                assert_eq!(index.get(K::borrow(&key)), model.get(&key).copied());
            }
            Step::Scan(from, forward, limit) => {
                let direction = if forward { Direction::Forward } else { Direction::Backward };
                assert_eq!(
                    scanned(&index, borrow::<K>(&from), direction, limit),
                    expected(&model, &from, forward, limit)
                );
            }
            Step::Reopen => {
                drop(index);
                index = open(&pool);
            }
        }
    }
    assert_eq!(index.check(), [""; 0]);
    assert_eq!(index.first(), model.first_key_value().map(|(key, &value)| (key.clone(), value)));
    assert_eq!(index.last(), model.last_key_value().map(|(key, &value)| (key.clone(), value)));
    let sizes = index.statistics();
    assert_eq!(sizes.entries, model.len() as u64);
    assert_eq!(audited_blocks(&index), sizes.blocks);
    for (key, value) in &model {
        assert_eq!(index.get(K::borrow(key)), Some(*value));
    }
    for key in model.keys() {
        let _ = index.remove(K::borrow(key)).unwrap();
    }
    assert_eq!(audited_blocks(&index), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integer_keys_behave_like_a_map(steps in steps(integers())) {
        behaves_like_a_map::<u64>(steps);
    }

    #[test]
    fn byte_string_keys_behave_like_a_map(steps in steps(strings())) {
        behaves_like_a_map::<[u8]>(steps);
    }
}

#[test]
fn the_longest_keys_that_differ_only_at_their_ends_are_told_apart() {
    let pool = watched_pool(4 << 20);
    let index: Wort<_, [u8]> = create(&pool);
    let longest = vec![0xABu8; 65_535];
    let mut other = longest.clone();
    other[65_534] = 0xAC;
    let prefix = &longest[..65_534];
    let keys = [longest.as_slice(), &other, prefix, &longest[..40_000], &longest[..1], b"\xAC"];
    for (value, key) in (0..).zip(keys) {
        assert_eq!(index.insert(key, value).unwrap().previous, None);
    }
    for (value, key) in (0..).zip(keys) {
        assert_eq!(index.get(key), Some(value));
    }
    assert_eq!(index.check(), [""; 0]);
    let mut sorted = keys.to_vec();
    sorted.sort();
    let found = scanned(&index, Bound::Unbounded, Direction::Forward, usize::MAX);
    assert!(found.iter().map(|(key, _)| key.as_slice()).eq(sorted.iter().copied()));
    for key in keys {
        assert!(index.remove(key).unwrap().previous.is_some());
        assert_eq!(index.check(), [""; 0]);
    }
    assert_eq!(audited_blocks(&index), 1);
}

#[test]
fn a_chain_of_prefixes_makes_the_deepest_tree_and_is_walked_without_recursion() {
    const LENGTH: usize = 3000;
    let pool = watched_pool(16 << 20);
    let index: Wort<_, [u8]> = create(&pool);
    let long = [0u8; LENGTH];
    for length in (1..=LENGTH).rev() {
        let _ = index.insert(&long[..length], length as u64).unwrap();
    }
    assert_eq!(index.statistics().max_depth, LENGTH as u64 - 1);
    assert_eq!(index.check(), [""; 0]);
    let found = scanned(&index, Bound::Included(&long[..10]), Direction::Backward, usize::MAX);
    assert!(found.iter().map(|(_, value)| *value).eq((1..=10).rev()));
}

#[test]
fn a_range_has_both_its_bounds() {
    let pool = watched_pool(4 << 20);
    let index: Wort<_, u64> = create(&pool);
    for key in 0..1000 {
        let _ = index.insert(&(3 * key), key).unwrap();
    }
    let (lower, upper) = (Bound::Included(&300), Bound::Excluded(&900));
    let ascending: Vec<_> = index.range(lower, upper, Direction::Forward).collect();
    assert!(ascending.iter().copied().eq((100..300).map(|key| (3 * key, key))));
    let descending: Vec<_> = index.range(lower, upper, Direction::Backward).collect();
    assert!(descending.iter().rev().eq(&ascending));
}

#[test]
fn dense_keys_make_the_trees_of_the_paper() {
    // 16^3 dense keys take three levels above the leaves, whatever the common prefix.
    let pool = watched_pool(4 << 20);
    let index: Wort<_, u64> = create(&pool);
    for key in 0..4096 {
        let _ = index.insert(&key, key).unwrap();
    }
    let sizes = index.statistics();
    assert_eq!((sizes.mean_depth, sizes.max_depth), (3.0, 3));
    assert_eq!(sizes.nodes, 1 + 16 + 256);
}
