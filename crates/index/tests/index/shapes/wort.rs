//! WORT.

use std::ops::Bound;

use lapis_index::{Direction, IndexKey, IndexKind};

use crate::counted::Counted;

fn wort<K: IndexKey + ?Sized>() -> Counted<K> {
    Counted::new(IndexKind::Wort)
}

#[test]
fn the_longest_keys_that_differ_only_at_their_ends_are_told_apart() {
    let index = wort::<[u8]>().0;
    let longest = vec![0xABu8; 65_535];
    let mut other = longest.clone();
    other[65_534] = 0xAC;
    let prefix = &longest[..65_534];
    let keys = [longest.as_slice(), &other, prefix, &longest[..40_000], &longest[..1], b"\xAC"];
    for (value, key) in (0..).zip(keys) {
        assert_eq!(index.insert(key, value).unwrap().previous, None);
    }
    for (value, key) in (0..).zip(keys) {
        assert_eq!(index.get(key), Some(value));
    }
    assert_eq!(index.check(), [""; 0]);
    let mut sorted = keys.to_vec();
    sorted.sort();
    let found = index.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    assert!(found.map(|(key, _)| key).eq(sorted));
    for key in keys {
        assert!(index.remove(key).unwrap().previous.is_some());
        assert_eq!(index.check(), [""; 0]);
    }
    assert_eq!(index.statistics().blocks, 1);
}

#[test]
fn a_chain_of_prefixes_makes_the_deepest_tree_and_is_walked_without_recursion() {
    const LENGTH: usize = 3000;
    let index = wort::<[u8]>().0;
    let long = [0u8; LENGTH];
    for length in (1..=LENGTH).rev() {
        let _ = index.insert(&long[..length], length as u64).unwrap();
    }
    assert_eq!(index.statistics().max_depth, LENGTH as u64 - 1);
    assert_eq!(index.check(), [""; 0]);
    let upper = Bound::Included(&long[..10]);
    let found = index.range(Bound::Unbounded, upper, Direction::Backward);
    assert!(found.map(|(_, value)| value).eq((1..=10).rev()));
}

#[test]
fn dense_keys_make_the_trees_of_the_paper() {
    // 16^3 dense keys take three levels above the leaves, whatever the common prefix.
    let index = wort::<u64>().0;
    for key in 0..4096 {
        let _ = index.insert(&key, key).unwrap();
    }
    let sizes = index.statistics();
    assert_eq!((sizes.mean_depth, sizes.max_depth), (3.0, 3));
    assert_eq!(sizes.nodes, 1 + 16 + 256);
}
