//! Known errors of page files, which a space commits when the domain says so.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the space of pages, and operations in which all show.
    SPACE: 30 operations;

    /// A batch is written in place before its journal is durable.
    UNFLUSHED_JOURNAL = "space/unflushed-journal" =>
        at("buffer/src/space/batch.rs, write");

    /// Recovery redoes a batch without looking whether its pages are whole.
    TORN_BATCH_REDONE = "space/torn-batch-redone" =>
        at("buffer/src/space/redo.rs, read_batch");

    /// A freed page is given out again before it is durable that it is free.
    FREED_PAGE_REUSED_EARLY = "space/freed-page-reused-early" =>
        at("buffer/src/space/mod.rs, free");
}
