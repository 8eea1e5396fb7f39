//! FPTree: unsorted leaves with fingerprints in persistent memory, inner nodes beside it.
//!
//! After *FPTree: A Hybrid SCM-DRAM Persistent and Concurrent B-Tree for Storage Class Memory* (Oukid,
//! Lasperas, Nica, Willhalm, Lehner; SIGMOD 2016), in the sizes of the WORT paper (Lee et al., FAST
//! 2017), which compares it. Only the leaves are durable. A search reads one line of a leaf, in which
//! a byte of each key's hash says where to look, and then, most likely, one slot. That byte names the line in
//! which the slot is looked for first when an entry comes (its *home*), so that a search asks for both lines at once.
//!
//! ```text
//!  root (IndexRoot): top = first leaf; words[0] = bytes per leaf, words[1] = where inner nodes lie
//!                    (0: ordinary memory, 1: the pool), words[2] = the block of micro-logs
//!
//!  leaf: 256 to 1024 bytes (1024 by default: 56 slots), a multiple of 64, on a line boundary
//!  offset  bytes  field
//!       0      8  bitmap        bit i: slot i is in use; bits beyond the slots are zero
//!       8     56  fingerprints  byte i: of the key in slot i
//!      64      8  next          the leaf with the next greater keys, or null
//!      72     56  reserved, zero
//!     128     16  slot 0        key word, value
//!     144     16  slot 1, and so on: four to a line
//!
//!  micro-logs: 16 records of one line each (micro_log.rs)
//!  offset  bytes  field
//!       0      8  leaf          the leaf that is to change, or zero: nothing to do
//!       8      8  bitmap        what its bitmap shall be
//!      16      8  next          what its next link shall be
//!      24      8  checksum      of the three, or zero
//!      32     32  reserved
//! ```
//!
//! A key word is the integer, or a link to the byte string with 16 high bits of its hash (key.rs): with the
//! fingerprint, the low ones, that is 24 bits of a hash to compare before a search follows a link. Inner nodes
//! ([`inner`]) have copies of separators and never need the leaves.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. Whatever a durable link leads to is durable: a new leaf is flushed and fenced before a record
//!   or link names it.
//! * I2. A slot whose bit is set holds an entry and its fingerprint, and the key's block is durable.
//!   What is in other slots means nothing.
//! * I3. A leaf has a free slot: an insertion splits a leaf in which it would take the last one. So an
//!   update always finds room and allocates nothing.
//! * I4. Once the micro-logs are replayed, the keys of a leaf are all below those of the next, and no
//!   leaf is empty but one that is alone.
//! * I5. A record whose first word is set is complete, its checksum too, and will be carried out: what it says, *this
//!   leaf has this bitmap and this next link*, is durable before the first word is cleared, and that is
//!   durable before the leaf may change again. Carrying it out twice is the same as once.
//! * I6. An entry is in two leaves only while both are locked, or one is and nobody can reach
//!   the other. What a leaf has outside of its range does not count.
//! * I7. A leaf's range shrinks, and the leaf goes away, under its lock and in the inner nodes before
//!   the lock is given back.
//! * I8. A lock is given back after the fence that makes its section durable.
//!
//! # The order of stores
//!
//! ```text
//!  insert    slot (and the string): flush │ fence │ fingerprint, bitmap with the bit: flush │ fence
//!  update    the same into a free slot; the bitmap takes one bit and drops another in one store
//!  remove    bitmap without the bit: flush │ fence
//!  split     new leaf: flush │ fence │ record: flush │ fence │ inner nodes
//!            │ bitmap, next: flush │ fence │ record cleared: flush │ fence
//!  merge     entries, fingerprints: flush │ fence │ record: flush │ fence
//!            │ bitmap, next: flush │ fence │ inner nodes │ record cleared: flush │ fence
//!  last entry of a leaf: a merge that moves nothing, whose record is the removal's commit; of the
//!            first leaf: the root's top turned to the next: flush │ fence
//! ```
//!
//! Insert and update fence before the bit, and so order what the caller has flushed
//! ([`Capabilities::orders_prior_flushes`]).
//!
//! Readers pin the pool, of integers too. A leaf that is given back may become any block, which whoever it is then fills with
//! plain stores: nobody may read it meanwhile ([`Domain::copy`]), though he would throw away what he read.
//!
//! Opening takes time in proportion to the leaves ([`rebuild`]). Locks and inner nodes are volatile, so there
//! is one handle per index. `docs/fptree.md` says what splits, merges and groups of leaves differ in from
//! the paper, and what takes the place of hardware transactions.

mod check;
mod fingerprint;
mod inner;
mod leaf;
mod micro_log;
pub mod mutants;
mod read;
mod rebuild;
mod remove;
#[cfg(test)]
mod tests;
mod write;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_blocks::fp_leaf::FINGERPRINTS;
use lapis_pmem::{Domain, InFlight, Link, Optimisations, Owned, Pool, SoleUse};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, InnerNodes, forward_to_files};
use crate::key::IndexKey;
use crate::root::IndexRoot;

use crate::leaf_locks::LeafLocks;
use inner::InnerTree;
use leaf::{HEADER_BYTES, LARGEST_LEAF_BYTES, LEAF_SIZES, Leaf, LeafHeader, slots_of};
use micro_log::{Claims, MICRO_LOG_BYTES, MicroLog};

/// The newest layout that this code reads, and the one it writes.
const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per leaf.
const LEAF_BYTES_WORD: usize = 0;
/// [`IndexRoot::words`]: where inner nodes lie.
const INNER_NODES_WORD: usize = 1;
/// [`IndexRoot::words`]: the micro-logs.
const MICRO_LOGS_WORD: usize = 2;

/// A B+-tree whose leaves alone are persistent. The layout and the invariants are in the source's
/// header comment.
pub struct FpTree<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    micro_logs: Link<MicroLog>,
    leaf_bytes: usize,
    slots: usize,
    inner: InnerTree,
    locks: LeafLocks,
    claims: Claims,
    _alone: SoleUse<D>,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> std::fmt::Debug for FpTree<D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FpTree({:?}, {} bytes per leaf)", self.root, self.leaf_bytes)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> FpTree<D, K> {
    fn open_by(
        pool: Arc<Pool<D>>,
        root: Link<IndexRoot>,
        threads: Option<usize>,
    ) -> Result<Self, IndexError> {
        let domain = pool.domain();
        let (found, alone) =
            IndexRoot::open_alone(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let leaf_bytes = LEAF_SIZES.found(found.words[LEAF_BYTES_WORD].load(domain))?;
        let placement = InnerNodes::found(found.words[INNER_NODES_WORD].load(domain))?;
        let micro_logs = Link::from_bits(found.words[MICRO_LOGS_WORD].load(domain));
        let first: Link<LeafHeader> = found.top.load(domain).cast();
        let slots = slots_of(leaf_bytes);
        if first.is_null() {
            return Err(IndexError::Damaged { what: "it has no first leaf".into() });
        }
        micro_log::replay(&pool, micro_logs, slots)?;
        let leaves = rebuild::collect::<D, K>(&pool, first, slots, threads)?;
        let tree = Self {
            inner: InnerTree::new::<K>(placement, inner_capacity(slots)),
            pool,
            root,
            micro_logs,
            leaf_bytes,
            slots,
            locks: LeafLocks::default(),
            claims: Claims::default(),
            _alone: alone,
            _keys: PhantomData,
        };
        tree.inner.rebuild::<D, K>(&tree.pool, &leaves)?;
        Ok(tree)
    }

    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        self.pool.at(self.root)
    }

    fn first_leaf(&self) -> Link<LeafHeader> {
        self.root().top.load(self.domain()).cast()
    }

    #[inline(always)]
    fn leaf(&self, link: Link<LeafHeader>) -> Leaf<'_> {
        match Leaf::try_at(&self.pool, link, self.slots) {
            Some(leaf) => leaf,
            None => beyond_the_end(link),
        }
    }
}

/// Separators of an inner node. Smaller leaves than usual are chosen to see many of them, and come
/// with inner nodes that are small too.
fn inner_capacity(slots: usize) -> usize {
    if slots == slots_of(LARGEST_LEAF_BYTES) { inner::CAPACITY } else { (slots / 2).max(4) }
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Link<LeafHeader>) -> ! {
    panic!("the pool is damaged: the leaf {link:?} does not lie within it")
}

impl<D: Domain, K: IndexKey + ?Sized> Drop for FpTree<D, K> {
    fn drop(&mut self) {
        self.inner.give_back(&self.pool);
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for FpTree<D, K> {
    const KIND: IndexKind = IndexKind::FpTree;
    const CAPABILITIES: Capabilities =
        Capabilities { orders_prior_flushes: true, ..Capabilities::ORDERED };

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let leaf_bytes = LEAF_SIZES.chosen(options)?;
        let domain = pool.domain();
        let mut root = pool.allocate::<IndexRoot>()?;
        let mut micro_logs =
            pool.allocate_with_tail::<MicroLog>(MICRO_LOG_BYTES - size_of::<MicroLog>())?;
        let slots = vec![0; leaf_bytes - HEADER_BYTES];
        let leaf = write::compose(pool, 0, [0; FINGERPRINTS], 0, &slots)?;
        micro_logs.zero();
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.words[LEAF_BYTES_WORD].store(domain, leaf_bytes as u64);
        root.words[INNER_NODES_WORD].store(domain, options.inner_nodes as u64);
        // I1: all are flushed, and one fence of the caller's comes before the root is published.
        let logs = micro_logs.flush();
        root.link_children(|root| &root.words[MICRO_LOGS_WORD], logs, |logs| logs.link().bits());
        root.link_children(|root| root.top.word(), leaf.flush(), |leaf| leaf.link().bits());
        Ok(root.flush())
    }

    forward_to_files!(D, K, rebuilt);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "fptree",
    title: "FPTree",
    paper: "Oukid et al., SIGMOD 2016",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/fptree"],
        options: IndexOptions { node_bytes: 256, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("fptree:u64"),
            Run::byte_strings("fptree:bytes"),
            Run::drained("fptree:drained"),
            Run::large("fptree:in-use", 1600).as_in_use(),
        ],
        // Of eight slots one stays free.
        histories: &[
            ("fptree:splitting", History::ReadDivided(7)),
            ("fptree:joining", History::ReadJoined(7)),
        ],
        persist_points: (300, 3),
        rate_operations: 60,
    },
};
