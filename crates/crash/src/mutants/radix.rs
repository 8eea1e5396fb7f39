//! Mutants that all radix trees have.

use lapis_pmem::Mutant;

use super::{BUG_CLASS, MutantEntry};

/// As FAST & FAIR's `insert-through-unpersisted-pointer`, with another writer as the one who inserts.
pub(super) const fn new_node_unlocked(
    mutant: Mutant,
    subjects: &'static [&'static str],
) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "The lock of a node that a split makes is not held until the word that refers to it is \
               durable: another writer changes what is in the node, and acknowledges.",
        published: "PMRace (Chen et al., ASPLOS 2022)",
        place: "index/src/radix/change.rs, plan",
        subjects,
    }
}

/// A writer that found a node without locks believes that it is still reachable.
pub(super) const fn uncounted_unlinking(
    mutant: Mutant,
    subjects: &'static [&'static str],
) -> MutantEntry {
    MutantEntry {
        mutant,
        what: "The unlinking of a node is not counted: a writer that found the node before changes it \
               when it can no longer be reached.",
        published: BUG_CLASS,
        place: "index/src/radix/change.rs, replace_nodes",
        subjects,
    }
}
