//! Ordered scans.
//!
//! A scan holds the nodes on its way on a stack and takes their slots in order. It pins the pool
//! all the while, and what it holds stays true whatever writers do: a node keeps its branch
//! position and its prefix for life (I3), so the slots of the nodes on the stack go on dividing the
//! keys into the same disjoint ranges. A node that was taken out keeps its last children, whose
//! leaves no writer moves elsewhere without leaving them reachable from there.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, Link};

use super::leaf::{Leaf, leaf_key};
use super::nibbles::Nibbles;
use super::node::{Child, END_SLOT, NIBBLE_SLOTS, has_end_slot};
use super::{Wort, damaged};
use crate::index::Direction;
use crate::key::IndexKey;

/// A node on the way, and what comes next in it.
struct Frame {
    node: Child,
    /// The rank of the slot to visit next; ranks are slots in key order.
    next: usize,
}

/// Ranks run from 0 (the end slot) over 1 to 16 (nibbles).
const RANKS: usize = NIBBLE_SLOTS + 1;

fn rank_of(slot: usize) -> usize {
    if slot == END_SLOT { 0 } else { slot + 1 }
}

fn slot_of(rank: usize) -> usize {
    if rank == 0 { END_SLOT } else { rank - 1 }
}

/// A position between two entries, and a direction.
struct Cursor<'i, D: Domain, K: IndexKey + ?Sized> {
    index: &'i Wort<D, K>,
    direction: Direction,
    stack: Vec<Frame>,
    /// A leaf that comes before everything on the stack.
    pending: Option<Link<Leaf>>,
}

impl<D: Domain, K: IndexKey + ?Sized> Wort<D, K> {
    /// See [`crate::OrderedIndex::scan`].
    pub(super) fn scan_entries(
        &self,
        from: Bound<&K>,
        direction: Direction,
        visit: &mut dyn FnMut(&K, u64) -> ControlFlow<()>,
    ) {
        let _pinned = self.pool.pin();
        let mut cursor =
            Cursor { index: self, direction, stack: Vec::with_capacity(RANKS), pending: None };
        let mut space = [0; 8];
        match from {
            Bound::Unbounded => cursor.enter(self.child_at(self.top)),
            Bound::Included(key) => cursor.seek(&Nibbles::of(key, &mut space), true),
            Bound::Excluded(key) => cursor.seek(&Nibbles::of(key, &mut space), false),
        }
        while let Some(link) = cursor.next_leaf() {
            let value = self.pool.at(link).value.load_acquire(self.domain());
            let Some(key) = leaf_key::<D, K>(&self.pool, link) else {
                damaged(Child::leaf(link));
            };
            self.persist_before_return();
            if key.with_key(|key| visit(key, value)).is_none_or(|flow| flow.is_break()) {
                return;
            }
        }
        self.persist_before_return();
    }

    /// A leaf below `child`, which is not nothing, while writers may be at work.
    fn any_leaf_shared(&self, child: Child) -> Link<Leaf> {
        // A node has children at every instant (I4), yet writers can fill a slot behind this
        // reader and empty the one before it. They would have to do so again in every attempt.
        const ATTEMPTS: usize = 1000;
        (0..ATTEMPTS).find_map(|_| self.any_leaf(child)).unwrap_or_else(|| damaged(child))
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Cursor<'_, D, K> {
    fn is_forward(&self) -> bool {
        self.direction == Direction::Forward
    }

    /// The rank after `rank` in this direction. Before the first it is `RANKS`, past the last too.
    fn after(&self, rank: usize) -> usize {
        if self.is_forward() { rank + 1 } else { rank.checked_sub(1).unwrap_or(RANKS) }
    }

    /// Goes before all entries below `child`.
    fn enter(&mut self, child: Child) {
        if child.is_leaf() {
            self.pending = Some(child.as_leaf());
        } else if !child.is_none() {
            let position = child.position::<K>();
            let first = match self.direction {
                Direction::Forward => usize::from(!has_end_slot::<K>(position)),
                Direction::Backward => RANKS - 1,
            };
            self.push(child, first);
            if self.index.domain().prefetches() {
                self.prefetch_children(child, position);
            }
        }
    }

    /// Asks for all that a node refers to at once, since it will be visited next.
    fn prefetch_children(&self, node: Child, position: usize) {
        let slots = NIBBLE_SLOTS + usize::from(has_end_slot::<K>(position));
        for slot in 0..slots {
            let child = self.index.child_at(node.place(slot));
            if !child.is_none() {
                self.index.pool.prefetch(child.as_node());
            }
        }
    }

    fn push(&mut self, node: Child, next: usize) {
        let floor = self.stack.last().map_or(0, |frame| frame.node.position::<K>() + 1);
        self.index.position_from(node, floor);
        self.stack.push(Frame { node, next });
    }

    /// The next leaf in order.
    fn next_leaf(&mut self) -> Option<Link<Leaf>> {
        if let Some(leaf) = self.pending.take() {
            return Some(leaf);
        }
        loop {
            let frame = self.stack.last()?;
            let (node, rank) = (frame.node, frame.next);
            let out = rank >= RANKS || rank == 0 && !has_end_slot::<K>(node.position::<K>());
            if out {
                self.stack.pop();
                continue;
            }
            let next = self.after(rank);
            if let Some(frame) = self.stack.last_mut() {
                frame.next = next;
            }
            let child = self.index.child_at(node.place(slot_of(rank)));
            if child.is_leaf() {
                return Some(child.as_leaf());
            }
            self.enter(child);
        }
    }

    /// Goes before the first entry that is not before `key` in this direction, or that is behind
    /// it.
    fn seek(&mut self, key: &Nibbles<'_, K>, inclusive: bool) {
        // The descent skips prefixes: where the key leaves the tree is known only at the end.
        let mut child = self.index.child_at(self.index.top);
        while !child.is_none() && !child.is_leaf() {
            let Some(slot) = key.slot_at(child.position::<K>()) else { break };
            self.push(child, self.after(rank_of(slot)));
            child = self.index.child_at(child.place(slot));
        }
        let subtree = match (child.is_none(), self.stack.last()) {
            (true, None) => return,
            (true, Some(frame)) => frame.node,
            (false, _) => child,
        };
        let witness = self.index.any_leaf_shared(subtree);
        let Some(known) = leaf_key::<D, K>(&self.index.pool, witness) else {
            damaged(Child::leaf(witness));
        };
        let Some(position) = key.first_difference(&known) else {
            if inclusive {
                self.pending = Some(witness);
            }
            return;
        };
        // Nodes that branch behind that are wholly on the side of the witness.
        let mut whole = child;
        while let Some(frame) = self.stack.pop_if(|top| top.node.position::<K>() > position) {
            whole = frame.node;
        }
        let greater = known.slot_at(position).map(rank_of) > key.slot_at(position).map(rank_of);
        if greater == self.is_forward() {
            self.enter(whole);
        }
    }
}
