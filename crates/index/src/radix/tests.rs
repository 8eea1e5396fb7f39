//! What `check` reports, and which headers are sound, for every radix tree.

use std::sync::Arc;

use lapis_pmem::{Hardware, Link, Pool};

use super::tree::{HeaderOf, KeyOf};
use super::{Descending, Leaf, Place, RadixTree, SlotWord, Span};
use crate::index::{Index, IndexOptions, Statistics};
use crate::{ArtCow, PArt, Woart, Wort};

/// A tree on this machine.
pub trait Tree: RadixTree<Domain = Hardware> + Index<Hardware, <Self as RadixTree>::Key> {}
impl<T> Tree for T where T: RadixTree<Domain = Hardware> + Index<Hardware, <T as RadixTree>::Key> {}

pub fn sample<T: Tree>(keys: &[&T::Key]) -> T {
    let pool = Arc::new(Pool::create_anonymous(4 << 20).unwrap());
    let index = T::create_named(&pool, "tree", &IndexOptions::default()).unwrap();
    for &key in keys {
        let _ = index.insert(key, 1).unwrap();
    }
    assert_eq!(index.check(), [""; 0]);
    index
}

fn strings<T: Tree<Key = [u8]>>() -> T {
    sample(&[b"a".as_slice(), b"ab", b"ab\0", b"b", b"ba", b"\0"])
}

/// The word at `top` and every word below it, but for empty slots, and where they are.
pub fn words<T: Tree>(index: &T, top: Place) -> Vec<(Place, T::Word)> {
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(place) = open.pop() {
        let child = index.child_at(place);
        if child.is_none() {
            continue;
        }
        found.push((place, child));
        if !child.is_leaf() {
            let has_end = T::Span::has_end_slot::<T::Key>(child.position::<T::Key>());
            let slots = T::Span::SLOTS + usize::from(has_end);
            open.extend((0..slots).filter_map(|slot| index.place_of(child, slot)));
        }
    }
    found
}

/// Every word from the top down.
fn all_words<T: Tree>(index: &T) -> Vec<(Place, T::Word)> {
    words(index, index.handle().top)
}

fn every_wrong_word_is_reported<T: Tree>(index: &T) {
    let domain = index.pool().domain();
    let all = all_words(index);
    let root = index.handle().root.bits();
    let mut wrong =
        vec![u64::MAX, 1, 2, 8, root, root | 1, root + 16, 0xFFFF_FFFF_FFF1, 3 << 48 | 0x20000];
    wrong.extend(all.iter().map(|(_, child)| child.bits()));
    for &(place, child) in &all {
        // With a word from below, this is a sound tree of fewer keys.
        let below = words(index, place);
        let is_sound = |word: u64| below.iter().any(|(_, child)| child.bits() == word);
        for &word in wrong.iter().filter(|&&word| !is_sound(word)) {
            index.pool().at(place).store(domain, word);
            let problems = index.check();
            assert!(!problems.is_empty(), "{word:#x} at {place:?} passed for {child:?}");
        }
        index.pool().at(place).store(domain, child.bits());
    }
    assert_eq!(index.check(), [""; 0]);
}

/// A tree with prefixes of no, a few and more digits than a header has room for, and keys that
/// leave each.
fn integers_and_others<T: Tree<Key = u64>>() -> (T, Vec<u64>) {
    let keys = [0, 1, 0x10, 0x0123_4567_89AB_CDEF, 0x0123_4567_89AB_FDEF, 0x0123_4967_8900_0000];
    let others = keys.iter().flat_map(|key| (0..16).map(move |place| key ^ 8 << (4 * place)));
    (sample(&keys.each_ref()), others.filter(|other| !keys.contains(other)).collect())
}

/// The same of byte strings.
fn strings_and_others<T: Tree<Key = [u8]>>() -> (T, Vec<Vec<u8>>) {
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

/// The nodes and a leaf below each.
fn nodes<T: Tree>(index: &T) -> Vec<(T::Word, KeyOf<'_, T>)> {
    let nodes = all_words(index).into_iter().filter(|(_, child)| !child.is_leaf());
    let with_key = |node| (node, index.key_of_leaf(index.any_leaf(node).unwrap()).unwrap());
    nodes.map(|(_, node)| with_key(node)).collect()
}

fn every_wrong_header_is_reported<T: Tree>(index: &T) {
    for (node, _) in nodes(index) {
        let cell = index.pool().at(node.header_place());
        let right = cell.load(index.pool().domain());
        for bit in 0..64 {
            cell.store(index.pool().domain(), right ^ 1 << bit);
            let problems = index.check();
            assert!(problems.len() == 1 && problems[0].starts_with("I8"), "{node:?} {bit}");
        }
        cell.store(index.pool().domain(), right);
    }
}

/// Gives every node in turn every header that it can have had and inserts every other key.
fn every_stale_header_is_sound<T: Tree>(index: &T, others: &[&T::Key]) {
    let entries = index.statistics().entries;
    let count = nodes(index).len();
    for number in 0..count {
        for other in others {
            // Insertions may copy nodes: it is the same one if the walk is.
            let position = nodes(index)[number].0.position::<T::Key>();
            for depth in 0..=position {
                let (node, key) = nodes(index).swap_remove(number);
                let stale = HeaderOf::<T>::of(&key, depth, position);
                index.set_header(node, stale);
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

fn a_wild_top_is_reported<T: Tree<Key = [u8]>>() {
    let index: T = strings();
    for word in [u64::MAX, 1, 2, 8, 0xFFFF_FFFF_FFF0, 0x20_0000 | 2] {
        index.pool().at(index.handle().top).store(index.pool().domain(), word);
        assert!(!index.check().is_empty(), "{word:#x} passed");
    }
}

fn a_leaf_whose_key_has_changed_is_reported<T: Tree<Key = [u8]>>() {
    let index: T = strings();
    let leaves = all_words(&index).into_iter().filter(|(_, child)| child.is_leaf());
    let is_b = |leaf: &Link<Leaf>| index.key_of_leaf(*leaf).is_some_and(|key| key.bytes() == b"b");
    let leaf = leaves.map(|(_, child)| child.as_leaf()).find(is_b).unwrap();
    for bytes in [0, 2, 5, 65_536, u64::MAX] {
        index.pool().at(leaf).key.store(index.pool().domain(), bytes);
        assert!(!index.check().is_empty(), "a length of {bytes} passed");
    }
}

fn a_node_with_one_child_is_reported<T: Tree<Key = u64>>() {
    let index: T = sample(&[&1u64, &2]);
    let (place, _) = all_words(&index).pop().unwrap();
    index.pool().at(place).store(index.pool().domain(), 0);
    let problems = index.check();
    assert!(problems.iter().any(|problem| problem.starts_with("I4")), "{problems:?}");
}

fn an_empty_index_has_no_problems_and_the_size_of_its_root<T: Tree<Key = u64>>() {
    let index: T = sample(&[]);
    let sizes = Statistics { blocks: 1, bytes: 64, ..Default::default() };
    assert_eq!(index.statistics(), sizes);
}

/// Keys are looked up with the reach that a reader may have asked for just before the pool grew.
fn a_search_that_the_pool_outgrows_begins_again<T: Tree<Key = u64>>() {
    let index = sample::<T>(&[]);
    let reach = index.handle().pool.reach();
    let mut keys = (0..).map(|number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut inserted = Vec::new();
    while reach.renewed().is_none() {
        let key = keys.next().unwrap();
        let _ = index.insert(&key, !key).unwrap();
        inserted.push(key);
    }
    let mut beyond = 0;
    for key in inserted {
        let digits = KeyOf::<T>::of_integer(key);
        let found = index.find_within(&reach, &digits).unwrap_or_else(|child| {
            beyond += 1;
            index.find_beyond(reach, digits, child)
        });
        assert_eq!((found, index.get(&key)), (Some(!key), Some(!key)));
    }
    assert!(beyond > 0);
}

macro_rules! tests_of {
    ($name:ident: $tree:ident) => {
        mod $name {
            use super::*;

            type Numbers = $tree<Hardware, u64>;
            type Strings = $tree<Hardware, [u8]>;

            #[test]
            fn every_wrong_word_in_a_tree_of_integers_is_reported() {
                let keys = [&0u64, &1, &0x10, &0x1000, &u64::MAX, &(1 << 60)];
                every_wrong_word_is_reported(&sample::<Numbers>(&keys));
            }

            #[test]
            fn every_wrong_word_in_a_tree_of_byte_strings_is_reported() {
                every_wrong_word_is_reported(&strings::<Strings>());
            }

            #[test]
            fn a_header_with_any_bit_changed_is_reported() {
                every_wrong_header_is_reported(&integers_and_others::<Numbers>().0);
                every_wrong_header_is_reported(&strings_and_others::<Strings>().0);
            }

            #[test]
            fn inserts_are_right_whichever_header_a_power_cut_has_left_in_a_tree_of_integers() {
                let (index, others) = integers_and_others::<Numbers>();
                every_stale_header_is_sound(&index, &others.iter().collect::<Vec<_>>());
            }

            #[test]
            fn inserts_are_right_whichever_header_a_power_cut_has_left_in_a_tree_of_byte_strings() {
                let (index, others) = strings_and_others::<Strings>();
                let others: Vec<_> = others.iter().map(Vec::as_slice).collect();
                every_stale_header_is_sound(&index, &others);
            }

            #[test]
            #[cfg_attr(miri, ignore = "fills a pool")]
            fn a_search_that_the_pool_outgrows_begins_again() {
                super::a_search_that_the_pool_outgrows_begins_again::<Numbers>();
            }

            #[test]
            fn a_wild_top_is_reported() {
                super::a_wild_top_is_reported::<Strings>();
            }

            #[test]
            fn a_leaf_whose_key_has_changed_is_reported() {
                super::a_leaf_whose_key_has_changed_is_reported::<Strings>();
            }

            #[test]
            fn a_node_with_one_child_is_reported() {
                super::a_node_with_one_child_is_reported::<Numbers>();
            }

            #[test]
            fn an_empty_index_has_no_problems_and_the_size_of_its_root() {
                super::an_empty_index_has_no_problems_and_the_size_of_its_root::<Numbers>();
            }
        }
    };
}

tests_of!(wort: Wort);
tests_of!(woart: Woart);
tests_of!(art_cow: ArtCow);
tests_of!(p_art: PArt);
