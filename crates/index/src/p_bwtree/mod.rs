//! P-BwTree: a B+-tree without locks on persistent memory, whose nodes are chains of deltas behind a mapping table.
//!
//! Levandoski, Lomet, Sengupta: "The Bw-Tree: A B-tree for New Hardware Platforms", ICDE 2013; Wang, Pavlo,
//! Lim, Leis, Zhang, Kaminsky, Andersen: "Building a Bw-Tree Takes More Than Just Buzz Words", SIGMOD 2018;
//! made persistent after Lee, Mohan, Kashyap, Kim, Chidambaram: "RECIPE", SOSP 2019. A node is known by an id. Its word in the
//! mapping table refers to its newest record: a delta, or the base node at the end of its chain. Every change is a new
//! record, published by one compare-exchange of one word.
//!
//! ```text
//!  IndexRoot: top = id of the top node + 1, above it (32 bits) how often it has changed
//!             words[0] ──▶ Directory ──▶ chunks of the mapping table (mapping.rs);  words[1] = bytes per node
//!
//!  mapping table           chain of a node
//!  id 0  ●────────────────▶ delta ──▶ delta ──▶ base
//!     1  ●──▶ ...
//!
//!  the first word of every record: what the node is with it
//!   63                    32 31          16  15  14       8 7       3 2    0
//!  +------------------------+--------------+---+-----------+---------+------+
//!  | entries                | changes here | L | level     | changes | kind |   L: there are nodes to the left
//!  +------------------------+--------------+---+-----------+---------+------+
//!
//!  Delta (64 bytes)                           Base (bytes per node, 1,024 by default)
//!  offset bytes  field                        offset bytes  field
//!       0     8  meta                              0     8  meta
//!       8     8  next: the record behind it        8     8  low: key word where the range begins
//!      16    48  one to three changes, the        16     8  high: key word where it ends, if right is not 0
//!                oldest first: key word, value    24     8  right: id of the right neighbour, or 0
//!                                                 32   16n  entries: key word, value or child; ascending
//!
//!  delta     key                  value
//!  put       key, separator       its value, its child
//!  delete    key                  -                       (of leaves)
//!  merging   separator            the child there, which is merged into the one before it
//!  removed   -                    -
//! ```
//!
//! A put in front of a delta of puts takes its place, with its changes, as long as there is room in a line; a delete
//! likewise. It flushes what a delta by itself would, and who goes along the chain waits for a third of the lines.
//!
//! A key word is the integer, or a link to the byte string (`key.rs`). The first entry of an inner node has the word of
//! its own least key, or 0. Id 0 is the leftmost leaf for ever.
//!
//! # Invariants, at every instant a crash may come
//!
//! * B1. From the top, every node is reached by children and right neighbours. Its word in the mapping table is a
//!   link; ids whose words are none are nobody's.
//! * B2. A node's range ends where that of its right neighbour begins, and a child's begins at its separator. A node that
//!   no separator tells of is reached over its left neighbour; the next writer who goes there makes it known.
//! * B3. The entries, the records of the chain applied from the last to the first, ascend and lie in the range.
//! * B4. A node is merged in four steps, each durable before the next: *merging* in the parent, *removed* in the node, a base node
//!   with the entries of both in the left neighbour, a base node without it in the parent. In front of *merging* and
//!   *removed* nobody puts anything: whoever wants to takes the next step first. Until the left neighbour has them, a removed
//!   node's entries are where they were. The first child of a node is never merged into another.
//! * B5. A change is one exchange of one word: of the mapping table, or of top. Records never change.
//! * B6. All that a word leads to is durable before the word: records, keys, the words of ids.
//! * B7. What an exchange, an answer or an acknowledgement rests on of others' exchanges is durable before it. Who
//!   exchanges a word names it first, and takes the name away when it is durable; who has read looks at the names, and
//!   flushes those words (`radix/in_flight.rs`). This is RECIPE's flush after loads, of the words that need it.
//! * B8. Records, keys and ids are given back when the exchange is durable that took them out, and nobody
//!   can be reading them. So nobody who is pinned finds an old record in a word again, or another node behind an id.
//! * B9. A leaf owns the blocks of its entries' keys, of the keys that its deltas delete, and of its low key (a copy). Separators, and
//!   the low and high words of others, borrow that.
//!
//! # The order of stores
//!
//! ```text
//!  insert         key, delta: flush │ fence │ word: flush │ fence │ retire the delta whose place it takes
//!  update, remove delta: flush │ fence │ word: flush │ fence │ retire the delta whose place it takes
//!  consolidation  base: flush │ fence │ word: flush │ fence │ retire the chain
//!  split          low key, both base nodes, word of the new id: flush │ fence │ word: flush │ fence │ retire
//!                 the chain │ delta put in the parent: flush │ fence │ parent's word: flush │ fence
//!  new top        base, word of its id: flush │ fence │ top: flush │ fence
//!  merge          delta merging: flush │ fence │ parent's word: flush │ fence │ delta removed: flush │ fence │
//!                 word: flush │ fence │ base: flush │ fence │ left neighbour's word: flush │ fence │ base: flush
//!                 │ fence │ parent's word: flush │ fence │ retire the node and both chains
//!  top above one  delta removed: flush │ fence │ word: flush │ fence │ top: flush │ fence │ retire the node
//!  the table      chunk │ directory: flush │ fence
//! ```
//!
//! # What differs from the papers, and why
//!
//! * A merge is announced in the parent first (the OpenBw-Tree locks the parent there), so that it can
//!   always be completed, whatever is inserted meanwhile: a node may become larger than others for that, and is
//!   divided. There is no delta that joins two chains: the left neighbour is consolidated with both, and its chain has one owner.
//! * Where a node is divided and where a separator goes, the node is consolidated, too. A delta in front of a long chain
//!   would be followed by that anyway; and behind it would be words of byte strings that are given back.
//! * A delta has up to three changes.
//! * The mapping table grows, by chunks that double, and shrinks.
//! * Where a pool has no room for a delta, a key that is there is changed by a base node, for which a block is kept. Refused
//!   are then changes in a node that has more entries than a base node, or is being merged, and after a crash all changes
//!   until the pool has been reclaimed.
//! * Base nodes are of one size, but for those that were merged with more entries than fit: how long a block is follows from how
//!   many entries its base node has, and from nothing else.

mod change;
mod check;
mod contents;
mod descent;
mod mapping;
mod merge;
pub mod mutants;
mod record;
mod restructure;
mod scan;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{Committed, Domain, Guard, InFlight, Link, Optimisations, Owned, Pool};

use crate::IndexKind;
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Capabilities, Index, IndexError, IndexOptions, forward_to_files};
use crate::key::IndexKey;
use crate::node_size::NodeSizes;
use crate::radix::Handle;
use crate::root::IndexRoot;

use contents::{Contents, Geometry};
use descent::Purpose;
use mapping::Mapping;
use record::Base;

/// [`IndexRoot::words`]: the mapping table.
const DIRECTORY_WORD: usize = 0;
/// [`IndexRoot::words`]: bytes per node.
const NODE_BYTES_WORD: usize = 1;

const NODE_SIZES: NodeSizes = NodeSizes {
    names: ["node", "nodes"],
    smallest_bytes: 128,
    largest_bytes: 4096,
    default_bytes: 1024,
};

/// The word of the top: its id, and how often it has changed, so that nobody takes it for what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Top(u64);

impl Top {
    #[inline(always)]
    fn id(self) -> u64 {
        u64::from((self.0 as u32).wrapping_sub(1))
    }

    fn followed_by(self, id: u64) -> Self {
        Self(((self.0 >> 32) + 1) << 32 | (id + 1))
    }
}

/// A P-BwTree. The layout and the invariants are in the source's header comments.
///
/// Keys are ordered; neither readers nor writers wait for each other. An insert or update fences between
/// the caller's earlier flushes and the moment the value can be reached.
#[derive(Debug)]
pub struct PBwTree<D: Domain, K: IndexKey + ?Sized> {
    handle: Handle<D>,
    mapping: Mapping<D>,
    geometry: Geometry,
    /// The link of a block for a base node, for when the pool has no other; 0 if there is none.
    reserve: AtomicU64,
    _keys: PhantomData<fn(&K)>,
}

impl<D: Domain, K: IndexKey + ?Sized> Index<D, K> for PBwTree<D, K> {
    const KIND: IndexKind = IndexKind::PBwTree;
    const CAPABILITIES: Capabilities =
        Capabilities { orders_prior_flushes: true, ..Capabilities::ORDERED };
    const VISITS_CHECK: bool = true;

    fn create<'p>(
        pool: &'p Pool<D>,
        options: &IndexOptions,
    ) -> Result<Owned<'p, D, IndexRoot, InFlight>, IndexError> {
        let node_bytes = NODE_SIZES.chosen(options)?;
        let leaf = pool.allocate_with_tail::<Base>(node_bytes - size_of::<Base>())?;
        let directory = Mapping::create(pool, Contents::alone(0, Vec::new()).write(leaf))?;
        Handle::create_with(pool, IndexKind::PBwTree, K::KIND, |root| {
            let domain = pool.domain();
            root.top.word().store(domain, Top(0).followed_by(0).0);
            root.words[NODE_BYTES_WORD].store(domain, node_bytes as u64);
            root.link_children(
                |root| &root.words[DIRECTORY_WORD],
                directory,
                |it| it.link().bits(),
            );
        })
    }

    fn open(pool: Arc<Pool<D>>, root: Link<IndexRoot>) -> Result<Self, IndexError> {
        let handle = Handle::open(pool, root, IndexKind::PBwTree, K::KIND)?;
        let pool = &handle.pool;
        let word = |number: usize| pool.at(root).words[number].load(pool.domain());
        let geometry = Geometry::of(NODE_SIZES.found(word(NODE_BYTES_WORD))?);
        let mapping = Mapping::open(pool, Link::from_bits(word(DIRECTORY_WORD)))?;
        let (reserve, _keys) = (AtomicU64::new(0), PhantomData);
        let tree = Self { handle, mapping, geometry, reserve, _keys };
        // After a crash it would come from a chunk that was never used, and crash upon crash would use up the pool:
        // then the first base node that is needed brings one.
        if !tree.handle.pool.needs_reclaim() {
            tree.refill_reserve();
        }
        Ok(tree)
    }

    #[inline]
    fn get_pinned(&self, key: &K, _pinned: &Guard<'_, D>) -> Option<u64> {
        let found = self.seek(key, None, Purpose::Reading);
        self.handle.persist_before_return();
        found.ok().and_then(|(_, found)| found.value())
    }

    forward_to_files!(D, K, handle.pool);
}

impl<D: Domain, K: IndexKey + ?Sized> PBwTree<D, K> {
    #[inline]
    fn lookup(&self, key: &K) -> Option<u64> {
        self.get_pinned(key, &self.handle.pool.pin())
    }

    /// Has a block for a base node at hand again. The caller has not pinned the pool.
    fn refill_reserve(&self) {
        if self.reserve.load(Ordering::Acquire) != 0 {
            return;
        }
        let bytes = self.geometry.base_bytes(0);
        let Ok(block) = self.handle.pool.allocate_with_tail::<Base>(bytes - size_of::<Base>())
        else {
            return;
        };
        let (link, order) = (block.link().bits(), Ordering::AcqRel);
        if self.reserve.compare_exchange(0, link, order, Ordering::Relaxed).is_ok() {
            // Nobody writes to it, and it is visited as one of the tree's.
            std::mem::forget(block);
        }
    }

    /// The block that is kept, and its size.
    fn reserved(&self) -> Option<(Link<Base>, usize)> {
        let link = Link::from_bits(self.reserve.load(Ordering::Acquire));
        (!link.is_null()).then(|| (link, self.geometry.base_bytes(0)))
    }

    /// Gives that block to the allocator, which has no other; false if it has gone already.
    fn give_up_reserve(&self) -> bool {
        let link = Link::<Base>::from_bits(self.reserve.swap(0, Ordering::AcqRel));
        if link.is_null() {
            return false;
        }
        let bytes = self.geometry.base_bytes(0);
        self.handle.pool.free_unshared(link, bytes, Committed::nothing_to_do());
        true
    }
}

impl<D: Domain, K: IndexKey + ?Sized> Drop for PBwTree<D, K> {
    fn drop(&mut self) {
        let _ = self.give_up_reserve();
    }
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "p-bwtree",
    title: "P-BwTree",
    paper: "Lee et al., SOSP 2019",
    insert_u64: InsertCost::of(2, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/p_bwtree"],
        options: IndexOptions { node_bytes: 192, ..IndexOptions::DEFAULT },
        runs: &[
            Run::integers("p-bwtree:u64"),
            Run::byte_strings("p-bwtree:bytes"),
            // With inner nodes that are merged, and a tree that becomes small again.
            Run::drained("p-bwtree:drained").of(40).filled(),
            // And a mapping table, before it is opened again.
            Run::drained("p-bwtree:emptied").of(30),
            Run {
                byte_strings: true,
                refuses_removals: true,
                ..Run::large("p-bwtree:cramped", 320).cramped(1 << 20)
            },
            Run::large("p-bwtree:in-use", 1200).as_in_use(),
        ],
        histories: &[("p-bwtree:taken-back", History::TakenBack(11, 3))],
        persist_points: (150, 6),
        rate_operations: 400,
    },
};
