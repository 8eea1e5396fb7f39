//! Insert, update and remove, where no node is split or merged.

use lapis_pmem::{Committed, Domain};

use super::node::{Node, Order};
use super::node_kind::WbTreeNodes;
use super::search::Target;
use super::{WbTree, WbTreeNodeKind};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    /// Makes `change`, durably.
    #[inline]
    pub(super) fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        key.validate()?;
        let target = Target::up_to(key);
        // Nothing is in flight while the lock is held (I4), and nobody else retires blocks: the
        // writer needs neither persist_before_return nor a pin for its own reads.
        let _turn = lapis_pmem::host_lock::lock_owned(self.domain(), &self.writer);
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
        self.take_by_bitmap(leaf, &order, after)
    }
}
