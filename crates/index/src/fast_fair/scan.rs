//! Scans, a leaf at a time.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use lapis_pmem::{Domain, persist_before_answer};

use super::ahead::Ahead;
use super::node::{Admits, LEFTWARD, Node, SiblingWord};
use super::search::{MOST_STEPS, MOST_TRIES, goes_in_circles};
use super::{FastFair, mutants};
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};

/// The entries that count of one leaf: key words and values, ascending.
type Entries = Vec<(u64, u64)>;

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    /// Whether the key of `word` is below that of `bound`.
    pub(super) fn is_below(&self, word: u64, bound: u64) -> bool {
        K::with_word(&self.pool, word, |key| key.cmp_word(&self.pool, bound).is_lt())
            .unwrap_or(false)
    }

    /// Reads all entries of `node`, without waiting, and makes sure that they are durable. The keys are those of
    /// one moment, whose sibling word is returned; a value is that of some moment meanwhile.
    fn collect(&self, node: Node<'_>, entries: &mut Entries) -> SiblingWord {
        let (domain, generation) = (self.domain(), self.generation);
        let mut tries = 0u32;
        loop {
            tries += 1;
            if tries > MOST_TRIES {
                goes_in_circles();
            }
            let before = node.header.lock.read(domain);
            let locked = before.is_locked(generation);
            let sibling = node.sibling(domain);
            entries.clear();
            match (locked, before.payload()) {
                (false, _) => self.collect_stable(node, sibling, entries),
                (true, LEFTWARD) => {
                    if !self.collect_leftward(node, entries) {
                        continue;
                    }
                }
                (true, _) => self.collect_rightward(node, entries),
            }
            // I5. A node that has been repaired and is at rest has none of these.
            if (locked || !before.is_current(generation)) && !sibling.link().is_null() {
                // Somebody may be repairing the node: the bytes of the keys come after their words (I8).
                domain.order(Ordering::Acquire);
                let bound = self.node(sibling.link()).low(domain);
                entries.retain(|&(key, _)| self.is_below(key, bound));
            }
            let sibling_after = node.sibling(domain);
            let after = node.header.lock.reread(domain);
            if !before.is_same_section(after) || sibling.link() != sibling_after.link() {
                continue;
            }
            if !locked {
                if before != after {
                    continue;
                }
                return sibling;
            }
            // I11: had the lock been free, the writer would have fenced.
            let _mutant = domain.omitting(mutants::UNPERSISTED_SCAN);
            persist_before_answer(domain, [node.slots]);
            return sibling;
        }
    }

    fn collect_stable(&self, node: Node<'_>, sibling: SiblingWord, entries: &mut Entries) {
        let domain = self.domain();
        let hidden = sibling.is_hidden();
        let (head, rest) = node.slots.split_at(2);
        for (slot, entry) in head.iter().enumerate() {
            let key = entry.key.load(domain);
            if node.ends_before(domain, slot, key) {
                return;
            }
            if !(slot == 0 && hidden || node.is_duplicate(domain, slot, hidden)) {
                entries.push((key, entry.value.load(domain)));
            }
        }
        // Behind slot 1 zero is the end, and a repeated key a duplicate (I2).
        let (mut last, mut count) = (head[1].key.load(domain), entries.len());
        entries.resize(node.slots.len(), (0, 0));
        for entry in rest {
            let key = entry.key.load(domain);
            if key == 0 {
                break;
            }
            // A duplicate's place is taken by the next.
            entries[count] = (key, entry.value.load(domain));
            count += usize::from(key != last);
            last = key;
        }
        entries.truncate(count);
    }

    fn collect_rightward(&self, node: Node<'_>, entries: &mut Entries) {
        let domain = self.domain();
        for slot in 0..node.slots.len() {
            let key = node.key(domain, slot);
            if node.ends_before(domain, slot, key) {
                break;
            }
            if entries.last().is_some_and(|&(last, _)| last == key) {
                continue;
            }
            if let Some(value) = self.counted(node, slot, key, |_| true) {
                entries.push((key, value));
            }
        }
    }

    /// Returns false if an entry was overwritten while it was read.
    fn collect_leftward(&self, node: Node<'_>, entries: &mut Entries) -> bool {
        let domain = self.domain();
        for slot in (1..node.slots.len()).rev() {
            let key = node.key(domain, slot);
            if key == 0 {
                continue;
            }
            if entries.last().is_some_and(|&(last, _)| last == key) {
                // It has moved along.
                continue;
            }
            let value = node.value(domain, slot);
            if self.repeats_left(node, slot, key) {
                continue;
            }
            if node.key(domain, slot) != key {
                return false;
            }
            entries.push((key, value));
        }
        let key = node.key(domain, 0);
        match self.counted(node, 0, key, |_| true) {
            Some(_) if entries.last().is_some_and(|&(last, _)| last == key) => {}
            Some(value) => entries.push((key, value)),
            None if node.key(domain, 0) == key => {}
            None => return false,
        }
        entries.reverse();
        true
    }

    fn scan_forward(&self, from: Bound<&K>, visit: OnLeaf<'_, D, K>) -> ControlFlow<()> {
        let arrival = match from {
            Bound::Unbounded => self.descend(0, |_| false),
            Bound::Included(key) | Bound::Excluded(key) => self.descend(0, self.up_to(key)),
        };
        let Some(arrival) = arrival else { return ControlFlow::Continue(()) };
        let mut node = arrival.node;
        let mut entries = Entries::with_capacity(node.slots.len());
        let mut ahead = Ahead::behind(arrival.above.filter(|_| self.domain().prefetches()));
        let mut nodes = 0usize;
        loop {
            // One, two, four: many scans end soon.
            ahead.ask(self, 1 << nodes.min(8));
            nodes += 1;
            if nodes > self.most_nodes() {
                goes_in_circles();
            }
            // A deleted node is empty, and its sibling link still leads on.
            let sibling = self.collect(node, &mut entries);
            let next = (!sibling.link().is_null()).then(|| {
                if ahead.comes_to(sibling.link()) {
                    return self.node(sibling.link());
                }
                // Its first line comes with the others: nothing of it is needed until this one is done.
                self.pool.prefetch(sibling.link());
                self.arrive(sibling.link())
            });
            let leaf = LeafEntries::new(&self.pool, &entries);
            leaf.show_from(from, Direction::Forward, visit)?;
            match next {
                Some(next) => node = next,
                None => return ControlFlow::Continue(()),
            }
        }
    }

    fn scan_backward(&self, from: Bound<&K>, visit: OnLeaf<'_, D, K>) -> ControlFlow<()> {
        let mut entries = Entries::new();
        let mut low = match from {
            Bound::Unbounded => self.leaf_below(|_| true, &mut entries),
            Bound::Included(key) => self.leaf_below(self.up_to(key), &mut entries),
            Bound::Excluded(key) => self.leaf_below(self.below(key), &mut entries),
        };
        let mut nodes = 0usize;
        loop {
            nodes += 1;
            if nodes > self.most_nodes() {
                goes_in_circles();
            }
            entries.reverse();
            let leaf = LeafEntries::new(&self.pool, &entries);
            leaf.show_from(Bound::Unbounded, Direction::Backward, visit)?;
            if low == 0 {
                return ControlFlow::Continue(());
            }
            // One descent per leaf: nothing to keep right when nodes come and go on the left.
            let next =
                K::with_word(&self.pool, low, |key| self.leaf_below(self.below(key), &mut entries));
            match next {
                Some(next) => low = next,
                None => return ControlFlow::Continue(()),
            }
        }
    }

    /// Reads the last leaf that may have keys that `admits` accepts: those entries, and the low
    /// word of the leaf.
    fn leaf_below(&self, admits: impl Admits, entries: &mut Entries) -> u64 {
        let mut steps = 0u32;
        'again: loop {
            entries.clear();
            let Some(arrival) = self.descend(0, admits) else { return 0 };
            let mut node = arrival.node;
            loop {
                steps += 1;
                if steps > MOST_STEPS {
                    goes_in_circles();
                }
                let sibling = self.collect(node, entries);
                if sibling.is_deleted() {
                    continue 'again;
                }
                if self.belongs_right(sibling, admits) {
                    node = self.node(sibling.link());
                    continue;
                }
                entries.retain(|&(word, _)| admits(word));
                return node.low(self.domain());
            }
        }
    }

    /// More nodes than the pool can hold, those that come meanwhile included.
    fn most_nodes(&self) -> usize {
        self.pool.region().mapped_bytes() / 128 + 1024
    }
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for FastFair<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let _guard = self.pool.pin();
        let _: ControlFlow<()> = match direction {
            Direction::Forward => self.scan_forward(from, visit),
            Direction::Backward => self.scan_backward(from, visit),
        };
    }
}
