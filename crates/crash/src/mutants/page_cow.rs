//! The mutants of pages by copy-on-write.

use lapis_blocks::page::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 24,
    entries: &[
        MutantEntry {
            mutant: mutants::VERSION_BEFORE_ID,
            what: "The version is stored before the id: for a moment the slot passes for the \
                   latest version of the page that it held before.",
            published: "Warned of by van Renen et al. (VLDBJ 2020), section 3.2.2",
            place: "blocks/src/page/copy_on_write.rs, make_current",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::VALID_WITH_CONTENTS,
            what: "The header is made valid by the barrier that makes the contents durable.",
            published: BUG_CLASS,
            place: "blocks/src/page/copy_on_write.rs, make_current",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::SPARE_SURVIVES_DELETION,
            what: "A deletion leaves the older version of the page, which then is the \
                   latest.",
            published: BUG_CLASS,
            place: "blocks/src/page/deletion.rs, delete_page",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::TORN_SLOT_KEPT,
            what: "With checksums, a torn slot is written again as it is: the next page, half \
                   written, may bring the lines that the torn one lacks.",
            published: BUG_CLASS,
            place: "blocks/src/page/recovery.rs, repair",
            subjects: &["page-cow:checksum"],
        },
    ],
};
