//! The mutants that both adaptive radix trees have.

use lapis_pmem::Mutant;

use super::{BUG_CLASS, MutantEntry};

pub(super) const fn missing_leaf_flush(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "A new leaf is not flushed before a word refers to it.",
        published: BUG_CLASS,
        place: "index/src/radix/leaf.rs, make_leaf",
        subjects: &[],
    }
}

pub(super) const fn link_before_fence(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "A new leaf counts without a fence after its flush.",
        published: BUG_CLASS,
        place: "index/src/art/write.rs, add_to_node",
        subjects: &[],
    }
}

pub(super) const fn index_before_child(mutant: Mutant) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "A Node48's child index is stored before the child that it leads to.",
        published: BUG_CLASS,
        place: "index/src/art/write.rs, add_to_node",
        subjects: &[],
    }
}
