//! Shapes that insertions and removals lead to, and changes of them that are half done.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::{Hardware, Pool, Region};

use super::contents::Contents;
use super::merge::Step;
use super::record::{Delta, Kind};
use super::*;
use crate::index::{Direction, OrderedIndex};

type Numbers = PBwTree<Hardware, u64>;

/// With nodes of ten entries.
fn tree<K: IndexKey + ?Sized>() -> PBwTree<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let options = IndexOptions { node_bytes: 192, ..IndexOptions::DEFAULT };
    PBwTree::create_named(&pool, "tree", &options).unwrap()
}

fn of_numbers(numbers: impl IntoIterator<Item = u64>) -> Numbers {
    let tree = tree();
    for number in numbers {
        assert_eq!(tree.insert(&number, number + 1).unwrap().previous, None);
    }
    assert_eq!(tree.check(), [""; 0]);
    tree
}

fn children(tree: &Numbers, id: u64) -> Vec<u64> {
    let _pinned = tree.pool().pin();
    let node = tree.read(tree.mapping.head(id).unwrap()).unwrap();
    node.entries.iter().map(|it| it.1).collect()
}

fn contents<K: IndexKey + ?Sized>(tree: &PBwTree<Hardware, K>, id: u64) -> Contents {
    let _pinned = tree.pool().pin();
    tree.read(tree.mapping.head(id).unwrap()).unwrap()
}

/// Whatever is half done, all of these are found, in order, and nothing is wrong.
fn assert_holds(tree: &Numbers, numbers: &BTreeMap<u64, u64>) {
    assert_eq!(tree.check(), [""; 0]);
    for number in 0..*numbers.keys().last().unwrap() + 2 {
        assert_eq!(tree.get(&number), numbers.get(&number).copied(), "{number}");
    }
    let all = || tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    assert!(all().eq(numbers.iter().map(|(key, value)| (*key, *value))));
    let back = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Backward);
    assert!(back.eq(numbers.iter().rev().map(|(key, value)| (*key, *value))));
    let reachable = tree.pool().reachable(|visitor| tree.visit_blocks(visitor, &mut |_, _| ()));
    assert!(tree.pool().audit(&reachable).unallocated.is_empty());
}

fn model(numbers: impl IntoIterator<Item = u64>) -> BTreeMap<u64, u64> {
    numbers.into_iter().map(|number| (number, number + 1)).collect()
}

#[test]
fn deltas_are_consolidated_and_nodes_divided() {
    let tree = of_numbers([]);
    let chain = || {
        let _pinned = tree.pool().pin();
        let meta = tree.newest(0).unwrap().meta;
        (meta.depth(), meta.count())
    };
    let insert = |number: u64| _ = tree.insert(&number, 1).unwrap();
    (0..2).for_each(insert);
    assert_eq!(chain(), (2, 2));
    insert(2);
    assert_eq!(chain(), (0, 3), "three deltas become a base node");
    (3..9).for_each(insert);
    assert_eq!((chain(), tree.statistics().nodes), ((0, 4), 1), "the upper half is another's");
    assert_eq!(children(&tree, tree.top().id())[0], 0);
}

#[test]
fn changes_of_one_kind_are_one_delta_as_long_as_it_has_room_and_the_newest_of_a_key_counts() {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let tree = Numbers::create_named(&pool, "tree", &IndexOptions::DEFAULT).unwrap();
    let records = || contents(&tree, 0).blocks.len();
    let mut numbers = BTreeMap::new();
    // With the base node there are so many records after each change.
    for (key, value, expected) in [
        (1, Some(1), 2),
        (2, Some(1), 2),
        (1, Some(2), 2),
        (3, Some(1), 3),
        (2, None, 4),
        (1, None, 4),
        (1, Some(3), 5),
    ] {
        match value {
            Some(value) => {
                let _ = tree.put(&key, value).unwrap();
                numbers.insert(key, value);
            }
            None => {
                let _ = tree.remove(&key).unwrap();
                numbers.remove(&key);
            }
        }
        assert_eq!(records(), expected, "after {key}: {value:?}");
        assert_holds(&tree, &numbers);
    }
    let reachable = pool.reachable(|visitor| tree.visit_blocks(visitor, &mut |_, _| ()));
    assert!(pool.reclaim_and_audit(&reachable).is_clean(), "what was replaced is given back, once");
}

#[test]
fn a_tree_that_is_emptied_has_its_first_leaf_and_its_first_chunk() {
    for order in [|it| it, |it| 999 - it, |it| it * 7 % 1000] {
        let tree = of_numbers([]);
        let blocks = tree.statistics().blocks;
        for number in (0..1000).map(order) {
            let _ = tree.insert(&number, 1).unwrap();
        }
        assert!(tree.statistics().max_depth > 1 && tree.mapping.place(100).is_some());
        for number in (0..1000).map(order) {
            assert_eq!(tree.remove(&number).unwrap().previous, Some(1));
        }
        assert_eq!((tree.check(), tree.statistics().blocks), (vec![], blocks));
        assert_eq!((tree.top().id(), tree.mapping.place(8)), (0, None));
    }
}

#[test]
fn a_node_that_no_separator_tells_of_is_found_and_gets_one_from_the_next_writer_there() {
    let mut numbers = model(0..40);
    let tree = of_numbers(0..40);
    let top = tree.top().id();
    let last = *children(&tree, top).last().unwrap();
    while tree.divide(last, 10).unwrap().is_none() {
        let number = *numbers.keys().last().unwrap() + 1;
        let _ = tree.insert(&number, number + 1).unwrap();
        numbers.insert(number, number + 1);
    }
    let known = children(&tree, top).len();
    assert_holds(&tree, &numbers);
    let number = *numbers.keys().last().unwrap();
    let _ = tree.update(&number, number + 1).unwrap();
    assert_eq!(children(&tree, top).len(), known + 1);
    assert_holds(&tree, &numbers);
}

/// A change of an entry without what follows it: the leaf is not consolidated.
fn put_only(tree: &Numbers, kind: Kind, number: u64) {
    let block = tree.pool().allocate().unwrap();
    let pinned = tree.pool().pin();
    let (at, _) = tree.seek(&number, None, Purpose::Reading).unwrap();
    let count = at.meta().count();
    let count = if kind == Kind::Put { count + 1 } else { count - 1 };
    let new = change::NewDelta { block, kind, count, key: number, value: number + 1 };
    assert!(tree.put_in_front(at.id, &at.record, new, (), &pinned).is_some());
}

fn remove_only(tree: &Numbers, number: u64) {
    put_only(tree, Kind::Delete, number);
}

#[test]
fn a_merge_is_completed_from_every_step_by_the_next_writer() {
    for steps in 0..4 {
        let tree = of_numbers(0..25);
        let top = tree.top().id();
        let before = children(&tree, top);
        // Of the first two leaves, one and two are left.
        let [first, second] = [0, 1].map(|at| children(&tree, before[at]));
        let gone: Vec<u64> = first[1..].iter().chain(&second[2..]).map(|value| value - 1).collect();
        let absent = gone[0];
        gone.iter().for_each(|&number| remove_only(&tree, number));
        let mut numbers = model((0..25).filter(|number| !gone.contains(number)));
        assert_eq!(tree.begin_merge(before[1]).unwrap(), Some(top));
        assert_holds(&tree, &numbers);
        for _ in 0..steps {
            let _ = tree.step(top, 0).unwrap();
            assert_holds(&tree, &numbers);
        }
        for number in [absent, 1000] {
            assert_eq!(tree.insert(&number, number + 1).unwrap().previous, None);
            numbers.insert(number, number + 1);
            assert_holds(&tree, &numbers);
        }
        assert_eq!(children(&tree, top)[..2], [before[0], before[2]], "after {steps} steps");
    }
}

#[test]
fn leaves_that_grow_while_they_are_merged_become_one_and_are_divided_again() {
    let numbers = (0..25).map(|number| 16 * number);
    let tree = of_numbers(numbers.clone());
    let top = tree.top().id();
    let before = children(&tree, top);
    let [first, second] = [0, 1].map(|at| children(&tree, before[at]));
    let gone: Vec<u64> = first[1..].iter().chain(&second[2..]).map(|value| value - 1).collect();
    gone.iter().for_each(|&number| remove_only(&tree, number));
    let mut numbers = model(numbers.filter(|number| !gone.contains(number)));
    assert_eq!(tree.begin_merge(before[1]).unwrap(), Some(top));
    for number in [first[0], second[0]].into_iter().flat_map(|value| value..value + 7) {
        put_only(&tree, Kind::Put, number);
        numbers.insert(number, number + 1);
    }
    assert_holds(&tree, &numbers);
    tree.help(top).unwrap();
    assert!(children(&tree, before[0]).len() > tree.geometry.capacity);
    assert_holds(&tree, &numbers);
    for number in gone {
        assert_eq!(tree.insert(&number, number + 1).unwrap().previous, None);
        numbers.insert(number, number + 1);
        assert_holds(&tree, &numbers);
    }
    assert!(children(&tree, before[0]).len() <= tree.geometry.capacity);
}

#[test]
fn a_node_that_no_separator_tells_of_takes_the_entries_of_its_right_neighbour() {
    for steps in 0..4 {
        let sparse: Vec<u64> = (0..25).map(|number| 16 * number).collect();
        let (mut numbers, tree) = (model(sparse.clone()), of_numbers(sparse));
        let top = tree.top().id();
        let [left, right] = [1, 2].map(|at| children(&tree, top)[at]);
        let keys = |id: u64| children(&tree, id).into_iter().map(|value| value - 1);
        let mut number = keys(left).next().unwrap();
        let between = loop {
            number += 1;
            numbers.insert(number, number + 1);
            assert_eq!(tree.insert(&number, number + 1).unwrap().previous, None);
            if let Some(between) = tree.divide(left, 10).unwrap() {
                break between;
            }
        };
        // Of the nodes that the top knows, one entry each is left.
        let gone: Vec<u64> = keys(left).skip(1).chain(keys(right).skip(1)).collect();
        for number in &gone {
            remove_only(&tree, *number);
            numbers.remove(number);
        }
        assert_eq!(tree.begin_merge(right).unwrap(), Some(top));
        assert_holds(&tree, &numbers);
        for _ in 0..steps {
            let _ = tree.step(top, 0).unwrap();
            assert_holds(&tree, &numbers);
        }
        let _ = tree.insert(&gone[0], 0).unwrap();
        numbers.insert(gone[0], 0);
        assert_holds(&tree, &numbers);
        assert!(!children(&tree, top).contains(&right) && keys(between).count() > 1);
    }
}

#[test]
fn a_top_above_one_node_is_replaced_from_every_step_by_the_next_writer() {
    for steps in 0..2 {
        let tree = of_numbers(0..9);
        let gone = [1, 2, 3, 5, 6, 7, 8];
        gone.iter().for_each(|&number| remove_only(&tree, number));
        let top = tree.top().id();
        // The leaves are merged, and nothing else is done.
        assert_eq!(tree.begin_merge(0).unwrap(), Some(top));
        (0..3).for_each(|_| _ = tree.step(top, 0).unwrap());
        assert_eq!(children(&tree, top), [0]);
        assert_eq!(tree.begin_merge(top).unwrap(), Some(top));
        let mut numbers = model([0, 4]);
        assert_holds(&tree, &numbers);
        for _ in 0..steps {
            let _ = tree.step(top, 0).unwrap();
            assert_holds(&tree, &numbers);
        }
        let _ = tree.insert(&5, 6).unwrap();
        numbers.insert(5, 6);
        assert_eq!(tree.top().id(), 0);
        assert_holds(&tree, &numbers);
    }
}

/// Says in a node that the child at a place is to be merged into the one before it; which child.
fn put_merging(tree: &PBwTree<Hardware, [u8]>, id: u64, at: usize) -> u64 {
    let block = tree.pool().allocate().unwrap();
    let pinned = tree.pool().pin();
    let record = tree.newest(id).unwrap();
    let node = tree.read(record.link).unwrap();
    let (key, value) = node.entries[at];
    let new =
        change::NewDelta { block, kind: Kind::Merging, count: node.entries.len(), key, value };
    assert!(tree.put_in_front(id, &record, new, (), &pinned).is_some());
    value
}

/// Completes a merge until `is_done`.
fn step_until(tree: &PBwTree<Hardware, [u8]>, id: u64, is_done: impl Fn() -> bool) {
    let mut entries = 0;
    while !is_done() {
        match tree.step(id, entries).unwrap() {
            Step::Again => {}
            Step::Block(count) => entries = count,
            _ => panic!("a merge of {id} went on too far"),
        }
    }
}

#[test]
fn a_leaf_that_was_merged_is_given_back_in_a_full_pool_too_though_its_key_is_still_borrowed() {
    let region = Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = Arc::new(Pool::create(region, Hardware::detect()).unwrap());
    let options = IndexOptions { node_bytes: 192, ..IndexOptions::DEFAULT };
    let tree = PBwTree::<_, [u8]>::create_named(&pool, "tree", &options).unwrap();
    let keys = || (0..100u64).map(|number| number.to_be_bytes());
    keys().for_each(|key| _ = tree.insert(&key, 1).unwrap());
    let top = tree.top().id();
    assert_eq!(contents(&tree, top).meta.level(), 2);
    // The second node below the top goes to the first, and the top still has its separator.
    let left = contents(&tree, top).entries[0].1;
    let right = put_merging(&tree, top, 1);
    let (at, leaf) = (contents(&tree, left).entries.len(), contents(&tree, right).entries[0].1);
    step_until(&tree, top, || contents(&tree, left).entries.len() > at);
    // The first leaf of the one, which has that word for its least key, goes to the last of the other.
    assert_eq!(put_merging(&tree, left, at), leaf);
    let before = contents(&tree, left).entries[at - 1].1;
    step_until(&tree, left, || contents(&tree, before).right != leaf);
    // There is room for the last step of that, and for nothing else.
    let pinned = pool.pin();
    let mut bases: Vec<_> = std::iter::from_fn(|| tree.base_block(at).ok()).collect();
    let mut deltas: Vec<_> = std::iter::from_fn(|| pool.allocate::<Delta>().ok()).collect();
    let count = contents(&tree, left).entries.len() - 1;
    assert_eq!(tree.geometry.base_bytes(count), tree.geometry.base_bytes(at));
    drop((bases.pop(), deltas.pop()));
    let refused = tree.step(left, count);
    assert!(matches!(refused, Err(IndexError::Alloc(_))));
    drop((bases, deltas, pinned));
    assert_eq!(tree.mapping.head(leaf), None);
    tree.help(top).unwrap();
    assert_eq!(tree.check(), [""; 0]);
    assert!(keys().all(|key| tree.get(&key) == Some(1)));
    let reachable = pool.reachable(|visitor| tree.visit_blocks(visitor, &mut |_, _| ()));
    assert_eq!(pool.audit(&reachable).leaked.len(), 1, "the key that was borrowed");
}

#[test]
fn ids_that_were_given_back_are_found_again_when_the_pool_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let regions = lapis_pmem::RegionOptions::default();
    let options = IndexOptions { node_bytes: 192, ..IndexOptions::DEFAULT };
    let pool = Arc::new(Pool::create_file(&path, 1 << 20, &regions).unwrap());
    let tree = Numbers::create_named(&pool, "tree", &options).unwrap();
    let insert = |tree: &Numbers| (0..600).for_each(|it| _ = tree.insert(&it, it + 1).unwrap());
    let ids = |tree: &Numbers| (0..1 << 12).filter(|&id| tree.mapping.place(id).is_some()).count();
    insert(&tree);
    let grown = ids(&tree);
    // The last leaf stays, whose id is in the last chunk.
    (0..590).for_each(|number| _ = tree.remove(&number).unwrap());
    assert_eq!(ids(&tree), grown);
    drop((tree, pool));
    for _ in 0..3 {
        let pool = Arc::new(Pool::open_file(&path, &regions).unwrap());
        let tree = Numbers::open(Arc::clone(&pool), pool.root("tree").unwrap()).unwrap();
        insert(&tree);
        assert_eq!(ids(&tree), grown);
        assert_holds(&tree, &model(0..600));
        (0..590).for_each(|number| _ = tree.remove(&number).unwrap());
    }
}

#[test]
fn crash_upon_crash_while_it_opens_takes_no_room_and_the_next_base_node_brings_a_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let regions = lapis_pmem::RegionOptions::default();
    let pool = Arc::new(Pool::create_file(&path, 1 << 20, &regions).unwrap());
    let tree = Numbers::create_named(&pool, "tree", &IndexOptions::DEFAULT).unwrap();
    assert!(tree.reserved().is_some());
    pool.abandon();
    drop((tree, pool));
    let reopened = || {
        let pool = Arc::new(Pool::open_file(&path, &regions).unwrap());
        let tree = Numbers::open(Arc::clone(&pool), pool.root("tree").unwrap()).unwrap();
        pool.abandon();
        (tree, pool)
    };
    let touched = reopened().1.usage().touched_bytes;
    for _ in 0..20 {
        assert_eq!(reopened().1.usage().touched_bytes, touched);
    }
    let (tree, _pool) = reopened();
    assert!(tree.reserved().is_none());
    (0..100).for_each(|it| _ = tree.insert(&it, it + 1).unwrap());
    assert!(tree.reserved().is_some());
    assert_holds(&tree, &model(0..100));
}

#[test]
fn damaged_words_are_reported_or_harmless_and_never_panic() {
    let tree = of_numbers(0..120);
    let domain = tree.pool().domain();
    let ids: Vec<u64> = (0..60).filter(|&id| tree.mapping.head(id).is_some()).collect();
    for &id in &ids {
        let place = tree.mapping.place(id).unwrap();
        let cell = tree.pool().at(place);
        let right = cell.load(domain);
        for wrong in [0, 1, right + 8, right + 16, tree.handle.root.bits(), !1] {
            cell.store(domain, wrong);
            assert!(!tree.check().is_empty(), "{wrong:#x} as the word of {id} passed");
        }
        cell.store(domain, right);
        let head = tree.mapping.head(id).unwrap();
        for word in 0..8 {
            let place = Link::<lapis_pmem::PCell<u64>>::from_bits(head.bits() + 8 * word);
            let cell = tree.pool().at(place);
            let right = cell.load(domain);
            for bit in 0..64 {
                cell.store(domain, right ^ 1 << bit);
                let _ = (tree.check(), tree.statistics());
            }
            cell.store(domain, right);
        }
    }
    assert_eq!(tree.check(), [""; 0]);
}
