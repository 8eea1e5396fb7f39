//! FPTree, with eight slots to a leaf.

use std::collections::BTreeSet;

use lapis_index::IndexKey;
use lapis_index::IndexKind::FpTree;

use crate::counted::Counted;

const SLOTS: u64 = 8;

fn small<K: IndexKey + ?Sized>() -> Counted<K> {
    Counted::with_nodes(FpTree, 256)
}

#[test]
fn an_insert_flushes_the_slot_and_the_bitmap() {
    let index = small::<u64>();
    assert!((0..SLOTS - 1).all(|key| index.insert(&key) == (2, 2)));
}

#[test]
fn a_byte_string_costs_its_own_lines_and_no_fence_more() {
    let index = small::<[u8]>();
    let _ = index.insert(b"a slab for short strings");
    assert_eq!(index.insert(b"another short string"), (3, 2));
}

#[test]
fn an_update_costs_what_an_insert_does_and_a_removal_half() {
    let index = small::<u64>().holding(&[0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(index.update(&3), (2, 2));
    assert_eq!(index.put(&3), (2, 2));
    assert_eq!(index.remove(&3), (1, 1));
}

#[test]
fn a_split_costs_the_new_leaf_four_lines_and_four_fences() {
    let index = small::<u64>();
    // Descending, so that no split is that of keys in ascending order; the first leaves come from
    // a slab that is there.
    let mut splits: Vec<_> = (0..64).rev().map(|key| index.insert(&key)).collect();
    splits.retain(|cost| *cost != (2, 2));
    // The new leaf (4 lines), the record, bitmap and next link, the record again; and the insertion.
    let cost_of_all = (4 + 1 + 2 + 1 + 2, 4 + 2);
    assert!(splits.len() > 8 && splits.iter().all(|cost| *cost == cost_of_all), "{splits:?}");
}

#[test]
fn taking_a_leaf_away_costs_three_fences() {
    let index = small::<u64>();
    (0..64).for_each(|key| _ = index.insert(&key));
    let mut costs: BTreeSet<_> = (0..64).rev().map(|key| index.remove(&key)).collect();
    // A bit; the last entry of a leaf: the record, bitmap and next link, the record again; a bit,
    // then a leaf of one or two entries put to its neighbour: a line or two and the fingerprints more.
    for cost in [(1, 1), (4, 3)] {
        assert!(costs.remove(&cost), "{cost:?} is not among {costs:?}");
    }
    assert!(
        costs.iter().all(|&(lines, fences)| (6..=8).contains(&lines) && fences == 5),
        "{costs:?}"
    );
}
