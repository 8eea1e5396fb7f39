//! In what WOART and ART+CoW differ.

use lapis_pmem::Mutant;

use crate::IndexKind;

/// Which of the two trees it is.
pub trait Policy: std::fmt::Debug + Send + Sync + 'static {
    /// Its kind.
    const KIND: IndexKind;
    /// Whether nodes of 4 and 16 are copied when a byte is added or removed, and nodes of every kind
    /// when their prefix changes. Otherwise the one is a store into an entry that does not count and
    /// one that makes it count, the other a store of the header.
    const COPIES: bool;
    /// Its mutants.
    const MUTANTS: Mutants;
}

/// The errors that a tree can be told to commit. One that has no such error has the name of none.
#[derive(Debug)]
pub struct Mutants {
    /// A new leaf is not flushed.
    pub missing_leaf_flush: Mutant,
    /// A word refers to a new leaf without a fence after its flush.
    pub link_before_fence: Mutant,
    /// A copy of a node is not flushed.
    pub missing_copy_flush: Mutant,
    /// A split stores the shorter prefix of the node that sinks before the word above, and in a way
    /// that its depth does not tell.
    pub header_before_parent: Mutant,
    /// In nodes of 4, 16 and 48, an entry counts before its child is stored.
    pub entry_before_child: [Mutant; 3],
    /// What was found without stripes is not looked at again with them.
    pub stale_decision: Mutant,
    /// An unlinking of nodes is not counted.
    pub uncounted_unlinking: Mutant,
    /// The stripe of a node that a split makes is not held.
    pub new_node_unlocked: Mutant,
    /// A change that finds nothing to do does not persist what it may have seen.
    pub unpersisted_answer: Mutant,
}
