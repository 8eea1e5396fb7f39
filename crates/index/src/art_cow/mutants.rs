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

/// A writer that has taken its stripes does not look again at what it found without them (I6).
pub const STALE_DECISION: Mutant = Mutant("art-cow/stale-decision");

/// The unlinking of a node is not counted, so that a writer which found the node before takes it for
/// one that is still reachable (R2).
pub const UNCOUNTED_UNLINKING: Mutant = Mutant("art-cow/uncounted-unlinking");

/// The stripe of a node that a split makes is not held until the word that refers to it is durable
/// (I6).
pub const NEW_NODE_UNLOCKED: Mutant = Mutant("art-cow/new-node-unlocked");

/// A change that finds nothing to do answers without persisting what it may have seen of others
/// (I6).
pub const UNPERSISTED_ANSWER: Mutant = Mutant("art-cow/unpersisted-answer");
