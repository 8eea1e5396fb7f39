//! The mutants of the PopLog in a ring.

use lapis_blocks::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::POP_RING_REUSE_WITHOUT_ZEROING,
            what: "Truncated space is used again as it is, old bits included.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/retention.rs, truncate",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::POP_RING_LINE_FORGOTTEN,
            what: "Opening a streamed log leaves what its last line holds out of the copy of the line \
                   in DRAM: the next append writes zeroes over it.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/recovery.rs, line_at",
            subjects: &["pop-ring:streamed"],
        },
        MutantEntry {
            mutant: mutants::POP_RING_TORN_TAIL_STAYS,
            what: "Recovery leaves a torn entry, whose bits make up for missing bits of the next.",
            published: BUG_CLASS,
            place: "blocks/src/pop_ring.rs, clean",
            subjects: &[],
        },
    ],
};
