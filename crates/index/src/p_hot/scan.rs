//! Ordered scans.
//!
//! A scan holds the nodes on its way on a stack and takes their entries in order. It pins the pool all the
//! while. A node that was replaced keeps its last entries, and so do those below it: what was there all
//! the time is found in them, once.
//!
//! Where a scan begins in a node is decided by the key that was below an entry. An insertion may turn that entry, in place,
//! into a node of the key and another one that comes first, and lies before the bound. So what is shown is compared with the
//! bound until something has passed: whatever comes after that is behind it, because positions increase on each way
//! down (H3) and entries are in the order of keys.

use std::ops::Bound;

use lapis_pmem::{Domain, Link};

use super::PHot;
use super::bits::{Bits, bit_at, first_difference};
use super::contents::{FANOUT, sharing};
use super::entry::Entry;
use super::node::Node;
use crate::index::{Direction, OrderedIndex};
use crate::key::IndexKey;
use crate::leaf_entries::{LeafEntries, OnLeaf};
use crate::radix::{Digits, Leaf, damaged_word};

/// What comes so many entries later in a node is fetched meanwhile.
const AHEAD: usize = 8;

/// A node on the way.
struct Frame<'t> {
    node: Node<'t>,
    entry: Entry,
    /// Entries in the direction of the scan that are done.
    done: usize,
}

/// A position between two entries, and a direction.
struct Cursor<'t, D: Domain, K: IndexKey + ?Sized> {
    tree: &'t PHot<D, K>,
    direction: Direction,
    stack: Vec<Frame<'t>>,
    /// A leaf that comes before everything on the stack.
    pending: Option<Link<Leaf>>,
}

impl<D: Domain, K: IndexKey + ?Sized> OrderedIndex<D, K> for PHot<D, K> {
    fn scan_leaves(&self, from: Bound<&K>, direction: Direction, visit: OnLeaf<'_, D, K>) {
        let handle = &self.handle;
        let pool = &handle.pool;
        let _pinned = pool.pin();
        let mut cursor =
            Cursor { tree: self, direction, stack: Vec::with_capacity(16), pending: None };
        let top = self.entry_at(handle.top);
        let mut is_sought = true;
        // Whether something at the bound or behind it has been met.
        let mut has_passed = matches!(from, Bound::Unbounded);
        if let Bound::Included(key) | Bound::Excluded(key) = from {
            let mut space = [0; 8];
            let inclusive = matches!(from, Bound::Included(_));
            is_sought = cursor.seek(&Digits::of(key, &mut space), top, inclusive);
        } else {
            cursor.enter(top);
        }
        if !is_sought {
            // Where the key belongs, an entry is nothing and tells of no other key.
            cursor.stack.clear();
            cursor.enter(top);
        }
        while let Some(link) = cursor.next_leaf() {
            let value = pool.at(link).value.load_acquire(pool.domain());
            let key = self.key_of_leaf(link);
            handle.persist_before_return();
            let entry = [(Leaf::key_word(link, &key), value)];
            let leaf = LeafEntries::new(pool, &entry);
            let flow = match has_passed {
                true => visit(leaf),
                false => leaf.show_from(from, direction, &mut |leaf| {
                    has_passed = true;
                    visit(leaf)
                }),
            };
            if flow.is_break() {
                return;
            }
        }
        handle.persist_before_return();
    }
}

impl<'t, D: Domain, K: IndexKey + ?Sized> Cursor<'t, D, K> {
    fn push(&mut self, entry: Entry, done: usize) {
        let above = self.stack.last();
        if above.is_some_and(|above| entry.height() >= above.entry.height()) {
            damaged_word(entry.0);
        }
        self.stack.push(Frame { node: Node::at(&self.tree.handle.pool, entry), entry, done });
    }

    /// Goes before all that is below `entry`.
    fn enter(&mut self, entry: Entry) {
        if entry.is_leaf() {
            self.pending = Some(entry.as_leaf());
        } else if !entry.is_none() {
            self.push(entry, 0);
        }
    }

    /// The next leaf in order.
    fn next_leaf(&mut self) -> Option<Link<Leaf>> {
        loop {
            if let Some(leaf) = self.pending.take() {
                return Some(leaf);
            }
            let frame = self.stack.last_mut()?;
            let count = frame.node.shape.count;
            if frame.done == count {
                self.stack.pop();
                continue;
            }
            let index = match self.direction {
                Direction::Forward => frame.done,
                Direction::Backward => count - 1 - frame.done,
            };
            frame.done += 1;
            let pool = &self.tree.handle.pool;
            if pool.domain().prefetches() && frame.done + AHEAD <= count {
                let ahead = match self.direction {
                    Direction::Forward => index + AHEAD,
                    Direction::Backward => index - AHEAD,
                };
                pool.prefetch(frame.node.entry(pool, ahead).as_leaf());
            }
            let entry = frame.node.entry(pool, index);
            self.enter(entry);
        }
    }

    /// Goes before the first entry that is not before `key` in this direction, or that is behind it.
    /// False if that cannot be told.
    fn seek(&mut self, key: &Bits<'_, K>, top: Entry, inclusive: bool) -> bool {
        let forward = self.direction == Direction::Forward;
        let mut entry = top;
        while entry.is_node() {
            self.push(entry, 0);
            let Some(frame) = self.stack.last_mut() else { break };
            let index = frame.node.index_of(key, self.tree.instructions);
            let count = frame.node.shape.count;
            frame.done = if forward { index + 1 } else { count - index };
            entry = frame.node.entry(&self.tree.handle.pool, index);
        }
        if entry.is_none() {
            return self.stack.is_empty();
        }
        let known = self.tree.key_of_leaf(entry.as_leaf());
        let Some(position) = first_difference(key, &known) else {
            self.pending = inclusive.then(|| entry.as_leaf());
            return true;
        };
        // What shares the way of the known key up to there is on one side of `key`, all of it.
        let is_behind = bit_at(key, position) != forward;
        let mut whole = entry;
        while let Some(frame) = self.stack.pop_if(|top| top.node.root_position() > position) {
            whole = frame.entry;
        }
        let Some(frame) = self.stack.last_mut() else {
            if is_behind {
                self.enter(whole);
            }
            return true;
        };
        let mut gaps = [0; FANOUT];
        let Some(gaps) = frame.node.gaps(&mut gaps) else { damaged_word(frame.entry.0) };
        let count = frame.node.shape.count;
        let index = if forward { frame.done - 1 } else { count - frame.done };
        let same_side = sharing(gaps, index, position);
        frame.done = match (forward, is_behind) {
            (true, true) => same_side.start,
            (true, false) => same_side.end,
            (false, true) => count - same_side.end,
            (false, false) => count - same_side.start,
        };
        true
    }
}
