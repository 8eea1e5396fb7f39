//! The mutants of pages by µlog.

use lapis_blocks::page::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 12,
    entries: &[
        MutantEntry {
            mutant: mutants::NO_INVALIDATION,
            what: "The µlog is still valid, for the page it held last, while it is written anew.",
            published: "Warned of by van Renen et al. (VLDBJ 2020), section 3.2.3",
            place: "blocks/src/page/micro_log.rs, write_through_log",
            subjects: &["page-mulog:4k"],
        },
        MutantEntry {
            mutant: mutants::VALID_BEFORE_LINES,
            what: "The µlog is valid before its lines are durable.",
            published: BUG_CLASS,
            place: "blocks/src/page/micro_log.rs, write_through_log",
            subjects: &["page-mulog:4k"],
        },
        MutantEntry {
            mutant: mutants::APPLIED_BEFORE_VALID,
            what: "Lines are written in place before the µlog is durably valid.",
            published: BUG_CLASS,
            place: "blocks/src/page/micro_log.rs, write_through_log",
            subjects: &["page-mulog:4k"],
        },
    ],
};
