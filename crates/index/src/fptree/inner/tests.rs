//! The inner nodes against a list, with small nodes so that there are many levels, and with large ones.

use std::sync::Arc;

use lapis_pmem::{Hardware, Pool};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;

/// Separators of a small node.
const FEW: usize = 4;

fn pool() -> Arc<Pool<Hardware>> {
    Arc::new(Pool::create_anonymous(4 << 20).unwrap())
}

fn leaf(number: u64) -> Link<LeafHeader> {
    Link::from_bits((number + 1) << 10)
}

/// A tree over one leaf, number 0.
fn tree(pool: &Pool<Hardware>, placement: InnerNodes, capacity: usize) -> InnerTree {
    let tree = InnerTree::new::<u64>(placement, capacity);
    tree.rebuild::<_, u64>(pool, &[(0, leaf(0))]).unwrap();
    tree
}

/// The leaves are these, in this order, and their ranges lie one behind the other.
fn assert_same(tree: &InnerTree, pool: &Pool<Hardware>, expected: &[Link<LeafHeader>]) {
    let (leaves, levels, nodes) = tree.leaves::<_, u64>(pool);
    assert!(leaves.iter().map(|(_, leaf)| leaf).eq(expected));
    assert!(levels <= 2 + expected.len().ilog2() as usize && nodes <= 2 * expected.len());
    let mut target = Target::First;
    let mut lower: Option<u64> = None;
    for (number, &leaf) in expected.iter().enumerate() {
        let (place, range) = tree.descend_with_range(pool, target);
        assert_eq!((place.leaf, range.lower), (leaf, lower));
        assert!(tree.is_current(pool, &place));
        if let Some(lower) = &lower {
            let before = tree.descend(pool, Target::Before(lower));
            assert_eq!(before.leaf, expected[number - 1]);
        }
        assert_eq!(range.upper.is_none(), number + 1 == expected.len());
        assert!(range.upper.is_none_or(|upper| lower.is_none_or(|lower| lower < upper)));
        lower = range.upper;
        target = Target::Of(lower.as_ref().unwrap_or(&u64::MAX));
    }
    let last = tree.descend::<_, u64>(pool, Target::Last);
    assert_eq!(Some(&last.leaf), expected.last());
}

fn behaves_like_a_list(placement: InnerNodes, capacity: usize) {
    let pool = pool();
    let tree = tree(&pool, placement, capacity);
    let mut model = vec![leaf(0)];
    let mut random = SmallRng::seed_from_u64(3);
    for step in 0..3000u64 {
        let key = random.random_range(1..4000u64);
        let (place, range) = tree.descend_with_range(&pool, Target::Of(&key));
        let at = model.iter().position(|&leaf| leaf == place.leaf).unwrap();
        let grows = step / 500 % 2 == 0;
        if grows && range.lower != Some(key) {
            let provision = tree.prepare(&pool, &key).unwrap();
            tree.insert(&pool, provision, &key, leaf(step + 1));
            model.insert(at + 1, leaf(step + 1));
        } else if !grows && model.len() > 1 {
            tree.remove(&pool, &key, place.leaf);
            model.remove(at);
            // Wherever in the nodes that lies.
            let heir = model[at.saturating_sub(1)];
            assert_eq!(tree.descend(&pool, Target::Of(&key)).leaf, heir);
        }
        if step % 100 == 99 {
            assert_same(&tree, &pool, &model);
        }
    }
    while model.len() > 1 {
        let place = tree.descend(&pool, Target::Of(&2000u64));
        tree.remove(&pool, &2000u64, place.leaf);
        model.retain(|&leaf| leaf != place.leaf);
    }
    assert_same(&tree, &pool, &model);
    assert_eq!(tree.leaves::<_, u64>(&pool).2, 1, "an emptied tree is one node");
    tree.give_back(&pool);
}

#[test]
fn leaves_come_and_go_as_in_a_list() {
    behaves_like_a_list(InnerNodes::Dram, FEW);
}

#[test]
fn nodes_with_pivots_do_the_same() {
    behaves_like_a_list(InnerNodes::Dram, CAPACITY);
}

#[test]
fn nodes_in_the_pool_do_the_same() {
    behaves_like_a_list(InnerNodes::Pm, FEW);
    behaves_like_a_list(InnerNodes::Pm, CAPACITY);
}

#[test]
fn a_rebuilt_tree_leads_to_every_leaf() {
    let counts = [1u64, 2, 4, 5, 6, 15, 16, 17, 18, 20, 21, 31, 32, 33, 100, 1000];
    for (count, capacity) in counts.into_iter().flat_map(|count| [(count, FEW), (count, CAPACITY)])
    {
        let pool = pool();
        let leaves: Vec<_> = (0..count).map(|number| (number * 10, leaf(number))).collect();
        let tree = InnerTree::new::<u64>(InnerNodes::Dram, capacity);
        tree.rebuild::<_, u64>(&pool, &leaves).unwrap();
        let expected: Vec<_> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        assert_same(&tree, &pool, &expected);
    }
}

#[test]
fn a_place_is_out_of_date_once_its_node_was_replaced() {
    let pool = pool();
    let tree = tree(&pool, InnerNodes::Dram, FEW);
    let place = tree.descend(&pool, Target::Of(&7u64));
    let provision = tree.prepare(&pool, &5u64).unwrap();
    assert!(tree.is_current(&pool, &place), "setting aside changes nothing");
    tree.insert(&pool, provision, &5u64, leaf(1));
    assert!(!tree.is_current(&pool, &place));
    assert_eq!(tree.descend(&pool, Target::Of(&7u64)).leaf, leaf(1));
}

#[test]
fn the_greatest_integer_is_not_taken_for_a_place_without_a_separator() {
    for count in [1, 15, 16, 17, 32, CAPACITY as u64] {
        let pool = pool();
        let leaves: Vec<_> =
            (0..=count).map(|number| (u64::MAX - (count - number), leaf(number))).collect();
        let tree = InnerTree::new::<u64>(InnerNodes::Dram, CAPACITY);
        tree.rebuild::<_, u64>(&pool, &leaves).unwrap();
        assert_eq!(tree.descend(&pool, Target::Of(&u64::MAX)).leaf, leaf(count));
        assert_eq!(tree.descend(&pool, Target::Before(&u64::MAX)).leaf, leaf(count - 1));
    }
}

#[test]
fn strings_that_begin_alike_are_told_apart_within_and_across_groups() {
    // Of 6, 60 and 600 each the first eight bytes are the same.
    for alike in [6, 60, 600] {
        let key = |number: u64| format!("prefix{:02}{number:04}", number / alike).into_bytes();
        let pool = pool();
        let tree = InnerTree::new::<[u8]>(InnerNodes::Dram, CAPACITY);
        tree.rebuild::<_, [u8]>(&pool, &[(0, leaf(0))]).unwrap();
        let mut numbers: Vec<u64> = (1..600).collect();
        numbers.shuffle(&mut SmallRng::seed_from_u64(alike));
        for number in numbers {
            let key = &key(number)[..];
            let provision = tree.prepare(&pool, key).unwrap();
            tree.insert(&pool, provision, key, leaf(number));
        }
        for number in 1..600 {
            let at = &key(number)[..];
            let behind = [at, b"0"].concat();
            assert_eq!(tree.descend(&pool, Target::Of(at)).leaf, leaf(number));
            assert_eq!(tree.descend(&pool, Target::Of(&behind[..])).leaf, leaf(number));
            assert_eq!(tree.descend(&pool, Target::Before(&behind[..])).leaf, leaf(number));
            assert_eq!(tree.descend(&pool, Target::Before(at)).leaf, leaf(number - 1));
        }
    }
}

#[test]
fn full_size_nodes_have_three_levels_over_128_m_keys() {
    // Leaves filled in random order are ln 2 full on average, and so are the nodes above them.
    let filled = |slots: usize| slots as f64 * std::f64::consts::LN_2;
    let mut nodes = 128e6 / filled(crate::fptree::slots_of(crate::fptree::LARGEST_LEAF_BYTES));
    let mut levels = 0;
    while nodes > 1.0 {
        nodes /= filled(CAPACITY + 1);
        levels += 1;
    }
    assert_eq!(levels, 3);
}
