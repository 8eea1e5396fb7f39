//! WOART, the write-optimal adaptive radix tree (Lee, Lim, Song, Nam and Noh, FAST 2017): an
//! adaptive radix tree in which every change is one failure-atomic store of eight bytes.
//!
//! Layout, invariants (I1 to I9) and concurrency are those of `art`, of which this is the policy by
//! which nothing is copied that need not be:
//!
//! * A Node4 takes a byte by storing its child into one that no slot has, and then keys and slots,
//!   sorted, in their one word.
//! * A Node16 takes it by appending key and child where the bitmap has no bit, and then the bitmap.
//!   Keys are in no order; all sixteen are compared at once.
//! * A Node48 takes it by storing its child into one that the child index has no number of, and then
//!   the number.
//! * A Node256 has a place for each child.
//! * The header of a node that sinks or moves up is stored in place, as in [`Wort`](crate::Wort).
//!
//! # Order of stores
//!
//! ```text
//!  insert, Node4         leaf: flush │ fence │ child, entries: one line, flush │ fence
//!  insert, Node16        leaf, child if on another line: flush │ fence │ key, bitmap: flush │ fence
//!  insert, Node48        leaf, child: flush │ fence │ number: flush │ fence
//!  insert, Node256, end  leaf: flush │ fence │ child: flush │ fence
//!  insert, node full     leaf, larger copy: flush │ fence │ word above: flush │ fence │ retire
//!  insert, prefix split  leaf, Node4: flush │ fence │ word above: flush │ fence │ header below
//!  update                as in WORT
//!  remove                entries, bitmap, number or child: flush │ fence │ retire the leaf
//!  remove, node shrinks  smaller copy: flush │ fence │ word above: flush │ fence │ retire
//!  remove, 2 children    word above := the other child: flush │ fence │ retire leaf and node
//! ```
//!
//! The key byte is on the bitmap's line (I9), and so are a Node16's first three children and all of
//! a Node4: they need no flush of their own.
//!
//! # What differs from the paper, and why
//!
//! * Algorithms 3 and 4 persist the child, and with Node16 the key, by a flush and fence of its own
//!   before the word that makes it count. Here the fence that makes the leaf durable does for the
//!   child too, and what is on the word's own line persists before it anyway.
//! * The published implementation stored the parent's reference and the path in the node's header in
//!   an order that a power cut between the two did not survive (Witcher, Fu et al., SOSP 2021). Here
//!   the header needs no order: depth and prefix length change together, and their sum, the branch
//!   position, is fixed when the node is made. Whichever header a power cut leaves is true of the
//!   node (I8), and its depth says whether it is the right one. See
//!   `docs/wort-concurrency.md`.
//! * Deletion, which the paper leaves to the reader: one store, as insertion. A node shrinks, and goes
//!   with its last child but one.
//! * A reader loads the word that led it to a child once more, since entries change hands.

pub mod mutants;

use lapis_pmem::Optimisations;

use crate::IndexKind;
use crate::art::Art;
use crate::art::policy::{Mutants, Policy};
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::IndexOptions;
use crate::radix;

/// A write-optimal adaptive radix tree. The layout and the invariants are in the source's header
/// comments.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached;
/// with integer keys it does not promise that.
pub type Woart<D, K> = Art<D, K, WriteOptimal>;

/// Every change is one store.
#[derive(Debug)]
pub enum WriteOptimal {}

impl Policy for WriteOptimal {
    const KIND: IndexKind = IndexKind::Woart;
    const COPIES: bool = false;
    const MUTANTS: Mutants = Mutants {
        of_all: radix::mutants_of!(mutants),
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
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "woart",
    title: "WOART",
    paper: "Lee et al., FAST 2017",
    insert_u64: InsertCost::of(3, 2),
    insert_bytes: InsertCost::of(3, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/art/", "!index/src/art/copies", "index/src/radix"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("woart:u64"),
            Run::byte_strings("woart:bytes"),
            // With nodes of the largest kind, that come and go.
            Run::drained("woart:wide").of(124).filled(),
            // So few that nothing is left.
            Run::drained("woart:drained").of(24),
        ],
        histories: &[
            ("woart:splitting", History::SplitNode),
            ("woart:unlinking", History::UnlinkedNode),
            ("woart:thinning", History::ThinnedNode),
        ],
        persist_points: (200, 2),
        rate_operations: 400,
    },
};
