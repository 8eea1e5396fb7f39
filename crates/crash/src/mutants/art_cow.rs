//! The mutants of ART+CoW.

use lapis_index::mutants::art_cow as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry, art, radix};

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
        art::missing_leaf_flush(mutants::MISSING_LEAF_FLUSH),
        art::link_before_fence(mutants::LINK_BEFORE_FENCE),
        MutantEntry {
            mutant: mutants::MISSING_COPY_FLUSH,
            what: "The copy of a node is not flushed before the word above refers to it.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_copy",
            subjects: &[],
        },
        art::index_before_child(mutants::INDEX_BEFORE_CHILD),
        radix::new_node_unlocked(mutants::NEW_NODE_UNLOCKED, &["art-cow:splitting"]),
        radix::uncounted_unlinking(mutants::UNCOUNTED_UNLINKING, &["art-cow:unlinking"]),
    ],
};
