//! The strategies agree: what pruning leaves out comes out like something it tries.

use lapis_crash::{ExploreOptions, ExploreReport, Strategy, Structure, explore_structure};

fn explore(structure: Structure, strategy: Strategy, ops: usize) -> ExploreReport {
    let options = ExploreOptions {
        ops,
        seed: 5,
        strategy,
        exhaustive_limit: 600,
        samples: 60,
        crash_in_recovery_every: 0,
        ..ExploreOptions::default()
    };
    explore_structure(structure, None, &options, &|_| {}).unwrap()
}

fn pruned_equals_exhaustive(structure: Structure, ops: usize) {
    let exhaustive = explore(structure, Strategy::Exhaustive, ops);
    let pruned = explore(structure, Strategy::Pruned, ops);
    println!(
        "{structure}: {} crash points, {} of them exhaustive ({} images, {:.1} s), {} pruned ({} images, {:.1} s)",
        exhaustive.crash_points,
        exhaustive.exhaustive_points,
        exhaustive.images,
        exhaustive.seconds,
        pruned.exhaustive_points,
        pruned.images,
        pruned.seconds,
    );
    assert_eq!(exhaustive.outcomes.len(), pruned.outcomes.len());
    let mut compared = 0;
    for (point, all) in &exhaustive.outcomes {
        let found = &pruned.outcomes[point];
        match (all.complete, found.complete) {
            (true, true) => {
                compared += 1;
                assert_eq!(all.hashes, found.hashes, "at {point:?}");
            }
            // A sample finds nothing that pruning does not.
            (false, true) => assert!(all.hashes.is_subset(&found.hashes), "at {point:?}"),
            (_, false) => assert!(!all.complete, "{point:?} has few images and many classes"),
        }
    }
    assert!(compared > ops, "only {compared} crash points have few enough images to compare");
    assert!(pruned.images < exhaustive.images);
}

#[test]
fn pruned_equals_exhaustive_on_wort() {
    pruned_equals_exhaustive(Structure::Wort, 60);
}

#[test]
fn pruned_equals_exhaustive_on_fast_fair() {
    pruned_equals_exhaustive(Structure::FastFair, 60);
}

#[test]
fn pruned_equals_exhaustive_on_p_clht() {
    pruned_equals_exhaustive(Structure::PClht, 24);
}

#[test]
fn pruned_equals_exhaustive_on_pop_log() {
    pruned_equals_exhaustive(Structure::PopLog, 30);
}

#[test]
fn pruned_equals_exhaustive_on_the_allocator() {
    pruned_equals_exhaustive(Structure::Allocator, 30);
}

#[test]
fn pruned_equals_exhaustive_on_the_store() {
    pruned_equals_exhaustive(Structure::Store, 12);
}
