//! Shapes, rebuilding, what `check` reports.

use std::collections::BTreeMap;

use lapis_pmem::Hardware;

use super::*;

fn made<D: Domain, K: IndexKey + ?Sized>(
    pool: &Arc<Pool<D>>,
    options: &IndexOptions,
) -> NvTree<D, K> {
    NvTree::create_named(pool, "index", options).unwrap()
}

fn on_hardware<K: IndexKey + ?Sized>(node_bytes: usize) -> NvTree<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    made(&pool, &IndexOptions { node_bytes, ..IndexOptions::default() })
}

/// Blocks that the tree reaches; others are not allocated, but for those whose readers may not have
/// gone yet.
fn audited_blocks<D: Domain, K: IndexKey + ?Sized>(tree: &NvTree<D, K>) -> u64 {
    assert_eq!(tree.check(), [""; 0]);
    let reachable = tree.pool.reachable(|visitor| tree.visit_blocks(visitor, &mut |_, _| ()));
    let audit = tree.pool.audit(&reachable);
    assert!(audit.is_clean(), "{audit:?}");
    reachable.block_count()
}

#[test]
fn keys_in_order_fill_their_leaves() {
    let tree = on_hardware::<u64>(0);
    for key in 0..28_000 {
        let _ = tree.insert(&key, key).unwrap();
    }
    assert_eq!(audited_blocks(&tree), 1 + 1000);
}

#[test]
fn values_that_change_take_no_more_room() {
    let tree = on_hardware::<u64>(0);
    for round in 0..5000 {
        let _ = tree.put(&(round % 7), round).unwrap();
    }
    assert_eq!(audited_blocks(&tree), 2);
    assert_eq!(
        (0..7).map(|key| tree.get(&key).unwrap() % 7).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6]
    );
}

#[test]
fn sparse_leaves_are_merged() {
    let tree = on_hardware::<u64>(0);
    for key in 0..20_000 {
        let _ = tree.insert(&key, key).unwrap();
    }
    let before = audited_blocks(&tree);
    for key in (0..20_000).filter(|key| key % 20 != 0) {
        let _ = tree.remove(&key).unwrap();
    }
    let after = audited_blocks(&tree);
    assert_eq!(tree.statistics().entries, 1000);
    assert!(after * 3 < before, "{before} blocks became {after}");
}

#[test]
fn inner_nodes_that_are_filled_from_one_end_are_not_rebuilt_as_a_whole() {
    let moved = |keys: u64| {
        let tree = on_hardware::<u64>(128);
        for key in 0..keys {
            let _ = tree.insert(&key, key).unwrap();
        }
        let InnerRebuilds { rebuilds, entries_moved } = tree.inner_rebuilds();
        assert!(rebuilds > keys / 64, "{rebuilds}");
        entries_moved
    };
    let (few, many) = (moved(10_000), moved(40_000));
    assert!(many < few * 9 / 2, "{few} entries moved became {many}");
}

#[test]
fn inner_nodes_that_fill_everywhere_are_seldom_rebuilt() {
    let tree = on_hardware::<u64>(0);
    let keys = 100_000u64;
    for key in 0..keys {
        let _ = tree.insert(&key.to_be_bytes()[..].hash64(), key).unwrap();
    }
    let InnerRebuilds { entries_moved, .. } = tree.inner_rebuilds();
    assert!(entries_moved < keys / 2, "{entries_moved}");
    assert_eq!(tree.check(), [""; 0]);
}

#[test]
fn depth_grows_with_the_levels_of_inner_nodes() {
    let tree = on_hardware::<u64>(128);
    let mut depths = BTreeMap::new();
    for key in 0..20_000u64 {
        let _ = tree.insert(&key.to_be_bytes()[..].hash64(), key).unwrap();
        if key.is_power_of_two() || key == 19_999 {
            depths.insert(key, tree.statistics().mean_depth);
        }
    }
    assert!((depths[&1], depths[&64], depths[&4096]) == (1.0, 2.0, 3.0), "{depths:?}");
    assert_eq!(tree.statistics().max_depth, tree.statistics().mean_depth as u64);
}

#[test]
fn inner_nodes_of_128_million_keys_have_three_levels() {
    let shape = shape_of(LEAF_SIZES.default_bytes, false, InnerNodes::Dram);
    // Leaves are between half full and full; rebuilt PLNs are half full.
    for records in [14, 19, 28] {
        let segments = 128_000_000 / records / (shape.pln_entries / 2 * shape.fanout) + 1;
        assert!((2..=shape.fanout).contains(&segments), "{segments}");
    }
}

#[test]
fn opening_by_one_thread_or_several_builds_the_same() {
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let options = IndexOptions { node_bytes: 128, ..IndexOptions::default() };
    let tree = made::<_, [u8]>(&pool, &options);
    for key in 0..12_000u64 {
        let _ = tree.insert(&key.to_be_bytes()[..].hash64().to_be_bytes(), key).unwrap();
    }
    let root = tree.root;
    let leaves = audited_blocks(&tree);
    drop(tree);
    let mut found = Vec::new();
    for threads in [1, 2, 5] {
        let tree = NvTree::<_, [u8]>::open_with_threads(Arc::clone(&pool), root, threads).unwrap();
        assert_eq!(audited_blocks(&tree), leaves);
        let pinned = pool.pin();
        found.push(tree.directory(&pinned).unwrap().entries(&pool));
    }
    assert!(found[0].len() > 4096 && found.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_flag_that_a_crash_left_on_a_record_that_does_not_count_takes_no_key_away() {
    let tree = on_hardware::<u64>(128);
    let _ = tree.insert(&1, 10).unwrap();
    let leaf = tree.leaf(tree.root().top.load(tree.domain()).cast());
    let is_stale = 1 << leaf.count(tree.domain());
    leaf.header.deleted[0].store(tree.domain(), is_stale);
    let (pool, root) = (Arc::clone(&tree.pool), tree.root);
    drop(tree);
    let reopened = NvTree::<_, u64>::open(pool, root).unwrap();
    assert_eq!(reopened.get(&1), Some(10));
    let _ = reopened.insert(&2, 20).unwrap();
    assert_eq!((reopened.get(&1), reopened.get(&2)), (Some(10), Some(20)));
}

#[test]
fn check_reports_what_cannot_be() {
    let tree = on_hardware::<u64>(128);
    for key in 0..40 {
        let _ = tree.insert(&(key * 2), key).unwrap();
    }
    let domain = tree.domain();
    let first = tree.leaf(tree.root().top.load(domain).cast());
    let second = tree.leaf(first.next(domain));
    let words = [
        (&first.header.count, 0),
        (&first.header.count, 5),
        (&first.header.deleted[0], u64::MAX),
        (first.header.next.word(), 0),
        (first.header.next.word(), first.link.bits()),
        (first.header.next.word(), u64::MAX),
        (first.header.next.word(), second.next(domain).bits()),
        (&first.records[0].key, 70),
        (&second.records[0].key, 0),
        (tree.root().top.word(), second.link.bits()),
    ];
    for (index, (word, wrong)) in words.into_iter().enumerate() {
        let right = word.load(domain);
        word.store(domain, wrong);
        assert_ne!(tree.check(), [""; 0], "{index}");
        word.store(domain, right);
        assert_eq!(tree.check(), [""; 0]);
    }
}

#[test]
fn a_leaf_that_is_linked_and_impossible_is_refused_when_opening() {
    let tree = on_hardware::<u64>(128);
    for key in 0..40 {
        let _ = tree.insert(&key, key).unwrap();
    }
    let (pool, root) = (Arc::clone(&tree.pool), tree.root);
    let domain = pool.domain();
    let (link, capacity) = (tree.root().top.load(domain).cast(), tree.capacity);
    drop(tree);
    let first = leaf::leaf_at(&pool, link, capacity).unwrap();
    for (word, wrong) in [
        (&first.header.count, 0),
        (&first.header.count, 1000),
        (first.header.next.word(), first.link.bits()),
        (first.header.next.word(), 1 << 47),
    ] {
        let right = word.load(domain);
        word.store(domain, wrong);
        let refused = NvTree::<_, u64>::open(Arc::clone(&pool), root).err();
        assert!(matches!(refused, Some(IndexError::Damaged { .. })), "{refused:?}");
        word.store(domain, right);
    }
}
