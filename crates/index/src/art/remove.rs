//! Taking a key out of a node, and the node out of the tree when it is not needed any more.

use std::mem::offset_of;

use lapis_pmem::{Committed, Domain, Link};

use super::Art;
use super::entries::ChildIndex;
use super::node::{Body4, Body16, Body48, Child, Kind};
use super::policy::{Policy, Removal};
use crate::index::IndexError;
use crate::key::IndexKey;
use crate::radix::{
    Byte, Changing, Claims, Descent, Digits, Holding, Leaf, Obstacle, Parent, Place, SlotWord,
    Span, damaged,
};

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> Art<D, K, P> {
    /// Takes `leaf` out, to which the descent has led.
    pub(super) fn unlink_leaf(
        &self,
        key: &Digits<'_, K, Byte>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let Some(parent) = &descent.parent else {
            return Ok(self.replace_leaf(key, leaf, descent.place, Child::NONE.0));
        };
        let slot = self.slot_in(key, parent.node)?;
        let removal = self.removal(key, parent.node)?;
        let mutant = P::MUTANTS.unclaimed_unlinking;
        if removal != Removal::InPlace && !self.domain().commits(mutant) {
            held.require(Claims::above(key, parent.depth))?;
        }
        let committed = match removal {
            Removal::WithNode => return self.unlink_node(key, leaf, parent, slot, held),
            Removal::ByCopy => self.remove_by_copy(key, leaf, parent, slot, held),
            Removal::InPlace => None,
        };
        if let Some(committed) = committed {
            return Ok(committed);
        }
        let (place, word) = self.without(parent.node, slot)?;
        Ok(self.replace_leaf(key, leaf, place, word))
    }

    /// What becomes of `node` without the child of `key`.
    pub(super) fn removal(
        &self,
        key: &Digits<'_, K, Byte>,
        node: Child,
    ) -> Result<Removal, IndexError> {
        let kind = node.kind();
        let is_end = self.slot_in(key, node)? == Byte::END_SLOT;
        // Enough to tell whether the node shrinks.
        let counted = self.count_bytes(node, kind.shrinks_at() + 2);
        let bytes = if is_end { counted } else { counted.saturating_sub(1) };
        let has_end = !K::INLINE && !is_end && !self.end_child(node).is_none();
        if bytes + usize::from(has_end) == 1 {
            return Ok(Removal::WithNode);
        }
        let copies = P::COPIES && kind <= Kind::Sixteen || kind.for_count(bytes) != kind;
        Ok(if copies && !is_end { Removal::ByCopy } else { Removal::InPlace })
    }

    /// I4: with the last leaf but one child goes the node. The remaining child branches behind the
    /// node and so behind whatever is above (I2); its keys agree on all before that (I3).
    fn unlink_node(
        &self,
        key: &Digits<'_, K, Byte>,
        leaf: Link<Leaf>,
        parent: &Parent<Child>,
        slot: usize,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let contents = self.contents(parent.node);
        let mut others = contents.children.iter().filter(|(byte, _)| usize::from(*byte) != slot);
        let remaining = match others.next() {
            Some(&(_, child)) => child,
            None if slot != Byte::END_SLOT && !contents.end.is_none() => contents.end,
            None => return Err(damaged("a node has one child").into()),
        };
        self.domain().happens(match remaining.is_leaf() {
            true => "a node gives way to its last leaf",
            false => "a node gives way to a node",
        });
        // A header that is right where the child moves up to is one of a copy. Where headers are
        // changed in place it stays stale (I8) until an insert comes by: writing it would touch a
        // line of a block that is not needed otherwise. So it does in a pool that has no room for
        // the copy: what can be removed must not depend on what can be added.
        if P::COPIES
            && !remaining.is_leaf()
            && let Some(moved) = self.move_up_by_copy((key, leaf), parent, remaining, held)?
        {
            return Ok(moved);
        }
        let _mutant = self.domain().omitting(P::MUTANTS.unpersisted_word_above);
        let (nodes, gone) = ([parent.node], Some((key, leaf)));
        Ok(self.replace_nodes(&nodes, gone, parent.place, (), |_| remaining.0, held))
    }

    /// Replaces the node by a copy without the leaf, of a smaller kind if it is enough. None if there
    /// is no room for it.
    fn remove_by_copy(
        &self,
        key: &Digits<'_, K, Byte>,
        leaf: Link<Leaf>,
        parent: &Parent<Child>,
        slot: usize,
        held: &impl Holding,
    ) -> Option<Committed> {
        let node = parent.node;
        let mut contents = self.contents(node);
        contents.children.retain(|(byte, _)| usize::from(*byte) != slot);
        let kind = node.kind().for_count(contents.children.len());
        if kind < node.kind() {
            self.domain().happens(match node.kind() {
                Kind::Four | Kind::Sixteen => "a Node16 shrinks",
                Kind::FortyEight => "a Node48 shrinks",
                Kind::Full => "a Node256 shrinks",
            });
        }
        let copy = self.make_node(kind, self.header_bits(node), &contents).ok()?;
        // I1.
        let copy = self.handle.pool.fence(copy.flush());
        let copy_word = Self::word_of(kind, node)(&copy);
        let committed = {
            let _mutant = self.domain().omitting(P::MUTANTS.unpersisted_word_above);
            let gone = Some((key, leaf));
            self.replace_nodes(&[node], gone, parent.place, copy, |_| copy_word.0, held)
        };
        P::unlock_new(&self.handle.pool, copy_word);
        Some(committed)
    }

    /// The store that takes the child of `slot` out of `node`.
    fn without(&self, node: Child, slot: usize) -> Result<(Place, u64), IndexError> {
        if slot == Byte::END_SLOT {
            return Ok((node.end_place(), Child::NONE.0));
        }
        let byte = slot as u8;
        Ok(match node.kind() {
            Kind::Four => {
                let entries = self.entries4(self.body(node));
                (node.in_body::<P>(offset_of!(Body4, entries)), entries.without(byte).0)
            }
            Kind::Sixteen => {
                let entries = self.entries16(self.body(node));
                let entry =
                    entries.find(byte).ok_or_else(|| damaged("a key is in the wrong place"))?;
                (node.in_body::<P>(offset_of!(Body16, bitmap)), entries.bitmap & !(1 << entry))
            }
            Kind::FortyEight => {
                let (word, shift) = ChildIndex::place(byte);
                let place = node.in_body::<P>(offset_of!(Body48, index) + 8 * word);
                let numbers = self.handle.pool.at(place).load(self.domain());
                (place, ChildIndex::word_with(numbers, shift, None))
            }
            Kind::Full => (node.child_place::<P>(slot), Child::NONE.0),
        })
    }
}
