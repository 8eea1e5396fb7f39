//! P-Masstree.

use lapis_index::IndexKind::PMasstree;

use crate::counted::Counted;

/// With the even numbers below twice `count`, in order. The allocator has blocks of all sizes at hand.
fn holding(count: u64) -> Counted<u64> {
    let all: Vec<u64> = (0..64).map(|number| 2 * number).collect();
    Counted::new(PMasstree).warm(&all).holding(&all[..count as usize])
}

#[test]
fn an_insert_flushes_the_entry_and_the_permutation_or_both_in_one_line() {
    assert_eq!(holding(5).insert(&1), (2, 2));
    assert_eq!(holding(1).insert(&1), (1, 1));
    // A node of one entry, and the word above.
    assert_eq!(holding(0).insert(&1), (2, 2));
}

#[test]
fn a_split_flushes_the_right_half_the_entry_and_the_permutation_above_and_the_one_of_the_left() {
    // Three lines for seven entries; a root of two, and the word above that; the insertion behind it.
    assert_eq!(holding(14).insert(&1), (3 + 1 + 1 + 1 + 2, 5));
    // The root has an entry in its second line instead of a new node and the word above.
    assert_eq!(holding(27).insert(&51), (3 + 1 + 1 + 1 + 2, 5));
}

#[test]
fn a_removal_is_one_flush_and_one_fence_and_so_is_that_of_the_last_key() {
    assert_eq!(holding(10).remove(&0), (1, 1));
    assert_eq!(holding(1).remove(&0), (1, 1));
}

#[test]
fn a_joining_flushes_what_is_moved_and_two_permutations() {
    // The left node has 13 keys, the right one two.
    let index = holding(15);
    for key in [4, 6, 8, 10] {
        assert_eq!(index.remove(&key), (1, 1));
    }
    // The removal; the entry, two permutations; and the word above a root of one child.
    assert_eq!(index.remove(&28), (1 + 1 + 2 + 1, 5));
}

#[test]
fn an_update_is_one_flush_and_one_fence() {
    assert_eq!(holding(20).update(&4), (1, 1));
}

#[test]
fn a_layer_is_made_and_taken_out_by_one_word() {
    let [one, other, deeper] = [&b"12345678a"[..], b"12345678b", b"12345678a2345678b"];
    let all = [one, other, deeper];
    let holding = |count: usize| {
        Counted::<[u8]>::new(PMasstree)
            .warm(all.iter().copied())
            .holding(all[..count].iter().copied())
    };
    // A leaf, a node of two, the word.
    assert_eq!(holding(1).insert(other), (3, 2));
    assert_eq!(holding(2).remove(other), (1, 1));
}
