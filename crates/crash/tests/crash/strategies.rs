//! The strategies agree: what pruning leaves out comes out like something it tries.

use lapis_blocks::LogKind;
use lapis_crash::subjects::IndexSubject;
use lapis_crash::{ExploreOptions, ExploreReport, Strategy, Structure, explore, explore_structure};
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::Mutant;

fn explored(structure: Structure, strategy: Strategy, ops: usize) -> ExploreReport {
    let options = ExploreOptions {
        ops,
        seed: 5,
        strategy,
        exhaustive_limit: 300,
        samples: 8,
        crash_in_recovery_every: 0,
        ..ExploreOptions::default()
    };
    explore_structure(structure, None, &options, &|_| {}).unwrap()
}

fn pruned_equals_exhaustive(structure: Structure, ops: usize) {
    let exhaustive = explored(structure, Strategy::Exhaustive, ops);
    let pruned = explored(structure, Strategy::Pruned, ops);
    assert_eq!(exhaustive.outcomes.len(), pruned.outcomes.len());
    let (mut compared, mut all_images, mut images) = (0, 0, 0);
    for (point, all) in &exhaustive.outcomes {
        let found = &pruned.outcomes[point];
        match (all.complete, found.complete) {
            (true, true) => {
                compared += 1;
                all_images += all.images;
                images += found.images;
                assert!(found.images <= all.images, "more classes than images at {point:?}");
                assert_eq!(all.hashes, found.hashes, "at {point:?}");
            }
            // A sample finds nothing that pruning does not.
            (false, true) => assert!(all.hashes.is_subset(&found.hashes), "at {point:?}"),
            (_, false) => assert!(!all.complete, "{point:?} has few images and many classes"),
        }
    }
    assert!(compared > ops, "only {compared} crash points have few enough images to compare");
    println!("{structure}: {all_images} images where all are tried, {images} of them told apart");
    assert!(images < all_images);
}

#[test]
fn pruned_equals_exhaustive_on_wort() {
    pruned_equals_exhaustive(Structure::Index(IndexKind::Wort), 60);
}

#[test]
fn pruned_equals_exhaustive_on_fast_fair() {
    pruned_equals_exhaustive(Structure::Index(IndexKind::FastFair), 40);
}

#[test]
fn pruned_equals_exhaustive_on_p_clht() {
    pruned_equals_exhaustive(Structure::Index(IndexKind::PClht), 20);
}

#[test]
fn pruned_equals_exhaustive_on_pop_log() {
    pruned_equals_exhaustive(Structure::Log(LogKind::PopLog), 30);
}

#[test]
fn pruned_equals_exhaustive_on_the_allocator() {
    pruned_equals_exhaustive(Structure::Allocator, 30);
}

#[test]
fn images_of_which_nothing_is_run_come_out_as_when_all_are_run() {
    for structure in [Structure::Index(IndexKind::Wort), Structure::Log(LogKind::PopLog)] {
        let ops = 40;
        let pruned = explored(structure, Strategy::Pruned, ops);
        let known = pruned.images_by_proof + pruned.images_partly_by_proof;
        println!("{structure}: {} images, {known} known in part or entirely", pruned.images);
        assert!(pruned.images_by_proof > 0 && known < pruned.images, "{structure}");
        let exhaustive = explored(structure, Strategy::Exhaustive, ops);
        assert_eq!(exhaustive.images_by_proof + exhaustive.images_partly_by_proof, 0);
        for (point, all) in exhaustive.outcomes.iter().filter(|(_, all)| all.complete) {
            let found = &pruned.outcomes[point];
            assert!(!found.complete || found.hashes == all.hashes, "{structure} at {point:?}");
        }
    }
}

#[test]
fn a_sample_is_of_the_images_that_exist_and_begins_with_the_extremes() {
    let sampled = explored(Structure::Index(IndexKind::Wort), Strategy::Sampled, 20);
    let pruned = explored(Structure::Index(IndexKind::Wort), Strategy::Pruned, 20);
    assert!(sampled.outcomes.iter().all(|(point, outcomes)| {
        let all = &pruned.outcomes[point];
        !all.complete || outcomes.hashes.is_subset(&all.hashes)
    }));
    // The oldest and the newest image alone show the operation in flight undone and done.
    assert_eq!(sampled.distinct_states, pruned.distinct_states);
}

#[test]
fn crash_points_at_every_store_are_more_and_find_nothing_else() {
    let options = ExploreOptions { ops: 12, crash_in_recovery_every: 0, ..Default::default() };
    let fences =
        explore_structure(Structure::Index(IndexKind::Wort), None, &options, &|_| {}).unwrap();
    let options = ExploreOptions { every_store: true, ..options };
    let stores =
        explore_structure(Structure::Index(IndexKind::Wort), None, &options, &|_| {}).unwrap();
    assert!(stores.violations.is_empty());
    assert!(stores.crash_points > 3 * fences.crash_points);
    assert_eq!(stores.distinct_states, fences.distinct_states);
}

#[test]
fn a_report_names_the_strategy_that_chose_its_images() {
    assert_eq!(
        explored(Structure::Index(IndexKind::Wort), Strategy::Sampled, 5).strategy,
        Strategy::Sampled
    );
}

/// Without a memory of walks everything is walked over on every image that is run.
fn remembered_walks_change_nothing(
    ops: usize,
    explore: impl Fn(&ExploreOptions) -> Result<ExploreReport, String>,
) {
    let explore = |remember_walks| {
        let options = ExploreOptions {
            ops,
            seed: 5,
            remember_walks,
            exhaustive_limit: 100,
            samples: 8,
            threads: 1,
            crash_in_recovery_every: 64,
            ..ExploreOptions::default()
        };
        explore(&options).unwrap()
    };
    let (fresh, remembered) = (explore(false), explore(true));
    let name = &remembered.structure;
    println!("{name}: {} images, {} parts", remembered.images, remembered.parts_passed);
    assert_eq!(fresh.parts_passed, 0);
    assert!(remembered.parts_passed > 0, "{name}");
    // The same bytes were read on every image, too: else others would have been tried.
    assert_eq!(fresh.images, remembered.images, "{name}");
    assert_eq!(fresh.images_by_proof, remembered.images_by_proof, "{name}");
    assert_eq!(fresh.images_partly_by_proof, remembered.images_partly_by_proof, "{name}");
    assert_eq!(fresh.outcomes, remembered.outcomes, "{name}");
    let told = |report: &ExploreReport| -> Vec<_> {
        report.violations.iter().map(|found| (found.position, found.what.clone())).collect()
    };
    assert_eq!(told(&fresh), told(&remembered), "{name}");
}

fn remembered_walks_change_nothing_on(structure: Structure) {
    remembered_walks_change_nothing(80, |options| {
        let report = explore_structure(structure, None, options, &|_| {});
        report.map_err(|error| error.to_string())
    });
}

#[test]
fn remembered_walks_change_nothing_on_wort() {
    remembered_walks_change_nothing_on(Structure::Index(IndexKind::Wort));
}

#[test]
fn remembered_walks_change_nothing_on_woart() {
    remembered_walks_change_nothing_on(Structure::Index(IndexKind::Woart));
}

#[test]
fn remembered_walks_change_nothing_on_art_with_copies() {
    remembered_walks_change_nothing_on(Structure::Index(IndexKind::ArtCow));
}

/// Its nodes have locks, which walks do not look at.
#[test]
fn remembered_walks_change_nothing_on_p_art() {
    remembered_walks_change_nothing_on(Structure::Index(IndexKind::PArt));
}

/// An index with 400 keys; crashes are in the operations after these.
fn on_a_filled_index(kind: IndexKind, ops: usize, mutant: Option<Mutant>) {
    const KEYS: u64 = 500;
    let options = IndexOptions::default();
    let subject = IndexSubject::<u64>::new(kind, "filled", &[], options, KEYS);
    let subject = subject.filled(KEYS);
    remembered_walks_change_nothing(ops, |options| {
        let first_operation = KEYS as usize + 1;
        let options =
            ExploreOptions { mutant, first_operation, violation_limit: 40, ..options.clone() };
        let report = explore(&subject, &options, &|_| {})?;
        assert_eq!(report.violations.is_empty(), mutant.is_none());
        Ok(report)
    });
}

#[test]
fn remembered_walks_change_nothing_on_an_index_that_holds_much() {
    on_a_filled_index(IndexKind::Wort, 80, None);
}

/// The root has a child for nearly each byte: its stretches are parts.
#[test]
fn remembered_walks_change_nothing_where_nodes_have_many_children() {
    on_a_filled_index(IndexKind::Woart, 160, None);
    on_a_filled_index(IndexKind::ArtCow, 80, None);
}

#[test]
fn remembered_walks_change_nothing_where_something_is_wrong() {
    for name in ["wort/link-before-fence", "wort/header-before-parent"] {
        on_a_filled_index(IndexKind::Wort, 60, Some(Mutant(name)));
    }
    on_a_filled_index(IndexKind::Woart, 160, Some(Mutant("woart/link-before-fence")));
}
