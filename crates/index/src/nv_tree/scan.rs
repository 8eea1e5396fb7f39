//! Scans, a leaf at a time: its live records are sorted for the purpose.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, Guard, Link};

use super::NvTree;
use super::inner::{Probe, Separator};
use super::leaf::Newest;
use crate::index::{Direction, OrderedIndex, begins_at, visit_word};
use crate::key::IndexKey;

/// The live records of a leaf, ascending, and where its range ends on either side.
struct Collected {
    records: Vec<Newest>,
    lower: Option<Separator>,
    upper: Option<Separator>,
}

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// Reads the leaf to which `probe` leads at one moment. None if the tree is empty.
    fn collect(&self, probe: Probe<'_>, pinned: &Guard<'_, D>) -> Option<Collected> {
        loop {
            let directory = self.directory(pinned)?;
            let found = directory.find(&self.pool, probe);
            let leaf = self.leaf(Link::from_bits(found.link));
            self.prefetch_leaf(leaf);
            let lower = directory.lower(&self.pool, &found);
            let upper = directory.upper(&self.pool, &found);
            let mut records = self.newest_of_all(leaf, leaf.count(self.domain()));
            if self.is_current(directory, &found, pinned) {
                self.persist_before_return(leaf);
                records.retain(|record| !record.deleted);
                return Some(Collected { records, lower, upper });
            }
        }
    }

    /// Orders the key of a word and a separator.
    pub(super) fn compare_to_separator(&self, word: u64, separator: &Separator) -> Ordering {
        if K::INLINE {
            return word.cmp(&separator.first);
        }
        K::with_word(&self.pool, word, |key| key.bytes(&mut [0; 8]).cmp(&*separator.bytes))
            .unwrap_or(Ordering::Greater)
    }

    fn scan_leaves(
        &self,
        from: Bound<&K>,
        direction: Direction,
        pinned: &Guard<'_, D>,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut space = [0; 8];
        let probe = match (from, direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => Probe::up_to(key.bytes(&mut space)),
            (Bound::Unbounded, Direction::Forward) => Probe::Lowest,
            (Bound::Unbounded, Direction::Backward) => Probe::Highest,
        };
        let Some(mut leaf) = self.collect(probe, pinned) else { return ControlFlow::Continue(()) };
        leaf.records.retain(|record| begins_at(&self.pool, from, direction, record.word));
        loop {
            if direction == Direction::Backward {
                leaf.records.reverse();
            }
            for record in &leaf.records {
                visit_word(&self.pool, record.word, record.value, visit)?;
            }
            let end = match direction {
                Direction::Forward => leaf.upper,
                Direction::Backward => leaf.lower,
            };
            let Some(end) = end else { return ControlFlow::Continue(()) };
            let beyond = match direction {
                Direction::Forward => Probe::up_to_separator(&end),
                Direction::Backward => Probe::below_separator(&end),
            };
            let Some(next) = self.collect(beyond, pinned) else {
                return ControlFlow::Continue(());
            };
            leaf = next;
            // The leaf may have been merged with what was visited.
            leaf.records.retain(|record| {
                let is_above = self.compare_to_separator(record.word, &end).is_ge();
                is_above == (direction == Direction::Forward)
            });
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for NvTree<D, K> {
    fn scan(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) {
        let pinned = self.pool.pin();
        let _: ControlFlow<()> = self.scan_leaves(from, direction, &pinned, visit);
    }
}
