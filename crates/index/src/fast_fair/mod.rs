//! FAST & FAIR: a B+-tree whose nodes are shifted in place and split without a log.
//!
//! After *Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree* (Hwang, Kim,
//! Won, Nam; FAST 2018). FAST: entries stay sorted, an insertion or removal moves them one by one by
//! ordered 8-byte stores, so that at every instant the node is right for a reader who knows what to
//! ignore. FAIR: a split is made visible by one sibling link and the parent follows later, as in
//! B-link trees.
//!
//! ```text
//!  root (IndexRoot): top = leftmost node of the highest level, words[0] = bytes per node
//!
//!  node: 256 to 4096 bytes (512 by default), a multiple of 64, on a line boundary
//!  offset  bytes  field
//!       0      8  leftmost   inner nodes: the child below slot 0's key; leaves: zero; constant
//!       8      8  sibling    right neighbour (48 bits), level (8), hidden, deleted (node.rs)
//!      16      8  lock       GenerationLock; payload 1: the latest shift went towards slot 0
//!      24      8  low        least key word of the node's range; zero: leftmost of its level;
//!                            constant
//!      32     16  slot 0     key word, then value (leaves) or link to a child (inner nodes)
//!      48     16  slot 1
//!      64     64  slots 2-5, and so on: four to a line, none straddles one
//! ```
//!
//! A key word is the integer, or a link to the byte string (key.rs). The range of a node is
//! `low <= key < sibling.low`. A child's separator in its parent is the child's low word.
//!
//! # What counts
//!
//! The published test for a valid entry compares neighbouring *pointers*, so equal values look like
//! a half-done shift. Here it is the keys, which are unique, that tell (I2), and the end of a node is
//! a zero key word in slot 1 or beyond. Integer key 0 can only be in slot 0, where the flag `hidden`
//! says whether it counts; a duplicate of it in slot 1 is told from the end by slot 2, which is in
//! use then (a removal from slot 1 of two is one store of zero, without a duplicate).
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. Whatever a durable link leads to is durable: a new node, its low key and (after a split at
//!   the right edge) the new entry's key are flushed and fenced before a sibling word, or the root's
//!   `top`, names the node.
//! * I2. Slot i > 0 counts if its key word and those of slots 1 to i-1 are not zero (slot 1 may be, as
//!   a duplicate of key 0, while slot 2 is not), it differs from
//!   that of slot i-1 (or i = 1 and slot 0 is hidden), and its key is below the sibling's low key.
//!   Slot 0 counts unless hidden. The slots that count hold ascending keys, each with its own value.
//! * I3. Of the lines of a node at most one differs from a state between two shifts (before it, the
//!   lines already shifted and durable; behind it, the untouched ones): so there is at most one
//!   duplicate, or one hidden slot 0 before others.
//! * I4. A node whose lock word is of the current generation and free is *clean*, in memory and on the
//!   medium: no duplicates, all slots beyond the end zero, no key at or above the sibling's low
//!   key, hidden only if empty.
//! * I5. From the instant the sibling word is durable, entries at or above the sibling's low key
//!   belong to the sibling. Stale copies on the left never count again: they are erased durably
//!   before the sibling word of that node can change again (both under its lock). They are also
//!   erased before anything in the sibling changes, so that their key words stay readable: within
//!   the split because the sibling is locked until then, after a crash because the sibling is in
//!   no parent and a writer who goes there repairs the node that it leaves.
//! * I6. Separators are hints. Every node is reachable along the sibling links of its level, from the
//!   chain of leftmost children; a separator need not exist, but one that exists leads to a node of
//!   that level with exactly that low key, and is durably gone before the node is unlinked.
//! * I7. A leaf owns the blocks of its entries' keys and of its low key (a copy). The low word of an
//!   inner node and all separators borrow the low word of a leaf: the one that is reached from
//!   there by leftmost links. A node is unlinked after every inner node that begins with it, because
//!   the leftmost child of a linked node is never unlinked.
//! * I8. A byte-string key's block is durable before a slot that counts refers to it.
//! * I9. `low`, `leftmost` and level are constant. Under a node's lock, `deleted` and the range are
//!   constant too: they change under this lock only.
//! * I10. Locks are taken from higher levels to lower, and from left to right within a level.
//! * I11. A lock whose section changed anything readers see is given back after the fence that makes
//!   it durable.
//! * I12. The top level is a node and what has split off it and is not in a parent yet: at most one
//!   node per writer at the time of the crash. The check allows [`WIDEST_TOP`] nodes.
//!
//! # The order of stores
//!
//! **Insert** into a node with room, position p of n (shift.rs). For i from n-1 down to p: key i to
//! slot i+1 (a duplicate now), then value i. If slot i+1 is the first of its line, that line is
//! persisted before slot i is touched again; else same-line order (R2) does. Then slot p, whose
//! entry has its durable copy in p+1, becomes a duplicate of p-1 (p = 0: is hidden), gets the value,
//! then the key (p = 0: is unhidden): the commit, one store, followed by flush and fence. Cost: one flush and one fence per line from p to n, so 1 + 1
//! for an append; byte strings: one more fence if there is only one such line.
//!
//! **Remove** of position p of n. Commit: slot p becomes a duplicate of p-1 (p = 0: hidden; p = n-1:
//! zero). Then for i from p: value i+1 to slot i (does not count), then its key (now slot i counts
//! and i+1 is the duplicate); if slot i+1 begins a line, the line of slot i is persisted before
//! i+1 is overwritten. Slot n-1 becomes zero, its line is persisted. The last persist is needed for
//! I4 even where the commit is durable already: a stale line would count again once the line to its
//! left has changed.
//!
//! **Update**: one store of the value, flush, fence.
//!
//! **Split** (write.rs). (1) A new node with the upper half (a leaf that is appended to at the right
//! edge of the tree: with the new entry alone), flushed; fence. It is created locked. (2) The
//! sibling word; flush, fence: the upper half belongs to the new node. (3) The upper half on the
//! left is zeroed and flushed; the fence is that of the insertion (4) into either node, which comes
//! before both locks are given back. (5) The separator goes into the parent, an insertion as above.
//! After a crash between (2) and (3) the left node has entries that I5 discards; before (5) the new
//! node is in no parent, which I6 allows: whoever writes and comes over a sibling link enters it.
//! Running out of room in (5) is no error for the same reason.
//!
//! A **new root** has the old one as leftmost child, is durable before `top` names it, and is made
//! under the lock of the old one; `top` changes under the lock of the node it names only.
//!
//! **Unlink** of an empty node X (unlink.rs): lock the parent that covers X.low (the top node if the
//! level has no parents), the left neighbour L, X. Remove the separator: durable. L.sibling :=
//! X.sibling: durable. X.deleted for those on their way to X, who start again. X and its low key are
//! retired. Between the two stores X is an empty node without a separator, as after a crash in a
//! split. An inner node counts as empty when it has only its leftmost child; that child is then in
//! no parent, and is unlinked if it is empty too, else entered in the parent to the left. A root with
//! only its leftmost child gives way to it, so an emptied tree is the root block and one leaf.
//!
//! # Repair and readers
//!
//! Nothing is done when the tree is opened: the first to lock a node in a generation brings it into the
//! clean state (I4). Readers never wait and need no repair, as they go by I2; what they saw under a lock
//! they persist before they answer (I11).
//!
//! `docs/fast-fair.md` proves the orders above, says which empty nodes can remain, and what the published
//! code gets wrong.

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

use lapis_pmem::{Domain, InFlight, Link, LockGeneration, Owned, Pool};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::root::IndexRoot;

use node::{
    Entry, HEADER_BYTES, NODE_SIZES, Node, NodeHeader, RIGHTWARD, SiblingWord, capacity_of,
};

const FORMAT_VERSION: u32 = 1;
/// [`IndexRoot::words`]: bytes per node.
const NODE_BYTES_WORD: usize = 0;

/// I12: more nodes than this in the top level mean that a root was lost.
const WIDEST_TOP: usize = 8;

/// A B+-tree with sorted nodes that are changed in place. See the module documentation in the source.
pub struct FastFair<D: Domain, K: IndexKey + ?Sized> {
    pool: Arc<Pool<D>>,
    root: Link<IndexRoot>,
    node_bytes: usize,
    capacity: usize,
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
        self.pool.at(self.root)
    }

    #[inline(always)]
    fn node(&self, link: Link<NodeHeader>) -> Node<'_> {
        let header = self.pool.at(link);
        let slots = Link::from_bits(link.offset() + HEADER_BYTES as u64);
        match self.pool.try_slice(slots, self.capacity) {
            Some(slots) => Node { link, header, slots },
            None => beyond_the_end(link),
        }
    }

    /// The leftmost node of the highest level.
    #[inline(always)]
    fn top(&self) -> Node<'_> {
        self.node(self.root().top.load(self.domain()).cast())
    }

    /// Accepts the words of keys up to `key`.
    #[inline(always)]
    fn up_to<'a>(&'a self, key: &'a K) -> impl Fn(u64) -> bool + Copy + 'a {
        move |word| key.cmp_word(&self.pool, word).is_ge()
    }

    /// Accepts the words of keys below `key`.
    #[inline(always)]
    fn below<'a>(&'a self, key: &'a K) -> impl Fn(u64) -> bool + Copy + 'a {
        move |word| key.cmp_word(&self.pool, word).is_gt()
    }
}

#[cold]
#[inline(never)]
fn beyond_the_end(link: Link<NodeHeader>) -> ! {
    panic!("the pool is damaged: the node {link:?} does not end within it")
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for FastFair<D, K> {
    const KIND: IndexKind = IndexKind::FastFair;
    const CAPABILITIES: Capabilities = Capabilities {
        ordered: true,
        concurrent_writers: true,
        lock_free_reads: true,
        // An append stores its key, flushes and fences once: after the store.
        orders_prior_flushes: false,
    };

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
        let slots = Link::from_bits(top.offset() + HEADER_BYTES as u64);
        let capacity = capacity_of(node_bytes);
        if pool.try_at(top).is_none() || pool.try_slice::<Entry>(slots, capacity).is_none() {
            return Err(IndexError::Damaged { what: "its top node is outside the pool".into() });
        }
        let generation = LockGeneration::of(pool.generation());
        Ok(Self { pool, root, node_bytes, capacity, generation, _key: PhantomData })
    }

    forward_to_files!(D, K);
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "fast-fair",
    title: "FAST & FAIR",
    paper: "Hwang et al., FAST 2018",
    insert_u64: None,
    insert_bytes: None,
    in_a_store: [(3, 3), (6, 5), (4, 4)],
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/fast_fair"],
        options: IndexOptions { node_bytes: 256, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("fast-fair:u64"),
            Run::byte_strings("fast-fair:bytes"),
            Run::drained("fast-fair:drained"),
        ],
        histories: &[],
        persist_points: (400, 3),
        rate_operations: 30,
    },
};
