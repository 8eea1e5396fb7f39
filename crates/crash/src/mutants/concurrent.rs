//! Mutants that show only between workers: with one there is nobody to see what they leave undone.
//!
//! `lapis crash STRUCTURE --workers N --mutant NAME` commits one; `crates/crash/tests/crash/concurrent.rs`
//! asks that each be found. Random histories show these; what takes a history of its own is in the
//! catalogue of its structure.

use lapis_index::mutants::{art_cow, woart, wort};
use lapis_pmem::Mutant;

use super::{BUG_CLASS, MutantEntry};
use crate::structure::Structure;

const CHANGE: &str = "index/src/radix/change.rs";

const fn entry(mutant: Mutant, what: &'static str, place: &'static str) -> MutantEntry {
    MutantEntry { mutant, what, published: BUG_CLASS, place, subjects: &[] }
}

const fn stale_decision(mutant: Mutant) -> MutantEntry {
    let what =
        "A writer that has taken its locks does not look again at what it found without them.";
    entry(mutant, what, CHANGE)
}

const fn unpersisted_answer(mutant: Mutant) -> MutantEntry {
    let what = "A change that finds nothing to do says so without persisting what it has seen of \
                others' changes.";
    entry(mutant, what, CHANGE)
}

const ENTRIES: &[(Structure, MutantEntry)] = &[
    (Structure::Wort, stale_decision(wort::STALE_DECISION)),
    (Structure::Wort, unpersisted_answer(wort::UNPERSISTED_ANSWER)),
    (Structure::Woart, stale_decision(woart::STALE_DECISION)),
    (Structure::Woart, unpersisted_answer(woart::UNPERSISTED_ANSWER)),
    (Structure::ArtCow, stale_decision(art_cow::STALE_DECISION)),
    (Structure::ArtCow, unpersisted_answer(art_cow::UNPERSISTED_ANSWER)),
];

/// The structure and the entry of every mutant that takes several workers to show.
pub fn concurrent_catalogue() -> Vec<(Structure, MutantEntry)> {
    ENTRIES.to_vec()
}
