//! wB+-Tree, the write-atomic B+-tree (*Persistent B+-Trees in Non-Volatile Main Memory*, Chen and
//! Jin, PVLDB 8(7), 2015): entries of a node lie where there is room, a small slot array gives their
//! order, and one 8-byte store says which of them count. Inner nodes are persistent too; what takes
//! more than one node goes through a redo log.
//!
//! ```text
//!  root (IndexRoot): top = top node (48 bits), number of inner levels (16); words[0] = bytes per node,
//!                    words[1] = kind of nodes (1: bitmap and slots, 2: slots only), words[2] = redo log
//!
//!  node with a bitmap, 1,152 bytes or           node with slots only, 128 bytes
//!  as asked for (1,664 with byte strings)       (192 with byte strings)
//!       0     8 control                              0     8 control
//!       8     8 version                              8     8 leftmost
//!      16     8 leftmost: the child below           16     - entries, 7
//!               all separators
//!      24    40 reserved, zero                  entry
//!      64    64 slot array: the places of the        0     8 key, or its first 8 bytes, big-endian
//!               entries in order, a byte each        8     8 value, or child
//!     128     - entries, up to 63                   16     8 key word (key.rs): byte strings only
//!
//!  control word with a bitmap     bit 63: the slot array is right (valid); bit i: the entry in place i counts
//!  control word with slots only   bits 0..4: count; 4..32: the places in order, 4 bits each; 32..64: version
//! ```
//!
//! A child of an entry holds the keys from that entry's on (its *separator*) to the next one's.
//! [`WbTree`] and [`WbTreeSlot`](crate::WbTreeSlot), which have the paper's names, are the kinds `N`.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. What the control word says counts is durable: the entry, its key's block, the child below
//!   it. So is what `top` leads to.
//! * I2. If a control word is durably valid, its slot array has the places of the entries that count,
//!   in the order of their keys, and is durable. If it is not valid, and always behind the last
//!   entry, the slot array may be anything.
//! * I3. Every entry owns its key's block, in leaves and in inner nodes. A block is retired when the
//!   change that took its entry away is durable.
//! * I4. But for what the redo log covers, at most one word that matters differs from what is durable,
//!   a control word or a value: writers take turns, and each persists such a store before the next.
//! * I5. Changes of several nodes, splits and merges, are in the redo log before any word of them is
//!   stored; it is emptied when all of them are durable, and redone when the index is opened if it is
//!   not empty then.
//! * I6. Whoever goes from `top` to a leaf, and finds each node unchanged when the next one has been
//!   looked at, has come to the leaf that has the key if any has. An entry beyond a leaf's upper
//!   bound does not count.
//! * I7. All leaves are at the same depth. A node is full at most and may be empty; the top node has
//!   two children, or is a leaf.
//!
//! # Order of stores
//!
//! ```text
//!  with a bitmap
//!  insert            control, invalid: flush │ fence │ entry, slot array: flush │ fence │
//!                    control, valid: flush │ fence
//!  insert, at the end or where the slot array is invalid already: without the first step
//!  remove            control, invalid: flush │ fence │ slot array: flush │ fence │ control, valid
//!  remove, the last  control: flush │ fence
//!
//!  with slots only
//!  insert            entry: flush │ fence │ control: flush │ fence
//!  insert, in the line of the control word: entry │ control: flush │ fence
//!  remove            control: flush │ fence
//!
//!  update            value: flush │ fence
//!  split, merge      new node, new entries: flush │ the log's (redo_log.rs)
//! ```
//!
//! A byte-string key's block is flushed before the first fence of its insertion, and takes one of its
//! own where there is none. Writers hold a mutex, which is volatile, so there is one handle per index;
//! readers never wait. `docs/wb-tree.md` says how, why I6 holds, what differs from the paper, and what
//! opening does after a crash.

mod bitmap;
mod change;
mod check;
pub mod mutants;
mod node;
mod node_kind;
mod redo_log;
mod restructure;
mod scan;
mod search;
mod slots_only;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{
    Blocks, Committed, Domain, Durable, InFlight, Link, Optimisations, Owned, OwnerLock, Pool,
    Resident, SoleUse, persist_before_answer,
};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::root::IndexRoot;
use node::{Node, Place, Shape, Top};
pub use node_kind::{BitmapAndSlots, SlotsOnly, WbTreeNodeKind};
use redo_log::Log;

/// The newest layout that this code reads, and the one it writes.
const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per node.
const NODE_BYTES_WORD: usize = 0;
/// [`IndexRoot::words`]: the kind of nodes.
const NODES_WORD: usize = 1;
/// [`IndexRoot::words`]: the redo log.
const LOG_WORD: usize = 2;

/// A B+-tree with unsorted nodes and slot arrays. The layout and the invariants are in the source's
/// header comment.
///
/// Keys are ordered, readers never wait, writers take turns. [`WbTreeSlot`](crate::WbTreeSlot) is the structure with the
/// other kind of nodes.
#[derive(Debug)]
pub struct WbTree<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind = BitmapAndSlots> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    root_block: Resident<D, IndexRoot>,
    log: Link<Log>,
    shape: Shape,
    /// Held by whoever changes the tree.
    writer: OwnerLock<()>,
    in_flight: InFlightPlace,
    _alone: SoleUse<D>,
    _keys: PhantomData<fn(&K, N)>,
}

/// The offset of the one word that is visible and may not be durable, or zero (I4). On a line of
/// its own, since every reader reads it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct InFlightPlace(AtomicU64);

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> WbTree<D, K, N> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        &self.root_block
    }

    /// Where the root's `top` is.
    fn top_place(&self) -> Place {
        Link::from_bits(self.root.offset() + offset_of!(IndexRoot, top) as u64)
    }

    fn log_link(&self) -> Link<Log> {
        self.log
    }

    fn log(&self) -> &Log {
        self.pool.at(self.log)
    }

    /// Makes the one store of a change and persists it (I4): of the word that makes `new` reachable,
    /// all of which is durable (I1). The caller holds the writers' lock.
    #[inline]
    #[track_caller]
    fn publish<B: Blocks<Durable>>(&self, place: Place, new: B, word: u64) -> Committed {
        // The store below is a release: whoever sees it sees the place.
        self.in_flight.0.store(place.offset(), Ordering::Relaxed);
        let committed = self.pool.at(place).publish_word(self.domain(), new, |_| word).persist();
        // The processor keeps the order of these stores; a model of it does not see the last one.
        self.domain().synchronize();
        self.in_flight.0.store(0, Ordering::Release);
        committed
    }

    /// Makes durable what a reader may have seen of a change that is under way: at most one word
    /// (I4). Called after the last load an answer rests on, which was an acquire.
    #[inline(always)]
    fn persist_before_return(&self) {
        let place = self.in_flight.0.load(Ordering::Acquire);
        if place != 0 {
            let place: Place = Link::from_bits(place);
            persist_before_answer(self.domain(), [self.pool.at(place)]);
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized, N: WbTreeNodeKind> Index<D, K> for WbTree<D, K, N> {
    const KIND: IndexKind = N::KIND;
    // An update stores the value, and fences after it.
    const CAPABILITIES: Capabilities =
        Capabilities { concurrent_writers: false, ..Capabilities::ORDERED };

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let shape = Shape::new::<K>(N::NODES, options.node_bytes)?;
        let domain = pool.domain();
        let mut root = pool.allocate::<IndexRoot>()?;
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.words[NODE_BYTES_WORD].store(domain, shape.node_bytes as u64);
        root.words[NODES_WORD].store(domain, shape.nodes as u64);
        let log = redo_log::create(pool)?;
        let leaf = node::build(pool, &shape, 0, &[])?.flush();
        // I1: all are flushed, and one fence of the caller's comes before the root is published.
        root.link_children(|root| &root.words[LOG_WORD], log, |log| log.link().bits());
        root.link_children(|root| root.top.word(), leaf, |leaf| Top::new(leaf.link(), 0).0);
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let (found, alone) =
            IndexRoot::open_alone(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let domain = pool.domain();
        let damaged = |what: String| IndexError::Damaged { what };
        let nodes = found.words[NODES_WORD].load(domain);
        if nodes != N::NODES as u64 {
            return Err(damaged(format!("nodes of kind {nodes}")));
        }
        let node_bytes = found.words[NODE_BYTES_WORD].load(domain) as usize;
        let shape = match Shape::new::<K>(N::NODES, node_bytes) {
            Ok(shape) if node_bytes > 0 => shape,
            _ => return Err(damaged(format!("nodes of {node_bytes} bytes"))),
        };
        let log = Link::<Log>::from_bits(found.words[LOG_WORD].load(domain));
        // I5.
        pool.try_at(log)
            .ok_or_else(|| damaged("its redo log is outside the pool".into()))?
            .recover(&pool)?;
        let top = Top(found.top.word().load(domain));
        if Node::find(&pool, &shape, top.link()).is_none() {
            return Err(damaged("its top node is outside the pool".into()));
        }
        let in_flight = InFlightPlace::default();
        let writer = OwnerLock::new(());
        let root_block = pool.resident(root);
        let (_alone, _keys) = (alone, PhantomData);
        Ok(Self { pool, root, root_block, log, shape, writer, in_flight, _alone, _keys })
    }

    forward_to_files!(D, K);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "wb-tree",
    title: "wB+-Tree",
    paper: "Chen and Jin, PVLDB 2015",
    insert_u64: InsertCost::of(4, 3),
    insert_bytes: InsertCost::of(5, 3),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/wb_tree/", "!index/src/wb_tree/slots_only"],
        options: IndexOptions { node_bytes: 256, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("wb-tree:u64"),
            Run::byte_strings("wb-tree:bytes"),
            Run::drained("wb-tree:drained"),
            Run::large("wb-tree:in-use", 1200).as_in_use(),
        ],
        histories: &[
            ("wb-tree:merging", History::MergedNode(8)),
            ("wb-tree:giving-way", History::RootGivenWay(8)),
        ],
        persist_points: (200, 2),
        rate_operations: 60,
    },
};
