//! Errors that NV-Tree can be told to commit.

use lapis_pmem::Mutant;

/// The count that makes a record part of a leaf is persisted before the record is (I2).
pub const COUNT_BEFORE_RECORD: Mutant = Mutant("nv-tree/count-before-record");

/// The predecessor's link is swapped to new leaves that were never flushed (I1).
pub const SWAP_BEFORE_FLUSH: Mutant = Mutant("nv-tree/swap-before-flush");

/// The old leaf is freed before the link away from it is swapped, let alone durable, so that a new
/// leaf is written over it (I6).
pub const FREED_BEFORE_SWAP: Mutant = Mutant("nv-tree/freed-before-swap");

/// The flag that says that a record is a deletion is stored after the count (I3).
pub const FLAG_AFTER_COUNT: Mutant = Mutant("nv-tree/flag-after-count");

/// Removing the last key of a leaf takes the leaf out without persisting the link.
pub const UNFLUSHED_UNLINK: Mutant = Mutant("nv-tree/unflushed-unlink");
