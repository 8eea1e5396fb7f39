//! The mutants of FPTree.

use lapis_index::mutants::fptree as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 390,
    entries: &[
        MutantEntry {
            mutant: mutants::BITMAP_BEFORE_ENTRY,
            what: "The bitmap says that a slot is in use before the entry in it is durable.",
            published: BUG_CLASS,
            place: "index/src/fptree/write.rs, fill",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::FINGERPRINT_AFTER_BITMAP,
            what: "The bitmap says that a slot is in use before the fingerprint, in the same line, \
                   is that of its key.",
            published: BUG_CLASS,
            place: "index/src/fptree/write.rs, fill",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::UNFLUSHED_NEW_LEAF,
            what: "The new leaf of a split is linked and recorded, and never flushed.",
            published: BUG_CLASS,
            place: "index/src/fptree/write.rs, split_locked",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MICRO_LOG_NOT_PERSISTED,
            what: "The micro-log of a split or merge is not flushed before the leaf is changed.",
            published: BUG_CLASS,
            place: "index/src/fptree/micro_log.rs, plan",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::OLD_LEAF_NOT_CLEARED,
            what: "After a split the old leaf's bitmap, without the upper half, is not flushed.",
            published: BUG_CLASS,
            place: "index/src/fptree/micro_log.rs, carry_out",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::CLEARED_BEFORE_LINKED,
            what: "A split clears the upper half from the old leaf before the new one is durable \
                   and recorded.",
            published: BUG_CLASS,
            place: "index/src/fptree/write.rs, split_locked",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MICRO_LOG_RESET_TOO_EARLY,
            what: "The micro-log of a split is cleared before the split is done.",
            published: BUG_CLASS,
            place: "index/src/fptree/micro_log.rs, carry_out",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::UNLINKED_WITHOUT_MICRO_LOG,
            what: "A leaf is unlinked, its entries moved to the neighbour, without a micro-log.",
            published: BUG_CLASS,
            place: "index/src/fptree/remove.rs, unlink",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MICRO_LOG_NOT_RESET,
            what: "The micro-log of a leaf that was unlinked stays valid, and undoes later changes \
                   when it is replayed.",
            published: BUG_CLASS,
            place: "index/src/fptree/remove.rs, unlink",
            subjects: &[],
        },
    ],
};
