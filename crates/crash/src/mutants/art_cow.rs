//! The mutants of ART+CoW.

use lapis_index::mutants::art_cow as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::HEADER_IN_PLACE,
            what: "A split shortens the prefix of the node that sinks in place instead of in a copy.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, split_prefix",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MISSING_LEAF_FLUSH,
            what: "A new leaf is not flushed before a word refers to it.",
            published: BUG_CLASS,
            place: "index/src/radix/leaf.rs, make_leaf",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LINK_BEFORE_FENCE,
            what: "A new leaf counts without a fence after its flush.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_node",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MISSING_COPY_FLUSH,
            what: "The copy of a node is not flushed before the word above refers to it.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_copy",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::INDEX_BEFORE_CHILD,
            what: "A Node48's child index is stored before the child that it leads to.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_node",
            subjects: &[],
        },
    ],
};
