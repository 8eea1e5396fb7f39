//! What the tree looks like: heights, fill, and that memory comes back.

use super::ints;
use crate::fast_fair::node::begins_line;
use crate::index::Index;

#[test]
fn a_node_of_512_bytes_has_30_entries() {
    assert_eq!(ints(0).capacity, 30);
}

#[test]
fn lines_begin_at_every_fourth_slot_from_the_third_on() {
    let tree = ints(256);
    let first: Vec<usize> = (0..12).filter(|&slot| begins_line(tree.domain(), slot)).collect();
    assert_eq!(first, [2, 6, 10]);
}

#[test]
fn ascending_keys_leave_full_leaves() {
    let tree = ints(256);
    for key in 0..1400 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    let statistics = tree.statistics();
    assert_eq!(statistics.blocks - 1 - statistics.nodes, 100);
    tree.assert_sound();
}

#[test]
fn an_emptied_range_keeps_at_most_one_leaf_per_inner_node() {
    let tree = ints(256);
    for key in 0..10_000 {
        let _ = tree.insert(&key, 0).unwrap();
    }
    for key in 1000..9000 {
        let _ = tree.remove(&key).unwrap();
    }
    tree.assert_sound();
    let statistics = tree.statistics();
    let leaves = statistics.blocks - 1 - statistics.nodes;
    assert!(leaves <= 2000 / 14 + 2 + statistics.nodes, "{statistics:?}");
    for key in 1000..9000 {
        assert_eq!(tree.insert(&key, 1).unwrap().previous, None);
    }
    tree.assert_sound();
}
