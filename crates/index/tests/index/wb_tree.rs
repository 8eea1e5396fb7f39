//! wB+-Tree: what each operation flushes and fences, shapes, refusals, and readers beside a stalled
//! writer.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;

use lapis_index::{
    BitmapAndSlots, Index, IndexError, IndexKey, IndexKind, IndexOptions, IndexRoot, SlotsOnly,
    WbTree, WbTreeNodeKind,
};
use lapis_pmem::{Domain, Hardware, Link, PCell, PersistCounts, Pool, Watched};

use crate::conformance::counting::{Stall, watched_pool};

/// A kind of nodes, and bytes per node; 0: the default.
#[derive(Clone, Copy)]
struct Nodes<N> {
    node_bytes: usize,
    kind: PhantomData<N>,
}

impl<N> Nodes<N> {
    const fn of(node_bytes: usize) -> Self {
        Self { node_bytes, kind: PhantomData }
    }
}

const BITMAP: Nodes<BitmapAndSlots> = Nodes::of(0);
const SMALL: Nodes<BitmapAndSlots> = Nodes::of(256);
const SLOTS: Nodes<SlotsOnly> = Nodes::of(0);

type Counted<K, N> = WbTree<Watched<PersistCounts>, K, N>;

fn create_in<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind>(
    pool: &Arc<Pool<D>>,
    nodes: Nodes<N>,
) -> WbTree<D, K, N> {
    let options = IndexOptions { node_bytes: nodes.node_bytes, ..IndexOptions::default() };
    let root = pool.fence(WbTree::<D, K, N>::create(pool, &options).unwrap());
    let link = root.link();
    let _ = pool.publish_root("index", 0, root).unwrap().persist();
    WbTree::open(Arc::clone(pool), link).unwrap()
}

fn create<K: IndexKey + ?Sized, N: WbTreeNodeKind>(nodes: Nodes<N>) -> WbTree<Hardware, K, N> {
    create_in(&Arc::new(Pool::create_anonymous(1 << 20).unwrap()), nodes)
}

fn counted<K: IndexKey + ?Sized, N: WbTreeNodeKind>(nodes: Nodes<N>) -> Counted<K, N> {
    create_in(&watched_pool::<PersistCounts>(1 << 20), nodes)
}

/// With the keys 10, 20, .. up to `count` of them.
fn tens<N: WbTreeNodeKind>(nodes: Nodes<N>, count: u64) -> Counted<u64, N> {
    let index = counted(nodes);
    for key in 1..=count {
        let _ = index.insert(&(key * 10), key).unwrap();
    }
    index
}

/// Flushed lines and fences of `operation`.
fn cost<K: IndexKey + ?Sized, I: Index<Watched<PersistCounts>, K>>(
    index: &I,
    operation: impl FnOnce(&I),
) -> (u64, u64) {
    index.pool().domain().watcher().take();
    operation(index);
    index.pool().domain().watcher().take()
}

fn assert_sound<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind>(index: &WbTree<D, K, N>) {
    assert_eq!(index.check(), Vec::<String>::new());
    let traced = index.pool().trace(|tracer| index.trace(tracer, &mut |_, _| ()));
    let audit = index.pool().audit(&traced);
    assert!(audit.is_clean(), "{audit:?}");
    assert_eq!(traced.block_count(), index.statistics().blocks);
}

#[test]
fn an_insert_takes_four_flushes_and_three_fences_and_at_the_end_three_and_two() {
    let index = tens(BITMAP, 20);
    assert_eq!(cost(&index, |index| _ = index.insert(&15, 0).unwrap()), (4, 3));
    assert_eq!(cost(&index, |index| _ = index.put(&16, 0).unwrap()), (4, 3));
    assert_eq!(cost(&index, |index| _ = index.insert(&1000, 0).unwrap()), (3, 2));
}

#[test]
fn an_update_takes_one_flush_and_one_fence() {
    fn updates<N: WbTreeNodeKind>(nodes: Nodes<N>) {
        let index = tens(nodes, 5);
        assert_eq!(cost(&index, |index| _ = index.update(&10, 2).unwrap()), (1, 1));
        assert_eq!(cost(&index, |index| _ = index.put(&20, 3).unwrap()), (1, 1));
    }
    updates(BITMAP);
    updates(SLOTS);
}

#[test]
fn a_removal_takes_two_flushes_and_two_fences_and_at_the_end_one_of_each() {
    let index = tens(BITMAP, 40);
    assert_eq!(cost(&index, |index| _ = index.remove(&150).unwrap()), (2, 2));
    assert_eq!(cost(&index, |index| _ = index.remove(&400).unwrap()), (1, 1));
    let index = tens(SLOTS, 6);
    assert_eq!(cost(&index, |index| _ = index.remove(&20).unwrap()), (1, 1));
}

#[test]
fn what_changes_nothing_takes_no_flush_and_no_fence() {
    let index = tens(BITMAP, 5);
    let nothing = cost(&index, |index| {
        assert_eq!(index.insert(&10, 0).unwrap().previous, Some(1));
        assert_eq!(index.update(&11, 0).unwrap().previous, None);
        assert_eq!(index.remove(&11).unwrap().previous, None);
        assert_eq!(index.get(&10), Some(1));
    });
    assert_eq!(nothing, (0, 0));
}

#[test]
fn a_byte_string_takes_one_more_flush_for_its_key_and_one_if_its_entry_crosses_lines() {
    let index = counted::<[u8], _>(BITMAP);
    let _ = index.insert(b"c", 0).unwrap();
    assert_eq!(cost(&index, |index| _ = index.insert(b"b", 0).unwrap()), (5, 3));
    assert_eq!(cost(&index, |index| _ = index.insert(b"a", 0).unwrap()), (6, 3));
}

#[test]
fn an_insert_into_slots_takes_one_flush_beside_the_control_word_and_two_elsewhere() {
    let index = counted::<u64, _>(SLOTS);
    for key in (0..7).rev() {
        let expected = if key > 3 { (1, 1) } else { (2, 2) };
        assert_eq!(cost(&index, |index| _ = index.insert(&key, 0).unwrap()), expected, "{key}");
    }
    let index = counted::<[u8], _>(SLOTS);
    let _ = index.insert(b"d", 0).unwrap();
    assert_eq!(cost(&index, |index| _ = index.insert(b"b", 0).unwrap()), (2, 2));
    assert_eq!(cost(&index, |index| _ = index.insert(b"a", 0).unwrap()), (3, 2));
}

#[test]
fn a_split_takes_four_fences() {
    fn split<N: WbTreeNodeKind>(nodes: Nodes<N>, full: u64, lines_of_a_node: u64) {
        let index = tens(nodes, full);
        let (lines, fences) = cost(&index, |index| _ = index.insert(&15, 0).unwrap());
        assert_eq!((fences, index.statistics().max_depth), (4, 1), "{full}");
        // Two new nodes; the records, six to fifteen; the commit word twice; of the old node its
        // control word, a new entry and the slot array, which may be in one line; the root.
        let new = 2 * lines_of_a_node;
        assert!((new + 2 + 2 + 2..=new + 4 + 2 + 4).contains(&lines), "{lines} for {full}");
    }
    split(BITMAP, 63, 18);
    split(SMALL, 8, 4);
    split(SLOTS, 7, 2);
}

#[test]
fn ascending_keys_leave_full_nodes() {
    fn ascending<N: WbTreeNodeKind>(nodes: Nodes<N>, capacity: u64) {
        let index = create::<u64, _>(nodes);
        for key in 0..5000 {
            let _ = index.insert(&key, key).unwrap();
        }
        let sizes = index.statistics();
        assert_eq!(sizes.blocks - 2 - sizes.nodes, 5000u64.div_ceil(capacity));
        assert_sound(&index);
    }
    ascending(BITMAP, 63);
    ascending(SMALL, 8);
    ascending(SLOTS, 7);
}

#[test]
fn filled_at_random_the_default_nodes_reach_the_published_depth_at_128_million_keys() {
    let index = create::<u64, _>(BITMAP);
    for key in 0..60_000u64 {
        let _ = index.insert(&key.hash64(), key).unwrap();
    }
    let sizes = index.statistics();
    let leaves = sizes.blocks - 2 - sizes.nodes;
    let filled = sizes.entries as f64 / leaves as f64;
    assert!((0.64..0.74).contains(&(filled / 63.0)), "{filled} of 63");
    let (mut nodes, mut levels) = (128.0 * 1024.0 * 1024.0 / filled, 0);
    while nodes > 1.0 {
        nodes /= if nodes <= 64.0 { nodes } else { filled + 1.0 };
        levels += 1;
    }
    assert_eq!(levels, 4);
}

fn emptied<K: IndexKey + ?Sized, N: WbTreeNodeKind>(
    nodes: Nodes<N>,
    keys: &[K::Buf],
    order: impl Fn(usize) -> usize,
) {
    let index = create::<K, _>(nodes);
    for key in keys {
        let _ = index.insert(K::borrow(key), 1).unwrap();
    }
    assert!(index.statistics().max_depth > 1);
    for at in 0..keys.len() {
        let removed = index.remove(K::borrow(&keys[order(at)])).unwrap();
        assert_eq!(removed.previous, Some(1));
        if at % 50 == 0 {
            assert_sound(&index);
        }
    }
    assert_sound(&index);
    // The root, the log, a leaf.
    assert_eq!((index.statistics().blocks, index.statistics().max_depth), (3, 0));
}

#[test]
fn an_emptied_index_gives_its_blocks_back_in_whatever_order_it_is_emptied() {
    const COUNT: usize = 900;
    let numbers: Vec<u64> = (0..COUNT as u64).map(|key| key * 3).collect();
    let strings: Vec<Vec<u8>> =
        numbers.iter().map(|key| format!("a common prefix {key:05}").into_bytes()).collect();
    for order in [|at| at, |at| COUNT - 1 - at, |at| at * 7 % COUNT] {
        let orders: std::collections::HashSet<usize> = (0..COUNT).map(order).collect();
        assert_eq!(orders.len(), COUNT);
        emptied::<u64, _>(SMALL, &numbers, order);
        emptied::<[u8], _>(SMALL, &strings, order);
        emptied::<u64, _>(SLOTS, &numbers, order);
        emptied::<[u8], _>(SLOTS, &strings, order);
    }
}

#[test]
fn a_node_size_that_cannot_be_is_refused() {
    fn refused<N: WbTreeNodeKind>(node_bytes: usize) {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let options = IndexOptions { node_bytes, ..IndexOptions::default() };
        let refused = WbTree::<Hardware, u64, N>::create(&pool, &options).err();
        assert!(matches!(refused, Some(IndexError::BadOption { .. })), "{node_bytes}");
    }
    for node_bytes in [128, 300, 1216] {
        refused::<BitmapAndSlots>(node_bytes);
    }
    refused::<SlotsOnly>(256);
}

/// What opening an index says whose root has been given another number at this offset.
fn opened_with<N: WbTreeNodeKind, Opened: WbTreeNodeKind>(
    nodes: Nodes<N>,
    offset: u64,
    number: u32,
) -> Option<IndexError> {
    let index = create::<u64, _>(nodes);
    let pool = Arc::clone(index.pool());
    drop(index);
    let root: Link<IndexRoot> = pool.root("index").unwrap();
    pool.at(Link::<PCell<u32>>::from_bits(root.offset() + offset)).store(pool.domain(), number);
    WbTree::<Hardware, u64, Opened>::open(pool, root).err()
}

#[test]
fn each_structure_refuses_the_root_of_the_other() {
    let (bitmap, slots) = (IndexKind::WbTree as u32, IndexKind::WbTreeSlot as u32);
    let refused = opened_with::<_, SlotsOnly>(BITMAP, 0, bitmap);
    let expected = IndexKind::WbTreeSlot;
    assert!(
        matches!(refused, Some(IndexError::WrongKind { expected: it, found }) if it == expected && found == bitmap)
    );
    let refused = opened_with::<_, BitmapAndSlots>(SLOTS, 0, slots);
    let expected = IndexKind::WbTree;
    assert!(
        matches!(refused, Some(IndexError::WrongKind { expected: it, found }) if it == expected && found == slots)
    );
}

#[test]
fn a_root_whose_kind_of_nodes_is_not_that_of_its_structure_is_damage() {
    // The second of the structure's words: 1 with a bitmap, 2 with slots only.
    let nodes_word = 24 + 8;
    assert!(opened_with::<_, BitmapAndSlots>(BITMAP, nodes_word, 1).is_none());
    assert!(opened_with::<_, SlotsOnly>(SLOTS, nodes_word, 2).is_none());
    for wrong in [0, 2, 3] {
        let refused = opened_with::<_, BitmapAndSlots>(BITMAP, nodes_word, wrong);
        assert!(matches!(refused, Some(IndexError::Damaged { .. })), "{wrong}");
    }
    for wrong in [0, 1, 3] {
        let refused = opened_with::<_, SlotsOnly>(SLOTS, nodes_word, wrong);
        assert!(matches!(refused, Some(IndexError::Damaged { .. })), "{wrong}");
    }
}

/// A writer that sleeps at its first fence: what does each search and scan do meanwhile?
fn beside_a_writer_at_its_first_fence<N: WbTreeNodeKind>(
    nodes: Nodes<N>,
    write: impl FnOnce(&WbTree<Watched<Stall>, u64, N>) + Send,
) {
    let index: WbTree<Watched<Stall>, u64, N> = create_in(&watched_pool::<Stall>(1 << 20), nodes);
    for key in (0..60).map(|key| key * 10) {
        let _ = index.insert(&key, key).unwrap();
    }
    let stall = index.pool().domain().watcher().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            index.pool().domain().watcher().this_thread();
            write(&index);
        });
        stall.wait_for_one();
        for key in (0..60).map(|key| key * 10).filter(|key| *key != 300) {
            assert_eq!(index.get(&key), Some(key));
        }
        let mut keys = Vec::new();
        index.for_each(&mut |key, _| {
            keys.push(*key);
            ControlFlow::Continue(())
        });
        assert!(keys.is_sorted_by(|left, right| left < right));
        keys.retain(|key| key % 10 == 0 && *key != 300);
        assert_eq!(keys.len(), 59);
        stall.open();
    });
}

#[test]
fn readers_go_by_the_bitmap_while_a_writer_has_the_slot_array_invalid() {
    fn beside<N: WbTreeNodeKind + Copy>(nodes: Nodes<N>) {
        beside_a_writer_at_its_first_fence(nodes, |index| _ = index.insert(&305, 1).unwrap());
        beside_a_writer_at_its_first_fence(nodes, |index| _ = index.remove(&300).unwrap());
    }
    beside(BITMAP);
    beside(SMALL);
    beside(SLOTS);
}
