//! Looking at everything: the check, the blocks and the statistics. None of it trusts the bytes.

use lapis_pmem::{BlockVisitor, Domain};

use super::NvTree;
use super::inner::Probe;
use super::leaf::Leaf;
use crate::index::{OnValue, Statistics};
use crate::key::IndexKey;
use crate::leaf_list;
use crate::root::IndexRoot;

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    /// Visits the leaves along their links, each once.
    fn walk(&self, problem: &mut dyn FnMut(String), visit: &mut dyn FnMut(Leaf<'_>) -> bool) {
        let first = self.root().top.load(self.domain()).cast();
        let at = |link| self.try_leaf(link).ok_or(leaf_list::OUTSIDE);
        let next = |leaf: Leaf<'_>| leaf.next(self.domain());
        leaf_list::walk(first, at, next, problem, visit);
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let domain = self.domain();
        let mut links = Vec::new();
        let mut problems = Vec::new();
        let mut from_walk = Vec::new();
        // The greatest word of any record of the leaves before.
        let mut greatest = None;
        let mut ends = Vec::new();
        self.walk(&mut |what| from_walk.push(what), &mut |leaf| {
            links.push(leaf.link.bits());
            let mut extremes = None;
            let count = leaf.header.count.load(domain);
            if !(1..=self.capacity as u64).contains(&count) {
                problems.push(format!("the leaf {:?} says it has {count} records", leaf.link));
            }
            let records = self.newest_of_all(leaf, leaf.count(domain));
            if records.iter().all(|record| record.deleted) {
                problems.push(format!("the leaf {:?} has no key", leaf.link));
            }
            for record in &records {
                if K::with_word(&self.pool, record.word, |_| ()).is_none() {
                    let word = record.word;
                    problems.push(format!("the leaf {:?} has the word {word:#x}", leaf.link));
                }
            }
            for pair in records.windows(2) {
                if !K::cmp_words(&self.pool, pair[0].word, pair[1].word).is_lt() {
                    problems.push(format!("the leaf {:?} has two words for a key", leaf.link));
                }
            }
            if let (Some(first), Some(last)) = (records.first(), records.last()) {
                if let Some(before) = greatest
                    && !K::cmp_words(&self.pool, before, first.word).is_lt()
                {
                    problems.push(format!("the leaf {:?} does not begin behind others", leaf.link));
                }
                greatest = Some(last.word);
                extremes = Some((first.word, last.word));
            }
            ends.push(extremes);
            true
        });
        problems.append(&mut from_walk);
        self.check_inner_nodes(&links, &ends, &mut problems);
        problems
    }

    /// I7: the inner nodes lead to exactly the leaves that are linked, in their order, and each
    /// leaf's records are in the range that they give it.
    fn check_inner_nodes(
        &self,
        links: &[u64],
        ends: &[Option<(u64, u64)>],
        problems: &mut Vec<String>,
    ) {
        let pinned = self.pool.pin();
        let entries =
            self.directory(&pinned).map(|inner| inner.entries(&self.pool)).unwrap_or_default();
        if !entries.iter().map(|entry| entry.link).eq(links.iter().copied()) {
            problems.push(format!(
                "the inner nodes lead to {} leaves, of which {} are linked, or in another order",
                entries.len(),
                links.len()
            ));
            return;
        }
        // The first leaf has all that is below the second, whatever its separator says.
        let separators = &entries[1.min(entries.len())..];
        if !separators.is_sorted_by(|one, other| one.key < other.key) {
            problems.push("the separators of the inner nodes are not sorted".into());
        }
        for (index, extremes) in ends.iter().enumerate() {
            let Some((first, last)) = *extremes else { continue };
            let below = index > 0 && self.compare_to_separator(first, &entries[index].key).is_lt();
            let above = entries
                .get(index + 1)
                .is_some_and(|next| self.compare_to_separator(last, &next.key).is_ge());
            if below || above {
                problems.push(format!("the leaf @{:#x} has keys of another", links[index]));
            }
        }
        for entry in separators {
            let found = self
                .directory(&pinned)
                .map(|inner| inner.find(&self.pool, Probe::up_to_separator(&entry.key)).link);
            if found != Some(entry.link) {
                problems.push(format!("no way leads to the leaf @{:#x}", entry.link));
            }
        }
    }

    pub(super) fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>, value: OnValue<'_, D>) {
        let domain = self.domain();
        visitor.visit(self.root, size_of::<IndexRoot>());
        let mut problems = Vec::new();
        self.walk(&mut |what| problems.push(what), &mut |leaf| {
            if !visitor.visit(leaf.link, self.leaf_bytes) {
                return false;
            }
            for record in self.newest_of_all(leaf, leaf.count(domain)) {
                K::visit_blocks(visitor, record.word);
                if !record.deleted {
                    value(visitor, record.value);
                }
            }
            true
        });
        let pinned = self.pool.pin();
        if let Some(directory) = self.directory(&pinned) {
            directory.visit_blocks(visitor);
        }
        for what in problems {
            visitor.problem(what);
        }
    }

    pub(super) fn measure(&self) -> Statistics {
        let domain = self.domain();
        let mut statistics =
            Statistics { blocks: 1, bytes: size_of::<IndexRoot>() as u64, ..Statistics::default() };
        let pinned = self.pool.pin();
        let directory = self.directory(&pinned);
        if let Some(directory) = directory {
            let sizes = directory.sizes();
            statistics.nodes = sizes.nodes;
            statistics.blocks += sizes.blocks;
            statistics.bytes += sizes.bytes;
        }
        let mut depths = 0;
        self.walk(&mut |_| (), &mut |leaf| {
            statistics.blocks += 1;
            statistics.bytes += self.leaf_bytes as u64;
            let records = self.newest_of_all(leaf, leaf.count(domain));
            let live = records.iter().filter(|record| !record.deleted).count() as u64;
            statistics.entries += live;
            for record in &records {
                let bytes = K::word_block_bytes(&self.pool, record.word) as u64;
                statistics.blocks += u64::from(bytes > 0);
                statistics.bytes += bytes;
            }
            let key = records.last().and_then(|record| self.separator(record.word).ok());
            if let (Some(directory), Some(key)) = (directory, key) {
                let found = directory.find(&self.pool, Probe::up_to_separator(&key));
                let depth = directory.depth_of(&found);
                depths += depth * live;
                statistics.max_depth = statistics.max_depth.max(depth);
            }
            true
        });
        if statistics.entries > 0 {
            statistics.mean_depth = depths as f64 / statistics.entries as f64;
        }
        statistics
    }
}
