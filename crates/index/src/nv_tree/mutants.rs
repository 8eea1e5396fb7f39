//! Errors that NV-Tree can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of NV-Tree, and operations in which all show.
    CATALOGUE: 195 operations;

    /// The count that makes a record part of a leaf is persisted before the record is.
    // I2.
    COUNT_BEFORE_RECORD = "nv-tree/count-before-record" =>
        at("index/src/nv_tree/write.rs, append")
        .in_runs(&["nv-tree:bytes"]);

    /// The link of the leaf before is swapped to new leaves that were never flushed.
    // I1.
    SWAP_BEFORE_FLUSH = "nv-tree/swap-before-flush" =>
        at("index/src/nv_tree/reorganise.rs, make_leaf")
        .in_runs(&["nv-tree:u64"]);

    /// The old leaf is freed before the link away from it is swapped, so that a new leaf is written
    /// over it.
    // I6.
    FREED_BEFORE_SWAP = "nv-tree/freed-before-swap" =>
        at("index/src/nv_tree/reorganise.rs, reorganise")
        .in_runs(&["nv-tree:u64"]);

    /// The flag that says that a record is a deletion is stored after the count.
    // I3.
    FLAG_AFTER_COUNT = "nv-tree/flag-after-count" =>
        at("index/src/nv_tree/write.rs, append")
        .in_runs(&["nv-tree:u64"]);

    /// Removing the last key of a leaf takes the leaf out without persisting the link.
    UNFLUSHED_UNLINK = "nv-tree/unflushed-unlink" =>
        at("index/src/nv_tree/reorganise.rs, unlink")
        .in_runs(&["nv-tree:drained"]);

    /// Of a new leaf the first eight records are flushed: all of them while leaves are as small as in most explorations.
    // I1.
    LEAF_FLUSHED_IN_PART = "nv-tree/leaf-flushed-in-part" =>
        at("index/src/nv_tree/reorganise.rs, make_leaf")
        .in_runs(&["nv-tree:in-use"]);

    /// A writer that has waited for a leaf does not see that the inner nodes above it have been built anew meanwhile: it
    /// changes a leaf that others have replaced.
    // I7.
    DIRECTORY_UNCHECKED = "nv-tree/directory-unchecked" =>
        at("index/src/nv_tree/search.rs, is_current")
        .in_runs(&["nv-tree:overflowing"]);
}
