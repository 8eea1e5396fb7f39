//! Every flush and every fence of every structure is necessary: with any one of them switched off,
//! the checker finds a power cut that is not survived. `cargo test -p lapis-crash --test
//! crash persist_points -- --nocapture` prints the tables.

use lapis_crash::{
    ExploreOptions, Strategy, Structure, explore_structure, known_persist_points,
    persist_point_called, structure_persist_points,
};
use lapis_device::{PersistKind, PersistPoint};
use lapis_index::IndexKind;

fn all_are_necessary(structure: Structure, (ops, runs): (usize, u64)) {
    all_are_necessary_by(Strategy::default(), structure, (ops, runs));
}

fn all_are_necessary_by(strategy: Strategy, structure: Structure, (ops, runs): (usize, u64)) {
    let seeds = &Vec::from_iter(1..=runs);
    let options = ExploreOptions {
        ops,
        strategy,
        // More points are reached with few images of each than with many.
        exhaustive_limit: 64,
        samples: 8,
        // Samples are few; so a larger share of them is cut again.
        crash_in_recovery_every: if strategy == Strategy::Sampled { 64 } else { 256 },
        ..ExploreOptions::default()
    };
    let rows = structure_persist_points(structure, None, &options, seeds, &|_| {}).unwrap();
    assert!(rows.len() >= 3, "{structure} has hardly any persist points: {rows:?}");
    println!("{structure}:");
    for row in &rows {
        let outcome = if row.killed { "killed" } else { "SURVIVED" };
        let after = if row.only_after_crashes { ", passed only after crashes" } else { "" };
        println!("  {:<70} {outcome:>8} {:>8} images{after}", row.name, row.images);
    }
    let survived: Vec<_> = rows.iter().filter(|row| !row.killed).map(|row| &row.name).collect();
    assert!(survived.is_empty(), "not shown to be necessary: {survived:#?}");
}

fn listed_needs_each(structure: Structure) {
    let runs = match structure {
        Structure::Index(kind) => kind.declaration().exploration.persist_points,
        Structure::Log(kind) => kind.declaration().persist_points,
        Structure::Cell(kind) => kind.declaration().persist_points,
        Structure::Page(kind) => {
            let runs = kind.declaration().persist_points;
            return all_are_necessary_by(Strategy::Sampled, structure, runs);
        }
        other => unreachable!("{other} is in no list"),
    };
    all_are_necessary(structure, runs);
}

mod each_is_necessary_of {
    for_each_structure! { ($) super::listed_needs_each }
}

#[test]
fn what_shows_rare_ones_is_survived_with_them() {
    for kind in IndexKind::ALL {
        for run in kind.declaration().exploration.runs {
            let Some((seed, cut_in)) = run.rare else { continue };
            let (ops, spread_images) = (cut_in + 40, 60_000);
            let options =
                ExploreOptions { ops, seed, cut_in, spread_images, ..ExploreOptions::default() };
            let structure = Structure::Index(kind);
            let report = explore_structure(structure, Some(run.name), &options, &|_| {}).unwrap();
            assert!(report.violations.is_empty(), "{}: {:?}", run.name, report.violations);
        }
    }
}

#[test]
fn each_of_the_allocator_and_the_pool_is_necessary() {
    all_are_necessary(Structure::Allocator, (300, 1));
}

#[test]
fn each_of_the_leaves_is_necessary() {
    all_are_necessary(Structure::FpLeaves, (60, 2));
}

#[test]
fn a_flush_that_only_recoveries_pass_is_called_by_its_name_and_no_other_structure_has_it() {
    let page = |point: &&PersistPoint| point.file.ends_with("blocks/src/page/recovery.rs");
    let options = ExploreOptions { ops: 12, ..ExploreOptions::default() };
    let called = |structure: &str, name: &str| {
        let structure = Structure::all().find(|it| it.name() == structure).unwrap();
        persist_point_called(structure, None, &options, name).unwrap()
    };
    let flushes = known_persist_points().iter().filter(page);
    let flushes: Vec<_> = flushes.filter(|point| point.kind == PersistKind::Flush).collect();
    assert!(!flushes.is_empty());
    for flush in flushes {
        let name = flush.to_string();
        assert_eq!(called("page-mulog", &name), Some(*flush));
        assert_eq!(called("wort", &name), None);
    }
}
