//! A violation shrinks to few operations and few lines, is told step by step, and can be replayed.

use lapis_crash::{
    ExploreOptions, Replay, Shrunk, Structure, Violation, explore_structure, structure_points,
};
use lapis_device::PersistKind;
use lapis_index::IndexKind;

/// Explores without the first flush of a source file, and shrinks what that leads to.
fn without(structure: Structure, file: &str, kind: PersistKind) -> (ExploreOptions, Violation) {
    let options = ExploreOptions { ops: 80, shrink: true, ..ExploreOptions::default() };
    let points = structure_points(structure, None, &options).unwrap();
    let point = points.into_iter().find(|point| point.file.contains(file) && point.kind == kind);
    let options = ExploreOptions { suppress: point, violation_limit: 1, threads: 1, ..options };
    let report = explore_structure(structure, None, &options, &|_| {}).unwrap();
    (options, report.violations.into_iter().next().expect("it is not necessary"))
}

fn replayed(options: &ExploreOptions, structure: Structure, shrunk: &Shrunk) -> Vec<Violation> {
    let after = |flag: &str| {
        let mut words = shrunk.replay.split(' ').skip_while(|word| *word != flag);
        words.nth(1).unwrap().to_owned()
    };
    let numbers = |text: &str| -> Vec<usize> {
        text.split(',').filter(|part| *part != "-").map(|part| part.parse().unwrap()).collect()
    };
    let image = numbers(&after("--image")).into_iter().map(|choice| choice as u32).collect();
    let options = ExploreOptions {
        keep: Some(numbers(&after("--keep"))),
        replay: Some(Replay { position: after("--at").parse().unwrap(), image: Some(image) }),
        shrink: false,
        ..options.clone()
    };
    explore_structure(structure, Some(&shrunk.subject), &options, &|_| {}).unwrap().violations
}

#[test]
fn a_missing_flush_of_wort_shrinks_to_few_operations_and_is_replayed() {
    let (options, violation) =
        without(Structure::Index(IndexKind::Wort), "index/src/wort", PersistKind::Flush);
    let shrunk = violation.shrunk.unwrap();
    println!("{shrunk}");
    assert!(shrunk.operations.len() <= 3, "{:?}", shrunk.operations);
    let again = replayed(&options, Structure::Index(IndexKind::Wort), &shrunk);
    assert_eq!(again.first().map(|found| &found.what), Some(&shrunk.what));
}

#[test]
fn a_timeline_tells_the_operation_the_events_the_crash_and_what_was_wrong() {
    let (_, violation) =
        without(Structure::Index(IndexKind::Wort), "index/src/radix", PersistKind::Flush);
    let text = violation.shrunk.unwrap().to_string();
    let order = [
        "wort:u64, shrunk to 1 operation:",
        "the creation is acknowledged",
        "operation 1: ",
        "store 16 bytes at ",
        " – lost",
        "fence  ",
        "store in order 8 bytes at ",
        " – made it",
        "flush line ",
        "crates/index/src/radix/",
        "✗ the power is cut before the next fence",
        "pending stores made it",
        "recovery and check read of line ",
        "! its contents are wrong: ",
        "broken: acknowledged operations are there",
        "again: lapis crash wort:u64 --ops 80 --seed 1 --keep 1 --without 'crates/",
    ];
    let mut rest = text.as_str();
    for what in order {
        let at = rest.find(what);
        rest = &rest[at.unwrap_or_else(|| panic!("{what:?} is missing or too early:\n{text}"))..];
    }
    // The number at the left is what `--at` takes, though a copy is one event of many stores.
    let cut = text.lines().find(|line| line.contains("✗ the power is cut")).unwrap();
    let at = cut.split_whitespace().next().unwrap();
    assert!(text.contains(&format!(" --at {at} --image ")), "{text}");
    // Every store that did not make it is told as lost, and nothing is both.
    assert!(!text.contains("partly lost"), "{text}");
}

#[test]
fn a_missing_fence_of_fast_fair_shrinks_to_few_operations_and_is_replayed() {
    let (options, violation) =
        without(Structure::Index(IndexKind::FastFair), "index/src/fast_fair", PersistKind::Fence);
    let shrunk = violation.shrunk.unwrap();
    println!("{shrunk}");
    assert!(shrunk.operations.len() <= 12, "{:?}", shrunk.operations);
    let again = replayed(&options, Structure::Index(IndexKind::FastFair), &shrunk);
    assert_eq!(again.first().map(|found| &found.what), Some(&shrunk.what));
}

#[test]
fn shrinking_comes_to_the_same_case_every_time() {
    let shrink = || {
        let (_, violation) =
            without(Structure::Index(IndexKind::Wort), "index/src/wort", PersistKind::Fence);
        violation.shrunk.unwrap().to_string()
    };
    assert_eq!(shrink(), shrink());
}
