//! Every structure survives the power cuts of a short run. Longer ones: `lapis crash STRUCTURE`.

use lapis_crash::{ExploreOptions, Strategy, Structure, explore_structure};
use lapis_index::IndexKind;
use lapis_pmem::Optimisations;

fn survives(structure: Structure, ops: usize, seed: u64) {
    survives_by(Strategy::default(), structure, ops, seed);
}

fn survives_by(strategy: Strategy, structure: Structure, ops: usize, seed: u64) {
    // The leaves have few crash points, with many images each.
    let spread_images = if structure == Structure::FpLeaves { 0 } else { 12_000 };
    let options =
        ExploreOptions { ops, seed, strategy, spread_images, ..ExploreOptions::default() };
    survives_with(structure, options);
}

fn survives_with(structure: Structure, options: ExploreOptions) {
    let ops = options.ops;
    let options = ExploreOptions {
        exhaustive_limit: 256,
        samples: 32,
        crash_in_recovery_every: 512,
        ..options
    };
    let report = explore_structure(structure, None, &options, &|_| {}).unwrap();
    println!(
        "{structure}: {} crash points, {} images, {} distinct states",
        report.crash_points, report.images, report.distinct_states
    );
    let found: Vec<_> =
        report.violations.iter().map(|v| format!("{}\n  {}", v.what, v.replay)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let least_images = if options.cut_in > 0 { 100 } else { 1000 };
    assert!(report.images > least_images, "only {} images were tried", report.images);
    assert!(report.distinct_states > ops as u64 / 8, "the run hardly changed anything");
}

fn listed_survives(structure: Structure) {
    match structure {
        Structure::Log(kind) => survives(structure, kind.declaration().operations, 17),
        Structure::Cell(kind) => {
            survives_by(Strategy::Sampled, structure, kind.declaration().operations, 17);
        }
        Structure::Page(kind) => {
            survives_by(Strategy::Sampled, structure, kind.declaration().operations, 17);
        }
        _ => survives(structure, 200, 14),
    }
}

mod power_cuts_are_survived_by {
    for_each_structure! { ($) super::listed_survives }
}

fn goes_on_after_a_cut(structure: Structure) {
    let ops = match structure {
        Structure::Log(kind) => kind.declaration().operations,
        Structure::Cell(kind) => kind.declaration().operations,
        Structure::Page(kind) => kind.declaration().operations,
        _ => 200,
    };
    let (seed, cut_in, spread_images) = (19, ops / 3, 1500);
    let options = ExploreOptions { ops, seed, cut_in, spread_images, ..ExploreOptions::default() };
    survives_with(structure, options);
}

mod a_power_cut_at_the_beginning_is_survived_by {
    for_each_structure! { ($) super::goes_on_after_a_cut }
}

/// After this cut nodes of P-BwTree take the entries of their neighbours that do not fit, which hardly any run comes to.
#[test]
fn p_bwtree_goes_on_with_nodes_of_more_entries_than_fit() {
    let (ops, seed, cut_in, spread_images) = (120, 4001, 62, 1500);
    let options = ExploreOptions { ops, seed, cut_in, spread_images, ..ExploreOptions::default() };
    let structure = Structure::Index(IndexKind::PBwTree);
    let report = explore_structure(structure, Some("p-bwtree:drained"), &options, &|_| {}).unwrap();
    let event = "a node takes the entries of its right neighbour, more than fit";
    assert!(report.events.contains_key(event), "{:?}", report.events);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

#[test]
fn indexes_survive_power_cuts_with_other_optimisations_than_they_are_built_with() {
    for kind in IndexKind::ALL {
        let concerned = kind.declaration().optimisations;
        let built = Optimisations::AS_BUILT.among(concerned);
        for optimisations in concerned.to_compare().into_iter().filter(|&set| set != built) {
            println!("{kind} with {optimisations}");
            let options = ExploreOptions {
                ops: 120,
                seed: 23,
                spread_images: 3000,
                optimisations,
                ..ExploreOptions::default()
            };
            survives_with(Structure::Index(kind), options);
        }
    }
}

#[test]
fn the_allocator_survives_power_cuts() {
    survives(Structure::Allocator, 200, 15);
}

#[test]
fn the_block_log_survives_power_cuts_and_failing_writes() {
    survives(Structure::BlockLog, 150, 15);
}

#[test]
fn the_leaves_survive_power_cuts() {
    survives_by(Strategy::Sampled, Structure::FpLeaves, 60, 20);
}

#[test]
fn the_same_seed_explores_the_same_images() {
    let options = ExploreOptions { ops: 40, seed: 3, threads: 1, ..ExploreOptions::default() };
    let first =
        explore_structure(Structure::Index(IndexKind::Wort), None, &options, &|_| {}).unwrap();
    let second =
        explore_structure(Structure::Index(IndexKind::Wort), None, &options, &|_| {}).unwrap();
    assert_eq!(
        (first.crash_points, first.images, first.distinct_states),
        (second.crash_points, second.images, second.distinct_states)
    );
}
