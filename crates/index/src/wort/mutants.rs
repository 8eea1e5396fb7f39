//! Errors that WORT can be told to commit.

use lapis_pmem::Mutant;

/// A split shortens the prefix in the header of the node that sinks before the new node above it is
/// linked, and gives it its new depth only afterwards: in between, the header passes for right at
/// the old depth (I8).
pub const HEADER_BEFORE_PARENT: Mutant = Mutant("wort/header-before-parent");

/// A new leaf is not flushed before a slot refers to it (I1).
pub const MISSING_LEAF_FLUSH: Mutant = Mutant("wort/missing-leaf-flush");

/// The slot of a new leaf is stored without a fence after the leaf's flush (I1).
pub const LINK_BEFORE_FENCE: Mutant = Mutant("wort/link-before-fence");
