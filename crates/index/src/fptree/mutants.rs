//! Errors that FPTree can be told to commit.

use lapis_pmem::Mutant;

/// The bitmap says that a slot is in use before the slot's line is durable (I2).
pub const BITMAP_BEFORE_ENTRY: Mutant = Mutant("fptree/bitmap-before-entry");

/// The bitmap says that a slot is in use before the fingerprint is stored, in the same line (I2).
pub const FINGERPRINT_AFTER_BITMAP: Mutant = Mutant("fptree/fingerprint-after-bitmap");

/// The record of a split or merge is not flushed before the leaf is changed as it says (I5).
pub const MICRO_LOG_NOT_PERSISTED: Mutant = Mutant("fptree/micro-log-not-persisted");

/// The upper half stays in the old leaf: the bitmap without it is not flushed (I4).
pub const OLD_LEAF_NOT_CLEARED: Mutant = Mutant("fptree/old-leaf-not-cleared");

/// The upper half is cleared from the old leaf, durably, before the new leaf is durable and recorded
/// (I1).
pub const CLEARED_BEFORE_LINKED: Mutant = Mutant("fptree/cleared-before-linked");

/// A leaf's entries are moved to its neighbour and the leaf is unlinked without a record (I5).
pub const UNLINKED_WITHOUT_MICRO_LOG: Mutant = Mutant("fptree/unlinked-without-micro-log");

/// The record is cleared, durably, before what it says has been done (I5).
pub const MICRO_LOG_RESET_TOO_EARLY: Mutant = Mutant("fptree/micro-log-reset-too-early");

/// The new leaf of a split is not flushed (I1).
pub const UNFLUSHED_NEW_LEAF: Mutant = Mutant("fptree/unflushed-new-leaf");

/// Recovery does what the records say, does not persist that, and clears them durably (I5).
pub const REPLAY_NOT_PERSISTED: Mutant = Mutant("fptree/replay-not-persisted");

/// Recovery does what the records say and leaves them: the next one does it again (I5).
pub const REPLAYED_MICRO_LOG_NOT_RESET: Mutant = Mutant("fptree/replayed-micro-log-not-reset");

/// A leaf is unlinked and freed, and the record of it survives as valid: replayed when the tree is
/// opened next, it undoes later changes of its neighbour (I5).
pub const MICRO_LOG_NOT_RESET: Mutant = Mutant("fptree/micro-log-not-reset");
