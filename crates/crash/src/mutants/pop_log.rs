//! The mutants of the PopLog.

use lapis_blocks::mutants as ring_mutants;
use lapis_blocks::pop_log::mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

/// Where entries lie in a ring.
const RINGS: &[&str] = &["pop-log:padded", "pop-log:dense", "pop-log:streamed"];
/// Where they lie in segments.
const SEGMENTS: &[&str] = &["pop-log:segments"];

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::NO_ZEROING,
            what: "New segments are zeroed in the caches only: what they held before shows after a \
                   crash.",
            published: BUG_CLASS,
            place: "blocks/src/pop_log/segment.rs, allocate",
            subjects: SEGMENTS,
        },
        MutantEntry {
            mutant: mutants::COUNT_BEFORE_PAYLOAD,
            what: "The count covers the entry's first line only, and so may persist before the \
                   payload of another line.",
            published: "Witcher (Fu et al., SOSP 2021), bug 7, of Level Hashing",
            place: "blocks/src/pop_log/entry.rs, counted",
            subjects: SEGMENTS,
        },
        MutantEntry {
            mutant: mutants::RECYCLE_WITHOUT_BARRIER,
            what: "A recycled segment is taken into use without a barrier after its zeroing.",
            published: BUG_CLASS,
            place: "blocks/src/pop_log/retention.rs, recycle",
            subjects: SEGMENTS,
        },
        MutantEntry {
            mutant: ring_mutants::POP_RING_TORN_TAIL_STAYS,
            what: "Recovery leaves a torn entry, whose bits make up for missing bits of the next.",
            published: BUG_CLASS,
            place: "blocks/src/pop_ring.rs, clean",
            subjects: RINGS,
        },
        MutantEntry {
            mutant: ring_mutants::POP_RING_REUSE_WITHOUT_ZEROING,
            what: "Truncated space of a ring is used again as it is, old bits included.",
            published: BUG_CLASS,
            place: "blocks/src/ring_log/retention.rs, truncate",
            subjects: RINGS,
        },
    ],
};
