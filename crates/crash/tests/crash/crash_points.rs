//! The power is cut everywhere: in creation, operations, shutdown, opening, growth of the pool and of
//! a table, and again in the recovery; and what an image costs follows the lines that differ.

use lapis_blocks::LogKind;
use lapis_crash::subjects::IndexSubject;
use lapis_crash::{ExploreOptions, ExploreReport, Phase, Structure, explore, explore_structure};
use lapis_index::{IndexKind, IndexOptions};

/// Few images at each of many crash points.
fn options(ops: usize) -> ExploreOptions {
    ExploreOptions {
        ops,
        exhaustive_limit: 8,
        samples: 4,
        crash_in_recovery_every: 64,
        ..ExploreOptions::default()
    }
}

fn explored(structure: Structure, only: Option<&str>, options: &ExploreOptions) -> ExploreReport {
    let report = explore_structure(structure, only, options, &|_| {}).unwrap();
    let found: Vec<_> = report.violations.iter().map(|it| (&it.what, &it.replay)).collect();
    assert!(found.is_empty(), "{found:#?}");
    report
}

#[test]
fn the_power_is_cut_in_creation_operations_shutdown_and_opening() {
    let report = explored(Structure::Index(IndexKind::Wort), Some("wort:u64"), &options(70));
    for phase in [Phase::Creation, Phase::Operation, Phase::Close, Phase::Open] {
        let points = report.crash_points_in.get(&phase).copied().unwrap_or(0);
        assert!(points >= 1, "{phase:?}: {points} of {:?}", report.crash_points_in);
    }
}

#[test]
fn the_power_is_cut_while_the_pool_grows_and_while_a_recovery_grows_it() {
    let options = ExploreOptions { crash_in_recovery_every: 8, ..options(120) };
    let report = explored(Structure::Allocator, Some("allocator:growing"), &options);
    assert!(report.crash_points_in[&Phase::Growth] >= 6, "{:?}", report.crash_points_in);
    assert!(report.grown_recoveries >= 3, "{} recoveries grew", report.grown_recoveries);
}

#[test]
fn the_power_is_cut_while_a_table_grows() {
    let report = explored(Structure::Index(IndexKind::PClht), Some("p-clht:u64"), &options(60));
    let resizing = report.fences.iter().filter(|(fence, _)| fence.file.contains("p_clht/resize"));
    let points: u64 = resizing.map(|(_, count)| count).sum();
    assert!(points >= 2, "{:?}", report.fences);
}

#[test]
fn the_power_is_cut_again_in_recoveries() {
    let options = ExploreOptions { crash_in_recovery_every: 16, ..options(20) };
    for structure in
        [Structure::Index(IndexKind::Wort), Structure::Log(LogKind::PopLog), Structure::Allocator]
    {
        let report = explored(structure, None, &options);
        assert!(report.images_in_recovery > 50, "{structure}: {}", report.images_in_recovery);
    }
}

#[test]
fn an_image_costs_the_same_in_a_large_pool_as_in_a_small_one() {
    let explore_in = |pool_bytes: usize| {
        let options = ExploreOptions { first_operation: 1, ..options(40) };
        let subject =
            IndexSubject::<u64>::new(IndexKind::Wort, "wort", &[], IndexOptions::default(), 90);
        explore(&subject.in_pool_of(pool_bytes), &options, &|_| {}).unwrap()
    };
    let (small, large) = (explore_in(8 << 20), explore_in(64 << 20));
    assert_eq!(
        (small.crash_points, small.images, small.lines_copied),
        (large.crash_points, large.images, large.lines_copied)
    );
    let lines = small.lines_copied / small.images;
    assert!(lines < 100, "{lines} lines per image");
}
