//! Whose locks are held when nobody is at work.

use lapis_pmem::{Hardware, LockGeneration};

use super::PArt;
use crate::index::Index;
use crate::radix::tests::{sample, words};
use crate::radix::{RadixTree, SlotWord, lock_at};

/// Whether the lock of each node, and that of the root, is free.
fn all_are_free(index: &PArt<Hardware, u64>) -> bool {
    let (pool, domain) = (index.pool(), index.pool().domain());
    let generation = LockGeneration::of(pool.generation());
    let handle = index.handle();
    let nodes = words(index, handle.top).into_iter().filter(|(_, word)| !word.is_leaf());
    let of_nodes = nodes.map(|(_, node)| lock_at(pool, node.lock_place()));
    of_nodes.chain([handle.root_lock()]).all(|lock| !lock.read(domain).is_locked(generation))
}

#[test]
fn locks_are_given_back_whatever_becomes_of_nodes() {
    let index: PArt<Hardware, u64> = sample(&[]);
    // Nodes of all kinds, that grow and split, and then shrink and go.
    let keys: Vec<u64> = (0..300).map(|number| number * 151 % 300 * 3).collect();
    for key in &keys {
        let _ = index.insert(key, 1).unwrap();
        assert!(all_are_free(&index), "after the insertion of {key}");
    }
    for key in &keys {
        let _ = index.update(key, 2).unwrap();
    }
    assert!(all_are_free(&index));
    for key in &keys {
        let _ = index.remove(key).unwrap();
        assert!(all_are_free(&index), "after the removal of {key}");
    }
    assert_eq!(index.statistics().blocks, 1);
}

#[test]
fn a_node_that_was_replaced_stays_locked() {
    let index: PArt<Hardware, u64> = sample(&[&1, &2, &3, &4]);
    let pool = index.pool();
    let generation = LockGeneration::of(pool.generation());
    let _pinned = pool.pin();
    let node = words(&index, index.handle().top)[0].1;
    let _ = index.insert(&5, 1).unwrap();
    let lock = lock_at(pool, node.lock_place());
    assert!(lock.read(pool.domain()).is_locked(generation));
}
