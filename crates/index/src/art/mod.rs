//! What WOART, ART+CoW and P-ART have in common: adaptive radix trees for persistent memory (Lee, Lim, Song,
//! Nam and Noh, FAST 2017, after the adaptive radix tree of Leis, Kemper and Neumann, ICDE 2013).
//!
//! A key is a string of bytes. As in [`Wort`](crate::Wort), a node branches at a position, by which
//! the keys below it are the first to differ (path compression), and a key that shares its way with
//! no other hangs where that way begins (lazy expansion); a word that refers to a node holds its
//! branch position, so that a reader touches no header. What is new is that a node has room for as
//! many children as it needs, in four kinds.
//!
//! ```text
//!  slot word: nothing (0), a leaf, or a node
//!   63                  48 47                                 4  3   2 1   0
//!  +----------------------+------------------------------------+---+-----+---+
//!  | branch position      |  link (blocks start at multiples of 16) | kind| L |
//!  +----------------------+------------------------------------+---+-----+---+
//!    kind: 0 = Node4, 1 = Node16, 2 = Node48, 3 = Node256     L: 1 = leaf, and all else is zero
//!
//!  Node4, 56 bytes, one line                 Node16, 168 bytes, three lines
//!  offset bytes  field                       offset bytes  field
//!       0     8  header                           0     8  header
//!       8     8  child of the key that ends       8     8  child of the key that ends
//!                here (byte strings)                       here
//!      16     8  entries: 4 keys, 4 slots        16     8  bitmap: 16 bits, the rest zero
//!      24    32  4 children                      24    16  16 keys
//!                                                40   128  16 children
//!
//!  Node48, 656 bytes                         Node256, 2064 bytes
//!       0    16  as above                         0    16  as above
//!      16   256  child index: per byte           16  2048  256 children
//!                1 + child number, or 0
//!     272   384  48 children
//!
//!  leaf: 16 bytes and the key's: value, key (integers) or its length, then its bytes
//! ```
//!
//! Blocks of these sizes start on a line. Nodes of P-ART have a lock at 16, and all that is behind the
//! first two words comes eight bytes later. The header is WORT's with bytes for digits: depth 16 bits,
//! prefix length 16 bits, the first four bytes of the prefix (hybrid path compression); it is read by
//! inserts only. A node keeps its kind for life and its branch position with it; one of another kind
//! is another node. It grows when it is full and shrinks at 3, 12 and 37 bytes, so that no node is
//! copied back and forth at a limit.
//!
//! An entry that does not *count* is one that no slot of the entries word, bit of the bitmap or
//! number of the child index leads to. What its key and child hold means nothing: a power cut may
//! leave anything there. So free entries are found by what counts and never by null children, which
//! would lose an entry with every such power cut.
//!
//! # Invariants
//!
//! They hold in every state that a crash can leave, but for the stores in flight, each of which is there
//! or not (I6). I1 to I8 are those of all radix trees here.
//!
//! * I1. A word in the root, and one that counts in a reachable node, is nothing, a leaf or a node
//!   whose block was durable, in all its lines, before the word was stored or began to count.
//! * I2. Branch positions strictly increase from node to child.
//! * I3. All keys below a node that branches at `p` agree on the bytes before `p`; a key is below
//!   the entry of its byte at `p` (or `end`, if it ends there). Neither `p` nor those bytes change
//!   while the node is reachable.
//! * I4. A reachable node has at least two children.
//! * I5. A reachable leaf's key never changes. Its value changes, by one store, if keys are
//!   integers; leaves of byte strings are replaced.
//! * I6. A reachable word, among those that count or make count and the values, differs from what is
//!   durable only while the writer that stored it holds the stripe of the node it is in, and those of
//!   all new nodes that it leads to: a writer makes one such store and persists it before it lets go
//!   of them.
//! * I7. A block is retired only when the store that unlinked it is durable.
//! * I8. The header of a reachable node that branches at `p` is true of it: depth `d` is at most
//!   `p`, prefix length is `p - d`, and the bytes are those at `d` and behind, before `p`, of every
//!   key below. If `d` is where the node's prefix starts, the header is right; otherwise it is
//!   stale, and the next insert that comes by rebuilds it from a leaf.
//! * I9. An entry begins to count only when its key and its child are durable, or lie on the line of
//!   the word that makes it count and were stored before that word. In a node no byte and no child
//!   counts twice, and no child that counts is nothing.
//!
//! # Concurrency
//!
//! That of [`Wort`](crate::Wort), but for the locks of P-ART, which are in its nodes: readers take no lock, pin the pool, and persist before they answer
//! the words that writers have in flight; writers lock the nodes they change by stripes, which a node
//! has in common with its copies, whatever their kind. So the copy of a full node, and that of a node
//! which moves up or sinks, is locked before it can be found. Who copies a node that sinks or moves up
//! holds its stripe as well, so that nothing is stored into it meanwhile; who lets it move in place
//! need not.
//!
//! A writer replaces nodes by copies, of which readers that are inside the old one see nothing; it had
//! been what it is while they were on their way. What readers do about entries that change hands is
//! told in `read.rs`; writers on their way down do the same. An entry that is being filled does not
//! count, and nobody rests on it.
//!
//! Whether a node has to be copied shows for certain only under its stripe. A writer that finds so
//! without the stripe of the node above starts again with both.

mod copies;
mod entries;
pub(crate) mod node;
pub(crate) mod policy;
mod read;
mod remove;
#[cfg(test)]
mod tests;
mod write;

use std::marker::PhantomData;

use lapis_pmem::{Committed, Domain, Link, Reach};

use crate::IndexKind;
use crate::index::{Change, Direction, IndexError, Outcome};
use crate::key::IndexKey;
use crate::radix::{
    Byte, Changing, Descending, Descent, Digits, Handle, Holding, Leaf, Mutants, Obstacle, Parent,
    Place, RadixTree, SlotWord, Span, Split,
};
use node::{Child, Kind};
use policy::{Policy, Removal};

/// An adaptive radix tree whose small nodes and headers change as `P` says.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached;
/// with integer keys it does not promise that.
#[derive(Debug)]
pub struct Art<D: Domain, K: IndexKey + ?Sized, P: Policy> {
    handle: Handle<D>,
    _keys: PhantomData<fn(&K) -> P>,
}

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> RadixTree for Art<D, K, P> {
    type Domain = D;
    type Key = K;
    type Span = Byte;
    type Word = Child;
    const KIND: IndexKind = P::KIND;
    const MUTANTS: Mutants = P::MUTANTS.of_all;
    const COPIES_WHAT_SINKS: bool = P::COPIES;
    const ENTRIES_CHANGE_HANDS: bool = true;

    fn from_handle(handle: Handle<D>) -> Self {
        Self { handle, _keys: PhantomData }
    }

    #[inline(always)]
    fn handle(&self) -> &Handle<D> {
        &self.handle
    }

    #[inline]
    fn change_key(&self, key: &K, change: Change) -> Result<Outcome, IndexError> {
        P::change(self, key, change)
    }

    #[inline(always)]
    fn child_below(&self, reach: &Reach<'_, D>, node: Child, slot: usize) -> Option<Child> {
        if slot == Byte::END_SLOT {
            Some(self.end_child(node))
        } else {
            self.child_of_byte(reach, node, slot as u8)
        }
    }

    #[inline(always)]
    fn place_of(&self, node: Child, slot: usize) -> Option<Place> {
        if slot == Byte::END_SLOT {
            return Some(node.end_place());
        }
        self.entry_of(node, slot as u8).map(|entry| node.child_place::<P>(entry))
    }

    #[inline(always)]
    fn fixed_place_of(&self, node: Child, slot: usize) -> Option<Place> {
        match slot {
            Byte::END_SLOT => Some(node.end_place()),
            _ => (node.kind() == Kind::Full).then(|| node.child_place::<P>(slot)),
        }
    }

    #[inline]
    fn next_child(&self, node: Child, rank: usize, direction: Direction) -> Option<(usize, Child)> {
        self.next_ranked(node, rank, direction)
    }

    fn next_child_before(&self, node: Child, rank: usize, end: usize) -> Option<(usize, Child)> {
        self.next_ranked_before(node, rank, end)
    }

    /// Of a node of 48, an index word is about eight bytes, all of them in one stretch.
    #[inline]
    fn stretch_ranks(&self, node: Child) -> Option<usize> {
        match node.kind() {
            Kind::Four | Kind::Sixteen => None,
            Kind::FortyEight => Some(32),
            Kind::Full => Some(16),
        }
    }

    fn any_child(&self, node: Child) -> Child {
        self.next_ranked(node, 0, Direction::Forward).map_or(Child::NONE, |(_, child)| child)
    }

    fn prefetch_children(&self, node: Child, direction: Direction) {
        self.prefetch_some(node, direction);
    }

    #[inline(always)]
    fn prefetch_for_adding(&self, node: Child) {
        self.prefetch_rest(node);
    }

    /// It is on the line of the head, which wide nodes need not have been asked for.
    #[inline(always)]
    fn prefetch_lock(&self, node: Child) {
        if P::LOCK_BYTES > 0 && node.kind() >= Kind::FortyEight {
            self.handle.pool.prefetch(node.lock_place());
        }
    }

    #[inline]
    fn node_bytes(&self, node: Child) -> usize {
        node.kind().node_bytes::<P>()
    }

    fn node_problems(&self, node: Child, report: &mut dyn FnMut(String)) {
        let (is_sound, has_all) = match node.kind() {
            Kind::Four => {
                let entries = self.entries4(self.body(node));
                (entries.is_sound(), self.are_there(node, entries.iter()))
            }
            Kind::Sixteen => {
                let entries = self.entries16(self.body(node));
                (entries.is_sound(), self.are_there(node, entries.iter()))
            }
            Kind::FortyEight => {
                let index = self.child_index(self.body(node));
                (index.is_sound(), self.are_there(node, index.iter()))
            }
            Kind::Full => (true, true),
        };
        let link = node.head();
        if !is_sound {
            report(format!("I9: the entries of the node at {link:?} are not those of a node"));
        }
        if !has_all {
            report(format!("I9: an entry of the node at {link:?} counts and has no child"));
        }
        if K::INLINE && !self.end_child(node).is_none() {
            report(format!("a key ends at the node at {link:?}, where integers do not"));
        }
    }

    #[inline]
    fn replaces_parent(
        &self,
        key: &Digits<'_, K, Byte>,
        parent: &Parent<Child>,
        removes: bool,
    ) -> bool {
        let node = parent.node;
        match node.kind() {
            // It takes a while to count what these have, and seldom matters.
            Kind::FortyEight | Kind::Full => false,
            _ if removes => {
                self.removal(key, node).is_ok_and(|removal| removal != Removal::InPlace)
            }
            kind => P::COPIES || self.count_bytes(node, kind.capacity()) == kind.capacity(),
        }
    }

    #[inline]
    fn add(
        &self,
        key: &Digits<'_, K, Byte>,
        value: u64,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        match &descent.parent {
            Some(parent) if descent.place.is_null() => self.add_to_node(key, value, parent, held),
            _ => self.link_leaf(key, value, descent.place),
        }
    }

    #[inline]
    fn split(
        &self,
        key: &Digits<'_, K, Byte>,
        value: u64,
        split: Split<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        self.split_prefix(key, value, split, held)
    }

    #[inline]
    fn unlink(
        &self,
        key: &Digits<'_, K, Byte>,
        leaf: Link<Leaf>,
        descent: &Descent<Self>,
        held: &impl Holding,
    ) -> Result<Committed, Obstacle> {
        self.unlink_leaf(key, leaf, descent, held)
    }
}

impl<D: Domain, K: IndexKey + ?Sized, P: Policy> Art<D, K, P> {
    /// Whether the children are there that count.
    fn are_there(&self, node: Child, mut entries: impl Iterator<Item = (u8, usize)>) -> bool {
        entries.all(|(_, entry)| !self.child_at(node.child_place::<P>(entry)).is_none())
    }
}
