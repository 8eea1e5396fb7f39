//! P-BwTree: what its module header promises.

use lapis_index::IndexKind::PBwTree;

use crate::counted::Counted;

/// One leaf of so many keys, ten apart, when all that is needed has been allocated before.
fn leaf_of(count: u64) -> Counted<u64> {
    let all: Vec<u64> = (1..=64).map(|number| 10 * number).collect();
    Counted::new(PBwTree).warm(&all).holding(&all[..count as usize])
}

#[test]
fn a_change_flushes_a_delta_and_a_word() {
    let index = leaf_of(3);
    assert_eq!(index.insert(&5), (2, 2));
    assert_eq!(index.update(&10), (2, 2));
    assert_eq!(index.put(&20), (2, 2));
    assert_eq!(index.remove(&30), (2, 2));
}

#[test]
fn a_byte_string_is_flushed_with_its_delta() {
    let index = Counted::<[u8]>::new(PBwTree);
    let _ = index.insert(b"a");
    assert_eq!(index.insert(b"b"), (3, 2));
    assert_eq!(index.update(b"b"), (2, 2));
}

#[test]
fn a_consolidation_flushes_the_lines_of_the_base_node_that_are_in_use() {
    // 8 entries behind 32 bytes are in three lines, 16 in five.
    for (count, lines) in [(8, 3), (16, 5)] {
        assert_eq!(leaf_of(count - 1).insert(&5), (2 + lines + 1, 4), "{count} keys");
    }
}

#[test]
fn a_division_flushes_both_halves_and_tells_the_level_above() {
    // 28 entries are in eight lines. With the word of the id and that of the node; then a new top, its
    // word, and that of the top.
    assert_eq!(leaf_of(55).insert(&5), (2 + 2 * 8 + 2 + 3, 6));
}
