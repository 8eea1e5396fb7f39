//! The mutants of the wB+-Tree.

use lapis_index::mutants::wb_tree as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::VALID_BIT_NOT_CLEARED,
            what: "An insertion changes the slot array while the bitmap still says that it is valid.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/change.rs, add_by_bitmap",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MISSING_ENTRY_FLUSH,
            what: "A new entry is not flushed before the bitmap counts it.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/change.rs, add_by_bitmap",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LOG_TRUNCATED_EARLY,
            what: "The redo log is emptied before what it says has been done durably.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/redo_log.rs, redo",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::CHANGE_BEFORE_LOG_COMMIT,
            what: "The nodes of a split or merge are changed before the redo log is complete.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/redo_log.rs, carry_out",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LOG_NOT_REDONE,
            what: "A complete redo log is emptied when the index is opened, without being redone.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/redo_log.rs, recover",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MISSING_SIBLING_FLUSH,
            what: "The new node of a split is not flushed before the log that names it is complete.",
            published: BUG_CLASS,
            place: "index/src/wb_tree/restructure.rs, build",
            subjects: &[],
        },
    ],
};
