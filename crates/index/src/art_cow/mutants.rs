//! Errors that ART+CoW can be told to commit.

use lapis_pmem::Mutant;

/// A split shortens the prefix in the header of the node that sinks in place instead of in a copy
/// (I8).
pub const HEADER_IN_PLACE: Mutant = Mutant("art-cow/header-in-place");

/// A new leaf is not flushed before a word refers to it (I1).
pub const MISSING_LEAF_FLUSH: Mutant = Mutant("art-cow/missing-leaf-flush");

/// A new leaf counts without a fence after its flush (I1).
pub const LINK_BEFORE_FENCE: Mutant = Mutant("art-cow/link-before-fence");

/// The copy of a node is not flushed before the word above refers to it (I1).
pub const MISSING_COPY_FLUSH: Mutant = Mutant("art-cow/missing-copy-flush");

/// A Node48's child index is stored before the child that it leads to (I9).
pub const INDEX_BEFORE_CHILD: Mutant = Mutant("art-cow/index-before-child");
