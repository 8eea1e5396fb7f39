//! The mutants of the classic log.

use lapis_blocks::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::CLASSIC_FOOTER_WITH_PAYLOAD,
            what: "The footer is persisted together with the payload, for one barrier: it may persist first.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/append.rs, append_group",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::CLASSIC_REUSE_WITHOUT_ZEROING,
            what: "Truncated space is used again as it is: an old entry is taken for the next.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/retention.rs, truncate",
            subjects: &[],
        },
    ],
};
