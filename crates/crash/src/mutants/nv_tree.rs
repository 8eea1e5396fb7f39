//! The mutants of NV-Tree.

use lapis_index::mutants::nv_tree as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 195,
    entries: &[
        MutantEntry {
            mutant: mutants::COUNT_BEFORE_RECORD,
            what: "The count that makes a record part of a leaf is persisted before the record is.",
            published: BUG_CLASS,
            place: "index/src/nv_tree/write.rs, append",
            subjects: &["nv-tree:bytes"],
        },
        MutantEntry {
            mutant: mutants::SWAP_BEFORE_FLUSH,
            what: "The link of the leaf before is swapped to new leaves that were never flushed.",
            published: BUG_CLASS,
            place: "index/src/nv_tree/reorganise.rs, make_leaf",
            subjects: &["nv-tree:u64"],
        },
        MutantEntry {
            mutant: mutants::FREED_BEFORE_SWAP,
            what: "The old leaf is freed before the link away from it is swapped, so that a new \
                   leaf is written over it.",
            published: BUG_CLASS,
            place: "index/src/nv_tree/reorganise.rs, reorganise",
            subjects: &["nv-tree:u64"],
        },
        MutantEntry {
            mutant: mutants::FLAG_AFTER_COUNT,
            what: "The flag that says that a record is a deletion is stored after the count.",
            published: BUG_CLASS,
            place: "index/src/nv_tree/write.rs, append",
            subjects: &["nv-tree:u64"],
        },
        MutantEntry {
            mutant: mutants::UNFLUSHED_UNLINK,
            what: "Removing the last key of a leaf takes the leaf out without persisting the link.",
            published: BUG_CLASS,
            place: "index/src/nv_tree/reorganise.rs, unlink",
            subjects: &["nv-tree:drained"],
        },
    ],
};
