//! The catalogue of mutants: known errors of published implementations, which our own structures
//! commit on request, and the trial in which the checker has to find each of them.
//!
//! A checker that has never failed anything proves little by its silence. Each entry names an error
//! and who reported it; [`try_mutants`] runs the structure with the error on, by every strategy, and
//! says after how many images it was found out (*killed*). The same budget is spent on the structure
//! as it is, which must be silent.
//!
//! To add a mutant: an entry beside the structure's others ([`lapis_pmem::mutants!`], in `mutants.rs`
//! there), and the question `domain.commits(…)` or `domain.omitting(…)` where the error is made.

mod trial;

pub use lapis_pmem::{MutantEntry, MutantList};

pub use crate::concurrent::PLANNED_WORKERS;

use crate::structure::Structure;

pub use trial::{
    MutantBudget, MutantReport, MutantRow, MutantTrial, Search, UnmutatedRow, WORKERS, markdown,
    try_mutants,
};

/// The structure and the entry of every mutant that [`try_mutants`] tries: all show in a single worker,
/// or in a history of several that is made for them.
pub fn catalogue() -> Vec<(Structure, MutantEntry)> {
    entries(false)
}

/// The structure and the entry of every mutant that takes several workers to show: with one there is
/// nobody to see what it leaves undone. `lapis crash STRUCTURE --workers N --mutant NAME` commits one.
pub fn concurrent_catalogue() -> Vec<(Structure, MutantEntry)> {
    entries(true)
}

/// Those of [`catalogue`] that have a history of several workers made for them.
pub fn planned_catalogue() -> Vec<(Structure, MutantEntry)> {
    let mut entries = catalogue();
    entries.retain(|(_, entry)| trial::is_planned(entry));
    entries
}

fn entries(takes_workers: bool) -> Vec<(Structure, MutantEntry)> {
    let of =
        |structure: Structure| structure.mutants().entries.iter().map(move |it| (structure, *it));
    let all = Structure::all().flat_map(of);
    all.filter(|(_, entry)| entry.takes_workers == takes_workers).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

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
        for (structure, entry) in catalogue().into_iter().chain(concurrent_catalogue()) {
            let of_several = structure.runs_of_several().to_vec();
            let histories = [structure.histories(), of_several].concat();
            let known = [structure.subjects(), structure.long_runs(), histories].concat();
            assert!(entry.subjects.iter().all(|name| known.contains(name)), "{entry:?}");
        }
    }
}
