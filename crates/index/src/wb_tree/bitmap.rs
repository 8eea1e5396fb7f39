//! Changes of leaves that have a bitmap and a slot array.

use lapis_pmem::{Committed, Domain};

use super::mutants;
use super::node::{Node, Order};
use super::{WbTree, WbTreeNodeKind};
use crate::key::{IndexKey, KeyWord};

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    #[inline]
    pub(super) fn add_by_bitmap(
        &self,
        leaf: Node<'_>,
        order: &Order,
        position: usize,
        index: usize,
        entry: &[u64; 3],
        word: KeyWord<'_, D>,
    ) -> Committed {
        let domain = self.domain();
        let control = leaf.control(domain);
        // Before the line is flushed: to read it again then waits for the flush.
        leaf.count_change(domain);
        // I2. Behind the last entry, the slot array may change although it is valid.
        let appends = position + 1 == order.len();
        if leaf.is_ordered(control) && !appends && !domain.commits(mutants::VALID_BIT_NOT_CLEARED) {
            let _: Committed =
                leaf.words[0].publish(domain, self.shape.disordered(control)).persist();
        }
        leaf.write_entry(domain, index, entry);
        {
            let _mutant = domain.omitting(mutants::MISSING_ENTRY_FLUSH);
            domain.flush(leaf.entry_cells(index));
        }
        leaf.write_slots(domain, order);
        domain.flush(leaf.slot_cells());
        // I1: the entry, its key, and the slot array are durable before the bitmap names them.
        let word = self.pool.fence(word);
        self.publish(leaf.control_place(), word, self.shape.control_of(order, control))
    }

    /// Takes out what is neither in `order` nor in `after`, the control word.
    #[inline]
    pub(super) fn take_by_bitmap(&self, leaf: Node<'_>, order: &Order, after: u64) -> Committed {
        let domain = self.domain();
        // The removal. I2: the slot array is invalid, durably, before it changes.
        let committed = self.publish(leaf.control_place(), (), self.shape.disordered(after));
        if leaf.write_slots(domain, order) {
            // I2: and it is durable before it is valid.
            domain.flush(leaf.slot_cells());
            domain.fence();
        }
        // Not flushed: without it the slot array counts as invalid, which is legal.
        leaf.words[0].store_ordered(domain, after);
        committed
    }
}
