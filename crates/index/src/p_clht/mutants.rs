//! Errors that P-CLHT can be told to commit.

use lapis_pmem::Mutant;

/// The `next` pointer to a new overflow bucket is not persisted (I4).
pub const UNFLUSHED_NEXT_POINTER: Mutant = Mutant("p-clht/unflushed-next-pointer");

/// A larger table takes the place of the old one while the flushes of its contents are not complete
/// (I1).
pub const SWAP_BEFORE_FLUSH: Mutant = Mutant("p-clht/swap-before-flush");

/// The buckets of a larger table are written and never flushed (I1).
pub const UNFLUSHED_NEW_TABLE: Mutant = Mutant("p-clht/unflushed-new-table");

/// A lock that a crash has left locked stays locked: locks name no generation (I6).
pub const PERSISTED_LOCK: Mutant = Mutant("p-clht/persisted-lock");

/// The old table is freed although the pointer away from it is not durable: after a crash it is in
/// use again and its blocks are handed out and freed a second time (I1).
pub const DOUBLE_FREE: Mutant = Mutant("p-clht/double-free");

/// A removal does not flush the slot that it empties.
pub const UNFLUSHED_REMOVE: Mutant = Mutant("p-clht/unflushed-remove");
