//! FAST & FAIR: a B+-tree whose nodes are shifted in place and split without a log.
//!
//! After *Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree* (Hwang, Kim, Won, Nam;
//! FAST 2018). FAST: sorted entries move one by one by ordered 8-byte stores, and readers know what to
//! ignore meanwhile. FAIR: one sibling link makes a split visible, the parent follows as in B-link trees.
//! `docs/fast-fair.md` tells the orders of stores step by step, and why they hold.
//!
//! ```text
//!  root (IndexRoot): top = leftmost node of the highest level, words[0] = bytes per node
//!
//!  node: 256 to 4096 bytes (512 by default), a multiple of 64, on a line boundary
//!  offset  bytes  field
//!       0      8  leftmost   inner nodes: the child below slot 0's key; leaves: zero
//!       8      8  sibling    right neighbour (48 bits), level (8), hidden, deleted (node.rs)
//!      16      8  lock       GenerationLock; payload 1: the latest shift went towards slot 0
//!      24      8  low        least key word of the node's range; zero: leftmost of its level
//!      32     16  slot 0     key word, then value (leaves) or link to a child (inner nodes)
//!      48     16  slot 1
//!      64     64  slots 2-5, and so on: four to a line, none straddles one
//! ```
//!
//! On a modelled machine whose layouts are padded ([`Observed::padding_bytes`](lapis_pmem::Observed::padding_bytes))
//! the slots begin 8 bytes later, as in the authors' code. Then the key of every fourth slot ends a line and its
//! value begins the next, and each is made durable before the other changes (I3).
//!
//! A key word is the integer, or a link to the byte string (key.rs). The range of a node is
//! `low <= key < sibling.low`. A child's separator in its parent is the child's low word.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. Whatever a durable link leads to is durable: a node, its low key, and its entries' keys.
//! * I2. Slot i > 0 counts if the key words of slots 1 to i are not zero (slot 1's may be, as a duplicate of
//!   key 0, while slot 2's is not), its own differs from that of slot i-1 (or i = 1 and slot 0 is hidden)
//!   and is below the sibling's low key. Slot 0 counts unless hidden. The slots that count hold ascending
//!   keys, each with its own value.
//! * I3. At most one line of a node differs from a state between two shifts: so there is at most one
//!   duplicate, or one hidden slot 0 before others.
//! * I4. A node whose lock word is of the current generation and free is *clean*, in memory and on the
//!   medium: no duplicates, zero beyond the end, no key from the sibling's low key on, hidden only if empty.
//! * I5. Once the sibling word is durable, entries from the sibling's low key on belong to the sibling. Their
//!   stale copies are erased durably before that word, or anything in the sibling, changes again.
//! * I6. Separators are hints: every node is reachable along the sibling links of its level. One that exists
//!   leads to a node with exactly that low key, and is durably gone before the node is unlinked.
//! * I7. A leaf owns the blocks of its entries' keys and of its low key (a copy). Separators and low words of
//!   inner nodes borrow that of the leaf reached from there by leftmost links, which goes after them.
//! * I8. A byte-string key's block is durable before a slot that counts refers to it.
//! * I9. `low`, `leftmost` and level are constant; `deleted` and the range change under the node's lock only.
//! * I10. Locks are taken from higher levels to lower, and from left to right within a level.
//! * I11. A lock whose section changed what readers see is given back after the fence that makes it durable.
//! * I12. The top level is a node and what has split off it and is in no parent yet: one node per writer at
//!   the time of a crash. The check allows [`WIDEST_TOP`] nodes.
//!
//! # The order of stores
//!
//! ```text
//!  insert at p of n  i from n-1 down to p: key i, value i to slot i+1; a line that is done: flush │ fence
//!                    slot p := duplicate of p-1 (p = 0: hidden), value, key (unhidden): flush │ fence
//!  remove p of n     slot p := duplicate of p-1 (p = 0: hidden; p = n-1: zero)
//!                    i from p+1: value i, key i to slot i-1; a line that is done: flush │ fence
//!                    slot n-1 := 0: flush │ fence
//!  update            value: flush │ fence
//!  split             new node, locked: flush │ fence │ sibling word: flush │ fence │ upper half := 0: flush
//!                    │ the insertion, into either: unlock both │ separator into the parent, an insertion
//!  new root          node, above the old root: flush │ fence │ top: flush │ fence
//!  unlink X, empty   X's separator, a removal │ left.sibling := X.sibling: flush │ fence │ X.deleted
//! ```

mod ahead;
mod check;
pub mod mutants;
mod node;
mod scan;
mod search;
mod shift;
mod unlink;
mod write;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use lapis_pmem::{
    Domain, InFlight, Link, LockGeneration, Optimisation, Optimisations, Owned, Pool, Resident,
};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::root::IndexRoot;

use node::{Admits, NODE_SIZES, Node, NodeHeader, RIGHTWARD, SiblingWord, capacity_of};

const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per node.
const NODE_BYTES_WORD: usize = 0;

/// I12: more nodes than this in the top level mean that a root was lost.
const WIDEST_TOP: usize = 8;

/// A B+-tree with sorted nodes that are changed in place. See the module documentation in the source.
///
/// An index may have several handles in one opening of its pool.
pub struct FastFair<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    root_block: Resident<D, IndexRoot>,
    node_bytes: usize,
    capacity: u16,
    generation: LockGeneration,
    _key: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> std::fmt::Debug for FastFair<D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FastFair({:?}, {} bytes per node)", self.root, self.node_bytes)
    }
}

impl<D: Domain, K: IndexKey + ?Sized> FastFair<D, K> {
    #[inline(always)]
    fn domain(&self) -> &D {
        self.pool.domain()
    }

    #[inline(always)]
    fn root(&self) -> &IndexRoot {
        &self.root_block
    }

    #[inline(always)]
    fn node(&self, link: Link<NodeHeader>) -> Node<'_> {
        match self.try_node(link) {
            Some(node) => node,
            None => beyond_the_end(link),
        }
    }

    #[inline(always)]
    fn try_node(&self, link: Link<NodeHeader>) -> Option<Node<'_>> {
        let (header, slots) = node::parts(&self.pool, link, self.capacity)?;
        Some(Node { link, header, slots })
    }

    /// The leftmost node of the highest level.
    #[inline(always)]
    fn top(&self) -> Node<'_> {
        self.node(self.root().top.load(self.domain()).cast())
    }

    /// Accepts the words of keys up to `key`.
    #[inline(always)]
    fn up_to<'a>(&'a self, key: &'a K) -> impl Admits + 'a {
        let prefix = key.prefix();
        move |word| match K::INLINE {
            true => word <= prefix,
            false => key.cmp_word(&self.pool, word).is_ge(),
        }
    }

    /// Accepts the words of keys below `key`.
    #[inline(always)]
    fn below<'a>(&'a self, key: &'a K) -> impl Admits + 'a {
        let prefix = key.prefix();
        move |word| match K::INLINE {
            true => word < prefix,
            false => key.cmp_word(&self.pool, word).is_gt(),
        }
    }
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Link<NodeHeader>) -> ! {
    panic!("the pool is damaged: the node {link:?} does not end within it")
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for FastFair<D, K> {
    const KIND: IndexKind = IndexKind::FastFair;
    // An append stores its key, flushes and fences once: after the store.
    const CAPABILITIES: Capabilities = Capabilities::ORDERED;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let node_bytes = NODE_SIZES.chosen(options)?;
        let domain = pool.domain();
        let mut root = pool.allocate::<IndexRoot>()?;
        root.init(domain, Self::KIND, K::KIND, FORMAT_VERSION);
        root.words[NODE_BYTES_WORD].store(domain, node_bytes as u64);
        let word = SiblingWord::new(Link::NULL, 0, true);
        let generation = LockGeneration::of(pool.generation());
        let leaf = write::build(pool, node_bytes, Link::NULL, word, 0, &[], |node| {
            node.lock.init(domain, generation, RIGHTWARD);
        })?;
        // I1: both are flushed, and one fence of the caller's comes before the root is published.
        root.link_children(|root| root.top.word(), leaf, |leaf| leaf.link().bits());
        Ok(root.flush())
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let found = IndexRoot::open(&pool, root, Self::KIND, K::KIND, FORMAT_VERSION)?;
        let node_bytes = NODE_SIZES.found(found.words[NODE_BYTES_WORD].load(pool.domain()))?;
        let top: Link<NodeHeader> = found.top.load(pool.domain()).cast();
        let capacity = capacity_of(pool.domain(), node_bytes) as u16;
        if node::parts(&pool, top, capacity).is_none() {
            return Err(IndexError::Damaged { what: "its top node is outside the pool".into() });
        }
        let generation = LockGeneration::of(pool.generation());
        let root_block = pool.resident(root);
        Ok(Self { pool, root, root_block, node_bytes, capacity, generation, _key: PhantomData })
    }

    forward_to_files!(D, K);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "fast-fair",
    title: "FAST & FAIR",
    paper: "Hwang et al., FAST 2018",
    insert_u64: None,
    insert_bytes: None,
    optimisations: Optimisations::of(&[
        Optimisation::RemovalOfBloat,
        Optimisation::EarlyEviction,
        Optimisation::XplineUnits,
    ]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/fast_fair"],
        options: IndexOptions { node_bytes: 256, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("fast-fair:u64"),
            // After a repair: cut in the split, in an update of the sibling's low key, and in that key's removal. A unit
            // test has the order.
            Run::byte_strings("fast-fair:bytes").rare_after(1711, 54),
            Run::drained("fast-fair:drained"),
            // With inner nodes that are split.
            Run::large("fast-fair:deep", 280),
            Run::large("fast-fair:in-use", 1200).as_in_use(),
        ],
        histories: &[("fast-fair:emptying", History::NodeBehind(14))],
        persist_points: (400, 3),
        rate_operations: 30,
    },
};
