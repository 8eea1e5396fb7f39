//! The mutants of the leaves as FPTree has them.

use lapis_blocks::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 60,
    entries: &[
        MutantEntry {
            mutant: mutants::LEAVES_BIT_WITH_PAIR,
            what: "The bit of a slot is flushed together with its pair and may persist before it.",
            published: BUG_CLASS,
            place: "blocks/src/fp_leaves.rs, insert",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LEAVES_BIT_BEFORE_FINGERPRINT,
            what: "The bit of a slot is stored before the fingerprint of its key.",
            published: BUG_CLASS,
            place: "blocks/src/fp_leaves.rs, insert",
            subjects: &[],
        },
    ],
};
