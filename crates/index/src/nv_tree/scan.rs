//! Scans, a leaf at a time: its live records are sorted for the purpose.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, Guard};

use super::NvTree;
use super::inner::{Probe, Separator};
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};

/// Where the range of a leaf ends on either side.
struct Ends {
    lower: Option<Separator>,
    upper: Option<Separator>,
}

/// Key words and values.
type Entries = Vec<(u64, u64)>;

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// Reads the entries of the leaf to which `probe` leads at one moment, ascending. None if the tree is
    /// empty.
    fn collect(
        &self,
        probe: Probe<'_>,
        pinned: &Guard<'_, D>,
        entries: &mut Entries,
    ) -> Option<Ends> {
        loop {
            let (directory, found, leaf) = self.arrive(probe, pinned)?;
            let lower = directory.lower(&self.pool, &found);
            let upper = directory.upper(&self.pool, &found);
            entries.clear();
            self.each_newest(leaf, leaf.count(self.domain()), |newest| {
                if !newest.deleted {
                    entries.push((newest.word, newest.value));
                }
            });
            if self.is_current(directory, &found, pinned) {
                self.persist_before_return(leaf);
                if !K::INLINE {
                    entries.sort_by(|one, other| K::cmp_words(&self.pool, one.0, other.0));
                }
                return Some(Ends { lower, upper });
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

    fn scan_by(
        &self,
        mut from: Bound<&K>,
        direction: Direction,
        pinned: &Guard<'_, D>,
        visit: OnLeaf<'_, D, K>,
    ) -> ControlFlow<()> {
        let mut space = [0; 8];
        let probe = match (from, direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => Probe::up_to(key.bytes(&mut space)),
            (Bound::Unbounded, Direction::Forward) => Probe::Lowest,
            (Bound::Unbounded, Direction::Backward) => Probe::Highest,
        };
        let mut entries = Entries::with_capacity(self.capacity);
        let mut leaf = self.collect(probe, pinned, &mut entries);
        while let Some(ends) = leaf {
            if direction == Direction::Backward {
                entries.reverse();
            }
            LeafEntries::new(&self.pool, &entries).show_from(from, direction, visit)?;
            from = Bound::Unbounded;
            let end = match direction {
                Direction::Forward => ends.upper,
                Direction::Backward => ends.lower,
            };
            let Some(end) = end else { break };
            let beyond = match direction {
                Direction::Forward => Probe::up_to_separator(&end),
                Direction::Backward => Probe::below_separator(&end),
            };
            leaf = self.collect(beyond, pinned, &mut entries);
            // The leaf may have been merged with what was visited.
            let below =
                entries.partition_point(|&(word, _)| self.compare_to_separator(word, &end).is_lt());
            match direction {
                Direction::Forward => _ = entries.drain(..below),
                Direction::Backward => entries.truncate(below),
            }
        }
        ControlFlow::Continue(())
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for NvTree<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let pinned = self.pool.pin();
        let _: ControlFlow<()> = self.scan_by(from, direction, &pinned, visit);
    }
}
