//! WOART, ART+CoW and P-ART.

use lapis_index::IndexKind::{self, ArtCow, PArt, Woart};

use crate::counted::Counted;

/// An index with the keys of one node: numbers up to `count`. The allocator has blocks of all sizes
/// at hand, so that no allocation costs a flush of its own.
fn holding(kind: IndexKind, count: u64) -> Counted<u64> {
    let all: Vec<u64> = (0..256).collect();
    Counted::new(kind).warm(&all).holding(&all[..count as usize])
}

/// Costs of inserting one key into a node that has `count`.
fn insert_cost(kind: IndexKind, count: u64) -> (u64, u64) {
    holding(kind, count).insert(&count)
}

/// Costs of removing one key from a node that has `count`.
fn remove_cost(kind: IndexKind, count: u64) -> (u64, u64) {
    holding(kind, count).remove(&0)
}

#[test]
fn inserts_into_woart_and_p_art_flush_the_leaf_the_entry_and_a_child_on_another_line() {
    for kind in [Woart, PArt] {
        // Node4: all on one line. Node16: the first children are on the bitmap's line.
        assert_eq!(insert_cost(kind, 3), (2, 2));
        assert_eq!(insert_cost(kind, 5), (3, 2));
        // Node48: the child's line and that of its number. Node256: the child's.
        assert_eq!(insert_cost(kind, 20), (3, 2));
        assert_eq!(insert_cost(kind, 100), (2, 2));
    }
}

#[test]
fn inserts_into_small_nodes_of_art_cow_flush_the_leaf_a_copy_and_the_word_above() {
    assert_eq!(insert_cost(ArtCow, 3), (3, 2));
    assert_eq!(insert_cost(ArtCow, 5), (5, 2));
    assert_eq!(insert_cost(ArtCow, 20), (3, 2));
    assert_eq!(insert_cost(ArtCow, 100), (2, 2));
}

#[test]
fn growing_flushes_a_copy_of_the_next_kind_in_all() {
    for kind in [Woart, ArtCow, PArt] {
        // Leaf, word above, and 3, 11 or 33 lines of a copy.
        assert_eq!(insert_cost(kind, 4), (5, 2));
        assert_eq!(insert_cost(kind, 16), (13, 2));
        assert_eq!(insert_cost(kind, 48), (35, 2));
    }
}

#[test]
fn a_removal_is_one_flush_and_one_fence_where_nothing_is_copied() {
    for count in [4, 10, 30, 100] {
        assert_eq!(remove_cost(Woart, count), (1, 1), "{count} keys");
        assert_eq!(remove_cost(PArt, count), (1, 1), "{count} keys");
    }
    for count in [30, 100] {
        assert_eq!(remove_cost(ArtCow, count), (1, 1), "{count} keys");
    }
    // A copy of one line, or of three, and the word above.
    assert_eq!(remove_cost(ArtCow, 4), (2, 2));
    assert_eq!(remove_cost(ArtCow, 10), (4, 2));
}

#[test]
fn removing_the_last_but_one_redirects_the_word_above() {
    assert_eq!(remove_cost(Woart, 2), (1, 1));
    assert_eq!(remove_cost(PArt, 2), (1, 1));
    assert_eq!(remove_cost(ArtCow, 2), (1, 1));
}

/// A split above a Node4 with two keys, whose prefix becomes shorter.
#[test]
fn a_split_copies_what_sinks_in_art_cow_only() {
    // Leaf, node, word above; and the copy.
    assert_eq!(holding(Woart, 2).insert(&0x1_0000), (3, 2));
    assert_eq!(holding(PArt, 2).insert(&0x1_0000), (3, 2));
    assert_eq!(holding(ArtCow, 2).insert(&0x1_0000), (4, 2));
}

#[test]
fn an_update_is_one_flush_and_one_fence() {
    assert_eq!(holding(Woart, 9).update(&3), (1, 1));
    assert_eq!(holding(PArt, 9).update(&3), (1, 1));
}
