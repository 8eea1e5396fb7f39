//! Known errors of page propagation, which the stores commit when the domain says so.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of pages by copy-on-write, and operations in which all show.
    PAGE_COW: 24 operations;

    /// The version is stored before the id: for a moment the slot passes for the latest version of
    /// the page that it held before.
    VERSION_BEFORE_ID = "page-cow/pvn-before-pid" =>
        at("blocks/src/page/copy_on_write.rs, make_current")
        .published("Warned of by van Renen et al. (VLDBJ 2020), section 3.2.2");

    /// The header is made valid by the barrier that makes the contents durable.
    VALID_WITH_CONTENTS = "page-cow/valid-with-contents" =>
        at("blocks/src/page/copy_on_write.rs, make_current");

    /// A deletion leaves the older version of the page, which then is the latest.
    SPARE_SURVIVES_DELETION = "page-cow/spare-survives-deletion" =>
        at("blocks/src/page/deletion.rs, delete_page");

    /// With checksums, a torn slot is written again as it is: the next page, half written, may
    /// bring the lines that the torn one lacks.
    TORN_SLOT_KEPT = "page-cow/torn-slot-kept" =>
        at("blocks/src/page/recovery.rs, repair")
        .in_runs(&["page-cow:checksum"]);
}

mutants! {
    /// The mutants of pages by µlog, and operations in which all show.
    PAGE_MULOG: 12 operations;

    /// The µlog is still valid, for the page it held last, while it is written anew.
    NO_INVALIDATION = "page-mulog/no-invalidation" =>
        at("blocks/src/page/micro_log.rs, write_through_log")
        .published("Warned of by van Renen et al. (VLDBJ 2020), section 3.2.3")
        .in_runs(&["page-mulog:4k"]);

    /// The µlog is valid before its lines are durable.
    VALID_BEFORE_LINES = "page-mulog/valid-before-lines" =>
        at("blocks/src/page/micro_log.rs, write_through_log")
        .in_runs(&["page-mulog:4k"]);

    /// Lines are written in place before the µlog is durably valid.
    APPLIED_BEFORE_VALID = "page-mulog/applied-before-valid" =>
        at("blocks/src/page/micro_log.rs, write_through_log")
        .in_runs(&["page-mulog:4k"]);

    /// A deletion that a power cut has left half done leaves the µlog valid, which is applied to the next page
    /// of that id.
    LEFT_OVER_LOG_KEPT = "page-mulog/left-over-log-kept" =>
        at("blocks/src/page/recovery.rs, read_logs")
        .in_runs(&["page-mulog:4k"]);
}

mutants! {
    /// The mutants of pages by either, and operations in which all show.
    PAGE_HYBRID: 400 operations;

    /// Recovery applies every valid µlog, although a copy has overtaken it.
    REDO_WHATEVER_THE_VERSION = "page-hybrid/redo-whatever-the-version" =>
        at("blocks/src/page/recovery.rs, read_logs")
        .published("Published so for pages that only µlogs write: van Renen et al. (VLDBJ 2020), section 3.2.3");

    /// A deletion leaves the µlog valid, which is applied to the next page of that id.
    LOG_SURVIVES_DELETION = "page-hybrid/log-survives-deletion" =>
        at("blocks/src/page/deletion.rs, delete_page");
}
