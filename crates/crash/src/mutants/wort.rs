//! The mutants of WORT.

use lapis_index::mutants::wort as mutants;

use super::{BUG_CLASS, Catalogue, MutantEntry, radix};

pub(super) const CATALOGUE: Catalogue = Catalogue {
    ops: 150,
    entries: &[
        MutantEntry {
            mutant: mutants::HEADER_BEFORE_PARENT,
            what: "A split shortens the prefix of the node that sinks before the new node above it \
                   is linked, and gives it its new depth only afterwards.",
            published: "Witcher (Fu et al., SOSP 2021), bug 2, of WOART's split",
            place: "index/src/wort/change.rs, split_prefix",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::MISSING_LEAF_FLUSH,
            what: "A new leaf is not flushed before a slot refers to it.",
            published: BUG_CLASS,
            place: "index/src/radix/leaf.rs, make_leaf",
            subjects: &[],
        },
        MutantEntry {
            mutant: mutants::LINK_BEFORE_FENCE,
            what: "The slot of a new leaf is stored without a fence after the leaf's flush.",
            published: "Witcher (Fu et al., SOSP 2021), bugs 36 and 37, of P-HOT",
            place: "index/src/radix/change.rs, link_leaf",
            subjects: &[],
        },
        radix::new_node_unlocked(mutants::NEW_NODE_UNLOCKED, &["wort:splitting"]),
        radix::uncounted_unlinking(mutants::UNCOUNTED_UNLINKING, &["wort:unlinking"]),
    ],
};
