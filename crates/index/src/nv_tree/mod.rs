//! NV-Tree (Yang, Wei, Chen, Wang and Yong, FAST 2015): a B+-tree of which only the leaves persist,
//! and in which leaves are appended to.
//!
//! ```text
//!  IndexRoot.top ──▶ leaf ──▶ leaf ──▶ … ──▶ null        inner nodes (volatile) ──▶ leaves
//!  IndexRoot.words[0] = bytes of a leaf, words[1] = where inner nodes lie (0 DRAM, 1 pool)
//!
//!  leaf: 128 to 2048 bytes (512 by default), a multiple of 64, on a line boundary
//!  offset  bytes  field
//!       0      8  count       records that count
//!       8     16  deleted     bit i: record i says that its key is gone
//!      24      8  next        the next leaf, or null
//!      32     32  reserved, zero
//!      64     16  record 0    key word, value
//!      80     16  record 1    and so on: four to a line, none straddles one
//! ```
//!
//! A record says of its key that it has a value or that it is gone. The newest record of a key, the
//! one with the highest number, counts: a search goes backwards through the leaf. A key word is the
//! integer, or a link to the byte string below 16 bits of its hash (key.rs), by which a search
//! compares without going there.
//!
//! A leaf that is full is replaced by one or two new ones that have its live records, sorted, and
//! the one for which there was no room; the link of the leaf before it is swapped, in one store. A
//! leaf that has grown sparse is merged with a neighbour in the same way, and a leaf leaves with its
//! last key: that store is the removal.
//!
//! The inner nodes (`inner/`) are not flushed, and are built from the leaves at open.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. All of a reachable leaf that counts was durable before the link to it was stored.
//! * I2. A record, with the block of its key, is durable before the store of a count that includes it;
//!   while a leaf is reachable, records that count do not change and the count only grows.
//! * I3. Flags of records that do not count mean nothing. A record's flag is stored before the count
//!   that includes it, in the same line, and so is durable no later (R2). A flag of a record that
//!   counts is set, and never cleared, only in a full leaf and only for the newest record of a
//!   key.
//! * I4. All records of a key in a leaf have the same word, also when the key has been gone between:
//!   the leaf owns one block for each word in its records that count.
//! * I5. Every reachable leaf has at least one key. All records of a leaf, the superseded ones
//!   included, have greater keys than all records of the leaves before it.
//! * I6. Links and `top` change one at a time, under the lock of the structure, by one store that is
//!   persisted before the next one and before any block that it made unreachable is retired. So
//!   a crash finds the old leaves or the new ones, never both and never neither.
//! * I7. (Volatile.) Inner nodes lead to exactly the leaves that are linked, durably: they change
//!   after the store of I6 is durable and before the lock of a replaced leaf is given back.
//!   A leaf that they lead to while its lock is held stays where it is until that is given back.
//!
//! # Order of stores
//!
//! ```text
//!  insert, update        record, key: flush │ fence │ flag, count: flush │ fence       2 lines (3)
//!  remove                the same, with the flag set
//!  remove, leaf full     flag: flush │ fence                                           1 line
//!  remove, last of leaf  link before := next: flush │ fence │ retire the leaf and its keys
//!  insert, leaf full     new leaves, key: flush │ fence │ link before := new: flush │ fence
//!                        │ inner nodes │ retire the old leaf and keys that are gone
//!  merge                 the same, without a key, for two old leaves and one new
//!  first insert          the same, without an old leaf
//! ```
//!
//! The second line of a byte string's insert is that of its key, if it is short. Every insert and
//! update fences before the store that makes the value reachable, which orders the caller's earlier
//! flushes too ([`Capabilities::orders_prior_flushes`]).
//!
//! `docs/nv-tree.md` says what differs from the paper, why nothing has to be repaired after a crash, and
//! what readers and writers see of each other.

mod check;
mod inner;
mod leaf;
mod leaf_search;
pub mod mutants;
mod open;
mod reorganise;
mod scan;
mod search;
#[cfg(test)]
mod tests;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use lapis_pmem::{Domain, InFlight, LINE_BYTES, Link, Optimisations, Owned, Pool, SoleUse};
use parking_lot::Mutex;

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, InnerNodes, forward_to_files};
use crate::key::IndexKey;
use crate::leaf_locks::{LOCK_BYTES, LeafLocks};
use crate::root::IndexRoot;

use inner::{Directory, Entry, MOST_PLN_ENTRIES, Shape};
use leaf::{LEAF_SIZES, LeafHeader, capacity_of};

const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per leaf.
const LEAF_BYTES_WORD: usize = 0;
/// [`IndexRoot::words`]: where inner nodes lie.
const INNER_NODES_WORD: usize = 1;

/// What rebuilding inner nodes has cost since the tree was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct InnerRebuilds {
    /// Segments that were built anew because a parent-of-leaf node overflowed or ran empty.
    pub rebuilds: u64,
    /// Entries of parent-of-leaf nodes that were written for it.
    pub entries_moved: u64,
}

/// A B+-tree with persistent leaves that are appended to, and volatile inner nodes. The layout and
/// the invariants are in the source's header comment.
pub struct NvTree<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    leaf_bytes: usize,
    /// Records in a leaf.
    capacity: usize,
    shape: Shape,
    /// The inner nodes; null if the tree is empty.
    directory: AtomicPtr<Directory>,
    /// Held by whoever changes links and inner nodes. Taken behind the lock of a leaf.
    structure: Mutex<()>,
    locks: LeafLocks,
    /// Bytes of the model's DRAM that inner nodes have taken so far.
    dram_used: AtomicUsize,
    rebuilds: AtomicU64,
    entries_moved: AtomicU64,
    _alone: SoleUse<D>,
    _key: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> std::fmt::Debug for NvTree<D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvTree({:?}, {} bytes per leaf)", self.root, self.leaf_bytes)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> NvTree<D, K> {
    fn open_by(
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        threads: Option<usize>,
    ) -> Result<Self, IndexError> {
        let domain = pool.domain();
        let (found, alone) =
            IndexRoot::open_alone(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let leaf_bytes = LEAF_SIZES.found(found.words[LEAF_BYTES_WORD].load(domain))?;
        let inner_nodes = InnerNodes::found(found.words[INNER_NODES_WORD].load(domain))?;
        let first: Link<LeafHeader> = found.top.load(domain).cast();
        let capacity = capacity_of(leaf_bytes);
        let entries = open::entries_of::<D, K>(&pool, first, capacity, threads)?;
        let mut tree = Self {
            root,
            leaf_bytes,
            capacity,
            shape: shape_of(leaf_bytes, !K::INLINE, inner_nodes),
            directory: AtomicPtr::default(),
            structure: Mutex::new(()),
            locks: LeafLocks::default(),
            dram_used: AtomicUsize::new(LOCK_BYTES),
            rebuilds: AtomicU64::new(0),
            entries_moved: AtomicU64::new(0),
            _alone: alone,
            _key: PhantomData,
            pool,
        };
        if let Some(directory) = tree.build(&entries) {
            tree.directory = AtomicPtr::new(Box::into_raw(Box::new(directory)));
        }
        Ok(tree)
    }

    /// How often inner nodes have been rebuilt since the tree was opened, and at what cost.
    pub fn inner_rebuilds(&self) -> InnerRebuilds {
        InnerRebuilds {
            rebuilds: self.rebuilds.load(Ordering::Relaxed),
            entries_moved: self.entries_moved.load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        self.pool.at(self.root)
    }

    fn build(&self, entries: &[Entry]) -> Option<Directory> {
        Directory::build(&self.pool, self.shape, entries, &|bytes| self.dram_place(bytes))
    }

    /// Where the next so many bytes of inner nodes lie, as far as the model is told.
    fn dram_place(&self, bytes: usize) -> usize {
        self.dram_used.fetch_add(bytes.next_multiple_of(LINE_BYTES), Ordering::Relaxed)
    }

    fn count_rebuild(&self, entries: usize) {
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
        self.entries_moved.fetch_add(entries as u64, Ordering::Relaxed);
    }
}

/// Inner nodes are in proportion to leaves, so that a tree of small leaves has all levels too.
fn shape_of(leaf_bytes: usize, has_keys: bool, inner_nodes: InnerNodes) -> Shape {
    let pln_entries = (leaf_bytes * leaf_bytes / 2048).clamp(8, MOST_PLN_ENTRIES);
    Shape { pln_entries, fanout: 4 * pln_entries, has_keys, inner_nodes }
}

impl<D: Domain, K: IndexKey + ?Sized> Drop for NvTree<D, K> {
    fn drop(&mut self) {
        let directory = std::mem::take(self.directory.get_mut());
        if !directory.is_null() {
            // SAFETY: it was a box, and nobody else has the tree, so nobody reads it.
            unsafe { Box::from_raw(directory) }.free(&self.pool);
        }
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for NvTree<D, K> {
    const KIND: IndexKind = IndexKind::NvTree;
    const CAPABILITIES: Capabilities =
        Capabilities { orders_prior_flushes: true, ..Capabilities::ORDERED };

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let leaf_bytes = LEAF_SIZES.chosen(options)?;
        let domain = pool.domain();
        let root = pool.allocate::<IndexRoot>()?;
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.words[LEAF_BYTES_WORD].store(domain, leaf_bytes as u64);
        root.words[INNER_NODES_WORD].store(domain, options.inner_nodes as u64);
        Ok(root.flush())
    }

    forward_to_files!(D, K, rebuilt);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "nv-tree",
    title: "NV-Tree",
    paper: "Yang et al., FAST 2015",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/nv_tree"],
        // Four records to a leaf and eight leaves to a node above.
        options: IndexOptions { node_bytes: 128, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("nv-tree:u64"),
            Run::byte_strings("nv-tree:bytes"),
            Run::drained("nv-tree:drained"),
            Run {
                byte_strings: true,
                refuses_removals: true,
                ..Run::large("nv-tree:cramped", 320).cramped(1 << 20)
            },
            Run::large("nv-tree:in-use", 1200).as_in_use(),
            // With flags of deletion in both words.
            Run::large("nv-tree:widest", 260).in_nodes_of(LEAF_SIZES.largest_bytes),
        ],
        histories: &[
            ("nv-tree:splitting", History::DividedNode(4)),
            ("nv-tree:overflowing", History::DividedWithoutRoom(4, 8)),
            ("nv-tree:planting", History::TwoInserts(0, 1)),
        ],
        persist_points: (300, 2),
        rate_operations: 60,
    },
};
