//! The mutants of P-CLHT.

use lapis_index::mutants::p_clht as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 120,
    entries: &[
        MutantEntry {
            mutant: mutants::UNFLUSHED_NEXT_POINTER,
            what: "The pointer to a new overflow bucket is not persisted.",
            published: "Witcher (Fu et al., SOSP 2021), bug 30",
            place: "index/src/p_clht/write.rs, add",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::SWAP_BEFORE_FLUSH,
            what: "A larger table takes the place of the old one while the flushes of its contents \
                   are not complete.",
            published: BUG_CLASS,
            place: "index/src/p_clht/resize.rs, grow",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::UNFLUSHED_NEW_TABLE,
            what: "The buckets of a larger table are written and never flushed.",
            published: BUG_CLASS,
            place: "index/src/p_clht/resize.rs, write_out",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::PERSISTED_LOCK,
            what: "A bucket's lock that a crash has left locked stays locked.",
            published: "PMRace (Chen et al., ASPLOS 2022)",
            place: "index/src/p_clht/mod.rs, open",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::DOUBLE_FREE,
            what: "The old table is freed although the pointer away from it is not durable: a crash \
                   brings it back, to be handed out and freed once more (what is free is not \
                   persistent here; in the published code it is a list of old tables).",
            published: "utsaslab/RECIPE, issue 24 (2023); the unpersisted pointer also PMRace (Chen \
                        et al., ASPLOS 2022)",
            place: "index/src/p_clht/resize.rs, grow",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::UNFLUSHED_REMOVE,
            what: "A removal does not flush the slot that it empties.",
            published: BUG_CLASS,
            place: "index/src/p_clht/write.rs, remove_key",
            subjects: &[],
        },
    ],
};
