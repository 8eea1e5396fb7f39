//! Flushes and fences per operation: what the module header promises.

use std::sync::Arc;

use lapis_pmem::{PersistCounts, Pool, Watched};

use super::{create_in, small_region};
use crate::fast_fair::FastFair;
use crate::index::Index;

type Counting = Watched<PersistCounts>;

fn counted() -> (PersistCounts, Arc<Pool<Counting>>) {
    let counts = PersistCounts::default();
    let pool = Pool::create(small_region(), Watched::new(counts.clone())).unwrap();
    (counts, Arc::new(pool))
}

/// A leaf with the keys 10, 20, .. 100: slots 0-1, 2-5 and 6-9 are in three lines.
fn ten_keys() -> (PersistCounts, FastFair<Counting, u64>) {
    let (domain, pool) = counted();
    let tree = create_in(&pool, 512);
    for key in 1..=10u64 {
        let _ = tree.insert(&(key * 10), key).unwrap();
    }
    domain.take();
    (domain, tree)
}

#[test]
fn an_append_takes_one_flush_and_one_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.insert(&110, 0).unwrap();
    assert_eq!(domain.take(), (1, 1));
}

#[test]
fn a_middle_insert_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(5, 4), (15, 4), (25, 3), (65, 2), (75, 2)] {
        let (domain, tree) = ten_keys();
        let _ = tree.insert(&key, 0).unwrap();
        assert_eq!(domain.take(), (lines, lines), "{key}");
    }
}

#[test]
fn an_update_takes_one_flush_and_one_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.update(&50, 9).unwrap();
    assert_eq!(domain.take(), (1, 1));
    let _ = tree.put(&60, 9).unwrap();
    assert_eq!(domain.take(), (1, 1));
}

#[test]
fn a_removal_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(10, 3), (20, 3), (30, 2), (60, 2), (70, 1), (100, 1)] {
        let (domain, tree) = ten_keys();
        let _ = tree.remove(&key).unwrap();
        assert_eq!(domain.take(), (lines, lines), "{key}");
    }
}

#[test]
fn what_changes_nothing_takes_no_flush_and_no_fence() {
    let (domain, tree) = ten_keys();
    let _ = tree.insert(&50, 1).unwrap();
    let _ = tree.update(&55, 1).unwrap();
    let _ = tree.remove(&55).unwrap();
    assert_eq!(tree.get(&50), Some(5));
    assert_eq!(domain.take(), (0, 0));
}

#[test]
fn a_byte_string_append_takes_one_more_fence_for_its_key() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, [u8]> = create_in(&pool, 512);
    let _ = tree.insert(b"a", 1).unwrap();
    domain.take();
    let _ = tree.insert(b"b", 2).unwrap();
    assert_eq!(domain.take(), (2, 2));
}

#[test]
fn a_byte_string_insert_over_two_lines_takes_no_more_fences_than_an_integer_one() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, [u8]> = create_in(&pool, 512);
    for key in [b"b", b"c", b"d"] {
        let _ = tree.insert(key, 1).unwrap();
    }
    domain.take();
    let _ = tree.insert(b"a", 2).unwrap();
    assert_eq!(domain.take(), (3, 2));
}

#[test]
fn a_split_at_the_right_edge_takes_a_node_and_two_fences() {
    let (domain, pool) = counted();
    let tree: FastFair<Counting, u64> = create_in(&pool, 256);
    for key in 0..14 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    let _ = tree.insert(&14, 0).unwrap();
    for key in 15..28 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    domain.take();
    let _ = tree.insert(&28, 0).unwrap();
    // 4 lines of the new leaf, the sibling word, the separator in the parent.
    assert_eq!(domain.take(), (6, 3));
}

#[test]
fn repair_of_a_clean_node_takes_no_flush_and_no_fence() {
    let (domain, tree) = ten_keys();
    let tree = tree.reopened(1);
    let _ = tree.insert(&50, 1).unwrap();
    assert_eq!(domain.take(), (0, 0));
}
