//! The mutants of the header log.

use lapis_blocks::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::HEADER_SIZE_WITH_PAYLOAD,
            what: "The size is persisted together with the payload, for one barrier: it may persist first.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/append.rs, append_group",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::HEADER_FIRST_SIZE_COUNTS,
            what: "Recovery believes the first of the dancing size fields, not the greatest.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/recovery.rs, greatest_size",
            subjects: &["header-log:dancing", "header-log:streamed"],
        },
    ],
};
