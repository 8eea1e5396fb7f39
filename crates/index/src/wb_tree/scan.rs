//! Scans: leaf by leaf, each found by a descent of its own, so that nothing has to be kept right
//! between leaves while nodes come and go.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::Domain;

use super::search::{Separator, Target};
use super::{WbTree, WbTreeNodeKind};
use crate::index::{Direction, OrderedIndex, begins_at, visit_word};
use crate::key::IndexKey;

/// Entries of a leaf: key words, ordinals and values, in ascending order.
type Entries = Vec<(Separator, u64)>;

#[cold]
#[inline(never)]
fn does_not_advance() -> ! {
    panic!("the index is damaged: its leaves are not in order")
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Reads the entries of the leaf at `target`, as they were at one moment, and makes sure that
    /// they are durable. Returns the bounds of its keys.
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
                (self.separator_at(leaf, index), leaf.value(domain, index))
            }));
            if !leaf.is_still(domain, arrival.snapshot) {
                continue;
            }
            // I6: what has been copied to the next node, or from it, is of the next node.
            if let Some(high) = arrival.high {
                entries.retain(|(key, _)| self.compare(*key, high).is_lt());
            }
            self.persist_before_return();
            return (arrival.low, arrival.high);
        }
    }

    fn owned(&self, separator: Separator) -> K::Buf {
        K::with_word(&self.pool, separator.word, K::to_buf).unwrap_or_else(|| does_not_advance())
    }

    fn scan_forward(
        &self,
        from: Bound<&K>,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut entries = Entries::new();
        let (_, mut high) = match from {
            Bound::Unbounded => self.collect(&Target::start(), &mut entries),
            Bound::Included(key) | Bound::Excluded(key) => {
                self.collect(&Target::up_to(key), &mut entries)
            }
        };
        entries.retain(|(key, _)| begins_at(&self.pool, from, Direction::Forward, key.word));
        loop {
            for &(key, value) in &entries {
                visit_word(&self.pool, key.word, value, visit)?;
            }
            let Some(reached) = high else { return ControlFlow::Continue(()) };
            let from = self.owned(reached);
            (_, high) = self.collect(&Target::up_to(K::borrow(&from)), &mut entries);
            if high.is_some_and(|high| self.compare(high, reached).is_le()) {
                does_not_advance();
            }
            // By now the leaf may also have taken over what has been shown already.
            entries.retain(|(key, _)| self.compare(*key, reached).is_ge());
        }
    }

    fn scan_backward(
        &self,
        from: Bound<&K>,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut entries = Entries::new();
        let (mut low, _) = match from {
            Bound::Unbounded => self.collect(&Target::end(), &mut entries),
            Bound::Included(key) => self.collect(&Target::up_to(key), &mut entries),
            Bound::Excluded(key) => self.collect(&Target::below(key), &mut entries),
        };
        entries.retain(|(key, _)| begins_at(&self.pool, from, Direction::Backward, key.word));
        loop {
            for &(key, value) in entries.iter().rev() {
                visit_word(&self.pool, key.word, value, visit)?;
            }
            let Some(reached) = low else { return ControlFlow::Continue(()) };
            let from = self.owned(reached);
            (low, _) = self.collect(&Target::below(K::borrow(&from)), &mut entries);
            if low.is_some_and(|low| self.compare(low, reached).is_ge()) {
                does_not_advance();
            }
            entries.retain(|(key, _)| self.compare(*key, reached).is_lt());
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> OrderedIndex<D, K> for WbTree<D, K, N> {
    fn scan(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) {
        let _pinned = self.pool.pin();
        let _: ControlFlow<()> = match direction {
            Direction::Forward => self.scan_forward(from, visit),
            Direction::Backward => self.scan_backward(from, visit),
        };
    }
}
