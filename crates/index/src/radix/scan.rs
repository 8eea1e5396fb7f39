//! Ordered scans.
//!
//! A scan holds the nodes on its way on a stack and takes their slots in order. It pins the pool
//! all the while, and what it holds stays true whatever writers do: a node keeps its branch
//! position and its prefix for life (I3), so the slots of the nodes on the stack go on dividing the
//! keys into the same disjoint ranges. A node that was taken out keeps its last children, whose
//! leaves no writer moves elsewhere without leaving them reachable from there.
//!
//! Where entries of a node change hands ([`RadixTree::ENTRIES_CHANGE_HANDS`]), a scan can come upon
//! the child of another slot than the one it is at: the one that it is at was taken out meanwhile.
//! One leaf tells, for all keys below a node share its prefix; what has strayed is left out.

use std::ops::{Bound, ControlFlow};

use lapis_pmem::{Domain, Link};

use super::damaged_word;
use super::descent::Descending;
use super::digits::{Digits, Span};
use super::leaf::Leaf;
use super::tree::{KeyOf, RadixTree, SlotWord};
use crate::index::Direction;

/// A node on the way, and what comes next in it.
struct Frame<W> {
    node: W,
    position: usize,
    /// The rank that the scan is at.
    current: usize,
    /// The rank to look for a child from; out of range when the node is done.
    next: usize,
}

/// A position between two entries, and a direction.
struct Cursor<'i, T: RadixTree> {
    index: &'i T,
    direction: Direction,
    stack: Vec<Frame<T::Word>>,
    /// Frames from here on have gone to a child of which no leaf has been seen.
    unverified: usize,
    /// A leaf that comes before everything on the stack.
    pending: Option<Link<Leaf>>,
}

/// Scans of every radix tree.
pub trait Scanning: RadixTree {
    /// See [`crate::OrderedIndex::scan`].
    fn scan_entries(
        &self,
        from: Bound<&Self::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&Self::Key, u64) -> ControlFlow<()>,
    ) {
        let handle = self.handle();
        let pool = &handle.pool;
        let _pinned = pool.pin();
        let stack = Vec::with_capacity(16);
        let mut cursor = Cursor { index: self, direction, stack, unverified: 0, pending: None };
        let mut space = [0; 8];
        match from {
            Bound::Unbounded => cursor.enter(self.child_at(handle.top)),
            Bound::Included(key) => cursor.seek(&Digits::of(key, &mut space), true),
            Bound::Excluded(key) => cursor.seek(&Digits::of(key, &mut space), false),
        }
        while let Some(link) = cursor.next_leaf() {
            let value = pool.at(link).value.load_acquire(pool.domain());
            let Some(key) = self.key_of_leaf(link) else {
                damaged_word(Self::Word::leaf(link).bits());
            };
            if !cursor.leads_to(&key) {
                continue;
            }
            handle.persist_before_return();
            if key.with_key(|key| visit(key, value)).is_none_or(|flow| flow.is_break()) {
                return;
            }
        }
        handle.persist_before_return();
    }
}

impl<T: RadixTree> Scanning for T {}

impl<T: RadixTree> Cursor<'_, T> {
    /// The rank after `rank` in this direction; out of range past the last.
    fn after(&self, rank: usize) -> usize {
        match self.direction {
            Direction::Forward => rank + 1,
            Direction::Backward => rank.wrapping_sub(1),
        }
    }

    /// Goes before all entries below `child`.
    fn enter(&mut self, child: T::Word) {
        if child.is_leaf() {
            self.pending = Some(child.as_leaf());
        } else if !child.is_none() {
            let first = T::first_rank(child.position::<T::Key>(), self.direction);
            self.push(child, first, first);
            if self.index.handle().pool.domain().prefetches() {
                // They are all visited next: ask for them at once.
                self.index.prefetch_children(child, self.direction);
            }
        }
    }

    fn push(&mut self, node: T::Word, current: usize, next: usize) {
        let floor = self.stack.last().map_or(0, |frame| frame.position + 1);
        let position = self.index.position_from(node, floor);
        self.stack.push(Frame { node, position, current, next });
    }

    /// The next leaf in order.
    fn next_leaf(&mut self) -> Option<Link<Leaf>> {
        if let Some(leaf) = self.pending.take() {
            return Some(leaf);
        }
        loop {
            let frame = self.stack.last()?;
            let (node, from) = (frame.node, frame.next);
            let found = (from <= T::Span::SLOTS)
                .then(|| self.index.next_child(node, from, self.direction))
                .flatten();
            let Some((rank, child)) = found else {
                self.stack.pop();
                continue;
            };
            let next = self.after(rank);
            if let Some(frame) = self.stack.last_mut() {
                (frame.current, frame.next) = (rank, next);
            }
            self.unverified = self.unverified.min(self.stack.len() - 1);
            if child.is_leaf() {
                return Some(child.as_leaf());
            }
            self.enter(child);
        }
    }

    /// Whether the scan is where `key` belongs. If it is not, goes on behind the child that strayed.
    #[inline]
    fn leads_to(&mut self, key: &KeyOf<'_, T>) -> bool {
        if !T::ENTRIES_CHANGE_HANDS {
            return true;
        }
        let strays = |frame: &Frame<T::Word>| {
            key.slot_at(frame.position).map(T::Span::rank_of) != Some(frame.current)
        };
        let from = self.unverified.min(self.stack.len());
        match self.stack[from..].iter().position(strays) {
            Some(found) => {
                self.stack.truncate(from + found + 1);
                self.unverified = from + found;
                false
            }
            None => {
                self.unverified = self.stack.len();
                true
            }
        }
    }

    /// Goes before the first entry that is not before `key` in this direction, or that is behind
    /// it.
    fn seek(&mut self, key: &KeyOf<'_, T>, inclusive: bool) {
        // The descent skips prefixes: where the key leaves the tree is known only at the end.
        let mut child = self.index.child_at(self.index.handle().top);
        while !child.is_none() && !child.is_leaf() {
            let Some(slot) = key.slot_at(child.position::<T::Key>()) else { break };
            let rank = T::Span::rank_of(slot);
            self.push(child, rank, self.after(rank));
            child = self.index.child_below(child, slot);
        }
        let subtree = match (child.is_none(), self.stack.last()) {
            (true, None) => return,
            (true, Some(frame)) => frame.node,
            (false, _) => child,
        };
        let Ok((witness, known)) = self.index.leaf_below(subtree) else {
            damaged_word(subtree.bits());
        };
        let Some(position) = key.first_difference(&known) else {
            if inclusive {
                self.pending = Some(witness);
            }
            return;
        };
        // Nodes that branch behind that are wholly on the side of the witness.
        let mut whole = child;
        while let Some(frame) = self.stack.pop_if(|top| top.position > position) {
            whole = frame.node;
        }
        let rank_of = |key: &KeyOf<'_, T>| key.slot_at(position).map(T::Span::rank_of);
        let greater = rank_of(&known) > rank_of(key);
        if greater == (self.direction == Direction::Forward) {
            self.enter(whole);
        }
    }
}
