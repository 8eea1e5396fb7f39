//! Errors that FAST & FAIR can be told to commit.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of FAST & FAIR, and operations in which all show.
    CATALOGUE: 195 operations;

    /// A removal, which shifts entries to the left, persists a line after its first slot, as is
    /// right for a shift to the right, instead of after its last.
    // I3.
    WRONG_END_OF_LINE_ON_REMOVE = "fast-fair/wrong-end-of-line-on-remove" =>
        at("index/src/fast_fair/shift.rs, close_gap")
        .published("Witcher (Fu et al., SOSP 2021), bug 3");

    /// A removal does not look for the duplicate that an interrupted insertion has left, and takes
    /// away one of the two.
    // I4.
    DUPLICATE_ON_REMOVE = "fast-fair/duplicate-on-remove" =>
        at("index/src/fast_fair/shift.rs, repair")
        .published("Witcher (Fu et al., SOSP 2021), bug 4");

    /// The root is taken to be alone on its level, although a split links its sibling before there
    /// is a root above both.
    SIBLING_BEFORE_ROOT = "fast-fair/sibling-before-root" =>
        at("index/src/fast_fair/search.rs, belongs_right")
        .published("Witcher (Fu et al., SOSP 2021), bug 5");

    /// An empty node (our tree unlinks nodes when they are empty, where the published one merges)
    /// leaves its level before its separator has left the parent.
    MERGE_NOT_ATOMIC = "fast-fair/merge-not-atomic" =>
        at("index/src/fast_fair/unlink.rs, unlink_below")
        .published("Witcher (Fu et al., SOSP 2021), bug 6")
        .in_runs(&["fast-fair:drained"]);

    /// A writer takes the node that the parent names without asking whether the key belongs to the
    /// sibling that a split has linked.
    // I9.
    WRONG_NODE_AFTER_SPLIT = "fast-fair/wrong-node-after-split" =>
        at("index/src/fast_fair/write.rs, lock_covering")
        .published("DICL/FAST_FAIR, pull request 4 and issue 6 (2019), by an author of RECIPE (SOSP 2019)");

    /// A new root, the first leaf included, is not flushed before it is published.
    // I1.
    UNFLUSHED_ROOT = "fast-fair/unflushed-root" =>
        at("index/src/fast_fair/write.rs, build")
        .published("DICL/FAST_FAIR, pull request 15 (2021)");

    /// An entry is inserted into a new sibling, and acknowledged, while the pointer that leads
    /// there is not persisted (by the thread that splits; in the published case by another).
    INSERT_THROUGH_UNPERSISTED_POINTER = "fast-fair/insert-through-unpersisted-pointer" =>
        at("index/src/fast_fair/write.rs, split")
        .published("PMRace (Chen et al., ASPLOS 2022)");

    /// The lock of a leaf is given back before a new value in it is persisted: another answers with it.
    RELEASED_BEFORE_PERSIST = "fast-fair/released-before-persist" =>
        at("index/src/fast_fair/write.rs, write_locked")
        .among_workers();

    /// A scan gives away entries without persisting what it has seen of a change that is under way.
    // I11.
    UNPERSISTED_SCAN = "fast-fair/unpersisted-scan" =>
        at("index/src/fast_fair/scan.rs, collect")
        .among_workers();

    /// An empty node's left neighbour is not locked any more when it is linked past that node: another divides it meanwhile,
    /// and its upper half is lost.
    LEFT_NEIGHBOUR_UNLOCKED = "fast-fair/left-neighbour-unlocked" =>
        at("index/src/fast_fair/unlink.rs, unlink_below")
        .in_runs(&["fast-fair:emptying"]);

    /// Of what a split had not emptied when the power was cut, the next writer flushes the first line only.
    // I4, I5.
    REPAIR_FLUSHED_IN_PART = "fast-fair/repair-flushed-in-part" =>
        at("index/src/fast_fair/shift.rs, repair")
        .in_runs(&["fast-fair:drained"]);

    /// Of a new node the first 256 bytes are flushed: all of it while nodes are as small as in most explorations.
    // I1.
    NODE_FLUSHED_IN_PART = "fast-fair/node-flushed-in-part" =>
        at("index/src/fast_fair/write.rs, build")
        .in_runs(&["fast-fair:in-use"]);
}
