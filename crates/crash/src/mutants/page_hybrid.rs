//! The mutants of pages by copy-on-write or µlog.

use lapis_blocks::page::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 400,
    entries: &[
        MutantEntry {
            mutant: mutants::REDO_WHATEVER_THE_VERSION,
            what: "Recovery applies every valid µlog, although a copy has overtaken it.",
            published: "Published so for pages that only µlogs write: van Renen et al. (VLDBJ 2020), section 3.2.3",
            place: "blocks/src/page/recovery.rs, read_logs",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LOG_SURVIVES_DELETION,
            what: "A deletion leaves the µlog valid, which is applied to the next page of that \
                   id.",
            published: BUG_CLASS,
            place: "blocks/src/page/deletion.rs, delete_page",
            subjects: &[],
        },
    ],
};
