//! The mutants of the PopLog.

use lapis_blocks::pop_log::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::NO_ZEROING,
            what: "New segments are zeroed in the caches only: what they held before shows after a \
                   crash.",
            published: BUG_CLASS,
            place: "blocks/src/pop_log/segment.rs, allocate",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::COUNT_BEFORE_PAYLOAD,
            what: "The count covers the entry's first line only, and so may persist before the \
                   payload of another line.",
            published: "Witcher (Fu et al., SOSP 2021), bug 7, of Level Hashing",
            place: "blocks/src/pop_log/entry.rs, counted",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LINE_FORGOTTEN,
            what: "Opening a streamed log leaves what its last line holds out of the copy of the line \
                   in DRAM: the next append writes zeroes over it.",
            published: BUG_CLASS,
            place: "blocks/src/pop_log/mod.rs, open",
            subjects: &["pop-log:streamed"],
        },
        MutantEntry {
            mutant: mutants::RECYCLE_WITHOUT_BARRIER,
            what: "A recycled segment is taken into use without a barrier after its zeroing.",
            published: BUG_CLASS,
            place: "blocks/src/pop_log/retention.rs, recycle",
            subjects: &[],
        },
    ],
};
