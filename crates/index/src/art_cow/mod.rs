//! ART+CoW (Lee, Lim, Song, Nam and Noh, FAST 2017): an adaptive radix tree made failure-atomic by
//! copy-on-write where that is cheap, and as in WOART and WORT where it is not.
//!
//! Layout, invariants (I1 to I9) and concurrency are those of `art`, of which this is the policy by
//! which small nodes and prefixes change by copies:
//!
//! * A Node4 or Node16 gets or loses a byte by a copy, whose entries are in the order of keys; the
//!   word above is then made to refer to the copy. The child of a byte that stays is changed in
//!   place, and so is the child of a key that ends there.
//! * A Node48 takes bytes as in [`Woart`](crate::Woart), a Node256 as in [`Wort`](crate::Wort).
//! * A node whose prefix becomes shorter or longer is copied, whatever its kind, with the header
//!   that is right for it there. Headers are therefore never stale, but for one case below.
//!
//! # Order of stores
//!
//! ```text
//!  insert, Node4 and 16  leaf, copy: flush │ fence │ word above: flush │ fence │ retire the old
//!  insert, Node48        leaf, child: flush │ fence │ number: flush │ fence
//!  insert, Node256, end  leaf: flush │ fence │ child: flush │ fence
//!  insert, node full     leaf, larger copy: flush │ fence │ word above: flush │ fence │ retire
//!  insert, prefix split  leaf, Node4, copy of what sinks: flush │ fence │ word above: flush │ fence
//!                        │ retire the old
//!  update                as in WORT
//!  remove, Node4 and 16  copy: flush │ fence │ word above: flush │ fence │ retire leaf and old
//!  remove, others        number or child: flush │ fence │ retire the leaf
//!  remove, 2 children    copy of the other child, if a node: flush │ fence │ word above: flush │
//!                        fence │ retire leaf and both nodes
//! ```
//!
//! # What differs from the paper, and why
//!
//! * A removal that finds no room for its copy does without: it makes the entry not count, by one
//!   store, or links a node that moves up as it is, with a header that is stale (I8). What can be
//!   removed from a full pool must not depend on what can be added. For this, and only for this,
//!   headers carry their depth as WOART's do; the entries of a copy never change otherwise.

pub mod mutants;

use lapis_pmem::Optimisations;

use crate::IndexKind;
use crate::art::Art;
use crate::art::policy::{Mutants, Policy};
use crate::declaration::{Declaration, Exploration, History, InsertCost, Run};
use crate::index::IndexOptions;
use crate::radix;

/// An adaptive radix tree with copy-on-write. The layout and the invariants are in the source's
/// header comments.
///
/// Keys are ordered, readers never wait, writers of different nodes do not either. With byte-string keys an insert or
/// update fences between the caller's earlier flushes and the moment the value can be reached;
/// with integer keys it does not promise that.
pub type ArtCow<D, K> = Art<D, K, CopyOnWrite>;

/// Small nodes and prefixes change by copies.
#[derive(Debug)]
pub enum CopyOnWrite {}

impl Policy for CopyOnWrite {
    const KIND: IndexKind = IndexKind::ArtCow;
    const COPIES: bool = true;
    const MUTANTS: Mutants = Mutants {
        of_all: radix::mutants_of!(mutants),
        missing_copy_flush: mutants::MISSING_COPY_FLUSH,
        unpersisted_word_above: mutants::UNPERSISTED_WORD_ABOVE,
        header_before_parent: mutants::HEADER_IN_PLACE,
        // A node that may go is copied: what is above it has been claimed in any case.
        unclaimed_unlinking: mutants::STALE_DECISION,
        // Nodes of 4 and 16 take no entries here.
        entry_before_child: [mutants::INDEX_BEFORE_CHILD; 3],
    };
}

pub(crate) const DECLARATION: Declaration = Declaration {
    name: "art-cow",
    title: "ART+CoW",
    paper: "Lee et al., FAST 2017",
    insert_u64: InsertCost::of(5, 2),
    insert_bytes: InsertCost::of(5, 2),
    optimisations: Optimisations::NONE,
    mutants: mutants::CATALOGUE,
    exploration: Exploration {
        sources: &["index/src/art", "index/src/radix"],
        options: IndexOptions::DEFAULT,
        runs: &[
            Run::integers("art-cow:u64"),
            Run::byte_strings("art-cow:bytes"),
            // With nodes of the largest kind, that come and go.
            Run::drained("art-cow:wide").of(124).filled(),
            // So few that nothing is left.
            Run::drained("art-cow:drained").of(24),
        ],
        histories: &[
            ("art-cow:splitting", History::SplitNode),
            ("art-cow:unlinking", History::UnlinkedNode),
        ],
        persist_points: (200, 2),
        rate_operations: 200,
    },
};
