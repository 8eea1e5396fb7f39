//! The mutants of the cells that are updated in place.

use lapis_blocks::in_place::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const COW_CELL: Catalogue = Catalogue {
    ops: 40,
    entries: &[
        MutantEntry {
            mutant: mutants::SELECT_BEFORE_COPY,
            what: "The selector names the copy before the copy is durable.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/cow_cell.rs, update",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::OVERWRITE_ACTIVE,
            what: "The copy that counts is overwritten where it lies.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/cow_cell.rs, update",
            subjects: &[],
        },
    ],
};

pub(super) const LOG_CELL: Catalogue = Catalogue {
    ops: 40,
    entries: &[
        MutantEntry {
            mutant: mutants::UPDATE_BEFORE_LOG,
            what: "The value changes in place before the log entry with it is durable.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/log_cell.rs, update",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::NO_REDO,
            what: "Recovery does not store the newest logged value into its cell.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/log_cell.rs, redo",
            subjects: &[],
        },
    ],
};

pub(super) const FAM_CELL: Catalogue = Catalogue {
    ops: 40,
    entries: &[
        MutantEntry {
            mutant: mutants::NO_OLD_STATE,
            what: "A word does not keep the state before beside the new one.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/fam_cell.rs, update",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::ROLLBACK_KEEPS_VERSION,
            what: "A rollback restores the state of a word and not its version.",
            published: BUG_CLASS,
            place: "blocks/src/in_place/fam_cell.rs, recover",
            subjects: &[],
        },
    ],
};
