//! WOART and ART+CoW: what each operation flushes and fences, and what readers persist beside a
//! writer.

use std::sync::Arc;

use lapis_index::{ArtCow, Index, IndexOptions, Woart};

use crate::conformance::counting::{Stall, watched_pool};
use lapis_pmem::{PersistCounts, Watched, Watcher};

type Both = (PersistCounts, Stall);
type Counted = Watched<PersistCounts>;

fn create<T: Watcher + Default, I: Index<Watched<T>, u64>>() -> I {
    let pool = watched_pool::<T>(4 << 20);
    let root = pool.fence(I::create(&pool, &IndexOptions::default()).unwrap());
    let link = root.link();
    let _ = pool.publish_root("index", 0, root).unwrap().persist();
    I::open(Arc::clone(&pool), link).unwrap()
}

/// An index with the keys of one node: numbers up to `count`. The allocator has blocks of all sizes
/// at hand, so that no allocation costs a flush of its own.
fn holding<I: Index<Counted, u64>>(count: u64) -> I {
    let index: I = create();
    (0..256).for_each(|key| _ = index.insert(&key, 1).unwrap());
    (0..256).for_each(|key| _ = index.remove(&key).unwrap());
    (0..count).for_each(|key| _ = index.insert(&key, 1).unwrap());
    index
}

/// Flushed lines and fences of `operation`.
fn cost<I: Index<Counted, u64>, R>(index: &I, operation: impl FnOnce(&I) -> R) -> (u64, u64) {
    let counts = index.pool().domain().watcher();
    counts.take();
    let _ = operation(index);
    counts.take()
}

/// Costs of inserting one key into a node that has `count`.
fn insert_cost<I: Index<Counted, u64>>(count: u64) -> (u64, u64) {
    cost(&holding::<I>(count), |index| index.insert(&count, 1).unwrap())
}

/// Costs of removing one key from a node that has `count`.
fn remove_cost<I: Index<Counted, u64>>(count: u64) -> (u64, u64) {
    cost(&holding::<I>(count), |index| index.remove(&0).unwrap())
}

#[test]
fn inserts_into_woart_flush_the_leaf_the_entry_and_a_child_on_another_line() {
    // Node4: all on one line. Node16: the first three children are on the bitmap's line.
    assert_eq!(insert_cost::<Woart<_, _>>(3), (2, 2));
    assert_eq!(insert_cost::<Woart<_, _>>(5), (3, 2));
    // Node48: the child's line and that of its number. Node256: the child's.
    assert_eq!(insert_cost::<Woart<_, _>>(20), (3, 2));
    assert_eq!(insert_cost::<Woart<_, _>>(100), (2, 2));
}

#[test]
fn inserts_into_small_nodes_of_art_cow_flush_the_leaf_a_copy_and_the_word_above() {
    assert_eq!(insert_cost::<ArtCow<_, _>>(3), (3, 2));
    assert_eq!(insert_cost::<ArtCow<_, _>>(5), (5, 2));
    assert_eq!(insert_cost::<ArtCow<_, _>>(20), (3, 2));
    assert_eq!(insert_cost::<ArtCow<_, _>>(100), (2, 2));
}

fn growing_flushes_a_copy_of_the_next_kind<I: Index<Counted, u64>>() {
    // Leaf, word above, and 3, 11 or 33 lines of a copy.
    assert_eq!(insert_cost::<I>(4), (5, 2));
    assert_eq!(insert_cost::<I>(16), (13, 2));
    assert_eq!(insert_cost::<I>(48), (35, 2));
}

#[test]
fn growing_flushes_a_copy_of_the_next_kind_in_both() {
    growing_flushes_a_copy_of_the_next_kind::<Woart<_, _>>();
    growing_flushes_a_copy_of_the_next_kind::<ArtCow<_, _>>();
}

#[test]
fn a_removal_is_one_flush_and_one_fence_where_nothing_is_copied() {
    for count in [4, 10, 30, 100] {
        assert_eq!(remove_cost::<Woart<_, _>>(count), (1, 1), "{count} keys");
    }
    for count in [30, 100] {
        assert_eq!(remove_cost::<ArtCow<_, _>>(count), (1, 1), "{count} keys");
    }
    // A copy of one line, or of three, and the word above.
    assert_eq!(remove_cost::<ArtCow<_, _>>(4), (2, 2));
    assert_eq!(remove_cost::<ArtCow<_, _>>(10), (4, 2));
}

#[test]
fn removing_the_last_but_one_redirects_the_word_above() {
    assert_eq!(remove_cost::<Woart<_, _>>(2), (1, 1));
    assert_eq!(remove_cost::<ArtCow<_, _>>(2), (1, 1));
}

/// A split above a Node4 with two keys, whose prefix becomes shorter.
fn split_cost<I: Index<Counted, u64>>() -> (u64, u64) {
    cost(&holding::<I>(2), |index| index.insert(&0x1_0000, 1).unwrap())
}

#[test]
fn a_split_copies_what_sinks_in_art_cow_only() {
    // Leaf, node, word above; and the copy.
    assert_eq!(split_cost::<Woart<_, _>>(), (3, 2));
    assert_eq!(split_cost::<ArtCow<_, _>>(), (4, 2));
}

#[test]
fn an_update_is_one_flush_and_one_fence() {
    assert_eq!(cost(&holding::<Woart<_, _>>(9), |index| index.update(&3, 7).unwrap()), (1, 1));
}

/// A reader that sees what a stalled writer has stored and not yet fenced persists it itself.
fn a_reader_persists_what_a_writer_has_in_flight<I: Index<Watched<Both>, u64> + 'static>() {
    let index: Arc<I> = Arc::new(create());
    (0..3).for_each(|key| _ = index.insert(&key, 1).unwrap());
    let (counts, stall) = index.pool().domain().watcher().clone();
    let writer = std::thread::spawn({
        let (index, stall) = (Arc::clone(&index), stall.clone());
        move || {
            stall.this_thread();
            let _ = index.update(&1, 2).unwrap();
        }
    });
    stall.wait_for_one();
    counts.take();
    assert_eq!(index.get(&1), Some(2));
    let cost = counts.take();
    stall.open();
    writer.join().unwrap();
    assert_eq!(cost, (1, 1));
    counts.take();
    assert_eq!(index.get(&1), Some(2));
    assert_eq!(counts.take(), (0, 0));
}

#[test]
fn readers_of_both_persist_what_a_writer_has_in_flight() {
    a_reader_persists_what_a_writer_has_in_flight::<Woart<_, u64>>();
    a_reader_persists_what_a_writer_has_in_flight::<ArtCow<_, u64>>();
}
