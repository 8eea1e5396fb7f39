//! Errors that the wB+-Tree whose nodes have slots only can be told to commit.

use lapis_pmem::mutants;

use crate::mutants::wb_tree;

mutants! {
    /// The mutants of the wB+-Tree with slots only, and operations in which all show.
    CATALOGUE: 150 operations;

    /// A new entry is not flushed before the control word counts it.
    // I1.
    MISSING_ENTRY_FLUSH = "wb-tree-slot/missing-entry-flush" =>
        at("index/src/wb_tree/change.rs, add_by_slots");

    LOG_TRUNCATED_EARLY = "wb-tree-slot/log-truncated-early" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::LOG_TRUNCATED_EARLY));

    CHANGE_BEFORE_LOG_COMMIT = "wb-tree-slot/change-before-log-commit" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::CHANGE_BEFORE_LOG_COMMIT));

    LOG_NOT_REDONE = "wb-tree-slot/log-not-redone" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::LOG_NOT_REDONE));

    MISSING_SIBLING_FLUSH = "wb-tree-slot/missing-sibling-flush" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::MISSING_SIBLING_FLUSH));

    MERGED_NODE_NOT_DISOWNED = "wb-tree-slot/merged-node-not-disowned" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::MERGED_NODE_NOT_DISOWNED))
        .in_runs(&["wb-tree-slot:merging"]);

    OLD_ROOT_NOT_DISOWNED = "wb-tree-slot/old-root-not-disowned" =>
        like(wb_tree::CATALOGUE.entry(wb_tree::OLD_ROOT_NOT_DISOWNED))
        .in_runs(&["wb-tree-slot:giving-way"]);
}
