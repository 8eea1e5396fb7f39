//! Errors that the checker must find.

use lapis_pmem::mutants;

mutants! {
    /// The mutants of copy-on-write cells, and operations in which all show.
    COW_CELL: 40 operations;

    /// The selector names the copy before the copy is durable.
    SELECT_BEFORE_COPY = "cow-cell/select-before-copy" =>
        at("blocks/src/in_place/cow_cell.rs, update");

    /// The copy that counts is overwritten where it lies.
    OVERWRITE_ACTIVE = "cow-cell/overwrite-active-copy" =>
        at("blocks/src/in_place/cow_cell.rs, update");
}

mutants! {
    /// The mutants of cells with a redo log, and operations in which all show.
    LOG_CELL: 40 operations;

    /// The value changes in place before the log entry with it is durable.
    UPDATE_BEFORE_LOG = "log-cell/update-before-log" =>
        at("blocks/src/in_place/log_cell.rs, update");

    /// The log is left to others before the cell is durable: they may clear it.
    TURN_GIVEN_UP_EARLY = "log-cell/turn-given-up-early" =>
        at("blocks/src/in_place/log_cell.rs, update")
        .among_workers();

    /// Recovery does not store the newest logged value into its cell.
    NO_REDO = "log-cell/no-redo" => at("blocks/src/in_place/log_cell.rs, redo");
}

mutants! {
    /// The mutants of failure-atomic memory, and operations in which all show.
    FAM_CELL: 40 operations;

    /// A word does not keep the state before beside the new one.
    NO_OLD_STATE = "fam-cell/no-old-state" => at("blocks/src/in_place/fam_cell.rs, update");

    /// A rollback restores the state of a word and not its version.
    ROLLBACK_KEEPS_VERSION = "fam-cell/rollback-keeps-version" =>
        at("blocks/src/in_place/fam_cell.rs, recover");
}
