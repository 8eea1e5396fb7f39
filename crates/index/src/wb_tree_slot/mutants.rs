//! Errors that the wB+-Tree whose nodes have slots only can be told to commit.

use lapis_pmem::Mutant;

/// A new entry is not flushed before the control word says that it counts (I1).
pub const MISSING_ENTRY_FLUSH: Mutant = Mutant("wb-tree-slot/missing-entry-flush");

/// [`LOG_TRUNCATED_EARLY`](crate::mutants::wb_tree::LOG_TRUNCATED_EARLY).
pub const LOG_TRUNCATED_EARLY: Mutant = Mutant("wb-tree-slot/log-truncated-early");

/// [`CHANGE_BEFORE_LOG_COMMIT`](crate::mutants::wb_tree::CHANGE_BEFORE_LOG_COMMIT).
pub const CHANGE_BEFORE_LOG_COMMIT: Mutant = Mutant("wb-tree-slot/change-before-log-commit");

/// [`LOG_NOT_REDONE`](crate::mutants::wb_tree::LOG_NOT_REDONE).
pub const LOG_NOT_REDONE: Mutant = Mutant("wb-tree-slot/log-not-redone");

/// [`MISSING_SIBLING_FLUSH`](crate::mutants::wb_tree::MISSING_SIBLING_FLUSH).
pub const MISSING_SIBLING_FLUSH: Mutant = Mutant("wb-tree-slot/missing-sibling-flush");

/// [`MERGED_NODE_NOT_DISOWNED`](crate::mutants::wb_tree::MERGED_NODE_NOT_DISOWNED).
pub const MERGED_NODE_NOT_DISOWNED: Mutant = Mutant("wb-tree-slot/merged-node-not-disowned");
