//! What of the sources is passed: nothing that is passed is unknown, and every event happens to every
//! structure.

use lapis_crash::{
    Coverage, ExploreOptions, Structure, explore_structure, known_persist_points, structure_points,
};

/// Runs of the default length.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Spread over each of them: enough for recoveries of all kinds.
const IMAGES: u64 = 600;

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
    ];
    match structure.name() {
        "art-cow" => &["a stale header is made right"],
        // It takes more than two levels, a pool without room, and more keys in one node that are far apart.
        "p-hot" => &[
            "a node of one mask and 32-bit partial keys",
            "a removal leaves an empty entry",
            "an intermediate node is created",
            "an intermediate node is created above a full one",
            "empty entries are taken out",
        ],
        // It takes more removals in one place than these runs have.
        "p-masstree" => &["an empty border node goes", "two interior nodes are joined"],
        // A pool without room, and a tree of which all is removed again: shorter runs come to that.
        "p-bwtree" => &["a change is made without room for a delta", "the mapping table shrinks"],
        "header-log" => &["a truncation is completed", "what a torn entry left is zeroed"],
        "rawl" => &["a truncation is completed"],
        "page-cow" => OF_MICRO_LOGS,
        "page-hybrid" => &["a torn page is given up"],
        "page-mulog" => {
            &["a page is copied", "a torn page is given up", "an outdated copy goes with its page"]
        }
        // These do happen to it, and not in runs of this length: it takes keys in order and more of them.
        "fast-fair" => &["a bare inner node leaves", "a new leaf behind a full one"],
        _ => &[],
    }
}

fn every_event_happens(structure: Structure) {
    // On a body whose other users come to all of it.
    if structure.name() == "p-art" {
        return all_that_is_passed_is_known(structure);
    }
    let mut coverage = Coverage::default();
    for seed in SEEDS {
        let options = ExploreOptions {
            seed,
            spread_images: IMAGES,
            crash_in_recovery_every: 256,
            threads: 1,
            long_runs: true,
            ..ExploreOptions::default()
        };
        let report = explore_structure(structure, None, &options, &|_| {}).unwrap();
        coverage.add(report.coverage);
    }
    for point in coverage.missed_points() {
        println!("{structure} never passes {point}");
    }
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
