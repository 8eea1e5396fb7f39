//! P-HOT.

use lapis_index::IndexKind::PHot;

use crate::counted::Counted;

/// A trie with the even numbers below twice `count`. The allocator has blocks of all sizes at hand.
fn holding(count: u64) -> Counted<u64> {
    let all: Vec<u64> = (0..256).map(|number| 2 * number).collect();
    Counted::new(PHot).warm(&all).holding(&all[..count as usize])
}

#[test]
fn an_insert_flushes_the_leaf_a_copy_of_the_node_and_the_word_above() {
    // Copies of 1, 2, 3 and 5 lines.
    for (count, lines) in [(3, 1), (9, 2), (15, 3), (31, 5)] {
        assert_eq!(holding(count).insert(&(2 * count)), (lines + 2, 2), "{count} keys");
    }
}

#[test]
fn a_leaf_that_becomes_a_node_copies_none() {
    // The 33rd key is alone below the root.
    assert_eq!(holding(33).insert(&66), (3, 2));
}

#[test]
fn what_overflows_is_written_in_halves_with_the_node_above() {
    // Leaf, 5 lines of the one half, of the other only its word, a root, and the word above.
    assert_eq!(holding(32).insert(&64), (8, 2));
    // Leaf, two halves of 3 lines, a copy of the root, and the word above.
    assert_eq!(holding(33).insert(&1), (9, 2));
}

#[test]
fn a_removal_flushes_a_copy_or_the_word_above_alone() {
    assert_eq!(holding(10).remove(&0), (3, 2));
    assert_eq!(holding(2).remove(&0), (1, 1));
}

#[test]
fn an_update_is_one_flush_and_one_fence() {
    assert_eq!(holding(20).update(&4), (1, 1));
}
