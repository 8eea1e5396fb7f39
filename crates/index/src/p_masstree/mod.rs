//! P-Masstree: a trie of B+-trees on persistent memory.
//!
//! Lee, Mohan, Kashyap, Kim, Chidambaram: "RECIPE: Converting Concurrent DRAM Indexes to
//! Persistent-Memory Indexes", SOSP 2019; the tree it converts: Mao, Kohler, Morris: "Cache Craftiness for
//! Fast Multicore Key-Value Storage", EuroSys 2012. A layer is a B+-tree over eight bytes of the keys; where
//! several keys go on from the same eight, there is a layer below for what follows. Integers take one layer.
//!
//! ```text
//!  IndexRoot: top ──▶ root of the first layer, or nothing;  words[0] = the lock under which top changes
//!
//!  Node, 256 bytes, one XPLine                 Entry, 16 bytes; none straddles a line
//!  offset bytes  field                         offset bytes  field
//!       0     8  lock: GenerationLock               0     8  bits: eight bytes of the key, big-endian,
//!       8     8  permutation (permutation.rs)                filled up with zeros
//!      16     8  height: 1 is a border node         8     8  word: an integer's value; or a link and a
//!      24     8  layer: slices of keys above                 tag (node.rs)
//!      32   224  14 entries
//!
//!  border node    entries of slices, in any slot: values of integers; leaves, layers
//!  interior node  children, each with the separator before it, but for the first, whose separator says nothing
//! ```
//!
//! A *slice* is eight bytes of a key and how many of them belong to it, or that it goes on; slices are
//! ordered as keys are. A leaf has the value and the whole key (`radix/leaf.rs`). A node's *bound* is the separator
//! behind it, in the node above or further up; the last node of a level has none.
//!
//! # Invariants, at every instant a crash may come
//!
//! * M1. What a word leads to from `top` is durable.
//! * M2. An entry counts if the permutation names its slot. It was durable before it counted, and stays as it is
//!   while it does, but for its word, which changes by one store.
//! * M3. The entries that count are in the order of their slices, none twice, and not before the separator of
//!   their node. An interior node has a child at least. A border node may be empty if it is the only child, or has
//!   neighbours which nobody has removed a key from since.
//! * M4. Entries from the bound of their node on do not count either. Only a split or a joining that is under way
//!   leaves any, in a node whose lock is held, and a crash in the middle of one. Who takes the lock of a node
//!   first in a generation of the pool takes them out, durably, before their slots are used again.
//! * M5. A slot that counted is written again only after the section of the lock in which it ceased to.
//! * M6. A node changes under its lock, which is held in the present generation of the pool; a crash unlocks
//!   everything. A word that leads to a node changes under the lock of the node that it is in. An unlinking counts in
//!   each node that it unlinks before any lock is given back: who has read one before takes its lock no more, and goes
//!   on from it no more, for what it leads to changes under other nodes from then on. A new node is locked by who
//!   makes it until what leads to it is durable.
//! * M7. A layer below the first has two keys at least, or a layer, and a trie without keys has no node, but where a
//!   crash has cut a joining short; the next removal there completes it.
//! * M8. What was unlinked is retired when the store is durable, and given back when nobody can be reading it.
//!
//! # The order of stores
//!
//! ```text
//!  each of these stands between   locks of the nodes that change ... given back; none is flushed
//!  insert            leaf, entry: flush │ fence │ permutation: flush │ fence
//!   in the permutation's line, an integer     entry, permutation: flush │ fence
//!  split             right node, locked; its entry in the node above: flush │ fence │ permutation above: flush │ fence
//!                    │ permutation of the left node, shorter: flush │ fence │ unlock the right node
//!  split, of a root  right node, node above both, locked: flush │ fence │ word that led to the root: flush │ fence
//!                    │ permutation of the left node, shorter: flush │ fence │ unlock the new ones
//!  new layers        leaf, nodes of all of them, locked: flush │ fence │ word of the leaf that was there: flush │
//!                    fence │ unlock
//!  update            integers: word: flush │ fence; byte strings: a new leaf takes its place
//!  remove            permutation: flush │ fence │ retire the leaf
//!  remove, last key but one of a layer    word that led to the layer := the other leaf: flush │ fence │ retire
//!  remove, last key of all                top := nothing: flush │ fence │ retire
//!  join              entries of the right node, in the left: flush │ fence │ permutation of the left: flush │ fence
//!                    │ permutation above, without the right node: flush │ fence │ retire the right node
//!  root of one child word that led to the root := the child: flush │ fence │ retire the root
//! ```
//!
//! What takes one store is done by one. A split and a joining take several, and each leaves what readers tolerate: as long
//! as the node above has a separator, entries of the left node from there on do not count, be they those that a
//! split has moved already, or those that a joining has not yet given up (M4). So no reader has to repair
//! anything, opening neither, and the next writer there does by one store. A split is done before the insertion that
//! needs it, and one level at a time, from the highest full node down.
//!
//! A reader looks at lock and permutation of a node and then whether the node above, and the word in it, are what they
//! were; at last, whether the section of the border node's lock is still the same (M5). If not, it begins anew: somebody
//! has completed a change meanwhile. So it does where its way ended at a leaf, and the word there leads to a layer by
//! now. It waits for nobody. A writer goes down like a reader and takes the lock of the border node, if nobody has
//! changed the node since; what else it needs it tries to lock, or lets go of everything.
//!
//! # What differs from the papers, and why
//!
//! * A node has 14 entries where the published one has 15, so that it is one XPLine, and interior nodes have
//!   permutations, too, as RECIPE's.
//! * There are no links between neighbours: a split is visible from above by one store, readers look at
//!   the node above once more, and a scan goes back to it for each border node. Keys with the same slice need not be in
//!   one node.
//! * A key that goes on has a leaf of its own with the whole key, instead of a suffix beside its node.
//! * Nodes are joined when they are sparse, where Masstree waits for them to be empty, and a layer of one key is taken
//!   out by the removal that leaves it, where Masstree leaves that to a collector.
//! * Known of the conversion are splits that a crash has left half done and that nobody notices, permutations that
//!   are durable before their entries, and locks that a crash leaves set. `mutants.rs` has each.

mod change;
mod check;
mod locks;
mod merge;
pub mod mutants;
mod node;
mod permutation;
mod read;
mod scan;
mod split;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_pmem::{Domain, InFlight, Link, Optimisation, Optimisations, Owned, Pool};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::radix::{Handle, LockMutants};
use crate::root::IndexRoot;

const LOCK_MUTANTS: LockMutants = LockMutants {
    persisted_lock: mutants::PERSISTED_LOCK,
    new_node_unlocked: mutants::NEW_NODE_UNLOCKED,
};

/// A P-Masstree. The layout and the invariants are in the source's header comments.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached; with integer keys
/// it does not promise that.
#[derive(Debug)]
pub struct PMasstree<D: Domain, K: IndexKey + ?Sized> {
    handle: Handle<D>,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for PMasstree<D, K> {
    const KIND: IndexKind = IndexKind::PMasstree;

    fn create<'p>(
        pool: &'p Pool<D>,
        _options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        Handle::create(pool, IndexKind::PMasstree, K::KIND)
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let handle = Handle::open(pool, root, IndexKind::PMasstree, K::KIND)?;
        Ok(Self { handle, _keys: PhantomData })
    }

    forward_to_files!(D, K, trie);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "p-masstree",
    title: "P-Masstree",
    paper: "Lee et al., SOSP 2019",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::of(&[Optimisation::EarlyEviction]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/p_masstree", "index/src/radix/handle.rs"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("p-masstree:u64"),
            Run::byte_strings("p-masstree:bytes"),
            // With nodes that are joined, and used again at once as layers.
            Run { byte_strings: true, ..Run::drained("p-masstree:drained").of(160).filled() },
            // With a trie that has no key any more.
            Run::drained("p-masstree:emptied").of(6),
            // With interior nodes that are split, and what a power cut leaves beyond a node's bound found by who comes next.
            Run::integers("p-masstree:descending").filled().descending(),
            // With interior nodes that are split.
            Run::large("p-masstree:deep", 600),
        ],
        histories: &[
            ("p-masstree:splitting", History::DividedNode(permutation::WIDTH as u64)),
            (
                "p-masstree:beside",
                History::BothDivided(permutation::WIDTH as u64 - 1, permutation::WIDTH as u64),
            ),
            ("p-masstree:planting", History::TwoInserts(0, 1)),
            ("p-masstree:joining", History::JoinedNode(permutation::WIDTH as u64)),
            ("p-masstree:taking-in", History::JoinedInto(permutation::WIDTH as u64)),
            ("p-masstree:used-slot", History::UsedSlot(12, 1)),
            ("p-masstree:passing", History::LockedNodeMerged(permutation::WIDTH as u64)),
        ],
        persist_points: (200, 2),
        rate_operations: 400,
    },
};
