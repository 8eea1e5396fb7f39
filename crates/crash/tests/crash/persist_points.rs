//! Every flush and every fence of every structure is necessary: with any one of them switched off,
//! the checker finds a power cut that is not survived. `cargo test -p lapis-crash --test
//! persist_points -- --nocapture` prints the tables.

use lapis_crash::{ExploreOptions, Strategy, Structure, structure_persist_points};
use lapis_index::IndexKind;

fn all_are_necessary(structure: Structure, ops: usize, seeds: &[u64]) {
    all_are_necessary_by(Strategy::default(), structure, ops, seeds);
}

fn all_are_necessary_by(strategy: Strategy, structure: Structure, ops: usize, seeds: &[u64]) {
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

macro_rules! of_an_index {
    ($module:ident $index:ident $traits:tt) => {
        #[test]
        fn $module() {
            let kind = IndexKind::$index;
            let (ops, runs) = kind.declaration().exploration.persist_points;
            all_are_necessary(Structure::Index(kind), ops, &Vec::from_iter(1..=runs));
        }
    };
}

mod each_of_an_index_is_necessary {
    use super::*;
    lapis_index::for_each_index!(of_an_index);
}

#[test]
fn each_of_the_classic_log_is_necessary() {
    all_are_necessary(Structure::ClassicLog, 100, &[1, 2]);
}

#[test]
fn each_of_the_header_log_is_necessary() {
    all_are_necessary(Structure::HeaderLog, 100, &[1, 2]);
}

#[test]
fn each_of_rawl_is_necessary() {
    all_are_necessary(Structure::Rawl, 100, &[1, 2]);
}

#[test]
fn each_of_pop_log_in_a_ring_is_necessary() {
    all_are_necessary(Structure::PopRing, 100, &[1, 2]);
}

#[test]
fn each_of_pop_log_is_necessary() {
    all_are_necessary(Structure::PopLog, 200, &[1, 2, 3]);
}

#[test]
fn each_of_pages_by_copy_on_write_is_necessary() {
    all_are_necessary_by(Strategy::Sampled, Structure::PageCow, 64, &[1, 2]);
}

#[test]
fn each_of_pages_by_micro_log_is_necessary() {
    all_are_necessary_by(Strategy::Sampled, Structure::PageMulog, 64, &[1, 2]);
}

#[test]
fn each_of_pages_by_either_is_necessary() {
    all_are_necessary_by(Strategy::Sampled, Structure::PageHybrid, 120, &[1, 2]);
}

#[test]
fn each_of_the_allocator_and_the_pool_is_necessary() {
    all_are_necessary(Structure::Allocator, 300, &[1, 2, 3, 4]);
}

#[test]
fn each_of_the_store_is_necessary() {
    all_are_necessary(Structure::Store, 80, &[1, 2]);
}

#[test]
fn each_of_the_cells_updated_in_place_is_necessary() {
    all_are_necessary(Structure::CowCell, 60, &[1, 2]);
    all_are_necessary(Structure::LogCell, 60, &[1, 2]);
    all_are_necessary(Structure::FamCell, 60, &[1, 2]);
}

#[test]
fn each_of_the_leaves_is_necessary() {
    all_are_necessary(Structure::FpLeaves, 60, &[1, 2]);
}
