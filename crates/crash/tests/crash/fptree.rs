//! What FPTree does when it is opened after a crash: each step of it is necessary.
//!
//! The flushes of a recovery are passed only on the images of crashes, so the table of persist points
//! does not have them; two errors stand for them here, with every image crashed a second time.

use lapis_crash::{ExploreOptions, Structure, explore_structure};
use lapis_index::IndexKind;
use lapis_index::mutants::fptree as mutants;
use lapis_pmem::Mutant;

fn violations(mutant: Option<Mutant>) -> usize {
    let options = ExploreOptions {
        ops: 60,
        seed: 3,
        exhaustive_limit: 16,
        samples: 8,
        crash_in_recovery_every: 3,
        violation_limit: 1,
        mutant,
        ..ExploreOptions::default()
    };
    let only = Some("fptree:u64");
    let report =
        explore_structure(Structure::Index(IndexKind::FpTree), only, &options, &|_| {}).unwrap();
    println!("{mutant:?}: {} images, {:?}", report.images, report.violations.first());
    report.violations.len()
}

#[test]
fn recovery_survives_power_cuts() {
    assert_eq!(violations(None), 0);
}

#[test]
fn what_is_replayed_is_durable_before_the_record_is_cleared() {
    assert_eq!(violations(Some(mutants::REPLAY_NOT_PERSISTED)), 1);
}

#[test]
fn a_record_that_was_replayed_is_cleared_durably() {
    assert_eq!(violations(Some(mutants::REPLAYED_MICRO_LOG_NOT_RESET)), 1);
}
