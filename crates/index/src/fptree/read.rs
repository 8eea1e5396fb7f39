//! Reading: no lock is taken and nobody is waited for.
//!
//! A leaf is read between two readings of its lock, and counts if no section that changed it ended in
//! between. If the lock was free at last, what was seen is durable (I8). If not, its holder may be
//! anywhere: so the reader asks once more whether the leaf's range is still what it was, and persists
//! the bitmap that it has seen.

use std::ops::Bound;

use lapis_blocks::fp_leaf::{ENTRIES_PER_LINE, slots_in};
use lapis_blocks::interleave::Turn;
use lapis_pmem::{Domain, persist_before_answer};

use super::FpTree;
use super::inner::{Place, Range, Target};
use super::leaf::{self, Leaf, Sought};
use crate::index::{Direction, OrderedIndex};
use crate::integer_order::IntegerOrder;
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};
use crate::leaf_locks::Section;

/// Key words and values.
type Entries = Vec<(u64, u64)>;

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    /// Ends an optimistic reading of a leaf that was begun in `section`. Whether it counts.
    #[inline(always)]
    fn end_reading(&self, place: &Place<'_>, leaf: Leaf<'_>, section: Section) -> bool {
        let domain = self.domain();
        let now = self.locks.reread(domain, leaf.link);
        if !section.is_same(now) {
            return false;
        }
        if !section.is_open() && !now.is_open() {
            return true;
        }
        // I6: a split enters the new leaf before it takes the upper half from the old one.
        if !self.inner.is_current(&self.pool, place) {
            return false;
        }
        // All that a bit says is in use has been durable before the bit was set (I2).
        persist_before_answer(domain, [&leaf.header.line.bitmap]);
        true
    }

    /// Goes down to the leaf of `key`, of which the lines that are most likely needed are on their way
    /// to the cache then.
    #[inline(always)]
    pub(super) fn approach_leaf(&self, key: &K, sought: Sought) -> Place<'_> {
        let place = self.inner.descend(&self.pool, Target::Of(key));
        leaf::prefetch(&self.pool, place.leaf, sought.fingerprint, self.slots);
        place
    }

    /// The value of `key` in the leaf that a descent has found; nothing if that does not count.
    #[inline(always)]
    fn read_leaf(&self, place: &Place<'_>, key: &K, sought: Sought) -> Option<Option<u64>> {
        let domain = self.domain();
        let section = self.locks.read(domain, place.leaf);
        // I7: it is the leaf of this key, as of now.
        if !self.inner.is_current(&self.pool, place) {
            return None;
        }
        let leaf = self.leaf(place.leaf);
        let found = leaf.find(&self.pool, leaf.bitmap(domain), key, sought);
        self.end_reading(place, leaf, section).then(|| found.map(|(_, value)| value))
    }

    #[inline(always)]
    pub(super) fn lookup(&self, key: &K) -> Option<u64> {
        // A leaf that is freed meanwhile must not be filled with something else.
        let _pinned = self.pool.pin();
        let sought = Sought::of(key);
        loop {
            let place = self.approach_leaf(key, sought);
            if let Some(answer) = self.read_leaf(&place, key, sought) {
                return answer;
            }
        }
    }

    /// As [`FpTree::lookup`], in turns with others. The caller has pinned the pool.
    pub(super) async fn lookup_in_turns(&self, key: &K, turn: Turn<'_, D>) -> Option<u64> {
        let sought = Sought::of(key);
        loop {
            let place = self.approach_leaf(key, sought);
            turn.give_way().await;
            // Only a hint: what is read here counts for nothing.
            if let Some(leaf) = Leaf::try_at(&self.pool, place.leaf, self.slots) {
                for slot in leaf.candidates(self.domain(), leaf.bitmap(self.domain()), sought) {
                    self.domain().prefetch((&raw const leaf.slots[slot]).cast());
                }
            }
            turn.give_way().await;
            if let Some(answer) = self.read_leaf(&place, key, sought) {
                return answer;
            }
        }
    }

    /// The entries of one leaf at one moment, in order, and the leaf's range. The caller has pinned the pool.
    fn collect(&self, target: Target<'_, K>, entries: &mut Entries) -> Range<K::Buf> {
        let domain = self.domain();
        let range = loop {
            let (place, range) = self.inner.descend_with_range(&self.pool, target);
            let section = self.locks.read(domain, place.leaf);
            if !self.inner.is_current(&self.pool, &place) {
                continue;
            }
            let leaf = self.leaf(place.leaf);
            self.prefetch_slots(leaf);
            entries.clear();
            let bitmap = leaf.bitmap(domain);
            // The scan most likely goes on there.
            if domain.prefetches()
                && let Some(next) = Leaf::try_at(&self.pool, leaf.next(domain), self.slots)
            {
                self.pool.prefetch(next.link);
                self.prefetch_slots(next);
            }
            let keys = slots_in(bitmap).map(|slot| (leaf.slots[slot].key.load(domain), slot));
            if K::INLINE {
                let value = |slot: usize| leaf.slots[slot].value.load(domain);
                let order = IntegerOrder::of(keys);
                entries.extend(order.entries().map(|(key, slot)| (key, value(slot))));
            } else {
                entries
                    .extend(keys.map(|(word, slot)| (word, leaf.slots[slot].value.load(domain))));
            }
            if self.end_reading(&place, leaf, section) {
                break range;
            }
        };
        if !K::INLINE {
            self.sort_by_key(entries);
        }
        // I6: beyond its range, a leaf under a split or merge has what others have too.
        let below = |bound: &K::Buf| {
            let key = K::borrow(bound);
            entries.partition_point(|&(word, _)| key.cmp_word(&self.pool, word).is_gt())
        };
        let end = range.upper.as_ref().map_or(entries.len(), below);
        let begin = range.lower.as_ref().map_or(0, below);
        entries.truncate(end);
        entries.drain(..begin.min(end));
        range
    }

    fn prefetch_slots(&self, leaf: Leaf<'_>) {
        for slots in leaf.slots.chunks(ENTRIES_PER_LINE) {
            self.domain().prefetch(slots.as_ptr().cast());
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for FpTree<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let _pinned = self.pool.pin();
        let mut from: Bound<K::Buf> = from.map(K::to_buf);
        let mut entries = Entries::with_capacity(self.slots);
        loop {
            let begin = from.as_ref().map(K::borrow);
            let target = match (begin, direction) {
                (Bound::Unbounded, Direction::Forward) => Target::First,
                (Bound::Unbounded, Direction::Backward) => Target::Last,
                (Bound::Excluded(key), Direction::Backward) => Target::Before(key),
                (Bound::Included(key) | Bound::Excluded(key), _) => Target::Of(key),
            };
            let range = self.collect(target, &mut entries);
            if direction == Direction::Backward {
                entries.reverse();
            }
            let leaf = LeafEntries::new(&self.pool, &entries);
            if leaf.show_from(begin, direction, visit).is_break() {
                return;
            }
            from = match (direction, range) {
                (Direction::Forward, Range { upper: Some(upper), .. }) => Bound::Included(upper),
                (Direction::Backward, Range { lower: Some(lower), .. }) => Bound::Excluded(lower),
                _ => return,
            };
        }
    }
}
