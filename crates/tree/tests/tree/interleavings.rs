//! Trees on the modelled machine, whose scheduler explores the races of readers with splits, merges and
//! evictions: pages that are full with four records, in few frames.

use std::sync::Arc;

use lapis_buffer::{
    BufferManager, BufferOptions, NoLog, PersistentTier, Placement, Statistics, TierOptions,
};
use lapis_device::{
    Config, Modelled, ModelledSsd, RunEnd, SchedulePolicy, SsdConfig, WorkerProgram,
};
use lapis_pmem::{Pool, Region};
use lapis_tree::mutants::UNVALIDATED_READ;
use lapis_tree::{LeafLayout, NoStructureLog, Tree};

use crate::model::{forwards, report};
use crate::{LAYOUTS, options};

/// Keys that are there throughout: even ones. Writers put and remove odd ones between them.
const STEADY: u64 = 32;

fn key(number: u64) -> [u8; 8] {
    (number * 0x0101).to_be_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(100)
}

#[derive(Debug, Default)]
struct Happened {
    statistics: Statistics,
    splits: u64,
    merges: u64,
}

/// Two workers that put and remove between the steady keys, one that reads these, one that goes over all
/// of them with a cursor, one that writes back. What is wrong afterwards, and what happened.
fn run(
    config: Config,
    policy: &SchedulePolicy,
    placement: Placement,
    leaves: LeafLayout,
) -> (Result<(), String>, Happened) {
    let region = Region::anonymous(2 << 20, 2 << 20).unwrap();
    let machine = Modelled::over(&region, config);
    let device = ModelledSsd::attached_to(&machine, 1, SsdConfig::default()).unwrap();
    let (device, log) = (Arc::new(device), Arc::new(NoLog));
    let options = BufferOptions { most_changed_frames: 6, ..options(12) };
    let pool = Arc::new(Pool::create(region, machine.clone()).unwrap());
    let manager = if placement.has_persistent_memory() {
        let tier = TierOptions { frames: 8, page_bytes: 4096, lanes: 2, identity: 1 };
        let root = pool.fence(PersistentTier::create(&pool, &tier).unwrap()).release();
        let tier = PersistentTier::open(Arc::clone(&pool), root).unwrap();
        BufferManager::create_with_tier(tier, device, log, &options, placement)
    } else {
        BufferManager::create(machine.clone(), device, log, &options)
    };
    let manager = &Arc::new(manager.unwrap());
    let tree = &Tree::create_with(Arc::clone(manager), NoStructureLog, leaves).unwrap();
    for number in 0..STEADY {
        tree.put(&key(2 * number), &value(2 * number), 0, None).unwrap();
    }
    let before = tree.statistics();
    let writing = |first: u64| -> WorkerProgram<'_> {
        Box::new(move || {
            for number in (first..2 * STEADY).step_by(4) {
                tree.put(&key(number), &value(number), 0, None).unwrap();
            }
            for number in (first..2 * STEADY).step_by(4).filter(|number| number % 8 < 5) {
                assert!(tree.remove(&key(number), 0, None).unwrap());
            }
        })
    };
    let programs: Vec<WorkerProgram<'_>> = vec![
        writing(1),
        writing(3),
        Box::new(|| {
            let mut found = Vec::new();
            for number in (0..STEADY).chain(0..STEADY) {
                assert!(tree.get(&key(2 * number), &mut found).unwrap(), "{number} is gone");
                assert!(found == value(2 * number), "half of a change");
            }
        }),
        Box::new(|| {
            let (mut cursor, mut steady) = (tree.cursor(), 0);
            while let Some((found, value_of)) = cursor.next().unwrap() {
                let number = u64::from_be_bytes(found.try_into().unwrap()) / 0x0101;
                assert!(value_of == value(number), "half of a change");
                steady += u64::from(number.is_multiple_of(2));
            }
            assert_eq!(steady, STEADY, "a cursor passes over keys that were there all the time");
        }),
        Box::new(|| (0..4).for_each(|_| _ = manager.write_back().unwrap())),
    ];
    let end = machine.run_workers(policy, programs).end;
    let mut happened = Happened { statistics: manager.statistics(), ..Happened::default() };
    if end != RunEnd::Completed {
        return (Err(format!("{end:?}")), happened);
    }
    report(tree);
    let after = tree.statistics();
    happened.splits = after.splits - before.splits;
    happened.merges = after.merges - before.merges;
    let kept = (0..2 * STEADY).filter(|number| number % 2 == 0 || number % 8 >= 5);
    let expected: Vec<_> = kept.map(|number| (key(number).to_vec(), value(number))).collect();
    let outcome = if forwards(tree) == expected { Ok(()) } else { Err("records are gone".into()) };
    (outcome, happened)
}

/// Random schedules, and such as change workers seldom.
fn policies(seeds: u64) -> impl Iterator<Item = SchedulePolicy> {
    SchedulePolicy::of_seeds(seeds, 6, 4000)
}

#[test]
fn readers_splits_merges_and_evictions_lose_nothing_under_any_schedule() {
    for leaves in LAYOUTS {
        lose_nothing_under_any_schedule(Placement::Ssd, leaves);
    }
}

#[test]
fn with_persistent_memory_between_they_lose_nothing_either() {
    let spitfire = "spitfire:0.2,0.9,0.2,0.5".parse().unwrap();
    for placement in [Placement::BasicNvm, Placement::ThreeTier, spitfire] {
        for leaves in LAYOUTS {
            lose_nothing_under_any_schedule(placement, leaves);
        }
    }
}

fn lose_nothing_under_any_schedule(placement: Placement, leaves: LeafLayout) {
    let (mut total, mut splits, mut merges) = (Statistics::default(), 0, 0);
    for policy in policies(40) {
        let (outcome, happened) = run(Config::concurrent(), &policy, placement, leaves);
        assert_eq!(outcome, Ok(()), "{placement}, {leaves:?}, {policy:?}");
        total.evictions += happened.statistics.evictions;
        total.unswizzled += happened.statistics.unswizzled;
        total.restarts += happened.statistics.restarts;
        total.batches += happened.statistics.batches;
        total.tier.admissions += happened.statistics.tier.admissions;
        total.tier.loads += happened.statistics.tier.loads;
        total.tier.evictions += happened.statistics.tier.evictions;
        splits += happened.splits;
        merges += happened.merges;
    }
    println!("{placement}, {leaves:?}: {splits} splits, {merges} merges, {total:?}");
    assert!(splits > 500 && merges > 100, "{splits} splits, {merges} merges");
    assert!(total.evictions > 100 && total.unswizzled > 1000, "{total:?}");
    assert!(total.restarts > 1000 && total.batches > 100, "{total:?}");
    let tier = total.tier;
    let is_used = tier.admissions > 100 && tier.loads > 100 && tier.evictions > 100;
    assert_eq!(is_used, placement.has_persistent_memory(), "{total:?}");
}

#[test]
fn what_is_read_of_a_leaf_that_changes_and_not_validated_is_found() {
    let mutant = || Config::concurrent().committing(UNVALIDATED_READ);
    for leaves in LAYOUTS {
        let found =
            policies(150).find_map(|policy| run(mutant(), &policy, Placement::Ssd, leaves).0.err());
        println!("{leaves:?}: {found:?}");
        assert!(found.is_some());
    }
}
