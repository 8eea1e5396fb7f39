//! The mutants of FAST & FAIR.

use lapis_index::mutants::fast_fair as mutants;

use super::{Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 195,
    entries: &[
        MutantEntry {
            mutant: mutants::WRONG_END_OF_LINE_ON_REMOVE,
            what: "A removal, which shifts entries to the left, persists a line after its first \
                   slot, as is right for a shift to the right, instead of after its last.",
            published: "Witcher (Fu et al., SOSP 2021), bug 3",
            place: "index/src/fast_fair/shift.rs, close_gap",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::DUPLICATE_ON_REMOVE,
            what: "A removal does not look for the duplicate that an interrupted insertion has \
                   left, and takes away one of the two.",
            published: "Witcher (Fu et al., SOSP 2021), bug 4",
            place: "index/src/fast_fair/shift.rs, repair",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::SIBLING_BEFORE_ROOT,
            what: "The root is taken to be alone on its level, although a split links its sibling \
                   before there is a root above both.",
            published: "Witcher (Fu et al., SOSP 2021), bug 5",
            place: "index/src/fast_fair/search.rs, belongs_right",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MERGE_NOT_ATOMIC,
            what: "An empty node (our tree unlinks nodes when they are empty, where the published \
                   one merges) leaves its level before its separator has left the parent.",
            published: "Witcher (Fu et al., SOSP 2021), bug 6",
            place: "index/src/fast_fair/unlink.rs, unlink_below",
            subjects: &["fast-fair:drained"],
        },
        MutantEntry {
            mutant: mutants::WRONG_NODE_AFTER_SPLIT,
            what: "A writer takes the node that the parent names without asking whether the key \
                   belongs to the sibling that a split has linked.",
            published: "DICL/FAST_FAIR, pull request 4 and issue 6 (2019), by an author of RECIPE \
                        (SOSP 2019)",
            place: "index/src/fast_fair/write.rs, lock_covering",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::UNFLUSHED_ROOT,
            what: "A new root, the first leaf included, is not flushed before it is published.",
            published: "DICL/FAST_FAIR, pull request 15 (2021)",
            place: "index/src/fast_fair/write.rs, build",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::INSERT_THROUGH_UNPERSISTED_POINTER,
            what: "An entry is inserted into a new sibling, and acknowledged, while the pointer \
                   that leads there is not persisted (by the thread that splits; in the published \
                   case by another).",
            published: "PMRace (Chen et al., ASPLOS 2022)",
            place: "index/src/fast_fair/write.rs, split",
            subjects: &[],
        },
    ],
};
