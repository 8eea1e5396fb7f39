//! P-HOT: the height-optimised trie on persistent memory.
//!
//! Lee, Mohan, Kashyap, Kim, Chidambaram: "RECIPE: Converting Concurrent DRAM Indexes to
//! Persistent-Memory Indexes", SOSP 2019; the trie it converts: Binna, Zangerle, Pichl, Specht, Leis:
//! "HOT: A Height Optimized Trie Index for Main-Memory Database Systems", SIGMOD 2018. A binary Patricia
//! trie is cut into nodes of up to 32 entries, so that its height depends on how many keys there are and
//! not on how they are spread. Nodes are replaced by copies; readers look at no lock.
//!
//! ```text
//!  IndexRoot: top ──▶ node or leaf;  words[0] = the lock under which top changes
//!
//!  word: nothing (0), a leaf, or a node
//!   63                  48 47                                 4  3        1   0
//!  +----------------------+------------------------------------+----------+---+
//!  | height of a node     |  link (blocks start at multiples of 16)       | L |   L: 1 = leaf
//!  +----------------------+------------------------------------+----------+---+
//!
//!  Node of n entries, 2 to 32
//!  offset bytes  field
//!       0     8  lock: GenerationLock
//!       8     8  shape: n, kind of masks, width of partial keys, window: a byte each but the last, at 32
//!      16     m  masks: one of 8 bytes, over the eight bytes of the key that begin at the window;
//!                or 8, 16 or 32 times a byte's number (24 bits) and a mask over it (8)
//!    16+m     p  n partial keys of 1, 2 or 4 bytes, by the number of bits in the masks; up to a multiple of 8
//!  16+m+p    8n  entries: words, in the order of keys; up to whole lines
//! ```
//!
//! Masks name the bits at which the trie in the node branches, 31 at most. A partial key has those of its
//! entry's bits at which its own way branches, and zero for the others (`search.rs`). With integers there
//! is one mask always; a node with the paper's nine layouts is one piece of code with the kind of
//! masks and a width. Leaves are those of the radix trees (`radix/leaf.rs`). Keys are sequences of
//! bits (`bits.rs`). What is changed is an easier form, entries and the positions between them
//! (`contents.rs`), from which a new node is made (`node.rs`).
//!
//! # Invariants, at every instant a crash may come
//!
//! * H1. A node has 2 to 32 entries, of which at least two are something. An entry that is nothing is no key's;
//!   only removals without room for a copy leave any (H6).
//! * H2. Shape, masks and partial keys are just what is made of the positions at which the node's trie
//!   branches, and never change. Lock and entries do.
//! * H3. The keys to the left and the right of a branch agree in all bits before its position, and have there
//!   0 and 1. Positions increase on each way down, through all nodes; heights decrease.
//! * H4. A change is one store of one word, of an entry, of top or of an integer's value. All that it makes
//!   reachable is durable before it. An acknowledgement comes when it is durable itself, and so does an
//!   answer that has seen it (`Handle::publish`).
//! * H5. A word changes under the lock of the node that it is in, which is locked in the present generation
//!   of the pool; a crash unlocks everything. Who replaces nodes holds the locks of all of them and
//!   never gives these back: that is the obsolete mark. A new node is locked by who makes it until
//!   the word that leads to it is durable.
//! * H6. A removal that finds no room for a copy makes the entry nothing. Whoever copies the node next
//!   leaves it out, and an insertion that comes upon it does so first.
//! * H7. What was replaced is retired when the store is durable, and given back when nobody can be reading it.
//!   A replaced node keeps its last entries.
//!
//! # The order of stores
//!
//! ```text
//!  each of these stands between       locks of the node and of the one above (and further up, where that is
//!                                     replaced) ... that of the highest given back; none is flushed
//!  leaf-node pushdown    leaf, node of 2, locked: flush │ fence │ entry: flush │ fence │ unlock the new
//!  normal insert         leaf, copy, locked: flush │ fence │ word above: flush │ fence │ unlock, retire
//!  parent pull up        leaf, both halves, copy of the node above, locked: flush │ fence │ word above that:
//!                        flush │ fence │ unlock, retire both; so again if that one overflows
//!  intermediate node     leaf, both halves, node of 2 above them, locked: flush │ fence │ word above:
//!    or new root         flush │ fence │ unlock, retire
//!  update                integers: value: flush │ fence; byte strings: a new leaf takes its place
//!  remove                copy, locked: flush │ fence │ word above: flush │ fence │ unlock, retire with leaf
//!  remove, 2 entries     word above := the other entry: flush │ fence │ retire node and leaf
//!  remove, joining       joined node, copy of the node above, locked: flush │ fence │ word above that: flush
//!                        │ fence │ unlock, retire three nodes and the leaf
//!  remove, no room       entry := nothing: flush │ fence │ retire the leaf
//! ```
//!
//! A writer goes down without locks to a leaf, compares, and goes down again to where the bit is at which the
//! keys differ. Then it tries the lock of that node and of the one above; if one is taken, or
//! something is not there any more, it begins anew. A key's place in a node, and the position, are
//! right as long as the leaf that was compared is below the entry: the masks never change.
//!
//! # What differs from the papers, and why
//!
//! * Byte strings need no terminator and may have zero bytes: their length is part of the bits.
//! * Heights are in words, not in nodes, so that a new node's height takes no other node to be read.
//! * Where RECIPE copies a node before it knows that the parent will have to change, too, all new nodes
//!   are made first and become reachable by one store. The published code stores the halves' words one by one.
//! * Two nodes are joined where both together have 16 entries or fewer, half of what fits, lest
//!   the next insertion divide them again.

mod bits;
mod change;
mod check;
mod contents;
mod entry;
pub mod mutants;
mod node;
mod read;
mod rebuild;
mod scan;
mod search;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_pmem::{Domain, InFlight, Link, Optimisation, Optimisations, Owned, Pool};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, Run};
use crate::index::{Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::radix::{Handle, LockMutants};
use crate::root::IndexRoot;

use search::Instructions;

const LOCK_MUTANTS: LockMutants = LockMutants {
    persisted_lock: mutants::PERSISTED_LOCK,
    new_node_unlocked: mutants::NEW_NODE_UNLOCKED,
};

/// A P-HOT. The layout and the invariants are in the source's header comments.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an
/// insert or update fences between the caller's earlier flushes and the moment the value can be
/// reached; with integer keys it does not promise that.
#[derive(Debug)]
pub struct PHot<D: Domain, K: IndexKey + ?Sized> {
    handle: Handle<D>,
    instructions: Instructions,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for PHot<D, K> {
    const KIND: IndexKind = IndexKind::PHot;

    fn create<'p>(
        pool: &'p Pool<D>,
        _options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        Handle::create(pool, IndexKind::PHot, K::KIND)
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let handle = Handle::open(pool, root, IndexKind::PHot, K::KIND)?;
        Ok(Self { handle, instructions: Instructions::detect(), _keys: PhantomData })
    }

    forward_to_files!(D, K, trie);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "p-hot",
    title: "P-HOT",
    paper: "Lee et al., SOSP 2019",
    insert_u64: None,
    insert_bytes: None,
    optimisations: Optimisations::of(&[Optimisation::EarlyEviction]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/p_hot", "index/src/radix/handle.rs", "index/src/radix/in_flight.rs"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("p-hot:u64"),
            Run::byte_strings("p-hot:bytes"),
            // With nodes that overflow, and are joined.
            Run::drained("p-hot:wide").of(160).filled(),
            Run::drained("p-hot:emptied").of(12),
            // H6: removals without room for a copy.
            Run::large("p-hot:cramped", 320).cramped(1 << 20),
            Run { byte_strings: true, ..Run::large("p-hot:deep", 4000) },
        ],
        histories: &[
            ("p-hot:splitting", History::SplitNode),
            ("p-hot:unlinking", History::UnlinkedAbove(contents::FANOUT as u64)),
            ("p-hot:put-between", History::PutAboveFull(contents::FANOUT as u64)),
        ],
        persist_points: (200, 2),
        rate_operations: 400,
    },
};
