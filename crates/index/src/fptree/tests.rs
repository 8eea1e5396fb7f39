//! Tests of the whole structure; those of one mechanism are in the modules below.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::fp_leaf::{ENTRIES_PER_LINE, slots_in};
use lapis_pmem::{Domain, Hardware, Pool};

use super::leaf::{Leaf, home_of, slots_of};
use super::{FpTree, micro_log};
use crate::index::{Direction, Index, IndexError, IndexOptions, OrderedIndex};
use crate::key::IndexKey;

type Ints = FpTree<Hardware, u64>;
type Strings = FpTree<Hardware, [u8]>;

fn with_leaves_of(node_bytes: usize) -> IndexOptions {
    IndexOptions { node_bytes, ..IndexOptions::default() }
}

fn create<K: IndexKey + ?Sized>(options: &IndexOptions) -> FpTree<Hardware, K> {
    let pool = Arc::new(Pool::create_anonymous(1 << 20).unwrap());
    FpTree::create_named(&pool, "tree", options).unwrap()
}

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    /// The same tree, built anew from its leaves.
    fn reopened(self, threads: usize) -> Self {
        let (pool, root) = (Arc::clone(&self.pool), self.root);
        drop(self);
        Self::open_with_threads(pool, root, threads).unwrap()
    }

    fn assert_sound(&self) {
        assert_eq!(self.check(), Vec::<String>::new());
        let reachable = self.pool.reachable(|visitor| self.visit_blocks(visitor, &mut |_, _| ()));
        let audit = self.pool.audit(&reachable);
        assert!(audit.is_clean(), "{audit:?}");
        assert_eq!(reachable.block_count(), self.statistics().blocks);
    }

    fn leaves(&self) -> Vec<Leaf<'_>> {
        let links = std::iter::successors(Some(self.first_leaf()), |&link| {
            Some(self.leaf(link).next(self.domain())).filter(|next| !next.is_null())
        });
        links.map(|link| self.leaf(link)).collect()
    }
}

fn fill(tree: &Ints, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        assert_eq!(tree.insert(&key, key + 1).unwrap().previous, None);
    }
}

#[test]
fn an_update_takes_another_slot_and_leaves_one_free() {
    let tree: Ints = create(&with_leaves_of(256));
    fill(&tree, 0..7);
    let leaf = tree.leaves()[0];
    let before = leaf.bitmap(tree.domain());
    assert_eq!((before.count_ones(), tree.leaves().len()), (7, 1));
    assert_eq!(tree.update(&3, 30).unwrap().previous, Some(4));
    let after = leaf.bitmap(tree.domain());
    assert_eq!(after.count_ones(), 7);
    assert_eq!((before ^ after).count_ones(), 2, "one bit went, one came");
    assert_eq!(tree.get(&3), Some(30));
}

#[test]
fn an_update_of_a_byte_string_keeps_its_block() {
    let tree: Strings = create(&IndexOptions::default());
    let _ = tree.insert(b"a key", 1).unwrap();
    let word = |tree: &Strings| {
        let leaf = tree.leaves()[0];
        let slot = slots_in(leaf.bitmap(tree.domain())).next().unwrap();
        leaf.slots[slot].key.load(tree.domain())
    };
    let before = word(&tree);
    let _ = tree.update(b"a key", 2).unwrap();
    assert_eq!(word(&tree), before);
    tree.assert_sound();
}

#[test]
fn ascending_keys_leave_leaves_nearly_full() {
    let tree: Ints = create(&IndexOptions::default());
    fill(&tree, 0..10_000);
    let full = slots_of(1024) - 1;
    assert!(tree.leaves().len() <= 10_000 / (full - 8) + 1, "{}", tree.leaves().len());
    tree.assert_sound();
}

#[test]
fn neighbours_with_few_entries_become_one_leaf() {
    let tree: Ints = create(&IndexOptions::default());
    fill(&tree, 0..2000);
    let before = tree.leaves().len();
    for key in (0..2000).filter(|key| key % 10 != 0) {
        assert_eq!(tree.remove(&key).unwrap().previous, Some(key + 1));
    }
    tree.assert_sound();
    assert!(tree.leaves().len() * 3 < before, "{} of {before}", tree.leaves().len());
}

#[test]
fn a_tree_rebuilt_by_any_number_of_threads_is_the_same() {
    let mut tree: Ints = create(&with_leaves_of(256));
    let keys = (0..60_000u64).map(|number| number.to_be_bytes()[..].hash64());
    let keys: BTreeMap<u64, u64> = keys.map(|key| (key, key + 1)).collect();
    fill(&tree, keys.keys().copied());
    let leaves = tree.leaves().len();
    assert!(leaves > 4096, "too few leaves for several threads: {leaves}");
    for threads in [1, 2, 4] {
        tree = tree.reopened(threads);
        assert_eq!(tree.check(), Vec::<String>::new());
        let all =
            tree.range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, Direction::Forward);
        assert!(all.eq(keys.clone()), "{threads} threads");
    }
}

#[test]
fn check_reports_a_fingerprint_a_bitmap_and_an_order_that_are_wrong() {
    type Damage = fn(&Ints);
    let damage: [(&str, Damage); 4] = [
        ("fingerprint", |tree| {
            let leaf = tree.leaves()[0];
            let word = leaf.header.line.fingerprints[0].load(tree.domain());
            leaf.header.line.fingerprints[0].store(tree.domain(), !word);
        }),
        ("no free slot", |tree| {
            let leaf = tree.leaves()[0];
            leaf.header.line.bitmap.store(tree.domain(), leaf.all());
        }),
        ("empty and not alone", |tree| {
            tree.leaves()[1].header.line.bitmap.store(tree.domain(), 0);
        }),
        ("micro-log 0 is in use", |tree| tree.micro_log(0).leaf.store(tree.domain(), 64)),
    ];
    for (what, damage) in damage {
        let tree: Ints = create(&with_leaves_of(256));
        fill(&tree, 0..30);
        tree.assert_sound();
        damage(&tree);
        let found = tree.check();
        assert!(found.iter().any(|problem| problem.contains(what)), "{what}: {found:?}");
    }
}

/// A tree whose first micro-log has been used, and what it says now.
fn with_a_used_micro_log() -> Ints {
    let tree: Ints = create(&with_leaves_of(256));
    fill(&tree, 0..100);
    tree.assert_sound();
    tree
}

/// Asserts that a tree is refused by whoever opens it, time and again, and that none of its leaves is changed by that.
fn assert_refused(tree: Ints, what: &str) {
    let (pool, root, slots) = (Arc::clone(&tree.pool), tree.root, tree.slots);
    let links: Vec<_> = tree.leaves().into_iter().map(|leaf| leaf.link).collect();
    drop(tree);
    let words = || {
        let leaves = links.iter().map(|&link| Leaf::try_at(&pool, link, slots).unwrap());
        let words = |leaf: Leaf<'_>| (leaf.bitmap(pool.domain()), leaf.next(pool.domain()));
        leaves.map(words).collect::<Vec<_>>()
    };
    let before = words();
    for _ in 0..2 {
        let opened = Ints::open(Arc::clone(&pool), root);
        assert!(matches!(opened, Err(IndexError::Damaged { .. })), "{what}: {opened:?}");
        drop(opened);
        assert_eq!(words(), before, "{what}");
    }
}

#[test]
fn an_idle_micro_log_that_seems_open_is_refused_and_nothing_is_written() {
    for bit in 0..64 {
        let tree = with_a_used_micro_log();
        let log = tree.micro_log(0);
        assert!(log.bitmap.load(tree.domain()) != 0, "no split has used it");
        log.leaf.store(tree.domain(), 1 << bit);
        assert_refused(tree, &format!("bit {bit}"));
    }
    // Whichever leaf the last plan was for.
    for at in 0..with_a_used_micro_log().leaves().len() {
        let tree = with_a_used_micro_log();
        let link = tree.leaves()[at].link;
        tree.micro_log(0).leaf.store(tree.domain(), link.bits());
        assert_refused(tree, &format!("leaf {at}"));
    }
}

#[test]
fn an_open_micro_log_is_carried_out_as_it_was_written_or_not_at_all() {
    /// A tree in the middle of a plan that changes nothing.
    fn planned() -> Ints {
        let tree = with_a_used_micro_log();
        let leaf = tree.leaves()[3];
        let (bitmap, next) = (leaf.bitmap(tree.domain()), leaf.next(tree.domain()));
        let _planned = tree.plan(micro_log::Plan { leaf, bitmap, next }, ());
        tree
    }
    let tree = planned().reopened(1);
    tree.assert_sound();
    assert_eq!(tree.statistics().entries, 100);
    drop(tree);
    for word in 0..3 {
        for bit in 0..64 {
            let tree = planned();
            let log = tree.micro_log(0);
            let word = [&log.leaf, &log.bitmap, &log.next][word];
            word.store(tree.domain(), word.load(tree.domain()) ^ 1 << bit);
            // A leaf of one bit may have become none: that is a record that is idle.
            if log.leaf.load(tree.domain()) != 0 {
                assert_refused(tree, &format!("bit {bit}"));
            }
        }
    }
}

#[test]
fn an_entry_lies_in_the_line_of_its_fingerprint_or_in_a_full_leafs_next_free_slot() {
    let tree: Ints = create(&IndexOptions::default());
    let random = (1..20_000u64).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fill(&tree, random);
    let (mut at_home, mut entries) = (0, 0);
    for leaf in tree.leaves() {
        let bitmap = leaf.bitmap(tree.domain());
        for slot in slots_in(bitmap) {
            let fingerprint = leaf.header.line.fingerprint(tree.domain(), slot);
            let home = home_of(fingerprint, leaf.slots.len());
            at_home += usize::from((home..home + ENTRIES_PER_LINE).contains(&slot));
            entries += 1;
        }
    }
    assert_eq!(entries, 19_999);
    assert!(at_home * 4 > entries * 3, "{at_home} of {entries} entries are where they are sought");

    let leaf = tree.leaves()[0];
    let last_line = home_of(255, leaf.slots.len());
    assert_eq!(last_line, leaf.slots.len() - ENTRIES_PER_LINE);
    let full_line = leaf.all() & (u64::MAX << last_line);
    assert_eq!(leaf.free_slot(full_line | 0b11, 255), 2, "around the end");
    assert_eq!(leaf.free_slot(leaf.all(), 255), 64, "none is free");
}
