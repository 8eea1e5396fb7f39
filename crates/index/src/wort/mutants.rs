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

/// A writer that has taken its stripes does not look again at what it found without them (I6).
pub const STALE_DECISION: Mutant = Mutant("wort/stale-decision");

/// The unlinking of a node is not counted, so that a writer which found the node before takes it for
/// one that is still reachable (R2).
pub const UNCOUNTED_UNLINKING: Mutant = Mutant("wort/uncounted-unlinking");

/// The stripe of a node that a split makes is not held until the word that refers to it is durable
/// (I6).
pub const NEW_NODE_UNLOCKED: Mutant = Mutant("wort/new-node-unlocked");

/// A change that finds nothing to do answers without persisting what it may have seen of others
/// (I6).
pub const UNPERSISTED_ANSWER: Mutant = Mutant("wort/unpersisted-answer");
