//! Every structure with several workers: histories on random schedules, crashed in their middle, are
//! durably linearizable.

use lapis_crash::Structure;
use lapis_crash::concurrent::{
    ConcurrentOptions, ConcurrentReport, explore_structure_concurrently,
};

fn explore(structure: Structure, options: &ConcurrentOptions) -> ConcurrentReport {
    explore_structure_concurrently(structure, None, options, &|_| ()).unwrap()
}

fn survives(structure: Structure, options: ConcurrentOptions) {
    let report = explore(structure, &options);
    eprintln!(
        "{structure}: {} schedules, {} events, {} points, {} images, {} states, {:.1} s",
        report.schedules,
        report.events,
        report.crash_points,
        report.images,
        report.distinct_states,
        report.seconds
    );
    for violation in &report.violations {
        eprintln!(
            "! {} {:?}\n  {}\n  {}",
            violation.subject, violation.operation, violation.what, violation.replay
        );
    }
    assert!(report.violations.is_empty());
    assert!(report.images > 0);
}

fn few(schedules: u64) -> ConcurrentOptions {
    ConcurrentOptions { schedules, threads: 1, ..ConcurrentOptions::default() }
}

#[test]
#[ignore]
fn probe_points() {
    for structure in Structure::ALL {
        let all = explore(structure, &few(100));
        for point in all.persist_points {
            let started = std::time::Instant::now();
            let report = explore(
                structure,
                &ConcurrentOptions { suppress: Some(point), violation_limit: 1, ..few(400) },
            );
            eprintln!(
                "{structure} {point}: {} ({} schedules, {:.1}s)",
                report.violations.first().map_or("SURVIVED".to_owned(), |v| format!(
                    "seed {} {} {:?}",
                    v.seed, v.subject, v.position
                )),
                report.schedules,
                started.elapsed().as_secs_f64()
            );
        }
    }
}

#[test]
fn the_allocator_is_durably_linearizable() {
    survives(Structure::Allocator, few(40));
}

#[test]
fn wort_is_durably_linearizable() {
    survives(Structure::Wort, few(40));
}

#[test]
fn fast_fair_is_durably_linearizable() {
    survives(Structure::FastFair, few(60));
}

#[test]
fn p_clht_is_durably_linearizable() {
    survives(Structure::PClht, few(60));
}

#[test]
fn pop_log_is_durably_linearizable() {
    survives(Structure::PopLog, few(40));
}

#[test]
fn the_store_is_durably_linearizable() {
    survives(Structure::Store, few(20));
}
