//! What FPTree's operations cost, counted, and its readers beside stalled writers.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use lapis_index::{FpTree, Index, IndexKey, IndexOptions, OrderedIndex};

use crate::conformance::counting::{Stall, watched_pool};
use lapis_pmem::{PersistCounts, Watched, Watcher};

const SLOTS: u64 = 8;

fn create<K: IndexKey + ?Sized, T: Watcher + Default>() -> FpTree<Watched<T>, K> {
    let pool = watched_pool::<T>(1 << 20);
    let options = IndexOptions { node_bytes: 256, ..IndexOptions::default() };
    let root = pool.fence(<FpTree<_, K> as Index<_, K>>::create(&pool, &options).unwrap());
    let link = root.link();
    let _ = pool.publish_root("index", 0, root).unwrap().persist();
    FpTree::open(Arc::clone(&pool), link).unwrap()
}

/// Lines flushed and fences of an operation.
fn cost<K: IndexKey + ?Sized>(
    index: &FpTree<Watched<PersistCounts>, K>,
    operation: impl FnOnce(&FpTree<Watched<PersistCounts>, K>),
) -> (u64, u64) {
    let counts = index.pool().domain().watcher();
    counts.take();
    operation(index);
    counts.take()
}

#[test]
fn an_insert_flushes_the_slot_and_the_bitmap() {
    let index = create::<u64, PersistCounts>();
    for key in 0..SLOTS - 1 {
        assert_eq!(cost(&index, |index| _ = index.insert(&key, key).unwrap()), (2, 2));
    }
}

#[test]
fn a_byte_string_costs_its_own_lines_and_no_fence_more() {
    let index = create::<[u8], PersistCounts>();
    let insert = |key: &[u8]| cost(&index, |index| _ = index.insert(key, 1).unwrap());
    let _ = insert(b"a slab for short strings");
    assert_eq!(insert(b"another short string"), (3, 2));
}

#[test]
fn an_update_costs_what_an_insert_does_and_a_removal_half() {
    let index = create::<u64, PersistCounts>();
    for key in 0..SLOTS - 1 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert_eq!(cost(&index, |index| _ = index.update(&3, 9).unwrap()), (2, 2));
    assert_eq!(cost(&index, |index| _ = index.put(&3, 10).unwrap()), (2, 2));
    assert_eq!(cost(&index, |index| _ = index.remove(&3).unwrap()), (1, 1));
}

#[test]
fn operations_that_find_nothing_to_do_cost_nothing() {
    let index = create::<u64, PersistCounts>();
    let _ = index.insert(&1, 1).unwrap();
    let nothing = cost(&index, |index| {
        let _ = index.insert(&1, 2).unwrap();
        let _ = index.update(&2, 2).unwrap();
        let _ = index.remove(&2).unwrap();
        let _ = index.get(&1);
        let _ = index.first();
    });
    assert_eq!(nothing, (0, 0));
}

#[test]
fn a_split_costs_the_new_leaf_four_lines_and_four_fences() {
    let index = create::<u64, PersistCounts>();
    // Descending, so that no split is that of keys in ascending order; the first leaves come from
    // a slab that is there.
    let mut splits = Vec::new();
    for key in (0..64u64).rev() {
        splits.push(cost(&index, |index| _ = index.insert(&key, key).unwrap()));
    }
    splits.retain(|cost| *cost != (2, 2));
    // The new leaf (4 lines), the record, bitmap and next link, the record again; and the insertion.
    assert!(
        splits.len() > 8 && splits.iter().all(|cost| *cost == (4 + 1 + 2 + 1 + 2, 4 + 2)),
        "{splits:?}"
    );
}

#[test]
fn taking_a_leaf_away_costs_three_fences() {
    let index = create::<u64, PersistCounts>();
    for key in 0..64u64 {
        let _ = index.insert(&key, key).unwrap();
    }
    let mut costs = std::collections::BTreeSet::new();
    for key in (0..64u64).rev() {
        costs.insert(cost(&index, |index| _ = index.remove(&key).unwrap()));
    }
    // A bit; the last entry of a leaf: the record, bitmap and next link, the record again; a bit,
    // then a leaf of one or two entries put to its neighbour: a line or two and the fingerprints more.
    for cost in [(1, 1), (4, 3)] {
        assert!(costs.remove(&cost), "{cost:?} is not among {costs:?}");
    }
    assert!(
        costs.iter().all(|&(lines, fences)| (6..=8).contains(&lines) && fences == 5),
        "{costs:?}"
    );
}

#[test]
fn readers_find_everything_while_a_split_is_stalled() {
    let index = Arc::new(create::<u64, Stall>());
    let keys: Vec<u64> = (0..SLOTS - 1).map(|number| number * 10).collect();
    for key in &keys {
        let _ = index.insert(key, key + 1).unwrap();
    }
    let stall = index.pool().domain().watcher().clone();
    let writer = std::thread::spawn({
        let (index, stall) = (Arc::clone(&index), stall.clone());
        move || {
            stall.this_thread();
            index.insert(&5, 6).unwrap().previous
        }
    });
    stall.wait_for_one();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn({
        let index = Arc::clone(&index);
        move || {
            for key in &keys {
                assert_eq!(index.get(key), Some(key + 1));
            }
            let mut seen = Vec::new();
            index.for_each(&mut |key, _| {
                seen.push(*key);
                std::ops::ControlFlow::Continue(())
            });
            assert_eq!(seen, keys);
            let _ = sender.send(());
        }
    });
    let ended = receiver.recv_timeout(Duration::from_secs(20));
    stall.open();
    assert_eq!(writer.join().unwrap(), None);
    reader.join().unwrap();
    assert!(ended.is_ok(), "readers waited for a writer");
}
