//! What `check` reports, and which headers are sound.

use std::sync::Arc;

use lapis_pmem::{Hardware, Pool};

use super::node::{Child, NIBBLE_SLOTS, has_end_slot};
use super::{Header, Nibbles, Wort};
use crate::index::{Index, IndexOptions, Statistics};
use crate::key::IndexKey;
use crate::radix::{Descending, Place, SlotWord};

fn sample<K: IndexKey + ?Sized>(keys: &[&K]) -> Wort<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(4 << 20).unwrap());
    let root = pool.fence(Wort::<_, K>::create(&pool, &IndexOptions::default()).unwrap());
    let link = root.link();
    let _ = pool.publish_root("wort", 0, root).unwrap().persist();
    let index = Wort::open(pool, link).unwrap();
    for &key in keys {
        let _ = index.insert(key, 1).unwrap();
    }
    assert_eq!(index.check(), [""; 0]);
    index
}

fn strings() -> Wort<Hardware, [u8]> {
    sample(&[b"a".as_slice(), b"ab", b"ab\0", b"b", b"ba", b"\0"])
}

/// The word at `top` and every word below it, but for empty slots, and where they are.
fn words<K: IndexKey + ?Sized>(index: &Wort<Hardware, K>, top: Place) -> Vec<(Place, Child)> {
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(place) = open.pop() {
        let child = index.child_at(place);
        if child.is_none() {
            continue;
        }
        found.push((place, child));
        if !child.is_leaf() {
            let slots = NIBBLE_SLOTS + usize::from(has_end_slot::<K>(child.position::<K>()));
            open.extend((0..slots).map(|slot| child.place(slot)));
        }
    }
    found
}

fn every_wrong_word_is_reported<K: IndexKey + ?Sized>(index: &Wort<Hardware, K>) {
    let domain = index.handle.pool.domain();
    let all = words(index, index.handle.top);
    let root = index.handle.root.bits();
    let mut wrong =
        vec![u64::MAX, 1, 2, 8, root, root | 1, root + 16, 0xFFFF_FFFF_FFF1, 3 << 48 | 0x20000];
    wrong.extend(all.iter().map(|(_, child)| child.0));
    for &(place, child) in &all {
        // With a word from below, this is a sound tree of fewer keys.
        let below = words(index, place);
        let is_sound = |word: u64| below.iter().any(|(_, child)| child.0 == word);
        for &word in wrong.iter().filter(|&&word| !is_sound(word)) {
            index.handle.pool.at(place).store(domain, word);
            let problems = index.check();
            assert!(!problems.is_empty(), "{word:#x} at {place:?} passed for {child:?}");
        }
        index.handle.pool.at(place).store(domain, child.0);
    }
    assert_eq!(index.check(), [""; 0]);
}

#[test]
fn every_wrong_word_in_a_tree_of_integers_is_reported() {
    every_wrong_word_is_reported(&sample(&[&0u64, &1, &0x10, &0x1000, &u64::MAX, &(1 << 60)]));
}

#[test]
fn every_wrong_word_in_a_tree_of_byte_strings_is_reported() {
    every_wrong_word_is_reported(&strings());
}

/// A tree with prefixes of no, a few and more than seven nibbles, and keys that leave each.
fn integers_and_others() -> (Wort<Hardware, u64>, Vec<u64>) {
    let keys = [0, 1, 0x10, 0x0123_4567_89AB_CDEF, 0x0123_4567_89AB_FDEF, 0x0123_4967_8900_0000];
    let others = keys.iter().flat_map(|key| (0..16).map(move |place| key ^ 8 << (4 * place)));
    (sample(&keys.each_ref()), others.filter(|other| !keys.contains(other)).collect())
}

/// The same of byte strings.
fn strings_and_others() -> (Wort<Hardware, [u8]>, Vec<Vec<u8>>) {
    let keys: [&[u8]; 6] =
        [b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghijk", b"abcdefghijklm", b"abd"];
    let longest = [keys[4], keys[5]];
    let others = longest.iter().flat_map(|key| {
        (0..key.len()).flat_map(|end| {
            let start = &key[..end];
            let with = |last: u8| [start, &[last]].concat();
            [start.to_vec(), with(key[end] ^ 1), with(key[end] ^ 0x10), with(0)]
        })
    });
    let others = others.filter(|other| !other.is_empty() && !keys.contains(&other.as_slice()));
    (sample(&keys), others.collect())
}

/// The nodes, the places of their headers, and a leaf below each.
fn headers<K: IndexKey + ?Sized>(index: &Wort<Hardware, K>) -> Vec<(Child, Place, Nibbles<'_, K>)> {
    let nodes = words(index, index.handle.top).into_iter().filter(|(_, child)| !child.is_leaf());
    nodes
        .map(|(_, node)| {
            let leaf = index.any_leaf(node).unwrap();
            (node, node.as_node().cast(), index.key_of_leaf(leaf).unwrap())
        })
        .collect()
}

fn every_wrong_header_is_reported<K: IndexKey + ?Sized>(index: &Wort<Hardware, K>) {
    for (node, place, _) in headers(index) {
        let cell = index.handle.pool.at(place);
        let right = cell.load(index.handle.pool.domain());
        for bit in 0..64 {
            cell.store(index.handle.pool.domain(), right ^ 1 << bit);
            let problems = index.check();
            assert!(problems.len() == 1 && problems[0].starts_with("I8"), "{node:?} {bit}");
        }
        cell.store(index.handle.pool.domain(), right);
    }
}

#[test]
fn a_header_with_any_bit_changed_is_reported() {
    every_wrong_header_is_reported(&integers_and_others().0);
    every_wrong_header_is_reported(&strings_and_others().0);
}

/// Gives every node in turn every header that it can have had and inserts every other key.
fn every_stale_header_is_sound<K: IndexKey + ?Sized>(index: &Wort<Hardware, K>, others: &[&K]) {
    let domain = index.handle.pool.domain();
    let entries = index.statistics().entries;
    for (node, place, key) in headers(index) {
        let position = node.position::<K>();
        for other in others {
            for depth in 0..=position {
                let stale = Header::of(&key, depth, position);
                index.handle.pool.at(place).store(domain, stale.bits());
                assert_eq!(index.check(), [""; 0], "{stale:?} of {node:?}");
                assert_eq!(index.insert(other, 7).unwrap().previous, None);
                assert_eq!(index.check(), [""; 0], "{stale:?} of {node:?}");
                assert_eq!(index.get(other), Some(7));
                assert_eq!(index.statistics().entries, entries + 1);
                assert_eq!(index.remove(other).unwrap().previous, Some(7));
            }
        }
    }
    assert_eq!(index.check(), [""; 0]);
}

#[test]
fn inserts_are_right_whichever_header_a_power_cut_has_left_in_a_tree_of_integers() {
    let (index, others) = integers_and_others();
    every_stale_header_is_sound(&index, &others.iter().collect::<Vec<_>>());
}

#[test]
fn inserts_are_right_whichever_header_a_power_cut_has_left_in_a_tree_of_byte_strings() {
    let (index, others) = strings_and_others();
    every_stale_header_is_sound(&index, &others.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

/// The header of the node at the end of the way of `key`.
fn last_header(index: &Wort<Hardware, u64>, key: u64) -> (Header, Header) {
    let key = Nibbles::<u64>::of_integer(key);
    let (mut child, mut depth, mut found) = (index.child_at(index.handle.top), 0, None);
    while !child.is_leaf() {
        let position = child.position::<u64>();
        let header = Header::from_bits(
            index.handle.pool.at(child.header_place()).load(index.handle.pool.domain()),
        );
        found = Some((header, Header::of(&key, depth, position)));
        child = index.child_at(child.place(key.slot_at(position).unwrap()));
        depth = position + 1;
    }
    found.unwrap()
}

#[test]
fn a_split_leaves_both_headers_right() {
    let index = sample(&[&0x1111u64, &0x1112]);
    let _ = index.insert(&0x2111, 1).unwrap();
    let (header, right) = last_header(&index, 0x1111);
    assert_eq!((header, right.depth()), (right, 13));
    let index = sample(&[&0x1111_0000_0000_1111u64, &0x1111_0000_0000_1112]);
    let _ = index.insert(&0x1111_0000_0001_1111, 1).unwrap();
    let (header, right) = last_header(&index, 0x1111_0000_0000_1111);
    assert_eq!((header, right.depth()), (right, 12));
}

#[test]
fn a_removal_leaves_a_stale_header_and_the_next_insert_there_recovers_it() {
    let index = sample(&[&0x1111u64, &0x1112, &0x2111]);
    let _ = index.remove(&0x2111).unwrap();
    let (stale, right) = last_header(&index, 0x1111);
    assert_eq!((stale.depth(), right.depth()), (13, 0));
    let _ = index.insert(&0x1113, 1).unwrap();
    assert_eq!(last_header(&index, 0x1111), (right, right));
}

#[test]
fn a_wild_top_is_reported() {
    let index = strings();
    for word in [u64::MAX, 1, 2, 8, 0xFFFF_FFFF_FFF0, 0x20_0000 | 2] {
        index.handle.pool.at(index.handle.top).store(index.handle.pool.domain(), word);
        assert!(!index.check().is_empty(), "{word:#x} passed");
    }
}

#[test]
fn a_leaf_whose_key_has_changed_is_reported() {
    let index = strings();
    let leaf = index.any_leaf(index.child_at(index.handle.top)).unwrap();
    for bytes in [0, 2, 5, 65_536, u64::MAX] {
        index.handle.pool.at(leaf).key.store(index.handle.pool.domain(), bytes);
        assert!(!index.check().is_empty(), "a length of {bytes} passed");
    }
}

#[test]
fn a_node_with_one_child_is_reported() {
    let index = sample(&[&1u64, &2]);
    let (place, _) = words(&index, index.handle.top).pop().unwrap();
    index.handle.pool.at(place).store(index.handle.pool.domain(), 0);
    assert!(index.check()[0].starts_with("I4"), "{:?}", index.check());
}

#[test]
fn an_empty_index_has_no_problems_and_the_size_of_its_root() {
    let index = sample::<u64>(&[]);
    let sizes = Statistics { blocks: 1, bytes: 64, ..Default::default() };
    assert_eq!(index.statistics(), sizes);
}
