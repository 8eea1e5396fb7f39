//! Errors that the two wB+-Trees can be told to commit. What they have in common has a name for each
//! of them.

use lapis_pmem::{Domain, Mutant};

/// An insertion changes the slot array while the bitmap still says that it is valid (I2).
pub const VALID_BIT_NOT_CLEARED: Mutant = Mutant("wb-tree/valid-bit-not-cleared");

/// A new entry is not flushed before the bitmap says that it counts (I1).
pub const MISSING_ENTRY_FLUSH: Mutant = Mutant("wb-tree/missing-entry-flush");

/// The redo log is emptied before what it says has been done durably (I5).
pub const LOG_TRUNCATED_EARLY: Mutant = Mutant("wb-tree/log-truncated-early");

/// The nodes of a split or merge are changed before the log is durably complete (I5).
pub const CHANGE_BEFORE_LOG_COMMIT: Mutant = Mutant("wb-tree/change-before-log-commit");

/// A complete log that is found when the index is opened is emptied without being redone (I5).
pub const LOG_NOT_REDONE: Mutant = Mutant("wb-tree/log-not-redone");

/// The new node of a split is not flushed before the log that names it is complete (I1).
pub const MISSING_SIBLING_FLUSH: Mutant = Mutant("wb-tree/missing-sibling-flush");

/// An inner node that a merge has taken out of the tree stays what it was for readers who have read
/// it (I6).
pub const MERGED_NODE_NOT_DISOWNED: Mutant = Mutant("wb-tree/merged-node-not-disowned");

pub use crate::wb_tree_slot::mutants as slots_only;

/// Whichever of an error's two names is to be committed, in code that both structures have.
#[inline(always)]
pub(super) fn either<D: Domain>(domain: &D, bitmap: Mutant, slots_only: Mutant) -> Mutant {
    if domain.commits(slots_only) { slots_only } else { bitmap }
}
