//! A tree does what a map does, in a pool that has room for a path and little more.

use core::ops::Bound;
use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_buffer::{BufferManager, BufferOptions};
use lapis_pmem::{Domain, Hardware};
use lapis_tree::{
    BulkLoad, Finding, LeafLayout, NoStructureLog, StructureLog, Tree, TreeError, TreeReport,
    TreeStatistics,
};
use proptest::prelude::*;

use crate::{LAYOUTS, Random, hardware, options, pool};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records, forwards.
pub(crate) fn forwards<D: Domain, L: StructureLog>(tree: &Tree<D, L>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut cursor, mut all) = (tree.cursor(), Vec::new());
    while let Some((key, value)) = cursor.next().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// All records, backwards.
fn backwards(tree: &Tree<Hardware, NoStructureLog>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut cursor, mut all) = (tree.cursor(), Vec::new());
    cursor.seek_end().unwrap();
    while let Some((key, value)) = cursor.prev().unwrap() {
        all.push((key.to_vec(), value.to_vec()));
    }
    all
}

/// What a walk finds, which is nothing wrong.
pub(crate) fn report<D: Domain, L: StructureLog>(tree: &Tree<D, L>) -> TreeReport {
    tree.check(&mut |finding| {
        if let Finding::Problem { page, what } = finding {
            panic!("page {page}: {what}");
        }
    })
}

fn assert_same(tree: &Tree<Hardware, NoStructureLog>, model: &Model) {
    let expected: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    report(tree);
    assert_eq!(forwards(tree), expected);
    let mut reversed = backwards(tree);
    reversed.reverse();
    assert_eq!(reversed, expected);
    let mut value = Vec::new();
    for (key, expected) in model {
        assert!(tree.get(key, &mut value).unwrap(), "{key:?}");
        assert_eq!(&value, expected);
    }
}

/// Loads the tree; returns how many records it took.
fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    tree: &Tree<Hardware, NoStructureLog>,
    records: impl IntoIterator<Item = (K, V)>,
    fill_factor: u8,
) -> Result<u64, TreeError> {
    let mut load = BulkLoad::begin(tree.clone(), fill_factor)?;
    let mut records = records.into_iter();
    records.try_for_each(|(key, value)| load.push(key.as_ref(), value.as_ref()))?;
    load.finish()
}

fn put(tree: &Tree<Hardware, NoStructureLog>, model: &mut Model, key: Vec<u8>, value: Vec<u8>) {
    let mut shown = None;
    let mut show = |of: &[u8], old: Option<&[u8]>| {
        assert_eq!(of, key);
        shown = Some(old.map(<[u8]>::to_vec));
    };
    tree.put(&key, &value, 0, Some(&mut show)).unwrap();
    let old = model.insert(key, value);
    assert_eq!(shown, Some(old));
}

fn remove(tree: &Tree<Hardware, NoStructureLog>, model: &mut Model, key: &[u8]) {
    let mut shown = None;
    let mut show = |of: &[u8], old: Option<&[u8]>| {
        assert_eq!(of, key);
        shown = Some(old.map(<[u8]>::to_vec));
    };
    let removed = tree.remove(key, 0, Some(&mut show)).unwrap();
    let old = model.remove(key);
    assert_eq!(removed, old.is_some());
    assert_eq!(shown, Some(old));
}

/// A key of one of several kinds: short, long, with much or little in common.
fn key(random: &mut Random, keys: u64, longest: usize) -> Vec<u8> {
    let number = random.below(keys);
    match number % 5 {
        0 => number.to_be_bytes().to_vec(),
        1 => number.to_le_bytes()[..2].to_vec(),
        2 => format!("a common beginning of some length/{number}").into_bytes(),
        3 => [vec![b'x'; number as usize % longest], number.to_be_bytes().to_vec()].concat(),
        _ => vec![b'y'; number as usize % longest],
    }
}

fn layout() -> impl Strategy<Value = LeafLayout> {
    proptest::sample::select(LAYOUTS.to_vec())
}

/// A history of `steps`, mostly of puts at first and of removals in the end.
fn history(
    leaves: LeafLayout,
    (seed, steps): (u64, u64),
    keys: u64,
    longest: usize,
    frames: usize,
) {
    let tree = Tree::create_with(pool(frames), NoStructureLog, leaves).unwrap();
    let (mut random, mut model) = (Random(seed), Model::new());
    for step in 0..steps {
        let key = key(&mut random, keys, longest);
        let removes = random.below(steps) < step;
        if removes {
            remove(&tree, &mut model, &key);
        } else {
            let bytes = random.below(200) as usize;
            put(&tree, &mut model, key, vec![step as u8; bytes]);
        }
        if step % (steps / 4) == 0 {
            assert_same(&tree, &model);
        }
    }
    assert_same(&tree, &model);
    for key in model.keys().cloned().collect::<Vec<_>>() {
        remove(&tree, &mut model, &key);
    }
    assert_same(&tree, &model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn it_holds_what_a_map_holds(leaves in layout(), seed in any::<u64>(), frames in 8..16usize) {
        history(leaves, (seed, 2000), 3000, 60, frames);
    }

    #[test]
    fn keys_of_any_length_find_room(leaves in layout(), seed in any::<u64>()) {
        history(leaves, (seed, 600), 900, 750, 12);
    }

    #[test]
    fn a_cursor_stands_where_it_was_placed(
        leaves in layout(),
        seed in any::<u64>(),
        probes in 1..40u64,
    ) {
        let tree = Tree::create_with(pool(8), NoStructureLog, leaves).unwrap();
        let (mut random, mut model) = (Random(seed), Model::new());
        for _ in 0..400 {
            let key = key(&mut random, 600, 60);
            put(&tree, &mut model, key, vec![1; 30]);
        }
        for _ in 0..probes {
            let at = key(&mut random, 900, 60);
            let bound = match random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(&at[..]),
                _ => Bound::Excluded(&at[..]),
            };
            let behind: Vec<_> = model.range::<[u8], _>((bound, Bound::Unbounded)).take(5).collect();
            let before = match bound {
                Bound::Unbounded => Vec::new(),
                Bound::Included(at) => model.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(at))).rev().take(5).collect(),
                Bound::Excluded(at) => model.range::<[u8], _>((Bound::Unbounded, Bound::Included(at))).rev().take(5).collect(),
            };
            let mut cursor = tree.cursor();
            cursor.seek(bound).unwrap();
            for (key, value) in behind {
                prop_assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])));
            }
            cursor.seek(bound).unwrap();
            for (key, value) in before {
                prop_assert_eq!(cursor.prev().unwrap(), Some((&key[..], &value[..])));
            }
            let back = cursor.prev().unwrap().map(|(key, _)| key.to_vec());
            if let Some(back) = back {
                prop_assert_eq!(cursor.next().unwrap().map(|(key, _)| key.to_vec()), Some(back));
            }
        }
    }
}

#[test]
fn keys_that_come_in_order_leave_full_leaves() {
    // Where the page ends among the records differs.
    for value_bytes in [8, 9, 11, 13, 100, 101] {
        // What puts leave of a page, by a slot, the value's length, the key (the last leaf has no prefix), the value. A
        // leaf has two fences of up to eight bytes.
        let sorted = (4096 - 48 - 64 - 16) / (8 + 2 + 8 + value_bytes);
        let hashed = (4096 - 64 - 8 - 64 - 16) / (10 + 2 + 8 + value_bytes);
        for (leaves, records) in LAYOUTS.into_iter().zip([sorted, hashed]) {
            let tree = Tree::create_with(pool(16), NoStructureLog, leaves).unwrap();
            for number in 0..20_000u64 {
                tree.put(&number.to_be_bytes(), &vec![7; value_bytes], 0, None).unwrap();
            }
            let most = 20_000usize.div_ceil(records - 1) as u64;
            let found = report(&tree).leaves;
            assert!(found <= most, "{leaves:?}, {value_bytes}: {found}, {most}");
        }
    }
}

#[test]
fn a_tree_that_was_emptied_has_given_its_pages_back() {
    for leaves in LAYOUTS {
        let tree = Tree::create_with(pool(16), NoStructureLog, leaves).unwrap();
        for number in 0..5000u64 {
            tree.put(&(number * 7919 % 5000).to_be_bytes(), &[7; 100], 0, None).unwrap();
        }
        let before = report(&tree);
        assert!(before.leaves > 150 && before.height == 3, "{before:?}");
        let hashed = if leaves == LeafLayout::Hashed { before.leaves } else { 0 };
        assert_eq!(before.hashed_leaves, hashed);
        for number in 0..5000u64 {
            assert!(tree.remove(&(number * 17 % 5000).to_be_bytes(), 0, None).unwrap());
        }
        let after = report(&tree);
        assert!((after.leaves, after.height) == (1, 1), "{after:?}");
        let of_leaves =
            |statistics: TreeStatistics| (statistics.hashed_splits, statistics.hashed_merges);
        let (splits, merges) = of_leaves(tree.statistics());
        match leaves {
            LeafLayout::Hashed => assert!(splits > 100 && merges > 100, "{splits}, {merges}"),
            _ => assert_eq!((splits, merges), (0, 0)),
        }
    }
}

#[test]
fn a_record_that_is_too_long_is_refused() {
    let tree = Tree::create(pool(8), NoStructureLog).unwrap();
    let most = tree.largest_record();
    assert_eq!(most, 964);
    tree.put(&[1; 500], &vec![0; most - 500], 0, None).unwrap();
    let refused = tree.put(&[1; 500], &vec![0; most - 499], 0, None);
    assert!(matches!(refused, Err(TreeError::RecordTooLong { .. })), "{refused:?}");
}

#[test]
fn records_of_the_largest_kind_find_room_with_the_longest_separators() {
    LAYOUTS.into_iter().for_each(the_largest_records_find_room);
}

fn the_largest_records_find_room(leaves: LeafLayout) {
    let options = BufferOptions { frames: 8192, ..options(0) };
    let manager = Arc::new(BufferManager::in_memory(hardware(), &options).unwrap());
    let tree = Tree::create_with(manager, NoStructureLog, leaves).unwrap();
    let (mut random, mut model) = (Random(5), Model::new());
    for step in 0..1500u64 {
        // They differ in their last bytes alone, so separators are as long as they are.
        let mut key = vec![b'k'; 950 + random.below(2) as usize * 6];
        let end = key.len() - 8;
        key[end..].copy_from_slice(&random.below(600).to_be_bytes());
        let value = vec![step as u8; random.below(9) as usize];
        if random.below(4) == 0 {
            remove(&tree, &mut model, &key);
        } else {
            put(&tree, &mut model, key, value);
        }
    }
    assert_same(&tree, &model);
}

#[test]
fn the_leaf_of_a_key_is_brought_into_memory() {
    let manager = pool(8);
    let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
    for number in 0..2000u64 {
        tree.put(&number.to_be_bytes(), &[7; 100], 0, None).unwrap();
    }
    tree.touch(&3u64.to_be_bytes()).unwrap();
    let before = manager.statistics().loads;
    assert!(tree.get(&3u64.to_be_bytes(), &mut Vec::new()).unwrap());
    assert_eq!(manager.statistics().loads, before);
}

#[test]
fn a_dropped_tree_gives_all_of_its_pages_back_without_reading_leaves() {
    for records in [0, 3, 200, 5000u64] {
        let manager = pool(16);
        let tree = Tree::create(Arc::clone(&manager), NoStructureLog).unwrap();
        for number in 0..records {
            tree.put(&(number * 7919 % 5000).to_be_bytes(), &[7; 100], 0, None).unwrap();
        }
        let found = report(&tree);
        let before = manager.statistics().loads;
        let mut calls = 1;
        while !tree.free_pages(20).unwrap() {
            calls += 1;
        }
        tree.free_rest().unwrap();
        let pages = found.leaves + found.inner_nodes;
        assert!(calls >= pages / 40, "{calls} calls for {pages} pages");
        assert!(manager.statistics().loads - before <= 2 * found.inner_nodes);
        manager.close().unwrap();
        manager.space().unwrap().write_freed(0).unwrap();
        assert_eq!(manager.space().unwrap().used_pages(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_tree_that_was_loaded_is_one_that_was_filled(
        seed in any::<u64>(),
        records in 0..3000u64,
        fill_factor in 40..=100u8,
        longest in 20..700usize,
        leaves in layout(),
    ) {
        let tree = Tree::create_with(pool(12), NoStructureLog, leaves).unwrap();
        let (mut random, mut model) = (Random(seed), Model::new());
        for _ in 0..records {
            let value = vec![records as u8; random.below(200) as usize];
            model.insert(key(&mut random, 4000, longest), value);
        }
        prop_assert_eq!(load(&tree, &model, fill_factor).unwrap(), model.len() as u64);
        assert_same(&tree, &model);
        for _ in 0..200 {
            let key = key(&mut random, 4000, longest);
            match random.below(2) {
                0 => put(&tree, &mut model, key, vec![2; 100]),
                _ => remove(&tree, &mut model, &key),
            }
        }
        assert_same(&tree, &model);
    }
}

#[test]
fn leaves_are_loaded_as_full_as_is_asked_for() {
    let mut leaves = Vec::new();
    for fill_factor in [100, 50] {
        let tree = Tree::create(pool(12), NoStructureLog).unwrap();
        let records = (0..20_000u64).map(|number| (number.to_be_bytes(), [7; 100]));
        load(&tree, records, fill_factor).unwrap();
        leaves.push(report(&tree).leaves);
    }
    // A loaded leaf knows its fences only when it is full, and is thought to have keys of eight bytes.
    let bytes = 8 + 2 + 8 + 100;
    assert!(leaves[0] <= 20_000u64.div_ceil((4048 - 64) / bytes - 1), "{leaves:?}");
    assert!(leaves[1] >= 2 * leaves[0] - leaves[0] / 10, "{leaves:?}");
}

#[test]
fn only_an_empty_tree_is_loaded_and_only_in_order() {
    let tree = Tree::create(pool(12), NoStructureLog).unwrap();
    let disordered = load(&tree, [(b"b", b"1"), (b"a", b"2")], 90);
    assert!(matches!(disordered, Err(TreeError::NotAscending)), "{disordered:?}");
    tree.put(b"c", b"3", 0, None).unwrap();
    let refused = load(&tree, [(b"d", b"4")], 90);
    assert!(matches!(refused, Err(TreeError::NotEmpty)), "{refused:?}");
}
