//! WORT, the write-optimal radix tree (Lee, Lim, Song, Nam and Noh, FAST 2017): a radix tree with
//! path compression in which every change is one failure-atomic store of eight bytes.
//!
//! A key is a string of 4-bit nibbles. A node has a slot for each value of the nibble at its *branch
//! position*, by which the keys below it are the first to differ; nodes where all keys would take the same
//! slot are left out. The nibbles between the branch position of the node above and its own are a node's
//! *prefix*, the first of them is its *depth*. A header is right if its depth is the node's, else *stale*.
//!
//! ```text
//!  IndexRoot.top ──▶ slot word: nothing (0), a leaf, or a node
//!   63                  48 47                                 4 3    2  1   0
//!  +----------------------+------------------------------------+------+---+---+
//!  | P, bits 0 to 15      |  link (blocks start at multiples of 16)   | P | L |
//!  +----------------------+------------------------------------+------+---+---+
//!    P: the node's branch position, bit 16 of it in bit 1      L: 1 = leaf, and P is zero
//!
//!  header word of a node
//!   63           46 45           28 27    24 23    20         3     0
//!  +---------------+---------------+--------+--------+-- ... --+------+
//!  | depth         | prefix length | first  | second |         | 7th  |  nibbles of the prefix,
//!  +---------------+---------------+--------+--------+-- ... --+------+  zero if it is shorter
//!
//!  node: 136 bytes, three lines; or 144      leaf: 16 bytes and the key's
//!  offset bytes  field                       offset bytes  field
//!       0     8  header                           0     8  value
//!       8     8  slots of nibbles 0 to 15         8     8  key (integers), or its length in bytes
//!     136     8  slot of the key that ends       16     n  key (byte strings)
//!                here (byte strings, even positions)
//! ```
//!
//! # Invariants, in every state of a crash but for the stores in flight, each there or not (I6)
//!
//! * I1. A word in the root or in a reachable node is nothing, a leaf or a node whose block was
//!   durable, in all its lines, before the word was stored.
//! * I2. Branch positions strictly increase from node to child.
//! * I3. All keys below a node that branches at `p` agree on the nibbles before `p`; a key is below
//!   the slot of its nibble at `p`, or the end slot. Those nibbles and `p` stay while it is reachable.
//! * I4. A reachable node has at least two children.
//! * I5. A reachable leaf's key never changes. Its value changes, by one store, if keys are integers.
//! * I6. A reachable slot word or value differs from what is durable only while the writer that stored it
//!   holds the stripe of the node it is in, and those of all new nodes that it leads to: one such store,
//!   persisted before it lets go. So there is at most one in a node, none in one that is about to be
//!   replaced, taken out or linked, and whichever of several a power cut takes back, the invariants hold.
//! * I7. A block is retired only when the store that unlinked it is durable.
//! * I8. The header of a reachable node that branches at `p` is true of it, right or stale: depth `d` is at
//!   most `p`, prefix length is `p - d`, and the nibbles are those from `d` on, before `p`, of every key below.
//!
//! # Order of stores
//!
//! ```text
//!  insert, slot empty    leaf: flush │ fence │ slot := leaf: flush │ fence
//!  insert, slot taken    leaf, node: flush │ fence │ slot := node: flush │ fence │ header below
//!  update (integers)     value: flush │ fence
//!  update (byte strings) leaf: flush │ fence │ slot := leaf: flush │ fence │ retire the old
//!  remove, 3+ children   slot := nothing: flush │ fence │ retire the leaf
//!  remove, 2 children    slot above := the other child: flush │ fence │ retire leaf and node
//! ```
//!
//! Headers are only stored, never flushed, here and where an insert rebuilds a stale one. With byte strings
//! the fence before a slot orders the caller's earlier flushes too ([`Capabilities::orders_prior_flushes`]).
//!
//! Writers lock *stripes*, readers nothing; one handle per index, since a second would have its own locks.
//! `docs/wort-concurrency.md` has the rules, why headers need no flush, and what differs from the paper.

mod change;
pub mod mutants;
mod node;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use lapis_pmem::{Committed, Domain, Link, Optimisations, PCell, Reach};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Direction, IndexOptions};
use crate::key::IndexKey;
use crate::radix::{
    Changing, Descending, Descent, Digits, Handle, Holding, Leaf, Mutants, Nibble, Obstacle,
    Parent, Place, RadixTree, SlotWord, Span, Split, mutants_of,
};
use node::{Child, Header, has_end_slot, node_bytes};

/// A key as nibbles.
type Nibbles<'k, K> = Digits<'k, K, Nibble>;

/// A write-optimal radix tree. The layout and the invariants are in the source's header comment.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached;
/// with integer keys it does not promise that.
#[derive(Debug)]
pub struct Wort<D: Domain, K: IndexKey + ?Sized> {
    handle: Handle<D>,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Wort<D, K> {
    /// The words of a node's children by their nibbles.
    #[inline(always)]
    fn slots(&self, node: Child) -> &[PCell<u64>; Nibble::SLOTS] {
        &self.handle.pool.at(node.as_node()).slots
    }
}

impl<D: Domain, K: IndexKey + ?Sized> RadixTree for Wort<D, K> {
    type Domain = D;
    type Key = K;
    type Span = Nibble;
    type Word = Child;
    const KIND: IndexKind = IndexKind::Wort;
    const MUTANTS: Mutants = mutants_of!(mutants);
    const COPIES_WHAT_SINKS: bool = false;
    /// A slot is for one nibble.
    const ENTRIES_CHANGE_HANDS: bool = false;

    fn from_handle(handle: Handle<D>) -> Self {
        Self { handle, _keys: PhantomData }
    }

    #[inline(always)]
    fn handle(&self) -> &Handle<D> {
        &self.handle
    }

    #[inline(always)]
    fn child_below(&self, reach: &Reach<'_, D>, node: Child, slot: usize) -> Option<Child> {
        let word = match reach.try_at(node.as_node())?.slots.get(slot) {
            Some(word) => word,
            None => reach.try_at(node.place(slot))?,
        };
        Some(Child(word.load_acquire(reach.pool().domain())))
    }

    #[inline(always)]
    fn place_of(&self, node: Child, slot: usize) -> Option<Place> {
        Some(node.place(slot))
    }

    #[inline(always)]
    fn fixed_place_of(&self, node: Child, slot: usize) -> Option<Place> {
        Some(node.place(slot))
    }

    fn next_child(&self, node: Child, rank: usize, direction: Direction) -> Option<(usize, Child)> {
        let slots = self.slots(node);
        let digit = |rank: usize| {
            let child = Child(slots[rank - 1].load_acquire(self.handle.pool.domain()));
            (!child.is_none()).then_some((rank, child))
        };
        let end = || {
            let has_end = has_end_slot::<K>(node.position::<K>());
            has_end.then(|| self.next_child_before(node, 0, 1)).flatten()
        };
        match direction {
            Direction::Forward if rank == 0 => {
                end().or_else(|| (1..=Nibble::SLOTS).find_map(digit))
            }
            Direction::Forward => (rank..=Nibble::SLOTS).find_map(digit),
            Direction::Backward => (1..=rank).rev().find_map(digit).or_else(end),
        }
    }

    fn next_child_before(&self, node: Child, rank: usize, end: usize) -> Option<(usize, Child)> {
        (rank..end).find_map(|rank| {
            let child = self.child_at(node.place(Nibble::slot_of(rank)));
            (!child.is_none()).then_some((rank, child))
        })
    }

    #[inline]
    fn stretch_ranks(&self, _node: Child) -> Option<usize> {
        Some(4)
    }

    fn any_child(&self, node: Child) -> Child {
        let slots = Nibble::SLOTS + usize::from(has_end_slot::<K>(node.position::<K>()));
        // The end slot first: a leaf is there if anything is.
        (0..slots)
            .rev()
            .map(|slot| self.child_at(node.place(slot)))
            .find(|child| !child.is_none())
            .unwrap_or(Child::NONE)
    }

    fn prefetch_children(&self, node: Child, _direction: Direction) {
        // What ends here is visited at once.
        for slot in self.slots(node) {
            let child = Child(slot.load_acquire(self.handle.pool.domain()));
            if !child.is_none() {
                self.handle.pool.prefetch(child.as_node());
            }
        }
    }

    /// There is a place for each child.
    #[inline(always)]
    fn prefetch_for_adding(&self, _node: Child) {}

    fn node_bytes(&self, node: Child) -> usize {
        node_bytes::<K>(node.position::<K>())
    }

    fn node_problems(&self, _node: Child, _report: &mut dyn FnMut(String)) {}

    #[inline]
    fn replaces_parent(&self, key: &Nibbles<'_, K>, parent: &Parent<Child>, removes: bool) -> bool {
        let slot = key.slot_at(parent.node.position::<K>());
        removes
            && slot
                .is_some_and(|slot| self.only_other(parent.node, parent.node.place(slot)).is_some())
    }

    #[inline]
    fn add(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        descent: &Descent<Self>,
        _held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        self.link_leaf(key, value, descent.place)
    }

    #[inline]
    fn split(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        split: Split<Self>,
        _held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        self.split_prefix(key, value, split)
    }

    #[inline]
    fn unlink(
        &self,
        key: &Nibbles<'_, K>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        self.unlink_leaf(key, leaf, descent, held)
    }
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "wort",
    title: "WORT",
    paper: "Lee et al., FAST 2017",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(2, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/wort", "index/src/radix"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("wort:u64"),
            Run::byte_strings("wort:bytes"),
            // So few that nothing is left.
            Run::drained("wort:drained").of(24),
        ],
        histories: &[
            ("wort:splitting", History::SplitNode),
            ("wort:unlinking", History::UnlinkedNode),
            ("wort:thinning", History::ThinnedNode),
        ],
        persist_points: (200, 2),
        rate_operations: 1500,
    },
};
