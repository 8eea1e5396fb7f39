//! P-ART: the adaptive radix tree with read-optimised write exclusion, on persistent memory.
//!
//! Lee, Mohan, Kashyap, Kim, Chidambaram: "RECIPE: Converting Concurrent DRAM Indexes to
//! Persistent-Memory Indexes", SOSP 2019; the tree it converts: Leis, Kemper, Neumann: "The Adaptive
//! Radix Tree", ICDE 2013, with the locks of Leis, Scheibner, Kemper, Neumann: "The ART of Practical
//! Synchronization", DaMoN 2016. A lock in each node keeps writers apart; readers look at no lock.
//!
//! ```text
//!  IndexRoot: top ──▶ node or leaf;  words[0] = the lock under which top changes
//!
//!  Node4, 64 bytes, one line                 Node16, 176 bytes, three lines
//!  offset bytes  field                       offset bytes  field
//!       0     8  header                           0     8  header
//!       8     8  child of the key that ends       8     8  child of the key that ends
//!                here (byte strings)                       here
//!      16     8  lock: GenerationLock            16     8  lock
//!      24     8  entries: 4 keys, 4 slots        24     8  bitmap: 16 bits, the rest zero
//!      32    32  4 children                      32    16  16 keys
//!                                                48   128  16 children
//!
//!  Node48, 664 bytes                         Node256, 2072 bytes
//!       0    24  as above                         0    24  as above
//!      24   256  child index: per byte           24  2048  256 children
//!                1 + child number, or 0
//!     280   384  48 children
//! ```
//!
//! Words that refer to nodes and leaves, leaves, headers and what is in a node's body are those of
//! `art`, and so is the code for them: this is the policy of that tree by which writers lock nodes.
//!
//! # Invariants, at every instant a crash may come
//!
//! I1 to I9 are those of `art`, with the lock of a node where these speak of its stripe. Besides:
//!
//! * I10. A lock that is held in the present generation of the pool has a holder that runs, or its node
//!   was unlinked in this generation. A crash may leave any lock word locked, and the next opening of
//!   the pool, which has another generation, makes it free. Nothing else about a word of a lock is
//!   looked at: neither version nor payload means anything.
//! * I11. Who unlinks a node holds its lock and that of the node above and never gives back the first:
//!   that is the mark by which writers know that it is obsolete. It becomes one with the store that
//!   unlinks, and like that store it may be taken back by a crash, which makes the lock free.
//! * I12. A node is locked by whoever makes it until the word that refers to it is durable (I6).
//!
//! # The order of stores
//!
//! ```text
//!  each of these stands between       lock of the node (and of the node above, if the word there
//!                                     changes) ... the same locks, given back; neither is flushed
//!  insert, Node4         leaf: flush │ fence │ child, entries: one line, flush │ fence
//!  insert, Node16        leaf, child if on another line: flush │ fence │ key, bitmap: flush │ fence
//!  insert, Node48        leaf, child: flush │ fence │ number: flush │ fence
//!  insert, Node256, end  leaf: flush │ fence │ child: flush │ fence
//!  insert, node full     leaf, larger copy, locked: flush │ fence │ word above: flush │ fence │ unlock
//!                        the copy, retire
//!  insert, prefix split  leaf, Node4, locked: flush │ fence │ word above: flush │ fence │ unlock the
//!                        Node4 │ header below
//!  update                integers: value: flush │ fence; byte strings: a new leaf takes its place
//!  remove                entries, bitmap, number or child: flush │ fence │ retire the leaf
//!  remove, node shrinks  smaller copy, locked: flush │ fence │ word above: flush │ fence │ unlock the
//!                        copy, retire
//!  remove, 2 children    word above := the other child: flush │ fence │ retire leaf and node
//! ```
//!
//! A writer goes down without locks, takes the lock of the node that it is to change if that is free,
//! and looks whether the node still has there what it found. If not, or if the lock is taken, it lets
//! go of everything and goes down again. So no writer waits while it holds a lock. It finds out that
//! a node must be replaced with the node's lock in its hands, and then looks for the node above and
//! tries its lock. Why changes and answers survive a power cut is told in `docs/wort-concurrency.md`.
//!
//! # What the locks write
//!
//! Taking a lock makes its line dirty, and so does giving it back, after the line may have been
//! flushed: nobody flushes it again, and the caches cast it out some time. The model counts that as
//! a write like any other: with 2,000,000 uniform keys on the modelled `optane-100`, 4.07 lines reach the
//! memory controller per insert, where WOART, which has its locks elsewhere, sends 3.93, and 0.03
//! more with each of the gets behind them. Readers write nothing. (Woo, Kim, Jung, Seo: "Analysis and Optimization of
//! Persistent Memory Index Structures' Write Amplification", IEEE Access 2021, count 44 lines per
//! insert where most operations are gets, since readers of the published tree write version words.)
//!
//! # What differs from the papers, and why
//!
//! * A small node and one of 48 say which entries count by one word, as WOART's do, and use an entry
//!   again. RECIPE appends keys and counts them. The lines are as many, but for a Node16 whose
//!   child is not on the bitmap's line.
//! * There is no obsolete bit beside the lock (I11) and no version: readers need neither.
//! * RECIPE tells a prefix that a split has left behind by the node's level, which never changes. Here
//!   the level, the branch position, is in the word that refers to the node, and a header has its depth
//!   (I8): it need not be repaired before anybody goes on.
//! * Known of conversions like this one are a leaf that is not flushed before its slot, a prefix of which
//!   half is seen, a word above a merged or smaller node that is relied on before it is durable, and
//!   a lock that a crash leaves set. `mutants.rs` has each.

mod change;
mod locks;
pub mod mutants;
#[cfg(test)]
mod tests;

use lapis_pmem::{Dirty, Domain, Optimisation, Optimisations, Owned, Pool};

use crate::IndexKind;
use crate::art::Art;
use crate::art::node::{Child, Head};
use crate::art::policy::{Mutants, Policy};
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::{Change, IndexError, IndexOptions, Outcome};
use crate::key::IndexKey;
use crate::radix;

/// A P-ART. The layout and the invariants are in the source's header comments.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached;
/// with integer keys it does not promise that.
pub type PArt<D, K> = Art<D, K, ReadOptimized>;

/// Writers lock nodes.
#[derive(Debug)]
pub enum ReadOptimized {}

impl Policy for ReadOptimized {
    const KIND: IndexKind = IndexKind::PArt;
    const COPIES: bool = false;
    const LOCK_BYTES: usize = 8;
    const MUTANTS: Mutants = Mutants {
        of_all: radix::Mutants {
            missing_leaf_flush: mutants::MISSING_LEAF_FLUSH,
            link_before_fence: mutants::LINK_BEFORE_FENCE,
            stale_decision: mutants::STALE_DECISION,
            unnoted_unlinking: mutants::UNLINKED_NODE_UNLOCKED,
            new_node_unlocked: mutants::NEW_NODE_UNLOCKED,
            unpersisted_answer: mutants::UNPERSISTED_ANSWER,
        },
        missing_copy_flush: mutants::MISSING_COPY_FLUSH,
        unpersisted_word_above: mutants::UNPERSISTED_WORD_ABOVE,
        header_before_parent: mutants::HEADER_BEFORE_PARENT,
        unclaimed_unlinking: mutants::UNCLAIMED_UNLINKING,
        entry_before_child: [
            mutants::SLOTS_BEFORE_CHILD,
            mutants::BITMAP_BEFORE_ENTRY,
            mutants::INDEX_BEFORE_CHILD,
        ],
    };

    #[inline(always)]
    fn change<D: Domain, K: IndexKey + ?Sized>(
        tree: &PArt<D, K>,
        key: &K,
        change: Change,
    ) -> Result<Outcome, IndexError> {
        tree.change_under_locks(key, change)
    }

    #[inline(always)]
    fn lock_new<D: Domain>(node: &mut Owned<'_, D, Head, Dirty>) {
        locks::lock_new(node);
    }

    #[inline(always)]
    fn unlock_new<D: Domain>(pool: &Pool<D>, node: Child) {
        locks::unlock_new(pool, node);
    }
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "p-art",
    title: "P-ART",
    paper: "Lee et al., SOSP 2019",
    insert_u64: InsertCost::of(3, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::of(&[Optimisation::EarlyEviction]),
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/art/", "!index/src/art/copies", "index/src/radix", "index/src/p_art"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("p-art:u64"),
            Run::byte_strings("p-art:bytes"),
            // With nodes of the largest kind, that come and go.
            Run::drained("p-art:wide").of(160).filled(),
            Run::drained("p-art:drained").of(24),
        ],
        histories: &[
            ("p-art:splitting", History::SplitNode),
            ("p-art:unlinking", History::UnlinkedNode),
            ("p-art:thinning", History::ThinnedNode),
            ("p-art:put-between", History::PutBetween(4)),
        ],
        persist_points: (200, 2),
        rate_operations: 400,
    },
};
