//! Changes of leaves that have a slot array only.

use lapis_pmem::{Committed, Domain};

use super::mutants::slots_only as mutants;
use super::node::{Node, Order};
use super::{WbTree, WbTreeNodeKind};
use crate::key::{IndexKey, KeyWord};

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    #[inline]
    pub(super) fn add_by_slots(
        &self,
        leaf: Node<'_>,
        order: &Order,
        index: usize,
        entry: &[u64; 3],
        word: KeyWord<'_, D>,
    ) -> Committed {
        let domain = self.domain();
        let control = leaf.control(domain);
        leaf.write_entry(domain, index, entry);
        // I1. In the line of the control word the order of stores is enough (R2).
        let is_beside = leaf.is_beside_control(index);
        if !is_beside {
            let _mutant = domain.omitting(mutants::MISSING_ENTRY_FLUSH);
            domain.flush(leaf.entry_cells(index));
        }
        let word = word.fence_if(&self.pool, !is_beside);
        self.publish(leaf.control_place(), word, self.shape.control_of(order, control))
    }
}
