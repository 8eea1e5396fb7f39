//! The catalogue of mutants: known errors of published implementations, which our own structures
//! commit on request, and the trial in which the checker has to find each of them.
//!
//! A checker that has never failed anything proves little by its silence. Each entry names an error
//! and who reported it; [`try_mutants`] runs the structure with the error on, by every strategy, and
//! says after how many images it was found out (*killed*). The same budget is spent on the structure
//! as it is, which must be silent.
//!
//! To add a mutant: a constant beside the structure's others (`mutants.rs` there), the question
//! `domain.commits(…)` or `domain.omitting(…)` where the error is made, and an entry here in the
//! file of the structure.

mod allocator;
mod art;
mod art_cow;
mod classic_log;
mod concurrent;
mod fast_fair;
mod fp_leaves;
mod fptree;
mod header_log;
mod in_place;
mod nv_tree;
mod p_clht;
mod page_cow;
mod page_hybrid;
mod page_mulog;
mod pop_log;
mod pop_ring;
mod radix;
mod rawl;
mod store;
mod trial;
mod wb_tree;
mod wb_tree_log;
mod wb_tree_slot;
mod woart;
mod wort;

use lapis_pmem::Mutant;

use crate::structure::Structure;

pub use concurrent::concurrent_catalogue;
pub use trial::{
    MutantBudget, MutantReport, MutantRow, MutantTrial, Search, UnmutatedRow, WORKERS, markdown,
    try_mutants,
};

/// What is said of errors that are known as a kind, and that we cannot trace to one report.
const BUG_CLASS: &str = "mirrors a bug class";

/// A mutant.
#[derive(Clone, Copy, Debug)]
pub struct MutantEntry {
    /// Its name, by which the structure is told to commit it.
    pub mutant: Mutant,
    /// What is wrong, in a sentence.
    pub what: &'static str,
    /// Who reported the error, of which implementation.
    pub published: &'static str,
    /// Where our structure commits it.
    pub place: &'static str,
    /// The runs in which it shows; none: any of the structure's. A history of several workers shows
    /// it to every strategy alike, since the strategies choose among images.
    pub subjects: &'static [&'static str],
}

/// The mutants of one structure.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue {
    /// Operations in which all of them show.
    pub ops: usize,
    /// The mutants.
    pub entries: &'static [MutantEntry],
}

impl Catalogue {
    /// The mutants of `structure`.
    pub fn of(structure: Structure) -> Self {
        match structure {
            Structure::Wort => wort::CATALOGUE,
            Structure::FastFair => fast_fair::CATALOGUE,
            Structure::PClht => p_clht::CATALOGUE,
            Structure::Woart => woart::CATALOGUE,
            Structure::ArtCow => art_cow::CATALOGUE,
            Structure::WbTree => wb_tree::CATALOGUE,
            Structure::WbTreeSlot => wb_tree_slot::CATALOGUE,
            Structure::NvTree => nv_tree::CATALOGUE,
            Structure::FpTree => fptree::CATALOGUE,
            Structure::ClassicLog => classic_log::CATALOGUE,
            Structure::HeaderLog => header_log::CATALOGUE,
            Structure::Rawl => rawl::CATALOGUE,
            Structure::PopLog => pop_log::CATALOGUE,
            Structure::PageCow => page_cow::CATALOGUE,
            Structure::PageMulog => page_mulog::CATALOGUE,
            Structure::PageHybrid => page_hybrid::CATALOGUE,
            Structure::CowCell => in_place::COW_CELL,
            Structure::LogCell => in_place::LOG_CELL,
            Structure::FamCell => in_place::FAM_CELL,
            Structure::FpLeaves => fp_leaves::CATALOGUE,
            Structure::PopRing => pop_ring::CATALOGUE,
            Structure::Allocator => allocator::CATALOGUE,
            Structure::Store => store::CATALOGUE,
        }
    }
}

/// The structure and the entry of every mutant that [`try_mutants`] tries: all show in a single worker,
/// or in a history of several that is made for them.
pub fn catalogue() -> Vec<(Structure, MutantEntry)> {
    let of = |structure| Catalogue::of(structure).entries.iter().map(move |e| (structure, *e));
    Structure::ALL.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::concurrent::PLANNED_HISTORIES;

    #[test]
    fn every_mutant_is_named_after_its_structure_and_once() {
        let mut names = HashSet::new();
        for (structure, entry) in catalogue().into_iter().chain(concurrent_catalogue()) {
            let name = entry.mutant.0;
            assert!(name.starts_with(&format!("{structure}/")), "{name} of {structure}");
            assert!(names.insert(name), "{name} is there twice");
        }
    }

    #[test]
    fn every_entry_says_what_is_wrong_in_one_sentence_and_where() {
        for (_, entry) in catalogue().into_iter().chain(concurrent_catalogue()) {
            assert!(entry.what.ends_with('.') && !entry.what.contains('|'), "{}", entry.mutant.0);
            assert!(!entry.published.is_empty() && entry.place.contains(".rs"), "{entry:?}");
        }
    }

    #[test]
    fn every_subject_that_an_entry_names_is_one_of_its_structure() {
        for (structure, entry) in catalogue() {
            let known = structure.subjects();
            let is_known = |name: &&str| {
                known.contains(name)
                    || PLANNED_HISTORIES.contains(name) && name.starts_with(structure.name())
            };
            assert!(entry.subjects.iter().all(is_known), "{entry:?}");
        }
    }
}
