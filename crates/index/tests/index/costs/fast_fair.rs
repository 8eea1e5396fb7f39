//! FAST & FAIR: what its module header promises.

use lapis_index::IndexKind::FastFair;

use crate::counted::Counted;

/// A leaf with the keys 10, 20, .. 100: slots 0-1, 2-5 and 6-9 are in three lines.
fn ten_keys() -> Counted<u64> {
    let index = Counted::with_nodes(FastFair, 512);
    (1..=10).for_each(|key| _ = index.insert(&(key * 10)));
    index
}

#[test]
fn an_append_takes_one_flush_and_one_fence() {
    assert_eq!(ten_keys().insert(&110), (1, 1));
}

#[test]
fn a_middle_insert_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(5, 4), (15, 4), (25, 3), (65, 2), (75, 2)] {
        assert_eq!(ten_keys().insert(&key), (lines, lines), "{key}");
    }
}

#[test]
fn an_update_takes_one_flush_and_one_fence() {
    let index = ten_keys();
    assert_eq!(index.update(&50), (1, 1));
    assert_eq!(index.put(&60), (1, 1));
}

#[test]
fn a_removal_takes_one_flush_and_one_fence_per_line_behind_it() {
    for (key, lines) in [(10, 3), (20, 3), (30, 2), (60, 2), (70, 1), (100, 1)] {
        assert_eq!(ten_keys().remove(&key), (lines, lines), "{key}");
    }
}

#[test]
fn a_byte_string_append_takes_one_more_fence_for_its_key() {
    let index = Counted::<[u8]>::with_nodes(FastFair, 512);
    let _ = index.insert(b"a");
    assert_eq!(index.insert(b"b"), (2, 2));
}

#[test]
fn a_byte_string_insert_over_two_lines_takes_no_more_fences_than_an_integer_one() {
    let index = Counted::<[u8]>::with_nodes(FastFair, 512);
    for key in [b"b", b"c", b"d"] {
        let _ = index.insert(key);
    }
    assert_eq!(index.insert(b"a"), (3, 2));
}

#[test]
fn a_split_at_the_right_edge_takes_a_node_and_two_fences() {
    let index = Counted::<u64>::with_nodes(FastFair, 256);
    (0..28).for_each(|key| _ = index.insert(&key));
    // 4 lines of the new leaf, the sibling word, the separator in the parent.
    assert_eq!(index.insert(&28), (6, 3));
}
