//! The store is cut off by power cuts, with one worker and with several and its work in the background; and
//! each of its known errors is found (those that take several workers in `concurrent.rs`). Longer ones: `lapis crash
//! store`.

use lapis_buffer::mutants::CHANGED_IN_PLACE_BEFORE_LOG;
use lapis_crash::concurrent::{
    ConcurrentOptions, MOST_PLANNED_SCHEDULES, PLANNED_WORKERS, explore_structure_concurrently,
};
use lapis_crash::mutants::planned_catalogue;
use lapis_crash::{CrashError, ExploreOptions, Strategy, Structure, explore_structure};
use lapis_engine::mutants::{
    ACKNOWLEDGED_BEFORE_SYNC, BACKUP_NOT_DURABLE, CHECKPOINT_TOO_EARLY, CHUNKS_NOT_LISTED,
    DROPPED_TABLE_WRITTEN, INDEX_BEFORE_LOG, LOAD_UNLISTED_EARLY, NO_ROOM_TO_LOG_AGAIN, PARTS_LOST,
    RESERVE_GIVEN_AWAY, RESTORE_NOT_MARKED, ROOM_NOT_PROMISED, STREAM_RECORD_EARLY,
    TAKEN_BACK_VALUE_FORGOTTEN, UNFINISHED_REPLAYED,
};
use lapis_pmem::Mutant;

const SSD: &str = "store:ssd";
const FULL_DISK: &str = "store:full-disk";
const TAKEN_BACK: &str = "store:taken-back";

fn alone(only: &str, ops: usize, seed: u64, mutant: Option<Mutant>) -> usize {
    some_of(only, ops, seed, mutant, 0)
}

fn sampled(mutant: Option<Mutant>) -> ExploreOptions {
    ExploreOptions {
        mutant,
        strategy: Strategy::Sampled,
        exhaustive_limit: 8,
        samples: 4,
        // Recoveries are many events long.
        crash_in_recovery_every: if mutant.is_some() { 0 } else { 8192 },
        violation_limit: 1,
        ..ExploreOptions::default()
    }
}

/// With so many images, spread over the crash points; 0 for all.
fn some_of(only: &str, ops: usize, seed: u64, mutant: Option<Mutant>, spread_images: u64) -> usize {
    let options = ExploreOptions { ops, seed, spread_images, ..sampled(mutant) };
    let report = match explore_structure(Structure::Store, Some(only), &options, &|_| {}) {
        Ok(report) => report,
        // It shows without a crash.
        Err(CrashError::Failed { what, .. }) if mutant.is_some() => {
            println!("{only}, {mutant:?}: {what}");
            return 1;
        }
        Err(error) => panic!("{error}"),
    };
    let first = report.violations.first().map(|it| format!("{}\n  {}", it.what, it.replay));
    println!(
        "{only}, {mutant:?}: {} points, {} images, {first:?}",
        report.crash_points, report.images
    );
    assert!(mutant.is_some() || report.images > 300, "only {} images", report.images);
    report.violations.len()
}

fn together(only: &str, schedules: u64) -> usize {
    let options = ConcurrentOptions {
        schedules,
        exhaustive_limit: 8,
        samples: 2,
        violation_limit: 1,
        ..ConcurrentOptions::default()
    };
    let report =
        explore_structure_concurrently(Structure::Store, Some(only), &options, &|_| ()).unwrap();
    let first = report.violations.first().map(|it| format!("{}\n  {}", it.what, it.replay));
    println!("{} schedules, {} images, {first:?}", report.schedules, report.images);
    report.violations.len()
}

#[test]
fn transactions_survive_power_cuts() {
    assert_eq!(some_of(SSD, 22, 18, None, 1200), 0);
}

#[test]
fn transactions_over_persistent_memory_survive_power_cuts() {
    assert_eq!(some_of("store:basic-nvm", 14, 18, None, 1200), 0);
    assert_eq!(some_of("store:three-tier", 14, 19, None, 1200), 0);
    assert_eq!(some_of("store:spitfire", 14, 19, None, 1200), 0);
}

#[test]
fn a_change_in_persistent_memory_before_the_log_is_durable_is_found() {
    let mutant = Some(CHANGED_IN_PLACE_BEFORE_LOG);
    assert_eq!(some_of("store:spitfire", 40, 15, mutant, 1500), 1);
}

#[test]
fn transactions_over_persistent_indexes_survive_power_cuts() {
    assert_eq!(some_of("store:nvm-direct", 22, 18, None, 1200), 0);
}

#[test]
fn an_index_that_is_changed_before_the_log_is_durable_is_found() {
    assert_eq!(alone("store:nvm-direct", 60, 18, Some(INDEX_BEFORE_LOG)), 1);
}

#[test]
fn transactions_on_a_full_disk_survive_power_cuts() {
    assert_eq!(some_of(FULL_DISK, 60, 18, None, 600), 0);
}

#[test]
fn a_commit_for_which_there_may_be_no_room_is_found() {
    assert_eq!(alone(FULL_DISK, 60, 18, Some(ROOM_NOT_PROMISED)), 1);
}

#[test]
fn a_reserve_that_others_use_is_found() {
    assert_eq!(alone(FULL_DISK, 60, 18, Some(RESERVE_GIVEN_AWAY)), 1);
}

#[test]
fn loads_backups_and_compaction_survive_power_cuts() {
    assert_eq!(some_of("store:bulk", 30, 18, None, 400), 0);
}

#[test]
fn a_load_that_is_nobodys_for_a_moment_is_found() {
    assert_eq!(alone("store:bulk", 30, 2, Some(LOAD_UNLISTED_EARLY)), 1);
}

#[test]
fn a_backup_of_what_may_be_lost_is_found() {
    assert_eq!(some_of("store:bulk", 60, 2, Some(BACKUP_NOT_DURABLE), 1500), 1);
}

#[test]
fn a_value_in_pieces_that_is_there_before_the_last_of_them_is_found() {
    assert_eq!(some_of("store:bulk", 40, 18, Some(STREAM_RECORD_EARLY), 500), 1);
}

#[test]
fn what_is_taken_back_and_a_store_that_is_restored_survive_power_cuts() {
    assert_eq!(some_of(TAKEN_BACK, 30, 18, None, 800), 0);
}

#[test]
fn a_long_value_that_was_taken_back_and_is_forgotten_is_found() {
    assert_eq!(some_of(TAKEN_BACK, 60, 1, Some(TAKEN_BACK_VALUE_FORGOTTEN), 500), 1);
}

#[test]
fn a_transaction_that_writes_to_a_table_that_was_dropped_is_found() {
    assert_eq!(some_of(TAKEN_BACK, 60, 1, Some(DROPPED_TABLE_WRITTEN), 500), 1);
}

#[test]
fn a_restore_that_was_cut_short_and_is_not_noticed_is_found() {
    assert_eq!(some_of(TAKEN_BACK, 10, 1, Some(RESTORE_NOT_MARKED), 500), 1);
}

#[test]
fn every_event_happens_in_a_run_of_400_operations() {
    for run in Structure::Store.subjects() {
        let options = ExploreOptions { ops: 400, spread_images: 20, ..ExploreOptions::default() };
        let report = explore_structure(Structure::Store, Some(run), &options, &|_| {}).unwrap();
        println!("{run}: {:?}", report.events);
        assert!(report.events.len() >= 3);
        assert_eq!(report.coverage.missed_events().collect::<Vec<_>>(), [""; 0], "{run}");
    }
}

#[test]
fn transactions_of_several_workers_over_persistent_memory_are_durably_linearizable() {
    assert_eq!(together("store:three-tier", 2), 0);
    assert_eq!(together("store:spitfire", 2), 0);
    assert_eq!(together("store:nvm-direct", 2), 0);
}

#[test]
fn transactions_in_parts_of_several_workers_are_durably_linearizable() {
    assert_eq!(together("store:in-parts", 1), 0);
}

#[test]
fn transactions_of_several_workers_are_durably_linearizable() {
    assert_eq!(together(SSD, 5), 0);
}

/// E4, each in the history that is made for it.
#[test]
fn reads_of_what_is_not_durable_are_found() {
    let mut found = 0;
    for (_, entry) in planned_catalogue().iter().filter(|(of, _)| *of == Structure::Store) {
        for history in entry.subjects {
            let options = ConcurrentOptions {
                workers: PLANNED_WORKERS,
                most_deviations: Some(1),
                schedules: MOST_PLANNED_SCHEDULES,
                exhaustive_limit: 1,
                samples: 1,
                violation_limit: 1,
                mutant: Some(entry.mutant),
                ..ConcurrentOptions::default()
            };
            let store = Structure::Store;
            let report = explore_structure_concurrently(store, Some(history), &options, &|_| ());
            let report = report.unwrap();
            println!("{history}: {} schedules, {} images", report.schedules, report.images);
            assert_eq!(report.violations.len(), 1, "{history}");
            found += 1;
        }
    }
    assert_eq!(found, 3);
}

#[test]
fn a_commit_that_does_not_wait_for_the_log_is_found() {
    assert_eq!(alone(SSD, 40, 18, Some(ACKNOWLEDGED_BEFORE_SYNC)), 1);
}

#[test]
fn a_checkpoint_that_cuts_the_log_too_early_is_found() {
    assert_eq!(some_of(SSD, 40, 18, Some(CHECKPOINT_TOO_EARLY), 1000), 1);
}

#[test]
fn chunks_that_are_not_listed_are_found() {
    assert_eq!(alone(SSD, 60, 18, Some(CHUNKS_NOT_LISTED)), 1);
}

#[test]
fn a_log_that_is_full_before_a_transaction_is_in_the_trees_is_found() {
    let run = |mutant| {
        let options = ExploreOptions { ops: 300, seed: 5, spread_images: 20, ..sampled(mutant) };
        explore_structure(Structure::Store, Some("store:bulk"), &options, &|_| {})
    };
    let stopped = run(Some(NO_ROOM_TO_LOG_AGAIN)).unwrap_err().to_string();
    assert!(stopped.contains("the log is full"), "{stopped}");
    assert!(run(None).unwrap().violations.is_empty());
}

#[test]
fn a_recovery_that_replays_what_did_not_commit_is_found() {
    assert_eq!(alone(SSD, 60, 18, Some(UNFINISHED_REPLAYED)), 1);
}

#[test]
fn a_recovery_that_leaves_out_parts_of_a_transaction_is_found() {
    assert_eq!(alone(SSD, 60, 18, Some(PARTS_LOST)), 1);
}
