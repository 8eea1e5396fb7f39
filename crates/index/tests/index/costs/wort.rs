//! WORT.

use lapis_index::IndexKey;
use lapis_index::IndexKind::Wort;

use crate::counted::Counted;

fn warm<K: IndexKey + ?Sized>(keys: &[&K]) -> Counted<K> {
    Counted::new(Wort).warm(keys.iter().copied())
}

#[test]
fn an_insert_into_an_empty_slot_takes_two_flushes_and_two_fences() {
    let index = warm(&[&0x10u64, &0x20, &0x30]);
    assert_eq!(index.insert(&0x10), (2, 2));
    let _ = index.insert(&0x20);
    assert_eq!(index.insert(&0x30), (2, 2));
}

#[test]
fn an_insert_that_splits_takes_three_flushes_and_two_fences() {
    let index = warm(&[&0x10u64, &0x20, &0x1000]).holding(&[0x10]);
    // The node has three lines.
    assert_eq!(index.insert(&0x20), (5, 2));
    // Above a node whose prefix differs: that node's header is rewritten, but not flushed.
    assert_eq!(index.insert(&0x1000), (5, 2));
}

#[test]
fn recovering_a_header_takes_no_flush_and_no_fence() {
    let index = warm(&[&0x10u64, &0x20, &0x30, &0x1000]).holding(&[0x10, 0x20, 0x1000]);
    // The lower node moves up; the next insert finds its header stale.
    assert_eq!(index.remove(&0x1000), (1, 1));
    assert_eq!(index.insert(&0x30), (2, 2));
}

#[test]
fn random_inserts_take_about_three_line_flushes_and_two_fences_on_average() {
    const KEYS: u64 = 20_000;
    let index = Counted::new(Wort);
    let keys: Vec<u64> = (0..KEYS).map(|number| number.to_be_bytes()[..].hash64()).collect();
    let costs = keys.iter().map(|key| index.insert(key));
    let counts = costs.fold((0, 0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
    let nodes = index.0.statistics().nodes;
    // Every insert flushes a leaf and a slot, and the one that makes a node three lines more. The
    // allocator adds a flush and a fence per slab and one per 16 chunks.
    let own = 2 * KEYS + 3 * nodes;
    assert!((own..own + 200).contains(&counts.0), "{counts:?}, {nodes} nodes");
    assert!((5 * KEYS / 2..7 * KEYS / 2).contains(&counts.0), "{counts:?}");
    assert!((2 * KEYS..2 * KEYS + 200).contains(&counts.1), "{counts:?}");
}

#[test]
fn an_update_of_an_integer_key_takes_one_flush_and_one_fence() {
    let index = warm(&[&1u64]).holding(&[1]);
    assert_eq!(index.update(&1), (1, 1));
    assert_eq!(index.put(&1), (1, 1));
}

#[test]
fn an_update_of_a_byte_string_key_takes_two_flushes_and_two_fences() {
    let index = warm::<[u8]>(&[b"a", b"b", b"c"]).holding([b"a".as_slice()]);
    assert_eq!(index.update(b"a"), (2, 2));
    assert_eq!(index.put(b"a"), (2, 2));
}

#[test]
fn a_removal_takes_one_flush_and_one_fence_whether_or_not_a_node_goes() {
    let index = warm(&[&1u64, &2, &3]).holding(&[1, 2, 3]);
    assert_eq!(index.remove(&1), (1, 1));
    assert_eq!(index.0.statistics().nodes, 1);
    assert_eq!(index.remove(&2), (1, 1));
    assert_eq!(index.0.statistics().nodes, 0);
    assert_eq!(index.remove(&3), (1, 1));
}

#[test]
fn updates_of_byte_string_keys_give_the_old_leaves_back() {
    let index = Counted::<[u8]>::new(Wort).holding([b"key".as_slice()]).0;
    for value in 2..1000 {
        assert_eq!(index.update(b"key", value).unwrap().previous, Some(value - 1));
    }
    let pool = index.pool();
    let audit = pool.audit(&pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| ())));
    assert!(audit.is_clean(), "{audit:?}");
    assert_eq!(audit.allocated_blocks, 2);
}
