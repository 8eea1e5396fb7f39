//! In what WOART, ART+CoW and P-ART differ.

use lapis_pmem::{Dirty, Domain, Mutant, Owned, Pool};

use super::Art;
use super::node::{Child, Head};
use crate::index::{Change, IndexError, Outcome};
use crate::key::IndexKey;
use crate::radix::Changing;
use crate::{IndexKind, radix};

/// Which of the trees it is.
pub trait Policy: std::fmt::Debug + Send + Sync + 'static {
    /// Its kind.
    const KIND: IndexKind;
    /// Whether nodes of 4 and 16 are copied when a byte is added or removed, and nodes of every kind
    /// when their prefix changes. Otherwise the one is a store into an entry that does not count and
    /// one that makes it count, the other a store of the header.
    const COPIES: bool;
    /// Its mutants.
    const MUTANTS: Mutants;
    /// Bytes of the lock that each node has; none where writers lock stripes.
    const LOCK_BYTES: usize = 0;

    /// Makes a change, durably.
    ///
    /// # Errors
    /// [`IndexError`]; the tree is as it was.
    #[inline(always)]
    fn change<D: Domain, K: IndexKey + ?Sized>(
        tree: &Art<D, K, Self>,
        key: &K,
        change: Change,
    ) -> Result<Outcome, IndexError>
    where
        Self: Sized,
    {
        Changing::change(tree, key, change)
    }

    /// Writes the lock of a node that nobody can reach yet: held by the caller.
    #[inline(always)]
    fn lock_new<D: Domain>(_node: &mut Owned<'_, D, Head, Dirty>) {}

    /// Gives it back: the word that refers to the node is durable.
    #[inline(always)]
    fn unlock_new<D: Domain>(_pool: &Pool<D>, _node: Child) {}
}

/// The errors that a tree can be told to commit. One that has no such error has the name of none.
#[derive(Debug)]
pub struct Mutants {
    /// Those that every radix tree has.
    pub of_all: radix::Mutants,
    /// A copy of a node is not flushed.
    pub missing_copy_flush: Mutant,
    /// The word above is not persisted where a node becomes smaller or goes.
    pub unpersisted_word_above: Mutant,
    /// A split stores the shorter prefix of the node that sinks before the word above, and in a way
    /// that its depth does not tell.
    pub header_before_parent: Mutant,
    /// A node goes with its leaf, and what is above it is not held.
    pub unclaimed_unlinking: Mutant,
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
