//! A violation of several workers shrinks to few calls on a short schedule, is told step by step
//! with who does what, and can be replayed by what its command says.

use lapis_crash::concurrent::{
    ConcurrentOptions, ConcurrentReplay, ConcurrentViolation, explore_structure_concurrently,
};
use lapis_crash::{PersistPoint, Shrunk, Structure};
use lapis_device::PersistKind;
use lapis_index::IndexKind;
use lapis_pmem::Mutant;

fn options() -> ConcurrentOptions {
    ConcurrentOptions {
        threads: 1,
        violation_limit: 1,
        exhaustive_limit: 16,
        samples: 8,
        shrink: true,
        ..ConcurrentOptions::default()
    }
}

fn first_violation(structure: Structure, options: &ConcurrentOptions) -> ConcurrentViolation {
    let report = explore_structure_concurrently(structure, None, options, &|_| ()).unwrap();
    report.violations.into_iter().next().expect("nothing is found")
}

/// The flush or fence of that kind that readers take in this file.
fn point(structure: Structure, file: &str, kind: PersistKind) -> PersistPoint {
    let options = ConcurrentOptions { schedules: 20, exhaustive_limit: 0, samples: 0, ..options() };
    let report = explore_structure_concurrently(structure, None, &options, &|_| ()).unwrap();
    let mut passed = report.persist_points.into_iter();
    passed.find(|point| point.file.ends_with(file) && point.kind == kind).unwrap()
}

/// What the command that shows the case again says.
fn commanded(shrunk: &Shrunk, options: &ConcurrentOptions) -> ConcurrentOptions {
    let after = |flag: &str| {
        let mut words = shrunk.replay.split(' ').skip_while(|word| *word != flag);
        words.nth(1).unwrap_or_else(|| panic!("no {flag} in {}", shrunk.replay))
    };
    let numbers = |text: &str| -> Vec<u32> {
        text.split(',').filter(|part| *part != "-").map(|part| part.parse().unwrap()).collect()
    };
    ConcurrentOptions {
        workers: after("--workers").parse().unwrap(),
        ops: after("--ops").parse().unwrap(),
        seed: after("--seed").parse().unwrap(),
        keep: Some(numbers(after("--keep"))),
        keep_before: Some(numbers(after("--keep-before"))),
        replay: ConcurrentReplay {
            schedule: Some(after("--schedule").parse().unwrap()),
            position: Some(after("--at").parse().unwrap()),
            image: Some(numbers(after("--image"))),
        },
        ..options.clone()
    }
}

/// Shrinks, and replays by what the command says.
fn shrinks(structure: Structure, options: &ConcurrentOptions) -> Shrunk {
    let found = first_violation(structure, options);
    let shrunk = found.shrunk.expect("it cannot be shown again");
    println!("{shrunk}\n({} runs)", shrunk.explorations);
    let again = explore_structure_concurrently(
        structure,
        Some(&shrunk.subject),
        &commanded(&shrunk, options),
        &|_| (),
    )
    .unwrap();
    assert_eq!(again.images, 1);
    let again = &again.violations[0];
    assert_eq!((&again.what, &again.rule.to_string()), (&shrunk.what, &shrunk.clause));
    // Asked for by its image it is told as it is: the same way.
    assert_eq!(again.shrunk.as_ref().unwrap().timeline.len(), shrunk.timeline.len());
    assert_eq!(again.shrunk.as_ref().unwrap().replay, shrunk.replay);
    shrunk
}

#[test]
fn a_reader_of_wort_that_flushes_nothing_shrinks_to_two_calls_of_two_workers() {
    let flush = point(Structure::Index(IndexKind::Wort), "pmem/src/answer.rs", PersistKind::Flush);
    let shrunk = shrinks(
        Structure::Index(IndexKind::Wort),
        &ConcurrentOptions { suppress: Some(flush), schedules: 600, ..options() },
    );
    let history = shrunk.history.as_ref().unwrap();
    assert_eq!((shrunk.operations.len(), history.workers), (2, 2));
    assert!(history.before.len() <= 2 && history.switches <= 2, "{history:?}");
    let text = shrunk.to_string();
    let order = [
        ", shrunk to 2 calls of 2 workers, ",
        "begins",
        " – lost",
        "is acknowledged: ",
        "✗ the power is cut ",
        "pending stores made it",
        "recovery and check read of line ",
        "! key ",
        "broken: what a read has answered with is there after the crash, or was replaced",
        "again: lapis crash wort:",
    ];
    let mut rest = text.as_str();
    for what in order {
        let at = rest.find(what);
        rest = &rest[at.unwrap_or_else(|| panic!("{what:?} is missing or too early:\n{text}"))..];
    }
    for worker in shrunk.operations.iter().filter_map(|call| call.worker) {
        assert!(text.contains(&format!("  w{worker:<3}call ")), "{text}");
        assert!(shrunk.page().contains(&format!("<td class=\"worker w{worker}\">{worker}</td>")));
    }
}

#[test]
fn a_reader_of_fast_fair_that_does_not_fence_shrinks_to_few_calls() {
    let fence =
        point(Structure::Index(IndexKind::FastFair), "pmem/src/answer.rs", PersistKind::Fence);
    let shrunk = shrinks(
        Structure::Index(IndexKind::FastFair),
        &ConcurrentOptions { suppress: Some(fence), schedules: 600, ..options() },
    );
    // A scan that another one's buffered stores and its own flushes of a whole node decide over.
    assert!(shrunk.operations.len() <= 5, "{:?}", shrunk.operations);
}

#[test]
fn a_fence_for_other_threads_shrinks_to_few_calls_of_several_workers() {
    let fence = point(Structure::Allocator, "pmem/src/domain.rs", PersistKind::Fence);
    let shrunk = shrinks(
        Structure::Allocator,
        &ConcurrentOptions { suppress: Some(fence), schedules: 600, ..options() },
    );
    assert!(shrunk.operations.len() <= 4, "{:?}", shrunk.operations);
    assert!(shrunk.history.unwrap().workers >= 2);
}

#[test]
fn a_mutant_that_one_worker_shows_shrinks_to_calls_of_one() {
    let mutant = Some(Mutant("wort/missing-leaf-flush"));
    let shrunk =
        shrinks(Structure::Index(IndexKind::Wort), &ConcurrentOptions { mutant, ..options() });
    assert!(shrunk.replay.contains(" --mutant wort/missing-leaf-flush "), "{}", shrunk.replay);
    let history = shrunk.history.unwrap();
    assert_eq!((shrunk.operations.len(), history.workers, history.switches), (1, 1, 0));
    assert_eq!(history.deviations, Some(0));
}

#[test]
fn shrinking_several_workers_comes_to_the_same_case_every_time() {
    let mutant = Some(Mutant("p-clht/unflushed-next-pointer"));
    let options = ConcurrentOptions { mutant, ..options() };
    let shrink = || {
        first_violation(Structure::Index(IndexKind::PClht), &options).shrunk.unwrap().to_string()
    };
    assert_eq!(shrink(), shrink());
}
