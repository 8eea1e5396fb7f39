//! What the tree looks like: heights, fill, and that memory comes back.

use super::{ints, strings};
use crate::fast_fair::{FastFair, node::capacity_of};
use crate::index::{Index, IndexError, IndexOptions};
use crate::key::IndexKey;

#[test]
fn a_node_of_512_bytes_has_30_entries() {
    assert_eq!(capacity_of(512), 30);
    assert_eq!(ints(0).capacity, 30);
}

#[test]
fn impossible_node_sizes_are_refused() {
    let pool = super::pool();
    for node_bytes in [1, 64, 192, 300, 4160] {
        let options = IndexOptions { node_bytes, ..IndexOptions::default() };
        let refused = <super::Ints as Index<_, u64>>::create(&pool, &options);
        assert!(matches!(refused, Err(IndexError::BadOption { .. })), "{node_bytes}");
    }
}

#[test]
fn ascending_keys_leave_full_leaves() {
    let tree = ints(256);
    for key in 0..1400 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    let statistics = tree.statistics();
    assert_eq!(statistics.blocks - 1 - statistics.nodes, 100);
    tree.assert_sound();
}

#[test]
fn the_integer_zero_is_a_key_like_any_other() {
    let tree = ints(256);
    assert_eq!(tree.get(&0), None);
    let _ = tree.insert(&0, 7).unwrap();
    let _ = tree.insert(&1, 8).unwrap();
    assert_eq!((tree.get(&0), tree.get(&1)), (Some(7), Some(8)));
    assert_eq!(tree.remove(&0).unwrap().previous, Some(7));
    assert_eq!((tree.get(&0), tree.get(&1)), (None, Some(8)));
    assert_eq!(tree.insert(&0, 9).unwrap().previous, None);
    assert_eq!(tree.statistics().entries, 2);
    tree.assert_sound();
}

fn emptied<K: IndexKey + ?Sized>(tree: &FastFair<lapis_pmem::Hardware, K>, keys: &[K::Buf]) {
    for key in keys {
        let _ = tree.insert(K::borrow(key), 1).unwrap();
    }
    assert!(tree.statistics().max_depth >= 2);
    tree.assert_sound();
    for key in keys {
        assert_eq!(tree.remove(K::borrow(key)).unwrap().previous, Some(1));
    }
    tree.assert_sound();
    assert_eq!(tree.statistics().blocks, 2);
}

#[test]
fn an_emptied_tree_is_its_root_and_one_leaf() {
    let ascending: Vec<u64> = (0..3000).collect();
    let descending: Vec<u64> = (0..3000).rev().collect();
    let mixed: Vec<u64> = (0..3000u64).map(|key| key.hash64()).collect();
    let inside_out: Vec<u64> = (0..1500).flat_map(|key| [1500 + key, 1499 - key]).collect();
    for keys in [ascending, descending, mixed, inside_out] {
        emptied(&ints(256), &keys);
    }
    let words: Vec<Vec<u8>> = (0..3000u32).map(|key| key.to_be_bytes().to_vec()).collect();
    emptied(&strings(256), &words);
}

#[test]
fn an_emptied_range_keeps_at_most_one_leaf_per_inner_node() {
    let tree = ints(256);
    for key in 0..10_000 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    for key in 1000..9000 {
        let _ = tree.remove(&key).unwrap();
    }
    tree.assert_sound();
    let statistics = tree.statistics();
    let leaves = statistics.blocks - 1 - statistics.nodes;
    assert!(leaves <= 2000 / 14 + 2 + statistics.nodes, "{statistics:?}");
    for key in 1000..9000 {
        assert_eq!(tree.insert(&key, 1).unwrap().previous, None);
    }
    tree.assert_sound();
}

#[test]
fn a_dropped_insertion_for_want_of_room_changes_nothing() {
    let region = lapis_pmem::Region::anonymous(1 << 20, 1 << 20).unwrap();
    let pool = lapis_pmem::Pool::create(region, lapis_pmem::Hardware::detect()).unwrap();
    let pool = std::sync::Arc::new(pool);
    let tree: super::Ints = super::create_in(&pool, 256);
    let mut key = 0u64;
    let full = loop {
        match tree.insert(&key.hash64(), key) {
            Ok(_) => key += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, IndexError::Alloc(_)));
    assert_eq!(tree.statistics().entries, key);
    assert_eq!(tree.get(&key.hash64()), None);
    for present in 0..key {
        assert_eq!(tree.get(&present.hash64()), Some(present));
    }
    tree.assert_sound();
    for present in 0..key {
        assert!(tree.remove(&present.hash64()).unwrap().previous.is_some());
    }
    assert_eq!(tree.statistics().blocks, 2);
}
