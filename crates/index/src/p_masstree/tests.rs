//! Shapes that insertions and removals lead to, what crashes leave, locks, and what a check reports.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_pmem::{Hardware, LockGeneration, PCell, Pool, Region};

use super::node::{BORDER, Key, Node, Slice, View};
use super::permutation::Permutation;
use super::read::{Aim, Step};
use super::*;
use crate::index::{Direction, OrderedIndex, Statistics};

type Numbers = PMasstree<Hardware, u64>;
type Strings = PMasstree<Hardware, [u8]>;

fn empty<K: IndexKey + ?Sized>() -> PMasstree<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    PMasstree::create_named(&pool, "trie", &IndexOptions::default()).unwrap()
}

fn insert<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>, key: &K) {
    assert_eq!(index.insert(key, 1).unwrap().previous, None);
}

fn remove<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>, key: &K) {
    assert_eq!(index.remove(key).unwrap().previous, Some(1));
}

fn of_numbers(numbers: impl IntoIterator<Item = u64>) -> Numbers {
    let index = empty();
    numbers.into_iter().for_each(|number| insert(&index, &number));
    index
}

fn of_strings(keys: &[&[u8]]) -> Strings {
    let index = empty();
    keys.iter().for_each(|key| insert(&index, *key));
    index
}

/// How many nodes there are, and how many above the last one at most.
fn shape<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>) -> (u64, u64) {
    assert_eq!(index.check(), [""; 0]);
    let reachable = index.pool().reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| ()));
    let audit = index.pool().audit(&reachable);
    assert!(audit.is_clean(), "{audit:?}");
    let Statistics { nodes, max_depth, blocks, .. } = index.statistics();
    assert_eq!(blocks, reachable.block_count());
    (nodes, max_depth)
}

fn keys<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>, direction: Direction) -> Vec<K::Buf> {
    index.range(Bound::Unbounded, Bound::Unbounded, direction).map(|(key, _)| key).collect()
}

/// The nodes on the way of a key. Nobody else changes the index.
fn path<'t, K: IndexKey + ?Sized>(index: &'t PMasstree<Hardware, K>, key: &K) -> Vec<Step<'t>> {
    let mut space = [0; 8];
    index.path(&Key::of(key, &mut space))
}

/// Every node, from the top down.
fn nodes<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>) -> Vec<View<'_>> {
    let domain = index.pool().domain();
    let mut found: Vec<View<'_>> = Vec::new();
    let mut open = vec![index.word_at(index.handle.top)];
    while let Some(word) = open.pop().filter(|word| word.0 != 0) {
        let view = index.view(word.node(), [None; 2]);
        let words = view.permutation.slots().map(|slot| view.word(domain, slot));
        open.extend(words.filter(|word| view.is_interior() || (!K::INLINE && word.is_layer())));
        found.push(view);
    }
    found
}

#[test]
fn insertions_split_full_nodes_and_raise_roots() {
    let index = of_numbers((0..14).map(|number| 10 * number));
    assert_eq!(shape(&index), (1, 0));
    insert(&index, &5);
    assert_eq!(shape(&index), (3, 1));
    let counts = [0, 130].map(|key| path(&index, &key)[1].view.permutation.count());
    assert_eq!(counts, [8, 7]);
    // One after the other is filled: 13 nodes, below one; then one more, and a root.
    let index = of_numbers((0..13 * 14 + 1).rev());
    assert_eq!(shape(&index).1, 2);
}

#[test]
fn ascending_keys_leave_full_nodes() {
    let index = of_numbers(0..13 * 13);
    assert_eq!(shape(&index), (14, 1));
}

#[test]
fn removals_join_nodes_and_lower_roots() {
    let index = of_numbers(0..1000);
    assert_eq!(shape(&index).1, 2);
    (0..1000).filter(|number| number % 100 != 0).for_each(|number| remove(&index, &number));
    let (nodes, depth) = shape(&index);
    assert!(nodes <= 4 && depth <= 1, "{nodes} nodes for ten keys, {depth} above each other");
    (0..900).step_by(100).for_each(|number| remove(&index, &number));
    assert_eq!(shape(&index), (1, 0));
    remove(&index, &900);
    assert_eq!(shape(&index), (0, 0));
}

#[test]
fn keys_that_go_on_from_the_same_slice_get_layers_down_to_where_they_differ() {
    let index = of_strings(&[b"abcdefgh", b"abcdefghi", b"abc"]);
    assert_eq!(shape(&index), (1, 0), "one that goes on, and its slice, need no layer");
    insert(&index, b"abcdefghj".as_slice());
    assert_eq!(shape(&index), (2, 1));
    insert(&index, b"12345678123456781".as_slice());
    insert(&index, b"12345678123456782".as_slice());
    assert_eq!(shape(&index), (4, 2));
    insert(&index, b"123456781".as_slice());
    assert_eq!(shape(&index), (4, 2));
    let mut expected: Vec<&[u8]> = vec![b"123456781", b"12345678123456781", b"12345678123456782"];
    expected.extend([b"abc".as_slice(), b"abcdefgh", b"abcdefghi", b"abcdefghj"]);
    assert_eq!(keys(&index, Direction::Forward), expected);
    expected.reverse();
    assert_eq!(keys(&index, Direction::Backward), expected);
}

#[test]
fn a_layer_gives_way_to_its_last_key_and_takes_those_above_along_that_have_nothing_else() {
    let index = of_strings(&[b"123456781234567812345678a", b"123456781234567812345678b", b"1"]);
    assert_eq!(shape(&index), (4, 3));
    remove(&index, b"123456781234567812345678a".as_slice());
    assert_eq!(shape(&index), (1, 0));
    assert_eq!(index.get(b"123456781234567812345678b"), Some(1));
    insert(&index, b"1234567812345678".as_slice());
    assert_eq!(shape(&index), (2, 1));
    insert(&index, b"123456781234567812345678a".as_slice());
    assert_eq!(shape(&index), (4, 3));
    remove(&index, b"123456781234567812345678b".as_slice());
    assert_eq!(shape(&index), (2, 1), "the layer with another key stays");
}

#[test]
fn slots_of_a_removed_key_are_used_again() {
    let index = of_numbers(0..14);
    for number in 14..60 {
        remove(&index, &(number - 14));
        insert(&index, &number);
    }
    assert_eq!(shape(&index), (1, 0));
}

/// As a power cut leaves it: nobody has had the lock of any node since.
fn after_a_crash<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>) {
    for view in nodes(index) {
        view.node.lock.word().store(index.pool().domain(), 0);
    }
}

/// A trie of two border nodes, the left one of which still has what has been moved to the right one; and the keys.
fn half_split() -> (Numbers, BTreeMap<u64, u64>) {
    let index = of_numbers((0..14).map(|number| 10 * number));
    let full = path(&index, &0)[0].view;
    insert(&index, &125);
    remove(&index, &125);
    let domain = index.pool().domain();
    full.node.permutation.store(domain, full.permutation.0);
    after_a_crash(&index);
    (index, (0..14).map(|number| (10 * number, 1)).collect())
}

fn assert_holds(index: &Numbers, expected: &BTreeMap<u64, u64>) {
    assert_eq!(index.check(), [""; 0]);
    let mut in_order: Vec<u64> = expected.keys().copied().collect();
    assert_eq!(keys(index, Direction::Forward), in_order);
    in_order.reverse();
    assert_eq!(keys(index, Direction::Backward), in_order);
    for (key, value) in expected {
        assert_eq!(index.get(key), Some(*value), "{key}");
    }
}

#[test]
fn what_a_split_has_moved_counts_once_after_a_crash_in_the_middle() {
    let (index, mut expected) = half_split();
    assert_holds(&index, &expected);
    let _ = index.update(&130, 7).unwrap();
    expected.insert(130, 7);
    assert_holds(&index, &expected);
    assert_eq!(path(&index, &0)[1].view.permutation.count(), 14);
    let _ = index.insert(&1, 1).unwrap();
    expected.insert(1, 1);
    assert_holds(&index, &expected);
    assert_eq!(path(&index, &0)[1].view.permutation.count(), 8);
}

#[test]
fn what_a_split_has_moved_does_not_come_back_when_its_new_node_goes() {
    let (index, mut expected) = half_split();
    for key in (70..140).step_by(10) {
        remove(&index, &key);
        expected.remove(&key);
        assert_holds(&index, &expected);
    }
    assert_eq!(shape(&index), (1, 0));
}

#[test]
fn entries_beyond_its_bound_in_a_node_that_has_been_looked_after_are_reported() {
    let (index, _) = half_split();
    let left = path(&index, &0)[1].view;
    let generation = LockGeneration::of(index.pool().generation());
    left.node.lock.init(index.pool().domain(), generation, 0);
    assert_eq!(index.check().len(), 1);
}

#[test]
fn a_joining_that_a_crash_cut_short_is_completed_by_the_next_removal_there() {
    let index = of_numbers((0..15).map(|number| 10 * number));
    let domain = index.pool().domain();
    // The removal is durable, and the joining is not begun.
    for key in (0..110).step_by(10) {
        let step = path(&index, &key)[1];
        let index = step.view.search(domain, Slice { bits: key, class: 8 }).0;
        let left = step.view.permutation.without(index);
        step.view.node.permutation.store(domain, left.0);
    }
    after_a_crash(&index);
    assert_eq!(shape(&index), (3, 1));
    remove(&index, &110);
    assert_eq!(shape(&index), (1, 0));
    assert_eq!(keys(&index, Direction::Forward), [120, 130, 140]);
}

fn all_locks_are_free<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>) -> bool {
    let (pool, domain) = (index.pool(), index.pool().domain());
    let generation = LockGeneration::of(pool.generation());
    let locks = nodes(index).into_iter().map(|view| view.lock);
    let root = index.handle.root_lock().read(domain);
    locks.chain([root]).all(|lock| !lock.is_locked(generation))
}

fn locks_are_given_back<K: IndexKey + ?Sized>(keys: &[K::Buf]) {
    let index = empty::<K>();
    for key in keys {
        insert(&index, K::borrow(key));
        assert!(all_locks_are_free(&index), "after the insertion of {key:?}");
    }
    for key in keys {
        let _ = index.update(K::borrow(key), 1).unwrap();
    }
    assert!(all_locks_are_free(&index));
    for key in keys {
        remove(&index, K::borrow(key));
        assert!(all_locks_are_free(&index), "after the removal of {key:?}");
    }
    assert_eq!(shape(&index), (0, 0));
}

#[test]
fn locks_are_given_back_whatever_becomes_of_nodes() {
    let numbers: Vec<u64> = (0..400).map(|number| number * 151 % 400 * 3).collect();
    locks_are_given_back::<u64>(&numbers);
    let strings = |number: &u64| b"x".repeat(1 + *number as usize / 3 % 40);
    let mut strings: Vec<Vec<u8>> = numbers.iter().map(strings).collect();
    for (number, string) in numbers.iter().zip(&mut strings) {
        string.extend(number.to_be_bytes());
    }
    locks_are_given_back::<[u8]>(&strings);
}

#[test]
fn who_has_read_a_node_notices_that_it_was_unlinked() {
    let index = of_numbers(0..15);
    let _pinned = index.pool().pin();
    let last = path(&index, &14)[1].view;
    for number in (0..14).rev() {
        remove(&index, &number);
    }
    assert_eq!(shape(&index), (1, 0));
    assert!(!last.has_its_entries(index.pool().domain()));
}

/// The keys of three levels of nodes: 0, 100 and so on.
const KEYS: u64 = 400;
const LAST: u64 = 100 * (KEYS - 1);

/// Removes most of them, so that the interior nodes are joined, and then splits the last border node.
fn join_interior_nodes_and_split_the_last_border_node(index: &Numbers) {
    let kept = path(index, &LAST)[2].view.permutation.count() as u64;
    (3..KEYS - kept).for_each(|number| remove(index, &(100 * number)));
    (1..15).for_each(|number| insert(index, &(LAST - number)));
    assert_eq!(shape(index).1, 1);
}

#[test]
fn a_reader_in_an_interior_node_that_goes_does_not_go_on_from_there() {
    let index = of_numbers((0..KEYS).map(|number| 100 * number));
    let _pinned = index.pool().pin();
    let aim = Aim { slice: Slice { bits: LAST, class: 8 }, strictly_below: false, enters: false };
    let mut stood = None;
    let spot = index.descend::<false>(
        |_| aim,
        |step| {
            if step.view.height == BORDER + 1 && stood.is_none() {
                stood = Some(step.view.link);
                join_interior_nodes_and_split_the_last_border_node(&index);
            }
        },
    );
    assert!(nodes(&index).iter().all(|view| Some(view.link) != stood), "it has not gone");
    assert!(spot.is_some_and(|spot| spot.slot.is_some()));
}

#[test]
fn a_scan_does_not_go_on_from_a_node_that_has_gone() {
    let index = of_numbers((0..KEYS).map(|number| 100 * number));
    let at_last = path(&index, &LAST);
    let (before, mut seen) = (at_last[2].view.lower.unwrap().bits - 100, Vec::new());
    let mut joins = true;
    index.scan(Bound::Included(&before), Direction::Forward, &mut |key: &u64, _| {
        if std::mem::take(&mut joins) {
            join_interior_nodes_and_split_the_last_border_node(&index);
        }
        seen.push(*key);
        ControlFlow::Continue(())
    });
    let gone = at_last[1].view.link;
    assert!(nodes(&index).iter().all(|view| view.link != gone), "it has not gone");
    assert_eq!(seen.last(), Some(&LAST));
    assert_eq!(seen[1..], keys(&index, Direction::Forward)[3..]);
}

fn every_wrong_word_is_reported<K: IndexKey + ?Sized>(index: &PMasstree<Hardware, K>) {
    let domain = index.pool().domain();
    assert_eq!(index.check(), [""; 0]);
    for view in nodes(index) {
        let report = |word: &PCell<u64>, wrong: &mut dyn Iterator<Item = u64>| {
            let right = word.load(domain);
            for wrong in wrong.filter(|&wrong| wrong != right) {
                word.store(domain, wrong);
                assert!(!index.check().is_empty(), "{wrong:#x} passed for {right:#x}");
            }
            word.store(domain, right);
        };
        let flipped = |right: u64| (0..64).map(move |bit| right ^ 1 << bit);
        let others = [0, u64::MAX, index.handle.root.bits()];
        for (index, slot) in view.permutation.slots().enumerate() {
            // Neither values nor the first separator say anything, and those of integers have no class.
            if K::INLINE && !view.is_interior() {
                break;
            }
            let has_class = !(K::INLINE || view.is_interior() && index == 0);
            let word = view.word(domain, slot).0;
            let is_wrong = |wrong: &u64| has_class || (wrong ^ word) >> 48 & 15 == 0;
            let mut wrong = flipped(word).chain(others).filter(is_wrong);
            report(&view.node.entries[slot].word, &mut wrong);
        }
        report(&view.node.layer, &mut flipped(view.node.layer.load(domain)));
        // Of the root of integers, it is all that says what its words are.
        report(&view.node.height, &mut flipped(view.height).filter(|height| *height != BORDER));
        let mut malformed = flipped(view.permutation.0).chain(others);
        let malformed = &mut malformed.by_ref().filter(|&word| Permutation(word).is_malformed());
        report(&view.node.permutation, malformed);
    }
    assert_eq!(index.check(), [""; 0]);
}

#[test]
fn every_wrong_word_is_reported_in_both_kinds_of_nodes_and_in_layers() {
    every_wrong_word_is_reported(&of_numbers((0..30).map(|number| number * number)));
    every_wrong_word_is_reported(&of_strings(&[
        b"a",
        b"abcdefgh",
        b"abcdefgh1",
        b"abcdefgh12345678",
        b"abcdefgh123456789",
        b"abcdefgh123456780",
        b"b\0",
        b"b",
    ]));
}

#[test]
fn entries_out_of_order_are_reported() {
    let index = of_numbers((0..30).map(|number| 2 * number));
    let domain = index.pool().domain();
    for view in nodes(&index) {
        let permutation = view.permutation;
        for (one, other) in (1..permutation.count()).map(|index| (index - 1, index)) {
            let [one, other] =
                [one, other].map(|index| &view.node.entries[permutation.slot(index)]);
            let bits = [&one.bits, &other.bits].map(|bits| bits.load(domain));
            one.bits.store(domain, bits[1]);
            let passed = index.check().is_empty();
            assert!(view.is_interior() || !passed, "{bits:?}");
            one.bits.store(domain, bits[0]);
        }
    }
    assert_eq!(index.check(), [""; 0]);
}

#[test]
fn a_key_that_finds_no_room_for_all_of_its_layers_leaves_none_behind() {
    let region = Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = Arc::new(Pool::create(region, Hardware::detect()).unwrap());
    let index = Strings::create_named(&pool, "trie", &IndexOptions::default()).unwrap();
    // As many layers as words that two keys share.
    let key = |last: &[u8]| [&[7; 200], last].concat();
    insert(&index, &key(b"first"));
    insert(&index, b"another");
    let leaked = || {
        let reachable = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| ()));
        pool.audit(&reachable).leaked.len()
    };
    let mut taken: Vec<_> = std::iter::from_fn(|| pool.allocate::<Node>().ok()).collect();
    let (mut room, mut refused) = (0, 0);
    loop {
        let before = leaked();
        let result = index.insert(key(b"other").as_slice(), 1);
        if result.is_ok() {
            break;
        }
        refused += 1;
        assert_eq!(leaked(), before, "room for {room} nodes");
        room += 1;
        drop(taken.pop());
    }
    assert!(refused > 20, "only {refused} of a key's layers were without room");
    drop(taken);
    assert_eq!(leaked(), 0);
    assert_eq!(index.check(), [""; 0]);
}
