//! States that a crash may leave, written by hand.

use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::{Hardware, Link, PCell, Pool};

use super::WbTree;
use super::redo_log::Plan;
use crate::index::{Direction, Index, IndexError, IndexOptions, OrderedIndex};
use crate::key::IndexKey;

type Ints = WbTree<Hardware, u64>;

fn create<K: IndexKey + ?Sized>(node_bytes: usize) -> WbTree<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    let options = IndexOptions { node_bytes, ..IndexOptions::default() };
    WbTree::create_named(&pool, "index", &options).unwrap()
}

fn reopened(index: Ints) -> Result<Ints, IndexError> {
    let (pool, root) = (Arc::clone(&index.pool), index.root);
    drop(index);
    Ints::open(pool, root)
}

/// Keys 0, 10, .. in leaves of eight.
fn tens(count: u64) -> Ints {
    let index = create::<u64>(256);
    for key in 0..count {
        let _ = index.insert(&(key * 10), key).unwrap();
    }
    index
}

fn keys<K: IndexKey + ?Sized>(
    index: &WbTree<Hardware, K>,
    direction: Direction,
) -> Vec<(K::Buf, u64)> {
    index.range(Bound::Unbounded, Bound::Unbounded, direction).collect()
}

/// Makes the slot array of every leaf invalid, and wrong.
fn scramble<K: IndexKey + ?Sized>(index: &WbTree<Hardware, K>) {
    let domain = index.pool.domain();
    let mut leaves = Vec::new();
    index.walk(&mut |what| panic!("{what}"), &mut |seen| {
        if seen.level == 0 {
            leaves.push(seen.node.link);
        }
        true
    });
    for leaf in leaves {
        let node = index.node(leaf);
        let control = node.control(domain);
        node.words[0].store(domain, index.shape.disordered(control));
        for cell in node.slot_cells() {
            cell.store(domain, 0xA5A5_0001_0203_FFFF);
        }
    }
}

fn is_used_without_slot_arrays<K: IndexKey + ?Sized>(keys_of: &[K::Buf]) {
    let fill = || {
        let index = create::<K>(256);
        for (value, key) in keys_of.iter().enumerate() {
            let _ = index.insert(K::borrow(key), value as u64).unwrap();
        }
        let before = keys(&index, Direction::Forward);
        scramble(&index);
        assert_eq!(index.check(), Vec::<String>::new());
        (index, before)
    };
    let (index, before) = fill();
    for (value, key) in keys_of.iter().enumerate() {
        assert_eq!(index.get(K::borrow(key)), Some(value as u64));
    }
    assert_eq!(keys(&index, Direction::Forward), before);
    let mut backward = keys(&index, Direction::Backward);
    backward.reverse();
    assert_eq!(backward, before);
    // Removals, and insertions, that find it so.
    for key in keys_of {
        assert!(index.remove(K::borrow(key)).unwrap().previous.is_some());
        assert_eq!(index.check(), Vec::<String>::new());
    }
    assert_eq!(index.statistics().blocks, 3);
    let (index, mut expected) = fill();
    for (number, key) in keys_of.iter().enumerate() {
        if number % 2 == 0 {
            let removed = index.remove(K::borrow(key)).unwrap();
            scramble(&index);
            assert_eq!(index.insert(K::borrow(key), 7).unwrap().previous, None);
            assert!(removed.previous.is_some());
            assert_eq!(index.check(), Vec::<String>::new());
        }
        let place = expected.iter_mut().find(|(known, _)| known == key).unwrap();
        place.1 = if number % 2 == 0 { 7 } else { number as u64 };
    }
    assert_eq!(keys(&index, Direction::Forward), expected);
}

#[test]
fn leaves_of_integers_with_invalid_slot_arrays_are_searched_and_sorted() {
    is_used_without_slot_arrays::<u64>(&(0..80u64).map(|key| key * 37 % 80).collect::<Vec<_>>());
}

#[test]
fn leaves_of_byte_strings_with_invalid_slot_arrays_are_searched_and_sorted() {
    let keys: Vec<Vec<u8>> =
        (0..80u64).map(|key| format!("common prefix {}", key * 37 % 80).into_bytes()).collect();
    is_used_without_slot_arrays::<[u8]>(&keys);
}

#[test]
fn the_next_insertion_makes_the_slot_array_valid_again() {
    let index = tens(5);
    scramble(&index);
    let domain = index.pool.domain();
    let leaf = index.node(index.top().link());
    assert!(!leaf.is_ordered(leaf.control(domain)));
    let _ = index.insert(&15, 1).unwrap();
    assert!(leaf.is_ordered(leaf.control(domain)));
    assert_eq!(index.check(), Vec::<String>::new());
}

/// A tree, a plan that changes two values of it, and where they are.
fn planned() -> (Ints, Plan, [Link<PCell<u64>>; 2]) {
    let index = tens(5);
    let leaf = index.node(index.top().link());
    let places = [leaf.value_place(0), leaf.value_place(4)];
    let mut plan = Plan::new();
    plan.store(places[0], 100);
    plan.store(places[1], 99);
    plan.store(places[1], 104);
    (index, plan, places)
}

#[test]
fn a_complete_log_is_redone_when_the_index_is_opened_however_much_of_it_was_done() {
    for done in 0..3 {
        let (index, plan, places) = planned();
        index.log().write_committed(index.pool.domain(), &plan);
        assert!(index.check()[0].starts_with("I5"));
        for &place in &places[..done] {
            index.pool.at(place).store(index.pool.domain(), 99);
        }
        let index = reopened(index).unwrap();
        assert_eq!((index.get(&0), index.get(&40)), (Some(100), Some(104)));
        assert_eq!(index.check(), Vec::<String>::new());
        // Nothing is left to be done twice.
        let _ = index.update(&0, 1).unwrap();
        let index = reopened(index).unwrap();
        assert_eq!(index.get(&0), Some(1));
    }
}

#[test]
fn a_log_with_any_bit_changed_is_damage_and_not_redone() {
    let (index, plan, places) = planned();
    let (pool, root, log) = (Arc::clone(&index.pool), index.root, index.log);
    let domain = pool.domain();
    index.log().write_committed(domain, &plan);
    drop(index);
    let words = pool.try_slice::<PCell<u64>>(log.cast(), 14).unwrap();
    for number in [0, 8, 9, 10, 11, 12, 13] {
        for bit in 0..64 {
            let right = words[number].load(domain);
            words[number].store(domain, right ^ 1 << bit);
            let refused = Ints::open(Arc::clone(&pool), root).err();
            assert!(matches!(refused, Some(IndexError::Damaged { .. })), "{number} {bit}");
            words[number].store(domain, right);
        }
    }
    assert_eq!(places.map(|place| pool.at(place).load(domain)), [0, 4]);
    assert_eq!(Ints::open(Arc::clone(&pool), root).unwrap().get(&0), Some(100));
}

#[test]
fn every_control_word_with_a_bit_changed_is_reported() {
    let index = tens(40);
    let domain = index.pool.domain();
    let mut nodes = Vec::new();
    index.walk(&mut |what| panic!("{what}"), &mut |seen| {
        nodes.push(seen.node.link);
        true
    });
    for link in nodes {
        let node = index.node(link);
        let right = node.control(domain);
        // Without the valid bit the slot array merely does not count.
        // So does a node without its last entry; whether that is there, it alone says.
        let order = index.order_of(node, right);
        let last = order.at(order.len() - 1);
        for bit in (0..63).filter(|&bit| bit != last) {
            node.words[0].store(domain, right ^ 1 << bit);
            assert!(!index.check().is_empty(), "bit {bit} of {link:?}");
        }
        node.words[0].store(domain, right);
    }
    assert_eq!(index.check(), Vec::<String>::new());
}

#[test]
fn an_inner_node_all_of_whose_entries_are_beyond_its_end_is_not_split() {
    let index = tens(60);
    let domain = index.pool.domain();
    let top = index.node(index.top().link());
    assert_eq!(index.top().levels(), 1, "the top is above leaves");
    // As many as fit, to go by the bitmap, which no slot array puts in order.
    top.words[0].store(domain, 0xFFFF << index.shape.capacity);
    // The first leaf is full.
    let added = index.insert(&5, 5);
    assert!(matches!(added, Err(IndexError::Damaged { .. })), "{added:?}");
    assert!(!index.check().is_empty());
}
