//! Errors that FAST & FAIR can be told to commit.

use lapis_pmem::Mutant;

/// While a removal shifts entries to the left, a line is persisted when its first slot has been
/// written, as is right for a shift to the right, instead of its last (I3).
pub const WRONG_END_OF_LINE_ON_REMOVE: Mutant = Mutant("fast-fair/wrong-end-of-line-on-remove");

/// A removal does not look for the duplicate that an interrupted insertion has left, and takes away
/// one of the two: repair leaves duplicates where they are (I4).
pub const DUPLICATE_ON_REMOVE: Mutant = Mutant("fast-fair/duplicate-on-remove");

/// The node at the top is taken to be alone on its level, although a split links its sibling before
/// there is a root above both.
pub const SIBLING_BEFORE_ROOT: Mutant = Mutant("fast-fair/sibling-before-root");

/// Unlinking an empty node takes it out of its level before its separator is out of the parent
/// (I6), so that a crash in between leaves a way to a node that is no longer there.
pub const MERGE_NOT_ATOMIC: Mutant = Mutant("fast-fair/merge-not-atomic");

/// A writer takes the node that the parent names without asking whether the key belongs to its
/// sibling, which a split has linked and no parent names yet (I9).
pub const WRONG_NODE_AFTER_SPLIT: Mutant = Mutant("fast-fair/wrong-node-after-split");

/// A new root, the first leaf included, is not flushed before it is published (I1).
pub const UNFLUSHED_ROOT: Mutant = Mutant("fast-fair/unflushed-root");

/// A split inserts the new entry into the new sibling while the pointer that leads there is not
/// persisted, and acknowledges it.
pub const INSERT_THROUGH_UNPERSISTED_POINTER: Mutant =
    Mutant("fast-fair/insert-through-unpersisted-pointer");
