//! Errors that the two wB+-Trees can be told to commit. What they have in common has a name for each
//! of them.

use lapis_pmem::{Domain, Mutant, mutants};

mutants! {
    /// The mutants of the wB+-Tree, and operations in which all show.
    CATALOGUE: 150 operations;

    /// An insertion changes the slot array while the bitmap still says that it is valid.
    // I2.
    VALID_BIT_NOT_CLEARED = "wb-tree/valid-bit-not-cleared" =>
        at("index/src/wb_tree/change.rs, add_by_bitmap");

    /// A new entry is not flushed before the bitmap counts it.
    // I1.
    MISSING_ENTRY_FLUSH = "wb-tree/missing-entry-flush" =>
        at("index/src/wb_tree/change.rs, add_by_bitmap");

    /// The redo log is emptied before what it says has been done durably.
    // I5.
    LOG_TRUNCATED_EARLY = "wb-tree/log-truncated-early" =>
        at("index/src/wb_tree/redo_log.rs, redo");

    /// The nodes of a split or merge are changed before the redo log is complete.
    // I5.
    CHANGE_BEFORE_LOG_COMMIT = "wb-tree/change-before-log-commit" =>
        at("index/src/wb_tree/redo_log.rs, carry_out");

    /// A complete redo log is emptied when the index is opened, without being redone.
    // I5.
    LOG_NOT_REDONE = "wb-tree/log-not-redone" => at("index/src/wb_tree/redo_log.rs, recover");

    /// The new node of a split is not flushed before the log that names it is complete.
    // I1.
    MISSING_SIBLING_FLUSH = "wb-tree/missing-sibling-flush" =>
        at("index/src/wb_tree/restructure.rs, build");

    /// An inner node that a merge has taken out of the tree still looks current to a reader who has
    /// read it, although a leaf below it has been split since.
    // I6.
    MERGED_NODE_NOT_DISOWNED = "wb-tree/merged-node-not-disowned" =>
        at("index/src/wb_tree/restructure.rs, merge")
        .in_runs(&["wb-tree:merging"]);

    /// A root that has given way to its only child still looks current to a reader who has read it, although the
    /// child has been split since.
    // I6.
    OLD_ROOT_NOT_DISOWNED = "wb-tree/old-root-not-disowned" =>
        at("index/src/wb_tree/restructure.rs, merge")
        .in_runs(&["wb-tree:giving-way"]);
}

pub use crate::wb_tree_slot::mutants as slots_only;

/// Whichever of an error's two names is to be committed, in code that both structures have.
#[inline(always)]
pub(super) fn either<D: Domain>(domain: &D, bitmap: Mutant, slots_only: Mutant) -> Mutant {
    if domain.commits(slots_only) { slots_only } else { bitmap }
}
