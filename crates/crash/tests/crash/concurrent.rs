//! Every structure with several workers: histories on random schedules, crashed in their middle, are
//! durably linearizable; and the checker sees what single workers cannot show: that what a reader
//! persists before it answers, and fences taken for other threads, are necessary.

use lapis_blocks::{CellKind, LogKind};
use lapis_crash::Structure;
use lapis_crash::concurrent::{
    ConcurrentOptions, ConcurrentReplay, ConcurrentReport, MOST_PLANNED_SCHEDULES,
    explore_structure_concurrently,
};
use lapis_crash::mutants::concurrent_catalogue;
use lapis_device::{PersistKind, PersistPoint};
use lapis_index::IndexKind;
use lapis_pmem::Mutant;

fn explore(structure: Structure, options: &ConcurrentOptions) -> ConcurrentReport {
    explore_structure_concurrently(structure, None, options, &|_| ()).unwrap()
}

fn few(schedules: u64) -> ConcurrentOptions {
    ConcurrentOptions { schedules, threads: 1, ..ConcurrentOptions::default() }
}

/// So many histories at most, of few images each, until there is a violation.
fn until_found(schedules: u64) -> ConcurrentOptions {
    ConcurrentOptions { violation_limit: 1, exhaustive_limit: 16, samples: 8, ..few(schedules) }
}

fn survives(structure: Structure, options: &ConcurrentOptions) {
    let report = explore(structure, options);
    let told: Vec<_> = report.violations.iter().map(|it| (&it.what, &it.replay)).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(report.images > report.crash_points && report.crash_points > 10 * report.schedules);
}

/// The tests of one index.
macro_rules! of_an_index {
    ($module:ident $index:ident $traits:tt) => {
        mod $module {
            use super::*;
            const STRUCTURE: Structure = Structure::Index(IndexKind::$index);

            #[test]
            fn is_durably_linearizable() {
                survives(STRUCTURE, &few(60));
            }

            #[test]
            fn needs_what_readers_persist_before_they_answer() {
                all_are_necessary(STRUCTURE, "pmem/src/answer.rs", 600);
            }
        }
    };
}
lapis_index::for_each_index!(of_an_index);

/// P-Masstree's reader had found a leaf where the way ended, and then read a word there that led to a layer.
#[test]
fn a_layer_that_comes_while_a_scan_of_p_masstree_is_there_is_gone_through() {
    let options = ConcurrentOptions { workers: 4, ops: 16, seed: 50894, ..few(1) };
    let structure = Structure::Index(IndexKind::PMasstree);
    let report =
        explore_structure_concurrently(structure, Some("p-masstree:bytes"), &options, &|_| ());
    let report = report.unwrap();
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.images > 0);
}

#[test]
fn the_allocator_is_durably_linearizable() {
    survives(Structure::Allocator, &few(30));
}

/// They have 4 MiB, of which each worker kept a slab of each class for itself until the pool seemed full.
#[test]
fn four_workers_have_room_in_a_pool_that_cannot_grow() {
    survives(
        Structure::Allocator,
        &ConcurrentOptions { workers: 4, ops: 16, seed: 900_083, ..few(8) },
    );
}

#[test]
fn pop_log_is_durably_linearizable() {
    survives(Structure::Log(LogKind::PopLog), &few(30));
}

#[test]
fn cells_with_one_log_are_durably_linearizable() {
    survives(Structure::Cell(CellKind::Log), &few(30));
}

#[test]
fn the_block_log_is_durably_linearizable() {
    survives(Structure::BlockLog, &few(100));
}

#[test]
fn four_workers_are_durably_linearizable_too() {
    for structure in [
        Structure::Index(IndexKind::Wort),
        Structure::Index(IndexKind::Woart),
        Structure::Index(IndexKind::ArtCow),
        Structure::Index(IndexKind::PArt),
        Structure::Index(IndexKind::FastFair),
        Structure::Index(IndexKind::PClht),
        Structure::Index(IndexKind::FpTree),
    ] {
        survives(structure, &ConcurrentOptions { workers: 4, ops: 16, seed: 1000, ..few(15) });
    }
}

#[test]
fn every_schedule_with_one_deviation_is_durably_linearizable() {
    let options = ConcurrentOptions {
        workers: 2,
        ops: 3,
        seed: 5,
        most_deviations: Some(1),
        exhaustive_limit: 16,
        samples: 8,
        ..few(3000)
    };
    let report = explore(Structure::Index(IndexKind::Wort), &options);
    assert_eq!(report.violations.len(), 0);
    assert_eq!(report.complete, Some(true));
}

/// On every schedule that deviates once from worker after worker.
#[test]
fn histories_made_for_an_error_are_durably_linearizable() {
    let options = ConcurrentOptions {
        workers: 2,
        most_deviations: Some(1),
        // The schedules are the point, and they are many.
        exhaustive_limit: 4,
        samples: 2,
        ..few(MOST_PLANNED_SCHEDULES)
    };
    let histories = |structure: Structure| {
        structure.histories().into_iter().map(move |history| (structure, history))
    };
    // Each image of the store's is an engine that recovers: they are left to `lapis crash store --workers 2`.
    let structures = Structure::all().filter(|&structure| structure != Structure::Store);
    let mut survived = 0;
    for (structure, history) in structures.flat_map(histories) {
        let report =
            explore_structure_concurrently(structure, Some(history), &options, &|_| ()).unwrap();
        assert_eq!(report.violations.len(), 0, "{history}");
        assert_eq!(report.complete, Some(true), "{history}");
        survived += 1;
    }
    assert!(survived >= 3, "{survived}");
}

/// The first violation without a flush or fence, among so many histories.
fn without(structure: Structure, point: PersistPoint, schedules: u64) -> Option<ConcurrentReport> {
    let options = ConcurrentOptions { suppress: Some(point), ..until_found(schedules) };
    let report = explore(structure, &options);
    (!report.violations.is_empty()).then_some(report)
}

/// The flushes and fences of one source file that are passed by several workers.
fn points_in(structure: Structure, file: &str, schedules: u64) -> Vec<PersistPoint> {
    let without_images = ConcurrentOptions { exhaustive_limit: 0, samples: 0, ..few(schedules) };
    let passed = explore(structure, &without_images).persist_points;
    let found: Vec<_> = passed.into_iter().filter(|point| point.file.ends_with(file)).collect();
    assert!(!found.is_empty(), "{file} passes no flush or fence");
    found
}

fn all_are_necessary(structure: Structure, file: &str, schedules: u64) {
    for point in points_in(structure, file, 100) {
        let found = without(structure, point, schedules);
        assert!(found.is_some(), "{structure} survives without {point}");
    }
}

#[test]
fn the_allocator_needs_its_fences_for_other_threads() {
    all_are_necessary(Structure::Allocator, "pmem/src/domain.rs", 600);
}

#[test]
fn p_clht_needs_its_fence_for_other_threads() {
    all_are_necessary(Structure::Index(IndexKind::PClht), "pmem/src/domain.rs", 600);
}

/// Where to begin with histories, so that an error that few of them show is found soon.
fn first_history(mutant: Mutant) -> u64 {
    match mutant.0 {
        "wort/stale-decision" => 128,
        "wort/unpersisted-answer" => 409,
        "fast-fair/released-before-persist" => 141,
        "fast-fair/unpersisted-scan" => 58,
        "woart/stale-decision" => 52,
        "art-cow/unpersisted-answer" => 785,
        "art-cow/stale-decision" => 47,
        "p-art/unpersisted-answer" => 98,
        "p-hot/stale-decision" => 134,
        "p-hot/unpersisted-answer" => 58,
        "p-masstree/stale-decision" => 40,
        "p-masstree/unpersisted-in-turns" => 69,
        "p-bwtree/unpersisted-answer" => 266,
        "store/reads-not-validated" => 12,
        "store/checkpoint-forgets-transactions" => 15,
        "store/versions-not-kept" => 37,
        "store/expiry-not-validated" => 40,
        "store/parts-not-kept" => 4,
        "store/readers-forgotten" => 168,
        _ => 1,
    }
}

#[test]
fn mutants_that_take_several_workers_are_killed() {
    let entries = concurrent_catalogue();
    assert!(entries.len() >= 6, "{}", entries.len());
    for (structure, entry) in entries {
        let (mutant, seed) = (Some(entry.mutant), first_history(entry.mutant));
        let options = ConcurrentOptions { mutant, seed, ..until_found(1200) };
        // Most of the store's show wherever it lies.
        let of_store = (structure == Structure::Store).then_some("store:ssd");
        let only = entry.subjects.first().copied().or(of_store);
        let report = explore_structure_concurrently(structure, only, &options, &|_| ()).unwrap();
        println!("{}: {} images, {} schedules", entry.mutant.0, report.images, report.schedules);
        assert!(!report.violations.is_empty(), "{} survives", entry.mutant.0);
    }
}

#[test]
fn fptree_needs_its_fence_for_other_threads() {
    all_are_necessary(Structure::Index(IndexKind::FpTree), "pmem/src/domain.rs", 600);
}

#[test]
fn a_violation_is_found_again_by_its_seed_position_and_image() {
    let flush = points_in(Structure::Index(IndexKind::Wort), "wort/change.rs", 20)
        .into_iter()
        .find(|point| point.kind == PersistKind::Flush)
        .unwrap();
    let report = without(Structure::Index(IndexKind::Wort), flush, 200).unwrap();
    let found = &report.violations[0];
    assert!(
        found.replay.starts_with(&format!("lapis crash {} --workers 3 --ops 12", found.subject))
    );
    for schedule in [None, Some(found.schedule.parse().unwrap())] {
        let options = ConcurrentOptions {
            suppress: Some(flush),
            seed: found.seed,
            replay: ConcurrentReplay {
                schedule,
                position: found.position,
                image: Some(found.image.clone()),
            },
            ..few(1)
        };
        let again = explore_structure_concurrently(
            Structure::Index(IndexKind::Wort),
            Some(&found.subject),
            &options,
            &|_| (),
        )
        .unwrap();
        assert_eq!(again.violations.len(), 1);
        assert_eq!((&again.violations[0].what, again.images), (&found.what, 1));
    }
}
