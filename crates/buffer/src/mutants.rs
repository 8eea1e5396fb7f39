//! Known errors of buffer management, which the space and the manager commit when the domain says so.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of the buffer manager, and operations in which all that one worker shows do.
    BUFFER: 60 operations;

    /// A batch is written in place before its journal is durable.
    UNFLUSHED_JOURNAL = "buffer/unflushed-journal" =>
        at("buffer/src/space/batch.rs, write");

    /// Recovery redoes a batch without looking whether its pages are whole.
    TORN_BATCH_REDONE = "buffer/torn-batch-redone" =>
        at("buffer/src/space/redo.rs, read_batch");

    /// A freed page is given out again before it is durable that it is free.
    FREED_PAGE_REUSED_EARLY = "buffer/freed-page-reused-early" =>
        at("buffer/src/space/mod.rs, free");

    /// A page is written before the log holds the change.
    PAGE_BEFORE_LOG = "buffer/page-before-log" =>
        at("buffer/src/manager/write_back.rs, write_batch");

    /// A page that is changed does not say by which change.
    PAGE_LSN_NOT_RAISED = "buffer/page-lsn-not-raised" =>
        at("buffer/src/page/mod.rs, set_lsn");

    /// A swizzled reference is written out as it is.
    SWIZZLED_REFERENCE_WRITTEN = "buffer/swizzled-reference-written" =>
        at("buffer/src/manager/write_back.rs, copy_out");

    /// A page is written to persistent memory so that a power cut may tear it.
    TORN_PAGE_IN_PM = "buffer/torn-page-in-pm" =>
        at("buffer/src/manager/tier.rs, write_to_tier");

    /// What enters persistent memory is the page as the SSD has it, and not as it is in DRAM.
    STALE_PAGE_ADMITTED = "buffer/stale-page-admitted" =>
        at("buffer/src/manager/tier.rs, write_to_tier");

    /// Of the lines that were changed, the last is not written to persistent memory.
    DIRTY_LINE_DROPPED = "buffer/dirty-line-dropped" =>
        at("buffer/src/manager/tier.rs, dirty_lines");

    /// Of the lines of a mini page that were changed, the last is not there when it is promoted.
    DIRTY_LINE_LOST_IN_PROMOTION = "buffer/dirty-line-lost-in-promotion" =>
        at("buffer/src/frame.rs, promote");

    /// A line is changed and not marked.
    LINE_NOT_MARKED = "buffer/line-not-marked" =>
        at("buffer/src/page/lines.rs, mark");

    /// A reader who did not get a line, because a latch was held, is not told to begin again.
    GIVING_UP_UNNOTICED = "buffer/giving-up-unnoticed" =>
        at("buffer/src/latch.rs, release")
        .among_workers();

    /// While a reader loads a line, somebody may change it.
    LINE_LOADED_BESIDE_WRITERS = "buffer/line-loaded-beside-writers" =>
        at("buffer/src/latch.rs, begin_loading")
        .among_workers();

    /// A freed page stays in persistent memory, and is there when its number is another page's.
    STALE_PAGE_OUTLIVES_NUMBER = "buffer/stale-page-outlives-number" =>
        at("buffer/src/manager/tier.rs, forget_in_tier");

    /// Another page takes the frame of one that the SSD lacks.
    CHANGED_PAGE_IN_PM_DROPPED = "buffer/changed-page-in-pm-dropped" =>
        at("buffer/src/manager/tier.rs, take_tier_frame");

    /// A page that is in persistent memory, too, is written to the SSD alone.
    STALE_PAGE_LEFT_IN_PM = "buffer/stale-page-left-in-pm" =>
        at("buffer/src/manager/tier.rs, propagate");

    /// A page is changed in persistent memory before the log is durable up to that.
    CHANGED_IN_PLACE_BEFORE_LOG = "buffer/changed-in-place-before-log" =>
        at("buffer/src/manager/in_place.rs, write_in_place");

    /// Who reads a page in persistent memory is not told that it has come to DRAM, where it is changed.
    READ_ON_IN_PM = "buffer/read-on-in-pm" =>
        at("buffer/src/manager/tier.rs, enter_dram")
        .among_workers();

    /// A page counts as clean although it was changed while it was being written.
    CHANGE_DURING_WRITE_FORGOTTEN = "buffer/change-during-write-forgotten" =>
        at("buffer/src/manager/write_back.rs, make_clean")
        .among_workers();

    /// A change that comes later than one behind it in the log does not hold back the log.
    CHANGED_SINCE_NOT_LOWERED = "buffer/changed-since-not-lowered" =>
        at("buffer/src/manager/guards.rs, write")
        .among_workers();

    /// A page that is being changed does not hold back the log, which has the change.
    LATCHED_PAGE_OVERLOOKED = "buffer/latched-page-overlooked" =>
        at("buffer/src/manager/write_back.rs, oldest_change")
        .among_workers();
}
