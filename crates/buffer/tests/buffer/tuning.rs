//! Chances that are tuned come to cost less than those that they begin with, for pages that are used in different ways.

use lapis_buffer::{MigrationStatistics, Placement};

use crate::pool::{add, allocate, total};
use crate::tier::{Media, OPTIONS};

const ROUND: u64 = 500;

/// How pages are used: how many, of which the first are used more often, and how many of a hundred uses change them.
#[derive(Clone, Copy, Debug)]
struct Use {
    pages: usize,
    changes_of_100: u64,
}

/// What a thousand of the last operations cost, and what became of the chances.
fn used(how: Use, placement: &str, rounds: u64) -> (u64, MigrationStatistics) {
    let placement: Placement = placement.parse().unwrap();
    let manager = Media::new(&OPTIONS).create(placement);
    let pages = allocate(&manager, how.pages);
    manager.write_all().unwrap();
    let mut random = 1u64;
    let mut draw = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut cost_before = 0;
    let last = rounds / 4;
    for round in 1..=rounds {
        for _ in 0..ROUND {
            let page = pages[draw(how.pages as u64).min(draw(how.pages as u64)) as usize];
            if draw(100) < how.changes_of_100 {
                add(&manager, page, 1);
            } else {
                total(&manager, page).unwrap();
            }
        }
        assert_eq!(
            manager.tune(round * ROUND),
            placement.migration().unwrap().tuned_each.is_some()
        );
        manager.write_back_early().unwrap();
        if round == rounds - last {
            cost_before = manager.statistics().cost_ns(OPTIONS.page_bytes);
        }
    }
    let statistics = manager.statistics();
    let cost = statistics.cost_ns(OPTIONS.page_bytes) - cost_before;
    (cost * 1000 / (last * ROUND), statistics.tier.migration.unwrap())
}

/// Twice as many pages as persistent memory has room for, and they are read, or changed.
const USES: [Use; 2] =
    [Use { pages: 60, changes_of_100: 5 }, Use { pages: 60, changes_of_100: 95 }];

#[test]
fn tuned_chances_come_to_cost_less_whether_pages_are_read_or_changed_the_same_again() {
    for how in USES {
        let rounds = if cfg!(miri) { 4 } else { 120 };
        let (fixed, _) = used(how, "spitfire:0.2,0.9,0.2,0.5", rounds);
        let (tuned, found) = used(how, "spitfire:0.2,0.9,0.2,0.5,tuned=500", rounds);
        println!("{how:?}: {fixed} ns, tuned {tuned} ns, {}", found.chances);
        assert_eq!(found.rounds, rounds);
        assert!(cfg!(miri) || tuned * 100 < fixed * 85, "{how:?}: {tuned} for {fixed}");
    }
    assert_eq!(used(USES[1], "spitfire:tuned=500", 20), used(USES[1], "spitfire:tuned=500", 20));
}
