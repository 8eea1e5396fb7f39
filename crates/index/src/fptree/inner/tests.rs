//! The inner nodes against a list, with small nodes so that there are many levels.

use std::sync::Arc;

use lapis_pmem::{Hardware, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

const CAPACITY: usize = 4;

fn pool() -> Arc<Pool<Hardware>> {
    Arc::new(Pool::create_anonymous(4 << 20).unwrap())
}

fn leaf(number: u64) -> Link<LeafHeader> {
    Link::from_bits((number + 1) << 10)
}

/// A tree over one leaf, number 0.
fn tree(pool: &Pool<Hardware>, placement: InnerNodes) -> InnerTree {
    let tree = InnerTree::new::<u64>(placement, CAPACITY);
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

fn behaves_like_a_list(placement: InnerNodes) {
    let pool = pool();
    let tree = tree(&pool, placement);
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
    behaves_like_a_list(InnerNodes::Dram);
}

#[test]
fn nodes_in_the_pool_do_the_same() {
    behaves_like_a_list(InnerNodes::Pm);
}

#[test]
fn a_rebuilt_tree_leads_to_every_leaf() {
    for count in [1u64, 2, 4, 5, 6, 20, 21, 100, 1000] {
        let pool = pool();
        let leaves: Vec<_> = (0..count).map(|number| (number * 10, leaf(number))).collect();
        let tree = InnerTree::new::<u64>(InnerNodes::Dram, CAPACITY);
        tree.rebuild::<_, u64>(&pool, &leaves).unwrap();
        let expected: Vec<_> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        assert_same(&tree, &pool, &expected);
    }
}

#[test]
fn a_place_is_out_of_date_once_its_node_was_replaced() {
    let pool = pool();
    let tree = tree(&pool, InnerNodes::Dram);
    let place = tree.descend(&pool, Target::Of(&7u64));
    let provision = tree.prepare(&pool, &5u64).unwrap();
    assert!(tree.is_current(&pool, &place), "setting aside changes nothing");
    tree.insert(&pool, provision, &5u64, leaf(1));
    assert!(!tree.is_current(&pool, &place));
    assert_eq!(tree.descend(&pool, Target::Of(&7u64)).leaf, leaf(1));
}

#[test]
fn full_size_nodes_have_three_levels_over_128_m_keys() {
    // Leaves filled in random order are ln 2 full on average, and so are the nodes above them.
    let filled = |slots: usize| slots as f64 * std::f64::consts::LN_2;
    let mut nodes = 128e6 / filled(crate::fptree::slots_of(crate::fptree::LARGEST_LEAF_BYTES));
    let mut levels = 0;
    while nodes > 1.0 {
        nodes /= filled(super::CAPACITY + 1);
        levels += 1;
    }
    assert_eq!(levels, 3);
}
