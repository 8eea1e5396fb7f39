//! wB+-Tree, with a bitmap and slots and with slots only.

use lapis_index::IndexKey;
use lapis_index::IndexKind::{self, WbTree, WbTreeSlot};

use crate::counted::Counted;

/// A structure, and bytes per node; 0: the default.
type Nodes = (IndexKind, usize);
const BITMAP: Nodes = (WbTree, 0);
const SMALL: Nodes = (WbTree, 256);
const SLOTS: Nodes = (WbTreeSlot, 0);

fn counted<K: IndexKey + ?Sized>((kind, node_bytes): Nodes) -> Counted<K> {
    Counted::with_nodes(kind, node_bytes)
}

/// With the keys 10, 20, .. up to `count` of them.
fn tens(nodes: Nodes, count: u64) -> Counted<u64> {
    let index = counted(nodes);
    (1..=count).for_each(|key| _ = index.insert(&(key * 10)));
    index
}

#[test]
fn an_insert_takes_four_flushes_and_three_fences_and_at_the_end_three_and_two() {
    let index = tens(BITMAP, 20);
    assert_eq!(index.insert(&15), (4, 3));
    assert_eq!(index.put(&16), (4, 3));
    assert_eq!(index.insert(&1000), (3, 2));
}

#[test]
fn an_update_takes_one_flush_and_one_fence() {
    for nodes in [BITMAP, SLOTS] {
        let index = tens(nodes, 5);
        assert_eq!(index.update(&10), (1, 1));
        assert_eq!(index.put(&20), (1, 1));
    }
}

#[test]
fn a_removal_takes_two_flushes_and_two_fences_and_at_the_end_one_of_each() {
    let index = tens(BITMAP, 40);
    assert_eq!(index.remove(&150), (2, 2));
    assert_eq!(index.remove(&400), (1, 1));
    assert_eq!(tens(SLOTS, 6).remove(&20), (1, 1));
}

#[test]
fn a_byte_string_takes_one_more_flush_for_its_key_and_one_if_its_entry_crosses_lines() {
    let index = counted::<[u8]>(BITMAP);
    let _ = index.insert(b"c");
    assert_eq!(index.insert(b"b"), (5, 3));
    assert_eq!(index.insert(b"a"), (6, 3));
}

#[test]
fn an_insert_into_slots_takes_one_flush_beside_the_control_word_and_two_elsewhere() {
    let index = counted::<u64>(SLOTS);
    for key in (0..7).rev() {
        let expected = if key > 3 { (1, 1) } else { (2, 2) };
        assert_eq!(index.insert(&key), expected, "{key}");
    }
    let index = counted::<[u8]>(SLOTS);
    let _ = index.insert(b"d");
    assert_eq!(index.insert(b"b"), (2, 2));
    assert_eq!(index.insert(b"a"), (3, 2));
}

#[test]
fn a_split_takes_four_fences() {
    for (nodes, full, lines_of_a_node) in [(BITMAP, 63, 18), (SMALL, 8, 4), (SLOTS, 7, 2)] {
        let index = tens(nodes, full);
        let (lines, fences) = index.insert(&15);
        assert_eq!((fences, index.0.statistics().max_depth), (4, 1), "{full}");
        // Two new nodes; the records, six to fifteen; the commit word twice; of the old node its
        // control word, a new entry and the slot array, which may be in one line; the root.
        let new = 2 * lines_of_a_node;
        assert!((new + 2 + 2 + 2..=new + 4 + 2 + 4).contains(&lines), "{lines} for {full}");
    }
}
