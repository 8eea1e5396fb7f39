//! In what WOART and ART+CoW differ.

use lapis_pmem::Mutant;

use crate::{IndexKind, radix};

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
    /// Those that every radix tree has.
    pub of_all: radix::Mutants,
    /// A copy of a node is not flushed.
    pub missing_copy_flush: Mutant,
    /// A split stores the shorter prefix of the node that sinks before the word above, and in a way
    /// that its depth does not tell.
    pub header_before_parent: Mutant,
    /// In nodes of 4, 16 and 48, an entry counts before its child is stored.
    pub entry_before_child: [Mutant; 3],
}

/// What becomes of a node that loses a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The child or what makes it count is taken out.
    InPlace,
    /// A copy without it takes its place, if there is room for one.
    ByCopy,
    /// It goes too.
    WithNode,
}
