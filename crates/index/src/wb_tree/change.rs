//! Insert, update and remove, where no node is split or merged.

use lapis_pmem::{Committed, Domain};

use super::mutants;
use super::node::{Node, Order};
use super::node_kind::WbTreeNodes;
use super::search::Target;
use super::{WbTree, WbTreeNodeKind};
use crate::index::{Change, IndexError, Outcome};
use crate::key::{IndexKey, KeyWord};

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let target = Target::up_to(key);
        // Nothing is in flight while the lock is held (I4), and nobody else retires blocks: the
        // writer needs neither persist_before_return nor a pin for its own reads.
        let _turn = lapis_pmem::host_lock::lock(self.domain(), &self.writer);
        let (_, leaf) = self.descend_to_write(&target);
        let control = leaf.control(self.domain());
        let order = self.order_of(leaf, control);
        let position = self.position_in(leaf, &order, &target);
        let found = position
            .checked_sub(1)
            .map(|before| order.at(before))
            .filter(|&index| self.is_entry_of(leaf, index, key, &target));
        let previous = found.map(|index| leaf.value(self.domain(), index));
        let committed = match (change, found) {
            (Change::Insert(value) | Change::Put(value), None) => {
                if order.len() < self.shape.capacity {
                    self.add(leaf, &order, position, key, value, &target)?
                } else {
                    self.add_to_full(key, value, &target)?
                }
            }
            (Change::Update(value) | Change::Put(value), Some(index)) => {
                self.publish(leaf.value_place(index), (), value)
            }
            (Change::Remove, Some(index)) => {
                let word = leaf.key_word(self.domain(), index);
                let committed = self.take(leaf, &order, position - 1);
                // I3.
                K::retire_word(&self.pool, word, committed, &self.pool.pin());
                if self.is_sparse(order.len() - 1) {
                    self.merge_along(&target);
                }
                committed
            }
            _ => Committed::nothing_to_do(),
        };
        Ok(Outcome { previous, committed })
    }

    /// Adds an entry to a leaf that has room.
    #[inline]
    fn add(
        &self,
        leaf: Node<'_>,
        order: &Order,
        position: usize,
        key: &K,
        value: u64,
        target: &Target<'_, K>,
    ) -> Result<Committed, IndexError> {
        let word = key.make_word(&self.pool)?;
        let entry = [target.ordinal, value, word.bits()];
        let index = leaf.free_index(order);
        let order = order.with(position, index);
        Ok(match N::NODES {
            WbTreeNodes::BitmapAndSlots => {
                self.add_by_bitmap(leaf, &order, position, index, &entry, word)
            }
            WbTreeNodes::SlotsOnly => self.add_by_slots(leaf, &order, index, &entry, word),
        })
    }

    #[inline]
    fn add_by_bitmap(
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
        leaf.count_change(domain);
        self.publish(leaf.control_place(), word, self.shape.control_of(order, control))
    }

    #[inline]
    fn add_by_slots(
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
            let _mutant = domain.omitting(mutants::slots_only::MISSING_ENTRY_FLUSH);
            domain.flush(leaf.entry_cells(index));
        }
        let word = word.fence_if(&self.pool, !is_beside);
        self.publish(leaf.control_place(), word, self.shape.control_of(order, control))
    }

    /// Takes the entry at `position` out of a leaf.
    #[inline]
    fn take(&self, leaf: Node<'_>, order: &Order, position: usize) -> Committed {
        let domain = self.domain();
        let control = leaf.control(domain);
        let is_last = position + 1 == order.len();
        let order = order.without(position);
        let after = self.shape.control_of(&order, control);
        let place = leaf.control_place();
        leaf.count_change(domain);
        if N::NODES == WbTreeNodes::SlotsOnly || (is_last && leaf.is_ordered(control)) {
            return self.publish(place, (), after);
        }
        // The removal. I2: the slot array is invalid, durably, before it changes.
        let committed = self.publish(place, (), self.shape.disordered(after));
        if leaf.write_slots(domain, &order) {
            // I2: and it is durable before it is valid.
            domain.flush(leaf.slot_cells());
            domain.fence();
        }
        // Not flushed: without it the slot array counts as invalid, which is legal.
        leaf.words[0].store_ordered(domain, after);
        committed
    }
}
