//! Every flush and every fence of every structure is necessary: with any one of them switched off,
//! the checker finds a power cut that is not survived. `cargo test -p lapis-crash --test
//! persist_points -- --nocapture` prints the tables.

use lapis_blocks::{CellKind, LogKind, PageKind};
use lapis_crash::{ExploreOptions, Strategy, Structure, structure_persist_points};
use lapis_index::IndexKind;

fn all_are_necessary(structure: Structure, (ops, runs): (usize, u64)) {
    all_are_necessary_by(Strategy::default(), structure, (ops, runs));
}

fn all_are_necessary_by(strategy: Strategy, structure: Structure, (ops, runs): (usize, u64)) {
    let seeds = &Vec::from_iter(1..=runs);
    let options = ExploreOptions {
        ops,
        strategy,
        exhaustive_limit: 256,
        samples: 32,
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

macro_rules! of_a_log {
    ($module:ident $kind:ident $what:tt) => {
        #[test]
        fn $module() {
            let runs = LogKind::$kind.declaration().persist_points;
            all_are_necessary(Structure::Log(LogKind::$kind), runs);
        }
    };
}

macro_rules! of_cells {
    ($module:ident $kind:ident $what:tt) => {
        #[test]
        fn $module() {
            let runs = CellKind::$kind.declaration().persist_points;
            all_are_necessary(Structure::Cell(CellKind::$kind), runs);
        }
    };
}

macro_rules! of_pages {
    ($module:ident $kind:ident $what:tt) => {
        #[test]
        fn $module() {
            let runs = PageKind::$kind.declaration().persist_points;
            all_are_necessary_by(Strategy::Sampled, Structure::Page(PageKind::$kind), runs);
        }
    };
}

macro_rules! of_an_index {
    ($module:ident $index:ident $traits:tt) => {
        #[test]
        fn $module() {
            all_are_necessary(
                Structure::Index(IndexKind::$index),
                IndexKind::$index.declaration().exploration.persist_points,
            );
        }
    };
}

mod each_is_necessary_of {
    use super::*;
    lapis_index::for_each_index!(of_an_index);
    lapis_blocks::for_each_log!(of_a_log);
    lapis_blocks::for_each_cell!(of_cells);
    lapis_blocks::for_each_page_scheme!(of_pages);
}

#[test]
fn each_of_the_allocator_and_the_pool_is_necessary() {
    all_are_necessary(Structure::Allocator, (300, 4));
}

#[test]
fn each_of_the_store_is_necessary() {
    all_are_necessary(Structure::Store, (80, 2));
}

#[test]
fn each_of_the_leaves_is_necessary() {
    all_are_necessary(Structure::FpLeaves, (60, 2));
}
