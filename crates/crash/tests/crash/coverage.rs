//! What of the sources is passed: nothing that is passed is unknown, and every event happens to every
//! structure.

use lapis_crash::{
    Coverage, ExploreOptions, Structure, explore_further, known_persist_points, structure_points,
};

/// Runs of the default length at most, and the images that are spread over each: enough for recoveries of all kinds.
fn runs_and_images(structure: Structure) -> (u64, u64) {
    match structure {
        // An image of it is dear: it has half a gigabyte where one table of chunks does not do.
        Structure::Allocator => (1, 100),
        _ => (2, 600),
    }
}

/// Without any crash: what runs pass is in the list that was made without running anything.
fn all_that_is_passed_is_known(structure: Structure) {
    let options = ExploreOptions { ops: 150, ..ExploreOptions::default() };
    let passed = structure_points(structure, None, &options).unwrap();
    let unknown: Vec<_> = passed
        .iter()
        // What the checker flushes itself, to make the structures, is no part of them.
        .filter(|point| !point.file.contains("crates/crash/"))
        .filter(|point| !known_persist_points().contains(point))
        .map(ToString::to_string)
        .collect();
    assert!(!passed.is_empty() && unknown.is_empty(), "{structure}: {unknown:#?}");
}

/// Events that a structure does not come to in this test: most are those of others that share its body.
fn not_come_to(structure: Structure) -> &'static [&'static str] {
    const OF_MICRO_LOGS: &[&str] = &[
        "a log goes with its page",
        "a log is applied when the store is opened",
        "a page is written by way of its log",
        "the log of a page that is gone is cleared",
    ];
    match structure.name() {
        "art-cow" => &["a stale header is made right"],
        "header-log" => &["a truncation is completed", "what a torn entry left is zeroed"],
        "rawl" => &["a truncation is completed"],
        "page-cow" => OF_MICRO_LOGS,
        "page-hybrid" => &["a torn page is given up"],
        "page-mulog" => {
            &["a page is copied", "a torn page is given up", "an outdated copy goes with its page"]
        }
        // It happens to it, and not in runs of this length.
        "fast-fair" => &["a bare inner node leaves"],
        // Likewise: after a power cut (`p_bwtree_goes_on_with_nodes_of_more_entries_than_fit`).
        "p-bwtree" => &["a node takes the entries of its right neighbour, more than fit"],
        _ => &[],
    }
}

/// Flushes, fences and non-temporal copies that a structure does not come to in this test: most are those of others that
/// share its body. No index that is not here misses any.
fn not_passed(structure: Structure) -> usize {
    match structure.name() {
        // What is left of a table that is written as a whole.
        "p-clht" => 1,
        // A byte string, after leaves were made room for while nothing was pinned.
        "nv-tree" => 1,
        "classic-log" => 3,
        "header-log" => 13,
        "rawl" => 14,
        "pop-log" => 1,
        "pop-ring" => 6,
        "cow-cell" | "log-cell" => 1,
        "page-cow" => 13,
        "page-hybrid" => 5,
        "page-mulog" => 7,
        "block-log" | "allocator" => 2,
        "fp-leaves" => 4,
        _ => 0,
    }
}

fn every_event_happens(structure: Structure) {
    let mut coverage = Coverage::default();
    let (runs, spread_images) = runs_and_images(structure);
    for seed in 1..=runs {
        let options = ExploreOptions {
            seed,
            spread_images,
            crash_in_recovery_every: 256,
            threads: 1,
            long_runs: true,
            ..ExploreOptions::default()
        };
        let report = explore_further(structure, None, &options, 0, &|_| {}).unwrap();
        coverage.add(report.coverage);
        let (points, events) = (coverage.missed_points().count(), coverage.missed_events().count());
        if points <= not_passed(structure) && events <= not_come_to(structure).len() {
            break;
        }
    }
    let points: Vec<_> = coverage.missed_points().map(|point| point.to_string()).collect();
    assert_eq!(points.len(), not_passed(structure), "{structure} never passes {points:#?}");
    assert_eq!(coverage.missed_events().collect::<Vec<_>>(), not_come_to(structure), "{structure}");
    all_that_is_passed_is_known(structure);
}

mod every_event_happens_to {
    for_each_structure! { ($) super::every_event_happens }
}

#[test]
fn every_event_happens_to_the_allocator() {
    every_event_happens(Structure::Allocator);
}

#[test]
fn every_event_happens_to_the_block_log() {
    every_event_happens(Structure::BlockLog);
}

#[test]
fn every_event_happens_to_the_leaves() {
    every_event_happens(Structure::FpLeaves);
}
