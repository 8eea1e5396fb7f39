//! Shapes that insertions and removals lead to, locks, and what a check reports.

use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::{Hardware, LockGeneration, Pool};

use super::entry::Entry;
use super::node::Node;
use super::read::Level;
use super::*;
use crate::index::{Direction, OrderedIndex};
use crate::radix::{Digits, Place};

type Numbers = PHot<Hardware, u64>;

fn sample<K: IndexKey + ?Sized>(keys: &[&K]) -> PHot<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let index = PHot::create_named(&pool, "trie", &IndexOptions::default()).unwrap();
    for &key in keys {
        let _ = index.insert(key, 1).unwrap();
    }
    assert_eq!(index.check(), [""; 0]);
    index
}

fn of_numbers(numbers: impl IntoIterator<Item = u64>) -> Numbers {
    let index = sample(&[]);
    for number in numbers {
        let _ = index.insert(&number, 1).unwrap();
    }
    assert_eq!(index.check(), [""; 0]);
    index
}

/// Every word but those of nothing, and where it is.
fn words<K: IndexKey + ?Sized>(index: &PHot<Hardware, K>) -> Vec<(Place, Entry)> {
    let (mut found, mut open) = (Vec::new(), vec![index.handle.top]);
    while let Some(place) = open.pop() {
        let entry = index.entry_at(place);
        if entry.is_none() {
            continue;
        }
        found.push((place, entry));
        if entry.is_node() {
            let node = Node::at(index.pool(), entry);
            open.extend((0..node.shape.count).map(|number| node.place(number)));
        }
    }
    found
}

fn shape(index: &Numbers) -> (u64, u16) {
    assert_eq!(index.check(), [""; 0]);
    (index.statistics().nodes, index.entry_at(index.handle.top).height())
}

#[test]
fn insertions_push_down_pull_up_and_put_nodes_between() {
    let index = of_numbers([]);
    let insert = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.for_each(|number| assert_eq!(index.insert(&number, 1).unwrap().previous, None));
        shape(&index)
    };
    let even = |from: u64| (from..from + 32).map(|number| 2 * number);
    assert_eq!(insert(&mut [0].into_iter()), (0, 0));
    assert_eq!(insert(&mut [2].into_iter()), (1, 1), "two leaves are in a node");
    assert_eq!(insert(&mut even(0).skip(2)), (1, 1), "a node has 32 entries");
    assert_eq!(insert(&mut [64].into_iter()), (2, 2), "of 33 one is alone below a new root");
    assert_eq!(insert(&mut [66].into_iter()), (3, 2), "a leaf of a higher node becomes a node");
    assert_eq!(insert(&mut even(32).skip(2)), (3, 2), "which gets new roots");
    assert_eq!(insert(&mut [1].into_iter()), (4, 2), "a branch of 33 is pulled up");
    // As many below the root as fit, then one more.
    assert_eq!(insert(&mut (0..32 * 29).map(|number| 2 * number + 128)).1, 2);
    assert_eq!(insert(&mut (1..32 * 29).map(|number| 2 * number + 129)).1, 3);
    let before = shape(&index).0;
    assert_eq!(insert(&mut [1 << 63].into_iter()), (before, 3));
    assert_eq!(insert(&mut (1..32).map(|number| 1 << 63 | number << 8)), (before + 1, 3));
    let above = index.statistics().max_depth;
    assert_eq!(insert(&mut [1 << 63 | 1].into_iter()), (before + 3, 3), "there is room above");
    assert_eq!(index.statistics().max_depth, above);
}

#[test]
fn removals_leave_no_node_with_one_entry_and_join_small_ones() {
    let index = of_numbers(0..64);
    assert_eq!(shape(&index), (3, 2));
    let remove = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.for_each(|number| assert_eq!(index.remove(&number).unwrap().previous, Some(1)));
        shape(&index)
    };
    assert_eq!(remove(&mut (8..56)), (1, 1), "two halves of eight are one node");
    assert_eq!(remove(&mut (0..8).chain(57..63)), (1, 1));
    assert_eq!(remove(&mut [56].into_iter()), (0, 0), "one leaf needs no node");
    assert_eq!(remove(&mut [63].into_iter()), (0, 0));
    assert_eq!(index.statistics().blocks, 1);
}

fn all_locks_are_free(index: &Numbers) -> bool {
    let (pool, domain) = (index.pool(), index.pool().domain());
    let generation = LockGeneration::of(pool.generation());
    let nodes = words(index).into_iter().map(|(_, entry)| entry).filter(|entry| entry.is_node());
    nodes.chain([Entry::NONE]).all(|node| !index.lock_of(node).read(domain).is_locked(generation))
}

#[test]
fn locks_are_given_back_whatever_becomes_of_nodes() {
    let index = of_numbers([]);
    let keys: Vec<u64> = (0..400).map(|number| number * 151 % 400 * 3).collect();
    for key in &keys {
        let _ = index.insert(key, 1).unwrap();
        assert!(all_locks_are_free(&index), "after the insertion of {key}");
    }
    for key in &keys {
        let _ = index.update(key, 2).unwrap();
    }
    assert!(all_locks_are_free(&index));
    for key in &keys {
        let _ = index.remove(key).unwrap();
        assert!(all_locks_are_free(&index), "after the removal of {key}");
    }
    assert_eq!(index.statistics().blocks, 1);
}

#[test]
fn a_node_that_was_replaced_stays_locked() {
    let index = of_numbers([1, 2, 3, 4]);
    let pool = index.pool();
    let generation = LockGeneration::of(pool.generation());
    let _pinned = pool.pin();
    let node = index.entry_at(index.handle.top);
    let _ = index.insert(&5, 1).unwrap();
    assert!(index.lock_of(node).read(pool.domain()).is_locked(generation));
}

#[test]
fn an_entry_that_was_left_empty_is_passed_over_and_taken_out_by_the_next_insertion_there() {
    for direction in [Direction::Forward, Direction::Backward] {
        let index = of_numbers((0..40).map(|number| 2 * number));
        let domain = index.pool().domain();
        let mut empty = Vec::new();
        // H6, as a removal without room does it.
        for removed in [0, 20, 22, 78] {
            let mut space = [0; 8];
            let spot = index.follow(&Digits::of(&removed, &mut space), u32::MAX);
            index.pool().at(spot.slot).store(domain, 0);
            empty.push(removed);
            assert_eq!((index.get(&removed), index.check()), (None, vec![]));
        }
        let left: Vec<u64> = (0..40).map(|it| 2 * it).filter(|key| !empty.contains(key)).collect();
        for from in 0..80 {
            let bound = Bound::Included(&from);
            let found: Vec<u64> = match direction {
                Direction::Forward => index.range(bound, Bound::Unbounded, direction),
                Direction::Backward => index.range(Bound::Unbounded, bound, direction),
            }
            .map(|(key, _)| key)
            .collect();
            let mut expected = left.clone();
            if direction == Direction::Backward {
                expected.reverse();
                expected.retain(|&key| key <= from);
            } else {
                expected.retain(|&key| key >= from);
            }
            assert_eq!(found, expected, "from {from}");
        }
        for key in [21, 20, 1, 79] {
            assert_eq!(index.insert(&key, 7).unwrap().previous, None);
            assert_eq!((index.get(&key), index.check()), (Some(7), vec![]));
        }
        for key in left {
            assert_eq!(index.remove(&key).unwrap().previous, Some(1));
        }
        assert_eq!(index.statistics().entries, 4);
    }
}

fn every_wrong_word_is_reported<K: IndexKey + ?Sized>(index: &PHot<Hardware, K>) {
    let domain = index.pool().domain();
    let all = words(index);
    let root = index.handle.root.bits();
    let wild = [u64::MAX, 1, 2, 8, root, root | 1, 0xFFFF_FFFF_FFF1, 3 << 48 | 0x20000];
    let others: Vec<u64> = wild.into_iter().chain(all.iter().map(|(_, entry)| entry.0)).collect();
    for &(place, entry) in &all {
        // With what lies below a word, this is a sound trie of fewer keys.
        let below: Vec<u64> = {
            let (mut found, mut open) = (vec![entry.0], vec![entry]);
            while let Some(entry) = open.pop().filter(|entry| entry.is_node()) {
                let entries = Node::at(index.pool(), entry).contents(index.pool());
                found.extend(entries.entries().iter().map(|entry| entry.0));
                open.extend(entries.entries());
                open.retain(|entry| entry.is_node());
            }
            found
        };
        for &word in others.iter().filter(|word| !below.contains(word)) {
            index.pool().at(place).store(domain, word);
            assert!(!index.check().is_empty(), "{word:#x} at {place:?} passed for {entry:?}");
        }
        index.pool().at(place).store(domain, entry.0);
    }
    // Nothing of a node may be other than it is, but for its lock.
    for (_, entry) in all.iter().filter(|(_, entry)| entry.is_node()) {
        let node = Node::at(index.pool(), *entry);
        for place in (node.link.offset() + 8..node.place(0).offset()).step_by(8) {
            let word = index.pool().at::<lapis_pmem::PCell<u64>>(Link::from_bits(place));
            let right = word.load(domain);
            for bit in 0..64 {
                word.store(domain, right ^ 1 << bit);
                assert!(!index.check().is_empty(), "bit {bit} at {place:#x} of {node:?} passed");
            }
            word.store(domain, right);
        }
    }
    assert_eq!(index.check(), [""; 0]);
}

#[test]
fn every_wrong_word_and_bit_of_a_node_is_reported() {
    every_wrong_word_is_reported(&of_numbers((0..70).map(|number| number * number)));
    every_wrong_word_is_reported::<[u8]>(&sample(&[
        b"a".as_slice(),
        b"a\0",
        b"abcdefghijklmnopqrstuvw",
        b"abcdefghijklmnopqrstuv",
        b"b",
        b"ba",
        b"\0",
    ]));
}

#[test]
fn a_level_is_found_again_by_a_key_below() {
    let index = of_numbers(0..200);
    let _pinned = index.pool().pin();
    let mut space = [0; 8];
    let key = Digits::of(&77u64, &mut space);
    let Level { node, place, above } = index.follow(&key, u32::MAX).level;
    let found = index.level_of(&key, node).unwrap();
    assert_eq!((found.node, found.place, found.above), (node, place, above));
    let other = Digits::of(&1u64, &mut space);
    assert!(index.level_of(&other, node).is_none());
}
