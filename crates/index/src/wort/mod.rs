//! WORT, the write-optimal radix tree (Lee, Lim, Song, Nam and Noh, FAST 2017): a radix tree with
//! path compression in which every change is one failure-atomic store of eight bytes.
//!
//! A key is a string of 4-bit nibbles. A node has a slot for each value of the nibble at its
//! *branch position*, by which the keys below it are the first to differ; nodes where all keys
//! would take the same slot are left out (path compression). The nibbles between the branch
//! position of the node above and its own are a node's *prefix*, the first of them is its *depth*.
//!
//! ```text
//!  IndexRoot.top ──▶ slot word
//!
//!  slot word: nothing (0), a leaf, or a node
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
//!       8     8  slot of nibble 0                 8     8  key (integers), or its length in bytes
//!     ...                                        16     n  key (byte strings)
//!     128     8  slot of nibble 15
//!     136     8  slot of the key that ends here
//!                (byte strings, even positions)
//! ```
//!
//! The last slot lets a byte string be a prefix of another and hold any bytes. Only where a whole
//! byte ends can a key end, so a node at an odd position lacks it; so does every node for integers,
//! whose 16 nibbles never end early.
//!
//! # Headers
//!
//! A descent that looks for a key skips prefixes unseen, by the branch positions in the slot words,
//! touches one line per node, and compares the whole key at the leaf. Only inserts read headers: a
//! prefix of up to seven nibbles is compared on the way, so that neither the point at which to
//! split it nor an empty slot behind it takes a visit to a leaf. Of a longer prefix the first seven
//! are compared, and if they agree, all the rest at the end, with any one leaf below (hybrid path
//! compression).
//!
//! Splitting a prefix and removing a node change the depth of the node below and with it the
//! header that is right for it. No one store can do that together with the slot above. But depth
//! and prefix length only change together: their sum, the branch position, is fixed when the node
//! is made, and so are the nibbles before it (I3). What a header says is therefore true for good,
//! even if it is no longer what is asked for:
//!
//! * The header *right* for a node is fully given by its depth; the nodes above give that. A header
//!   of another depth is *stale*, which whoever comes from above sees at once.
//! * Every header that was ever stored in a node was right at some time and is true of it (I8). So
//!   whichever a power cut leaves, its depth says whether it is right; none is wrong unnoticed.
//! * An insert that meets a stale one rebuilds it from any leaf below, with one store
//!   (`recover_header`). No header has to be looked at when an index is opened.
//!
//! # What differs from the paper, and why
//!
//! * Splitting flushes one line less. Algorithm 1 writes back the old node's header with the new
//!   blocks, before the slot above. Here that flush would promise nothing: if the header is lost,
//!   the old one is found stale and rebuilt. The header is stored after the slot is durable and
//!   left to the caches. Either order would do: before the slot, the new depth would be the one
//!   that does not match. After it, a power cut in between leaves nothing to rebuild if the slot
//!   has not come through.
//! * For the same reason rebuilding (Algorithm 2) flushes nothing; and it takes one leaf instead of
//!   two, since the slot above knows where the prefix ends.
//! * The header of a node that moves up because the one above is removed stays stale until an
//!   insert comes by: its block is not touched otherwise. No flush either way.
//! * Reads never see a header, stale or not.
//!
//! Lines flushed by an insert: 2 into an empty slot, 5 if it makes a node.
//!
//! Removing the last but one child of a node redirects the slot above to the remaining child: the
//! store that removes the key takes the node out as well, so no node ever has fewer than two.
//!
//! # Invariants
//!
//! They hold in every state that a crash can leave, but for the stores in flight, each of which is there
//! or not (I6).
//!
//! * I1. A word in the root or in a reachable node is nothing, a leaf or a node whose block was
//!   durable, in all its lines, before the word was stored.
//! * I2. Branch positions strictly increase from node to child.
//! * I3. All keys below a node that branches at `p` agree on the nibbles before `p`; a key is below
//!   the slot of its nibble at `p` (or the end slot, if it ends there). Neither `p` nor those
//!   nibbles change while the node is reachable.
//! * I4. A reachable node has at least two children.
//! * I5. A reachable leaf's key never changes. Its value changes, by one store, if keys are
//!   integers; leaves of byte strings are replaced (see below).
//! * I6. A reachable slot word or value differs from what is durable only while the writer that
//!   stored it holds the stripe (see *Concurrency*) of the node it is in, and those of all new nodes
//!   that it leads to: a writer makes one such store and persists it before it lets go of them. So
//!   there is at most one in a node, none in a node that is about to be replaced, taken out or linked,
//!   and whichever of several a power cut takes back, the invariants hold.
//! * I7. A block is retired only when the store that unlinked it is durable.
//! * I8. The header of a reachable node that branches at `p` is true of it: depth `d` is at most
//!   `p`, prefix length is `p - d`, and the nibbles are those at `d` and behind, before `p`, of
//!   every key below. If `d` is where the node's prefix starts, the header is right; otherwise it
//!   is stale. It holds when the node is published (I1) and for all that is stored later, in any
//!   order in which that persists, since neither `p` nor those nibbles change (I3).
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
//! An insert may also rebuild headers on its way; like the one below a split, they are only stored.
//! A removal with two children leaves the header of the other child, if it is a node, stale.
//!
//! The fence before a slot is what I1 needs. It orders the caller's earlier flushes too, so with
//! byte strings a value may refer to a block that its caller has only flushed
//! ([`Capabilities::orders_prior_flushes`]); for this, an update replaces the leaf although
//! storing the value would do. With integers it stores the value, at half the price, and promises
//! nothing of the kind.
//!
//! # Concurrency
//!
//! Readers take no lock, pin the pool and may be anywhere while writers store. Writers go down as
//! readers do, and then lock what they are about to change. The locks are *stripes*, a fixed number of
//! them in the host's memory (`radix/stripes.rs`). A node's stripe is given by its branch: its
//! position and the digits before it. Those never change (I3), a node and its copies have them in
//! common (so a copy is locked with what it replaces), and they are known of a node that is yet to be
//! made. The stripe of a leaf is that of the node it hangs from. The root has one for `top`.
//!
//! * Who stores into a slot or a value, holds the stripe of the node it is in.
//! * Who replaces a node or takes it out, holds its stripe and that of the node above.
//! * Who makes a node, holds its stripe until the word that refers to it is durable.
//!
//! A writer takes its stripes with its pool pinned if they are free; if not, it lets the pool go and
//! waits for all of them in the order of their numbers, and goes down again. Either way it makes sure,
//! with the stripes in its hands, that what it found is still there (W1 to W4).
//!
//! Headers are stored without a stripe, by whoever finds them stale: what two writers store there is
//! true, in whatever order (I8). A reader, or a writer that finds nothing to change, persists before it
//! answers the words that writers have named as in flight (`radix/in_flight.rs`).
//!
//! `docs/wort-concurrency.md` tells why that is enough, why an answer is of one instant, and the rules W1
//! to W4 by which a writer knows that what it found without locks is still there.
//!
//! One handle per index: a second one would have its own locks.

mod change;
pub mod mutants;
mod node;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use lapis_pmem::{Committed, Domain, Link};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Direction, IndexOptions};
use crate::key::IndexKey;
use crate::radix::{
    Changing, Descending, Descent, Digits, Handle, Held, Leaf, Mutants, Nibble, Obstacle, Parent,
    Place, RadixTree, SlotWord, Span, Split, mutants_of,
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
    fn child_below(&self, node: Child, slot: usize) -> Child {
        self.child_at(node.place(slot))
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
        let first = usize::from(!has_end_slot::<K>(node.position::<K>()));
        let at = |rank: usize| {
            let child = self.child_at(node.place(Nibble::slot_of(rank)));
            (!child.is_none()).then_some((rank, child))
        };
        match direction {
            Direction::Forward => (rank..=Nibble::SLOTS).find_map(at),
            Direction::Backward => (first..=rank).rev().find_map(at),
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
        let slots = Nibble::SLOTS + usize::from(has_end_slot::<K>(node.position::<K>()));
        for slot in 0..slots {
            let child = self.child_at(node.place(slot));
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
        _held: &Held<'_, D>,
    ) -> Result<Committed, Obstacle> {
        self.link_leaf(key, value, descent.place)
    }

    #[inline]
    fn split(
        &self,
        key: &Nibbles<'_, K>,
        value: u64,
        split: Split<Self>,
        _held: &Held<'_, D>,
    ) -> Result<Committed, Obstacle> {
        self.split_prefix(key, value, split)
    }

    #[inline]
    fn unlink(
        &self,
        key: &Nibbles<'_, K>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &Held<'_, D>,
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
    in_a_store: [(4, 3), (4, 3), (2, 2)],
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/wort", "index/src/radix"],
        options: IndexOptions::DEFAULT,
        runs: &[Run::integers("wort:u64"), Run::byte_strings("wort:bytes")],
        histories: &[
            ("wort:splitting", History::SplitNode),
            ("wort:unlinking", History::UnlinkedNode),
        ],
        persist_points: (200, 2),
        rate_operations: 1500,
    },
};
