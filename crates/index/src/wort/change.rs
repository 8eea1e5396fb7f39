//! Splitting and removing.

use lapis_pmem::{Committed, Domain, Link};

use super::node::{Child, END_SLOT, NIBBLE_SLOTS, has_end_slot, make_node};
use super::{Header, Nibbles, Wort, mutants};
use crate::key::IndexKey;
use crate::radix::{
    Changing, Claims, Descending, Descent, Holding, Leaf, Obstacle, Parent, Place, SlotWord, Split,
    damaged,
};

impl<D: Domain, K: IndexKey + ?Sized> Wort<D, K> {
    /// Puts a node with a new leaf and what is there between that and the word that refers to it.
    #[inline]
    pub(super) fn split_prefix(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        split: Split<Self>,
    ) -> Result<Committed, Obstacle> {
        let Split { place, child, position, slot: old_slot, depth, header, .. } = split;
        let pool = &self.handle.pool;
        let slot = key
            .slot_at(position)
            .ok_or_else(|| damaged("two keys differ behind the end of both"))?;
        pool.domain().happens(match child.is_leaf() {
            true => "a node above two leaves",
            false => "a node above a node",
        });
        let leaf = self.make_leaf(key, value)?;
        let children = [(slot, Child::leaf(leaf.link())), (old_slot, child)];
        let prefix = Header::of(key, depth, position);
        let node = make_node::<D, K>(pool, prefix, position, children)?.flush();
        // I1: leaf and node are durable before the slot refers to them. I2, I3: the node branches
        // where the new key and those below differ first, behind the branch of the node above.
        let new = pool.fence((leaf, node));
        // The child's header is stored without its stripe. It is there until the store below.
        let _pinned = header.map(|_| pool.pin());
        if let Some(header) = header
            && pool.domain().commits(mutants::HEADER_BEFORE_PARENT)
        {
            self.set_header(child, header.claiming(depth));
        }
        let committed =
            self.handle.publish(place, new, |(_, node)| Child::node(node.link(), position).0);
        // I8: a header that was right has become stale with the store, for `depth` is at most
        // `position`. It is rewritten now that the store is durable; the child is the same node
        // with the same keys, so whichever of the two a power cut leaves is true.
        if let Some(header) = header {
            self.set_header(child, header);
        }
        Ok(committed)
    }

    /// Takes `leaf` out, to which the descent has led.
    #[inline]
    pub(super) fn unlink_leaf(
        &self,
        key: &Nibbles<'_, K>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        let Some(Parent { node, place, depth }) = descent.parent else {
            return Ok(self.replace_leaf(key, leaf, descent.place, Child::NONE.0));
        };
        let Some(remaining) = self.only_other(node, descent.place) else {
            return Ok(self.replace_leaf(key, leaf, descent.place, Child::NONE.0));
        };
        if !self.handle.pool.domain().commits(mutants::UNCLAIMED_UNLINKING) {
            held.require(Claims::above(key, depth))?;
        }
        self.handle.pool.domain().happens(match remaining.is_leaf() {
            true => "a node gives way to its last leaf",
            false => "a node gives way to a node",
        });
        // I4: with the leaf goes the node. The remaining child branches behind the node and so
        // behind whatever is above (I2); its keys agree on all before that (I3). If it is a node,
        // its header is stale now (I8) and stays so until an insert comes by: writing it would
        // touch a line of a block that is not needed otherwise.
        // Nor does its stripe matter: it stays what it is, and whether it is found by the word in
        // the node or by the word above, whatever others store in it is reachable.
        Ok(self.replace_nodes(&[node], Some((key, leaf)), place, (), |_| remaining.0, held))
    }

    /// The child of `node` besides the one at `place`, if there is no third.
    #[inline]
    pub(super) fn only_other(&self, node: Child, place: Place) -> Option<Child> {
        let position = node.position::<K>();
        let last = if has_end_slot::<K>(position) { END_SLOT } else { NIBBLE_SLOTS - 1 };
        let mut others = (0..=last).map(|slot| node.place(slot)).filter_map(|other| {
            let child = self.child_at(other);
            (other != place && !child.is_none()).then_some(child)
        });
        let remaining = others.next().unwrap_or(Child::NONE);
        others.next().is_none().then_some(remaining)
    }
}
