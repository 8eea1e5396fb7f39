//! Scans: leaf by leaf, each found by a descent of its own, so that nothing has to be kept right
//! between leaves while nodes come and go.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::Domain;

use super::node::Order;
use super::search::{Separator, Target};
use super::{WbTree, WbTreeNodeKind};
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};

/// Entries of a leaf: key words and values, in ascending order.
type Entries = Vec<(u64, u64)>;

#[cold]
#[inline(never)]
fn does_not_advance() -> ! {
    panic!("the index is damaged: its leaves are not in order")
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Reads the entries of the leaf at `target`, and makes sure that they are durable: the keys of one
    /// moment, and of each a value of some moment meanwhile. Returns the bounds of its keys.
    fn collect(
        &self,
        target: &Target<'_, K>,
        entries: &mut Entries,
    ) -> (Option<Separator>, Option<Separator>) {
        let domain = self.domain();
        loop {
            let arrival = self.descend::<true>(target);
            let leaf = arrival.leaf;
            entries.clear();
            let order = self.order_of(leaf, arrival.snapshot.control);
            entries.extend(order.as_slice().iter().map(|&index| {
                let index = usize::from(index);
                (self.separator_at(leaf, index).word, leaf.value(domain, index))
            }));
            if !leaf.is_still(domain, arrival.snapshot) {
                continue;
            }
            // I6: what has been copied to the next node, or from it, is of the next node.
            if let Some(high) = arrival.high {
                entries.truncate(self.count_below(entries, high));
            }
            self.persist_before_return();
            return (arrival.low, arrival.high);
        }
    }

    fn owned(&self, separator: Separator) -> K::Buf {
        K::with_word(&self.pool, separator.word, K::to_buf).unwrap_or_else(|| does_not_advance())
    }

    /// How many entries are below a bound.
    fn count_below(&self, entries: &Entries, bound: Separator) -> usize {
        entries.partition_point(|&(word, _)| {
            K::with_word(&self.pool, word, |key| key.cmp_word(&self.pool, bound.word).is_lt())
                .unwrap_or(false)
        })
    }

    fn scan_forward(&self, from: Bound<&K>, visit: OnLeaf<'_, D, K>) -> ControlFlow<()> {
        let mut entries = Entries::with_capacity(Order::ROOM);
        let (_, mut high) = match from {
            Bound::Unbounded => self.collect(&Target::start(), &mut entries),
            Bound::Included(key) | Bound::Excluded(key) => {
                self.collect(&Target::up_to(key), &mut entries)
            }
        };
        let mut leaf = LeafEntries::new(&self.pool, &entries);
        let mut begin = from;
        loop {
            leaf.show_from(begin, Direction::Forward, visit)?;
            begin = Bound::Unbounded;
            let Some(reached) = high else { return ControlFlow::Continue(()) };
            let from = self.owned(reached);
            (_, high) = self.collect(&Target::up_to(K::borrow(&from)), &mut entries);
            if high.is_some_and(|high| self.compare(high, reached).is_le()) {
                does_not_advance();
            }
            // By now the leaf may also have taken over what has been shown already.
            let shown = self.count_below(&entries, reached);
            leaf = LeafEntries::new(&self.pool, &entries[shown..]);
        }
    }

    fn scan_backward(&self, from: Bound<&K>, visit: OnLeaf<'_, D, K>) -> ControlFlow<()> {
        let mut entries = Entries::with_capacity(Order::ROOM);
        let (mut low, _) = match from {
            Bound::Unbounded => self.collect(&Target::end(), &mut entries),
            Bound::Included(key) => self.collect(&Target::up_to(key), &mut entries),
            Bound::Excluded(key) => self.collect(&Target::below(key), &mut entries),
        };
        let mut begin = from;
        loop {
            entries.reverse();
            let leaf = LeafEntries::new(&self.pool, &entries);
            leaf.show_from(begin, Direction::Backward, visit)?;
            begin = Bound::Unbounded;
            let Some(reached) = low else { return ControlFlow::Continue(()) };
            let from = self.owned(reached);
            (low, _) = self.collect(&Target::below(K::borrow(&from)), &mut entries);
            if low.is_some_and(|low| self.compare(low, reached).is_ge()) {
                does_not_advance();
            }
            entries.truncate(self.count_below(&entries, reached));
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> OrderedIndex<D, K> for WbTree<D, K, N> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let _pinned = self.pool.pin();
        let _: ControlFlow<()> = match direction {
            Direction::Forward => self.scan_forward(from, visit),
            Direction::Backward => self.scan_backward(from, visit),
        };
    }
}
