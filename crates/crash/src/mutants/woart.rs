//! The mutants of WOART.

use lapis_index::mutants::woart as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry, art, radix};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::HEADER_BEFORE_PARENT,
            what: "A split shortens the prefix of the node that sinks before the new node above it is \
                   linked, and gives it its new depth only afterwards.",
            published: "Witcher (Fu et al., SOSP 2021), bug 2, of WOART's split",
            place: "index/src/art/write.rs, split_prefix",
            subjects: &[],
        },
        art::missing_leaf_flush(mutants::MISSING_LEAF_FLUSH),
        art::link_before_fence(mutants::LINK_BEFORE_FENCE),
        MutantEntry {
            mutant: mutants::MISSING_COPY_FLUSH,
            what: "The larger copy of a full node is not flushed before the word above refers to it.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_copy",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::SLOTS_BEFORE_CHILD,
            what: "A Node4's keys and slots are stored before the child they lead to.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_node",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::BITMAP_BEFORE_ENTRY,
            what: "A Node16's bitmap is stored before the key and the child that it makes count.",
            published: BUG_CLASS,
            place: "index/src/art/write.rs, add_to_node",
            subjects: &[],
        },
        art::index_before_child(mutants::INDEX_BEFORE_CHILD),
        radix::new_node_unlocked(mutants::NEW_NODE_UNLOCKED, &["woart:splitting"]),
        radix::uncounted_unlinking(mutants::UNCOUNTED_UNLINKING, &["woart:unlinking"]),
    ],
};
