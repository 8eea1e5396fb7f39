//! Errors that WOART can be told to commit.

use lapis_pmem::Mutant;

/// A split shortens the prefix in the header of the node that sinks before the new node above it is
/// linked, and gives it its new depth only afterwards: in between, the header passes for right at
/// the old depth (I8).
pub const HEADER_BEFORE_PARENT: Mutant = Mutant("woart/header-before-parent");

/// A new leaf is not flushed before a word refers to it (I1).
pub const MISSING_LEAF_FLUSH: Mutant = Mutant("woart/missing-leaf-flush");

/// A new leaf counts without a fence after its flush (I1).
pub const LINK_BEFORE_FENCE: Mutant = Mutant("woart/link-before-fence");

/// The larger copy of a full node is not flushed before the word above refers to it (I1).
pub const MISSING_COPY_FLUSH: Mutant = Mutant("woart/missing-copy-flush");

/// A Node4's keys and slots are stored before the child they lead to (I9).
pub const SLOTS_BEFORE_CHILD: Mutant = Mutant("woart/slots-before-child");

/// A Node16's bitmap is stored before the key and the child that it makes count (I9).
pub const BITMAP_BEFORE_ENTRY: Mutant = Mutant("woart/bitmap-before-entry");

/// A Node48's child index is stored before the child that it leads to (I9).
pub const INDEX_BEFORE_CHILD: Mutant = Mutant("woart/index-before-child");

/// A writer that has taken its stripes does not look again at what it found without them (I6).
pub const STALE_DECISION: Mutant = Mutant("woart/stale-decision");

/// The unlinking of a node is not counted, so that a writer which found the node before takes it for
/// one that is still reachable (R2).
pub const UNCOUNTED_UNLINKING: Mutant = Mutant("woart/uncounted-unlinking");

/// The stripe of a node that a split makes is not held until the word that refers to it is durable
/// (I6).
pub const NEW_NODE_UNLOCKED: Mutant = Mutant("woart/new-node-unlocked");

/// A change that finds nothing to do answers without persisting what it may have seen of others
/// (I6).
pub const UNPERSISTED_ANSWER: Mutant = Mutant("woart/unpersisted-answer");
