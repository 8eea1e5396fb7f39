//! Errors that FPTree can be told to commit.

use lapis_pmem::{Mutant, mutants};

mutants! {
    /// The mutants of FPTree, and operations in which all show.
    CATALOGUE: 390 operations;

    /// The bitmap says that a slot is in use before the entry in it is durable.
    // I2.
    BITMAP_BEFORE_ENTRY = "fptree/bitmap-before-entry" => at("index/src/fptree/write.rs, fill");

    /// The bitmap says that a slot is in use before the fingerprint, in the same line, is that of
    /// its key.
    // I2.
    FINGERPRINT_AFTER_BITMAP = "fptree/fingerprint-after-bitmap" =>
        at("index/src/fptree/write.rs, fill");

    /// The new leaf of a split is linked and recorded, and never flushed.
    // I1.
    UNFLUSHED_NEW_LEAF = "fptree/unflushed-new-leaf" =>
        at("index/src/fptree/write.rs, split_locked");

    /// The micro-log of a split or merge is not flushed before the leaf is changed.
    // I5.
    MICRO_LOG_NOT_PERSISTED = "fptree/micro-log-not-persisted" =>
        at("index/src/fptree/micro_log.rs, plan");

    /// After a split the old leaf's bitmap, without the upper half, is not flushed.
    // I4.
    OLD_LEAF_NOT_CLEARED = "fptree/old-leaf-not-cleared" =>
        at("index/src/fptree/micro_log.rs, carry_out");

    /// A split clears the upper half from the old leaf before the new one is durable and recorded.
    // I1.
    CLEARED_BEFORE_LINKED = "fptree/cleared-before-linked" =>
        at("index/src/fptree/write.rs, split_locked");

    /// The micro-log of a split is cleared before the split is done.
    // I5.
    MICRO_LOG_RESET_TOO_EARLY = "fptree/micro-log-reset-too-early" =>
        at("index/src/fptree/micro_log.rs, carry_out");

    /// A leaf is unlinked, its entries moved to the neighbour, without a micro-log.
    // I5.
    UNLINKED_WITHOUT_MICRO_LOG = "fptree/unlinked-without-micro-log" =>
        at("index/src/fptree/remove.rs, unlink");

    /// The micro-log of a leaf that was unlinked stays valid, and undoes later changes when it is
    /// replayed.
    // I5.
    MICRO_LOG_NOT_RESET = "fptree/micro-log-not-reset" => at("index/src/fptree/remove.rs, unlink");

    /// A split takes the upper half from the old leaf before the inner nodes lead to the new one.
    // I6.
    ENTERED_LATE = "fptree/entered-late" =>
        at("index/src/fptree/write.rs, split_locked")
        .in_runs(&["fptree:splitting"]);

    /// The inner nodes no longer lead to a leaf before its left neighbour has what was in it.
    // I6.
    LEFT_EARLY = "fptree/left-early" =>
        at("index/src/fptree/remove.rs, unlink")
        .in_runs(&["fptree:joining"]);

    /// The entries that a merge has moved are not durable before the record says that they count.
    MERGED_BEFORE_DURABLE = "fptree/merged-before-durable" =>
        at("index/src/fptree/remove.rs, merge_around")
        .in_runs(&["fptree:drained"]);
}

/// Recovery does what the records say, does not persist that, and clears them durably (I5).
pub const REPLAY_NOT_PERSISTED: Mutant = Mutant("fptree/replay-not-persisted");

/// Recovery does what the records say and leaves them: the next one does it again (I5).
pub const REPLAYED_MICRO_LOG_NOT_RESET: Mutant = Mutant("fptree/replayed-micro-log-not-reset");
