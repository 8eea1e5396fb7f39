//! Ordered scans, a leaf at a time.
//!
//! A leaf is read as a whole, at one moment. The next one is where the key just beyond it leads: so nothing
//! is to be kept right when nodes are divided and merged meanwhile.

use std::ops::Bound;

use lapis_pmem::Domain;

use super::PBwTree;
use super::contents::Contents;
use super::descent::Purpose;
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};
use crate::radix::damaged_word;

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for PBwTree<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let pool = &self.handle.pool;
        let _pinned = pool.pin();
        let mut from = from.map(K::to_buf);
        loop {
            let begin = from.as_ref().map(K::borrow);
            let Some(mut node) = self.leaf_at(begin, direction) else { return };
            self.handle.persist_before_return();
            if direction == Direction::Backward {
                node.entries.reverse();
            }
            let leaf = LeafEntries::new(pool, &node.entries);
            if leaf.show_from(begin, direction, visit).is_break() {
                return;
            }
            let end = match direction {
                Direction::Forward => node.high,
                Direction::Backward => node.low,
            };
            let Some(end) = end else { return };
            let Some(key) = K::with_word(pool, end, K::to_buf) else { damaged_word(end) };
            let is_behind = match (&from, direction) {
                (Bound::Unbounded, _) => true,
                (Bound::Included(last) | Bound::Excluded(last), Direction::Forward) => key > *last,
                (Bound::Included(last), Direction::Backward) => key <= *last,
                (Bound::Excluded(last), Direction::Backward) => key < *last,
            };
            if !is_behind {
                damaged_word(end);
            }
            from = match direction {
                Direction::Forward => Bound::Included(key),
                Direction::Backward => Bound::Excluded(key),
            };
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    /// The leaf with the first keys behind `from`.
    fn leaf_at(&self, from: Bound<&K>, direction: Direction) -> Option<Contents> {
        let pool = &self.handle.pool;
        let admits = |word| match (from, direction) {
            (Bound::Unbounded, direction) => direction == Direction::Backward,
            (Bound::Excluded(key), Direction::Backward) => key.cmp_word(pool, word).is_gt(),
            (Bound::Included(key) | Bound::Excluded(key), _) => key.cmp_word(pool, word).is_ge(),
        };
        let at = self.find(0, admits, Purpose::Reading).ok()?;
        match self.read(at.record.link) {
            Ok(node) => Some(node),
            Err(_) => damaged_word(at.record.link.bits()),
        }
    }
}
