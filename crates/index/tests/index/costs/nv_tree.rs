//! NV-Tree.

use lapis_index::IndexKey;
use lapis_index::IndexKind::NvTree;

use crate::counted::Counted;

/// A tree whose allocator has leaves at hand.
fn warm<K: IndexKey + ?Sized>(key: &K) -> Counted<K> {
    Counted::new(NvTree).warm([key])
}

#[test]
fn a_record_takes_two_lines_and_two_fences_whatever_it_says() {
    let index = warm::<u64>(&1).holding(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(index.insert(&20), (2, 2));
    assert_eq!(index.update(&20), (2, 2));
    assert_eq!(index.remove(&20), (2, 2));
    assert_eq!(index.insert(&20), (2, 2));
}

#[test]
fn a_byte_string_takes_the_line_of_its_key_more() {
    let index = warm::<[u8]>(b"a key");
    let _ = index.insert(b"first");
    assert_eq!(index.insert(b"second"), (3, 2));
    assert_eq!(index.update(b"second"), (2, 2));
    assert_eq!(index.remove(b"second"), (2, 2));
    // The key is still there.
    assert_eq!(index.insert(b"second"), (2, 2));
}

#[test]
fn the_first_insert_takes_a_leaf_and_the_link_to_it() {
    assert_eq!(warm::<u64>(&1).insert(&5), (3, 2));
}

#[test]
fn removing_the_last_key_takes_one_line_and_one_fence() {
    let index = warm::<u64>(&1).holding(&[5]);
    assert_eq!(index.remove(&5), (1, 1));
    assert_eq!(index.0.statistics().blocks, 1);
}

#[test]
fn a_full_leaf_takes_a_removal_in_place() {
    let index = warm::<u64>(&1);
    (0..28).for_each(|key| _ = index.insert(&key));
    assert_eq!(index.remove(&3), (1, 1));
    assert_eq!(index.0.get(&3), None);
    assert_eq!(index.0.statistics().blocks, 2);
    // There is no room for a record, but for a leaf without the removed key.
    let _ = index.put(&3);
    assert_eq!(index.0.get(&3), Some(3));
    assert_eq!(index.0.statistics().entries, 28);
}

#[test]
fn a_split_flushes_the_lines_in_use_of_both_leaves_and_one_link() {
    let index = warm::<u64>(&1);
    (0..28).for_each(|key| _ = index.insert(&(key * 2)));
    // 14 and 15 records: a header and four lines each.
    assert_eq!(index.insert(&1), (11, 2));
    assert_eq!(index.0.statistics().blocks, 3);
}
