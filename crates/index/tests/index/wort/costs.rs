//! Flushes, lines and fences of each operation, and that memory comes back.

use std::sync::Arc;

use lapis_index::{Index, IndexKey, Statistics, Wort};
use lapis_pmem::Pool;

use super::watched::{Watched, counting, watched_pool};
use super::{audited_blocks, create};

/// An index whose allocator has blocks of the sizes that the tests need at hand, so that no
/// allocation costs a flush of its own.
fn warm<K: IndexKey + ?Sized>(keys: &[&K]) -> (Arc<Pool<Watched>>, Wort<Watched, K>) {
    let pool = watched_pool(4 << 20);
    let index: Wort<_, K> = create(&pool);
    for &key in keys {
        let _ = index.insert(key, 1).unwrap();
    }
    for &key in keys {
        let _ = index.remove(key).unwrap();
    }
    (pool, index)
}

/// Lines flushed and fences.
fn cost<R>(pool: &Pool<Watched>, action: impl FnOnce() -> R) -> (u64, u64) {
    counting(pool.domain(), action).1
}

#[test]
fn an_insert_into_an_empty_slot_takes_two_flushes_and_two_fences() {
    let (pool, index) = warm(&[&0x10u64, &0x20, &0x30]);
    assert_eq!(cost(&pool, || index.insert(&0x10, 1).unwrap()), (2, 2));
    let _ = index.insert(&0x20, 1).unwrap();
    assert_eq!(cost(&pool, || index.insert(&0x30, 1).unwrap()), (2, 2));
}

#[test]
fn an_insert_that_splits_takes_three_flushes_and_two_fences() {
    let (pool, index) = warm(&[&0x10u64, &0x20, &0x1000]);
    let _ = index.insert(&0x10, 1).unwrap();
    // The node has three lines.
    assert_eq!(cost(&pool, || index.insert(&0x20, 1).unwrap()), (5, 2));
    // Above a node whose prefix differs: that node's header is rewritten, but not flushed.
    assert_eq!(cost(&pool, || index.insert(&0x1000, 1).unwrap()), (5, 2));
}

#[test]
fn recovering_a_header_takes_no_flush_and_no_fence() {
    let (pool, index) = warm(&[&0x10u64, &0x20, &0x30, &0x1000]);
    for key in [0x10, 0x20, 0x1000] {
        let _ = index.insert(&key, 1).unwrap();
    }
    // The lower node moves up; the next insert finds its header stale.
    assert_eq!(cost(&pool, || index.remove(&0x1000).unwrap()), (1, 1));
    assert_eq!(cost(&pool, || index.insert(&0x30, 1).unwrap()), (2, 2));
}

#[test]
fn random_inserts_take_about_three_line_flushes_and_two_fences_on_average() {
    const KEYS: u64 = 20_000;
    let pool = watched_pool(16 << 20);
    let index: Wort<_, u64> = create(&pool);
    let counts = cost(&pool, || {
        for number in 0..KEYS {
            let _ = index.insert(&number.hash64(), number).unwrap();
        }
    });
    let Statistics { nodes, .. } = index.statistics();
    // Every insert flushes a leaf and a slot, and the one that makes a node three lines more. The
    // allocator adds a flush and a fence per slab and one per 16 chunks.
    let own = 2 * KEYS + 3 * nodes;
    assert!((own..own + 200).contains(&counts.0), "{counts:?}, {nodes} nodes");
    assert!((5 * KEYS / 2..7 * KEYS / 2).contains(&counts.0), "{counts:?}");
    assert!((2 * KEYS..2 * KEYS + 200).contains(&counts.1), "{counts:?}");
}

#[test]
fn an_update_of_an_integer_key_takes_one_flush_and_one_fence() {
    let (pool, index) = warm(&[&1u64]);
    let _ = index.insert(&1, 1).unwrap();
    assert_eq!(cost(&pool, || index.update(&1, 2).unwrap()), (1, 1));
    assert_eq!(cost(&pool, || index.put(&1, 3).unwrap()), (1, 1));
}

#[test]
fn an_update_of_a_byte_string_key_takes_two_flushes_and_two_fences() {
    let (pool, index) = warm::<[u8]>(&[b"a".as_slice(), b"b", b"c"]);
    let _ = index.insert(b"a", 1).unwrap();
    assert_eq!(cost(&pool, || index.update(b"a", 2).unwrap()), (2, 2));
    assert_eq!(cost(&pool, || index.put(b"a", 3).unwrap()), (2, 2));
}

#[test]
fn a_removal_takes_one_flush_and_one_fence_whether_or_not_a_node_goes() {
    let (pool, index) = warm(&[&1u64, &2, &3]);
    for key in 1..=3 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert_eq!(cost(&pool, || index.remove(&1).unwrap()), (1, 1));
    assert_eq!(index.statistics().nodes, 1);
    assert_eq!(cost(&pool, || index.remove(&2).unwrap()), (1, 1));
    assert_eq!(index.statistics().nodes, 0);
    assert_eq!(cost(&pool, || index.remove(&3).unwrap()), (1, 1));
}

#[test]
fn operations_that_change_nothing_and_reads_flush_nothing() {
    let (pool, index) = warm(&[&1u64, &2]);
    let _ = index.insert(&1, 1).unwrap();
    let cost = cost(&pool, || {
        let _ = index.insert(&1, 2).unwrap();
        let _ = index.update(&2, 2).unwrap();
        let _ = index.remove(&2).unwrap();
        assert_eq!((index.get(&1), index.get(&2)), (Some(1), None));
    });
    assert_eq!(cost, (0, 0));
}

#[test]
fn an_index_that_has_been_emptied_keeps_only_its_root() {
    let pool = watched_pool(4 << 20);
    let index: Wort<_, u64> = create(&pool);
    assert_eq!(audited_blocks(&index), 1);
    for number in 0..2000u64 {
        let _ = index.insert(&number.hash64(), number).unwrap();
    }
    let sizes = index.statistics();
    assert_eq!(audited_blocks(&index), sizes.blocks);
    assert_eq!(sizes.blocks, 1 + 2000 + sizes.nodes);
    for number in 0..2000u64 {
        assert_eq!(index.remove(&number.hash64()).unwrap().previous, Some(number));
    }
    assert_eq!(audited_blocks(&index), 1);
    assert_eq!(index.statistics(), Statistics { blocks: 1, bytes: 64, ..Default::default() });
}

#[test]
fn updates_of_byte_string_keys_give_the_old_leaves_back() {
    let (_pool, index) = warm::<[u8]>(&[]);
    let _ = index.insert(b"key", 0).unwrap();
    for value in 1..1000 {
        assert_eq!(index.update(b"key", value).unwrap().previous, Some(value - 1));
    }
    assert_eq!(audited_blocks(&index), 2);
}
