//! What the checker, which explores the states that a crash may leave, cannot see: repairs that answers do
//! not depend on, and what `check` reports.

use std::sync::Arc;

use lapis_device::{Config, Event, Modelled};
use lapis_pmem::{Domain, Link, Pool, Region};

use super::{FastFair, Ints, Strings, create_in, ints, pool, strings};
use crate::fast_fair::node::{Node, NodeHeader};
use crate::index::Index;

/// A leaf of 256 bytes with the keys 10, 20, .. up to `count` keys, values key + 1.
fn leaf_of(count: u64) -> Ints {
    leaf_in(&pool(), count)
}

fn leaf_in<D: Domain>(pool: &Arc<Pool<D>>, count: u64) -> FastFair<D, u64> {
    let tree = create_in::<D, u64>(pool, 256);
    for key in 1..=count {
        let _ = tree.insert(&(key * 10), key * 10 + 1).unwrap();
    }
    tree
}

fn set<D: Domain>(tree: &FastFair<D, u64>, node: Node<'_>, slot: usize, key: u64, value: u64) {
    node.slots[slot].key.store(tree.domain(), key);
    node.slots[slot].value.store(tree.domain(), value);
}

fn set_hidden(tree: &Ints, node: Node<'_>) {
    let word = node.sibling(tree.domain()).with_hidden(true);
    node.header.sibling.store(tree.domain(), word.0);
}

/// Two leaves, the right one with the keys from 80 on, which the left one still has or has lost: as a
/// crash leaves them right after the sibling link has become durable.
fn interrupted_split(erased: bool) -> Ints {
    interrupted_split_in(&pool(), erased)
}

fn interrupted_split_in<D: Domain>(pool: &Arc<Pool<D>>, erased: bool) -> FastFair<D, u64> {
    let tree = leaf_in(pool, 14);
    let domain = tree.domain();
    let left = tree.top();
    let before: Vec<(u64, u64)> =
        (0..14).map(|slot| (left.key(domain, slot), left.value(domain, slot))).collect();
    // In the middle, so that the upper half moves; then the new entry and the parent are undone.
    let _ = tree.insert(&15, 16).unwrap();
    let _ = tree.remove(&15).unwrap();
    tree.root().top.word().store(domain, left.link.bits());
    for (slot, &(key, value)) in before.iter().enumerate().skip(7).filter(|_| !erased) {
        set(&tree, left, slot, key, value);
    }
    tree
}

#[test]
fn a_stale_value_on_the_left_is_not_read_after_the_sibling_has_changed() {
    let tree = interrupted_split(false).reopened(1);
    assert_eq!(tree.update(&100, 7).unwrap().previous, Some(101));
    assert_eq!(tree.get(&100), Some(7));
    let _ = tree.remove(&90).unwrap();
    assert_eq!(tree.get(&90), None);
    let tree = tree.reopened(2);
    assert_eq!((tree.get(&100), tree.get(&90)), (Some(7), None));
}

#[test]
fn whoever_writes_past_a_sibling_link_enters_the_sibling_in_a_parent() {
    let tree = interrupted_split(false).reopened(1);
    assert_eq!(tree.top().level(tree.domain()), 0);
    let _ = tree.update(&100, 101).unwrap();
    let domain = tree.domain();
    let root = tree.top();
    assert_eq!((root.level(domain), root.count(domain), root.key(domain, 0)), (1, 1, 80));
}

#[test]
fn an_empty_sibling_without_a_parent_is_unlinked_by_whoever_comes_by() {
    let tree = interrupted_split(true).reopened(1);
    let domain = tree.domain();
    let right = tree.node(tree.top().sibling(domain).link());
    for slot in (0..7).rev() {
        set(&tree, right, slot, 0, 0);
    }
    set_hidden(&tree, right);
    assert_eq!(tree.remove(&100).unwrap().previous, None);
    assert!(tree.top().sibling(domain).link().is_null());
    assert!(right.sibling(domain).is_deleted());
}

/// Byte strings: the key blocks of what a crash left may be gone.
#[test]
fn key_words_that_do_not_count_are_not_followed() {
    let tree: Strings = strings(256);
    for key in [b"b", b"c", b"d", b"e"] {
        let _ = tree.insert(key, 1).unwrap();
    }
    let domain = tree.domain();
    let node = tree.top();
    node.slots[0].key.store(domain, 0xFFFF_FFFF_FFFF);
    let word = node.sibling(domain).with_hidden(true);
    node.header.sibling.store(domain, word.0);
    let tree = tree.reopened(1);
    assert_eq!(tree.check(), Vec::<String>::new());
    for (key, value) in [(b"a", None), (b"b", None), (b"c", Some(1)), (b"e", Some(1))] {
        assert_eq!(tree.get(key), value);
    }
    assert_eq!(tree.insert(b"b", 2).unwrap().previous, None);
    assert_eq!((tree.get(b"b"), tree.statistics().entries), (Some(2), 4));
}

#[test]
fn check_reports_damage_and_does_not_panic() {
    let tree = ints(256);
    for key in 0..200 {
        let _ = tree.insert(&key, key).unwrap();
    }
    let domain = tree.domain();
    let root = tree.top();
    let child = tree.node(root.leftmost(domain));
    let words = [
        &root.header.leftmost,
        &root.header.sibling,
        &root.header.low,
        &root.slots[0].key,
        &root.slots[0].value,
        &root.slots[3].key,
        &child.header.sibling,
        &child.header.low,
        &child.slots[5].key,
    ];
    assert_eq!(tree.check(), Vec::<String>::new());
    for (index, word) in words.into_iter().enumerate() {
        let sound = word.load(domain);
        let values = [u64::MAX, 1, 1 << 40, child.link.bits(), root.link.bits(), sound | 3 << 48];
        for damage in values.into_iter().filter(|&damage| damage != sound) {
            word.store(domain, damage);
            assert!(!tree.check().is_empty(), "word {index} as {damage:#x}");
            let _ = tree.pool.reachable(|visitor| tree.visit_blocks(visitor, &mut |_, _| ()));
            word.store(domain, sound);
        }
    }
}

#[test]
fn check_reports_leftovers_in_a_node_that_has_been_repaired() {
    let tree = leaf_of(7);
    set(&tree, tree.top(), 3, 30, 999);
    assert_eq!(tree.check().len(), 1);
    assert_eq!(tree.reopened(1).check(), Vec::<String>::new());
}

#[test]
fn check_reports_a_lost_root() {
    let tree = ints(256);
    for key in 0..200 {
        let _ = tree.insert(&key, key).unwrap();
    }
    let first = tree.top().leftmost(tree.domain());
    tree.root().top.word().store(tree.domain(), first.bits());
    let tree = tree.reopened(1);
    assert_eq!(tree.check().len(), 1);
    // Contents do not depend on it.
    assert!((0..200).all(|key| tree.get(&key) == Some(key)));
}

#[test]
fn an_index_with_impossible_node_sizes_is_not_opened() {
    let tree = ints(256);
    for bytes in [0, 100, 255, 320 + 16, 8192, u64::MAX] {
        tree.root().words[0].store(tree.domain(), bytes);
        assert!(Ints::open(std::sync::Arc::clone(&tree.pool), tree.root).is_err(), "{bytes}");
    }
    tree.root().words[0].store(tree.domain(), 256);
    tree.root().top.word().store(tree.domain(), Link::<NodeHeader>::from_bits(1 << 45).bits());
    assert!(Ints::open(std::sync::Arc::clone(&tree.pool), tree.root).is_err());
    tree.domain().fence();
}

#[test]
fn keys_behind_a_duplicate_of_the_key_0_are_found() {
    for node_bytes in (256..=1024).step_by(64) {
        let slots = ints(node_bytes).top().slots.len() as u64;
        for count in 3..=slots {
            let tree = ints(node_bytes);
            for key in 0..count {
                let _ = tree.insert(&key, key).unwrap();
            }
            // As the removal of slot 1 leaves it when the power is cut: with the key of slot 0 it looks empty.
            set(&tree, tree.top(), 1, 0, 0);
            let tree = tree.reopened(1);
            let found = |key| tree.get(&key) == Some(key);
            assert!(!found(1) && (2..count).all(found), "{count} of {slots}");
        }
    }
}

/// If it were not, the sibling's entry in a parent might persist before it: then its low key could be removed by a way
/// that does not pass the left leaf, where the stale entry of that key would count again.
#[test]
fn a_repair_is_durable_before_anything_else_is_stored() {
    const POOL_BYTES: usize = 1 << 20;
    let region = Region::anonymous(POOL_BYTES, POOL_BYTES).unwrap();
    let machine = Modelled::over(&region, Config::tracing());
    let pool = Arc::new(Pool::create(region, machine.clone()).unwrap());
    let tree = interrupted_split_in(&pool, false).reopened(1);
    let left = tree.top();
    let line_of = |offset: u64| (offset / 64) as u32;
    let leaf = line_of(left.link.offset())..line_of(left.link.offset() + 256);
    let _ = machine.take_trace();
    let _ = tree.update(&100, 7).unwrap();

    let stale = &left.slots[7..14];
    assert!(stale.iter().all(|slot| slot.key.load(tree.domain()) == 0));
    let place = std::ptr::from_ref(&stale[0]).addr() - pool.region().base().addr();
    let cleared = line_of(place as u64)..leaf.end;
    let trace = machine.take_trace();
    let stores_to = |event: &Event| event.stored().map(|stored| stored.line);
    let last = trace
        .events
        .iter()
        .rposition(|event| stores_to(event).is_some_and(|line| cleared.contains(&line)));
    let mut next = trace.events[last.unwrap() + 1..].iter().filter(|event| {
        let elsewhere = stores_to(event).is_some_and(|line| !leaf.contains(&line));
        elsewhere || matches!(event, Event::Fence { .. })
    });
    assert!(matches!(next.next(), Some(Event::Fence { .. })));
    pool.abandon();
}
