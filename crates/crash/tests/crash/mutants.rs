//! The checker finds every mutant of the catalogue at a small budget, and nothing wrong with the
//! structures as they are at the same budget.

use lapis_blocks::LogKind;
use lapis_crash::mutants::{
    MutantBudget, MutantTrial, Search, WORKERS, catalogue, concurrent_catalogue, planned_catalogue,
    try_mutants,
};
use lapis_crash::{Strategy, Structure};
use lapis_index::IndexKind;

/// How many of a structure show in single workers.
fn of(structure: Structure) -> usize {
    catalogue().iter().filter(|(of, _)| *of == structure).count()
}

/// How many of it show in several only.
fn of_several(structure: Structure) -> usize {
    concurrent_catalogue().iter().filter(|(of, _)| *of == structure).count()
}

fn all_are_killed(structure: Structure) {
    assert!(of(structure) > 0, "{structure} has no mutants: the checker has failed nothing of it");
    let trial = MutantTrial {
        structures: vec![structure],
        budget: MutantBudget::small(),
        threads: 1,
        ..MutantTrial::default()
    };
    let report = try_mutants(&trial, &|_| {});
    for row in &report.mutants {
        let outcome = if row.killed { "killed" } else { "SURVIVED" };
        println!(
            "{:<50} {:<10} {outcome:>8} {:>8} images {:.2} s {}",
            row.name,
            row.strategy.to_string(),
            row.images,
            row.seconds,
            row.by.as_deref().unwrap_or_default().chars().take(120).collect::<String>()
        );
    }
    for row in &report.unmutated {
        println!("{} {} {} images {:.2} s", row.structure, row.strategy, row.images, row.seconds);
        assert_eq!(row.violations, Vec::<String>::new(), "{structure} by {}", row.strategy);
    }
    assert_eq!(report.survivors(), Vec::<&str>::new());
    let planned = planned_catalogue().iter().filter(|(of, _)| *of == structure).count();
    assert_eq!(report.mutants.len(), 3 * (of(structure) - planned) + planned);
    assert!(report.is_good());
}

mod all_are_killed_of {
    for_each_structure! { ($) super::all_are_killed }
}

#[test]
fn those_of_the_allocator_are_killed() {
    all_are_killed(Structure::Allocator);
}

#[test]
fn those_of_the_block_log_are_killed() {
    all_are_killed(Structure::BlockLog);
}

#[test]
fn the_same_images_kill_on_any_number_of_threads() {
    let images = |threads| {
        let trial = MutantTrial {
            structures: vec![Structure::Index(IndexKind::Wort)],
            strategies: vec![Strategy::Sampled],
            budget: MutantBudget::small(),
            threads,
            ..MutantTrial::default()
        };
        let report = try_mutants(&trial, &|_| {});
        report.mutants.iter().map(|row| row.images).collect::<Vec<_>>()
    };
    assert_eq!(images(1), images(3));
}

#[test]
fn several_workers_find_mutants_too_and_nothing_in_the_structure_as_it_is() {
    let trial = MutantTrial {
        structures: vec![Structure::Index(IndexKind::PClht), Structure::Log(LogKind::Rawl)],
        strategies: Vec::new(),
        budget: MutantBudget { schedules: 20, ..MutantBudget::small() },
        threads: 1,
        ..MutantTrial::default()
    };
    let report = try_mutants(&trial, &|_| {});
    let tried: Vec<_> = report.unmutated.iter().map(|row| (row.structure, row.strategy)).collect();
    assert_eq!(tried, [("p-clht", Search::Workers(WORKERS))], "rawl has no histories of workers");
    assert_eq!(report.unmutated_violations, 0, "{:?}", report.unmutated);
    let found = report.mutants.iter().find(|row| row.name == "p-clht/unflushed-remove").unwrap();
    assert!(found.killed && found.images > 0, "{found:?}");
    let p_clht = Structure::Index(IndexKind::PClht);
    assert_eq!(report.mutants.len(), of(p_clht) + of_several(p_clht));
}

#[test]
fn every_mutant_is_in_the_document() {
    let document = include_str!("../../../../docs/mutants.md");
    for (_, entry) in catalogue().into_iter().chain(concurrent_catalogue()) {
        let row = format!("| `{}` | {} | {} |", entry.mutant.0, entry.what, entry.published);
        assert!(
            document.contains(&row),
            "{}: run `lapis crash --mutants --write docs/mutants.md`",
            entry.mutant.0
        );
    }
}
