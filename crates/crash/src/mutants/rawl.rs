//! The mutants of RAWL.

use lapis_blocks::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::RAWL_POLARITY_STAYS,
            what: "The polarity of validity bits does not flip when the ring is used again.",
            published: BUG_CLASS,
            place: "blocks/src/rawl.rs, polarity",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::RAWL_TORN_TAIL_STAYS,
            what: "Recovery leaves the blocks of a torn entry, which pass for blocks of the next.",
            published: BUG_CLASS,
            place: "blocks/src/rawl.rs, clean",
            subjects: &[],
        },
    ],
};
