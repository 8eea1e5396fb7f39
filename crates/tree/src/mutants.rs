//! Known errors of trees on pages, which they commit when the domain says so.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of trees on pages, and operations in which all of them show.
    TREE: 60 operations;

    /// A split logs the new page without what moved to it.
    MOVED_RECORDS_NOT_LOGGED = "tree/moved-records-not-logged" =>
        at("tree/src/tree/mod.rs, modify");

    /// A split does not log what becomes of the page that is cut.
    CUT_NOT_LOGGED = "tree/cut-not-logged" =>
        at("tree/src/tree/mod.rs, modify");

    /// Redo changes pages that have the change already.
    REDO_WITHOUT_LSN_TEST = "tree/redo-without-lsn-test" =>
        at("tree/src/redo.rs, redo");

    /// A longer upper fence is cut in without the image of the page.
    LONG_FENCE_CUT = "tree/long-fence-cut" =>
        at("tree/src/tree/split.rs, try_split");

    /// The record of a page that moves does not say that the page above refers to its new place.
    MOVE_WITHOUT_PARENT = "tree/move-without-parent" =>
        at("tree/src/tree/compact.rs, try_move");

    /// A removal from a full line of a hashed leaf leaves what went on behind it where nobody looks.
    HOLE_LEFT_OPEN = "tree/hole-left-open" =>
        at("tree/src/tree/mod.rs, try_remove");

    /// What was read of a leaf counts although it was changed meanwhile.
    UNVALIDATED_READ = "tree/unvalidated-read" =>
        at("tree/src/tree/mod.rs, get")
        .among_workers();
}
