//! Threads in a pool far smaller than the tree, and in one that has room for all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_buffer::{BufferManager, BufferOptions, Placement};
use lapis_pmem::Hardware;
use lapis_tree::{NoStructureLog, Tree};

use crate::model::{forwards, report};
use crate::{LAYOUTS, Random, hardware, options, pool, tiered_pool};

type Memory = Tree<Hardware, NoStructureLog>;

const WORKERS: u64 = 4;
const KEYS: u64 = 4000;

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Each worker has keys of its own, which it puts, removes and finds again, next to those of the others. A
/// cursor goes back and forth meanwhile, and one thread writes back.
fn torment(tree: &Memory, manager: &BufferManager<Hardware>, rounds: u64) -> Vec<Vec<Option<u64>>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn(move || {
                    let mut random = Random(worker);
                    let mut mine = vec![None; (KEYS / WORKERS) as usize];
                    let mut value = Vec::new();
                    for round in 0..rounds {
                        let at = random.below(KEYS / WORKERS);
                        let key = key(at * WORKERS + worker);
                        let is_there = mine[at as usize].is_some();
                        // At times the tree grows, at times it shrinks.
                        match random.below(8) {
                            0..3 => {
                                let bytes = 8 * (1 + round % 12) as usize;
                                tree.put(&key, &round.to_le_bytes().repeat(bytes / 8), 0, None)
                                    .unwrap();
                                mine[at as usize] = Some(round);
                            }
                            3..6 if round / (rounds / 4) % 2 == 1 => {
                                assert_eq!(tree.remove(&key, 0, None).unwrap(), is_there);
                                mine[at as usize] = None;
                            }
                            _ => {
                                assert_eq!(tree.get(&key, &mut value).unwrap(), is_there);
                                let found = value.first_chunk().filter(|_| is_there);
                                assert_eq!(
                                    found.map(|it| u64::from_le_bytes(*it)),
                                    mine[at as usize]
                                );
                            }
                        }
                    }
                    mine
                })
            })
            .collect();
        scope.spawn(|| {
            let mut cursor = tree.cursor();
            while !stop.load(Ordering::Relaxed) {
                let mut last = Vec::new();
                cursor.seek(core::ops::Bound::Unbounded).unwrap();
                while let Some((key, _)) = cursor.next().unwrap() {
                    assert!(last.is_empty() || last[..] < *key);
                    last = key.to_vec();
                }
                while let Some((key, _)) = cursor.prev().unwrap() {
                    assert!(last[..] >= *key);
                    last = key.to_vec();
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if !manager.write_back_early().unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        joined.into_iter().map(|outcome| outcome.unwrap()).collect()
    })
}

fn assert_right(tree: &Memory, of_workers: &[Vec<Option<u64>>]) {
    let mut expected = Vec::new();
    for (worker, mine) in of_workers.iter().enumerate() {
        for (at, round) in mine.iter().enumerate() {
            let key = key(at as u64 * WORKERS + worker as u64);
            expected.extend(round.map(|round| (key.to_vec(), round)));
        }
    }
    expected.sort();
    let read = forwards(tree).into_iter();
    let read = read.map(|(key, value)| (key, u64::from_le_bytes(*value.first_chunk().unwrap())));
    assert_eq!(read.collect::<Vec<_>>(), expected);
    report(tree);
}

#[test]
fn threads_lose_nothing_in_a_pool_far_smaller_than_the_tree() {
    for leaves in LAYOUTS {
        let manager = pool(48);
        let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
        let found = torment(&tree, &manager, 12_000);
        assert_right(&tree, &found);
        let statistics = manager.statistics();
        assert!(statistics.evictions > 5000 && statistics.restarts > 0, "{statistics:?}");
    }
}

#[test]
fn threads_lose_nothing_with_persistent_memory_between() {
    let placements = Placement::ALL.into_iter().filter(|it| it.has_persistent_memory());
    for (placement, leaves) in placements.flat_map(|it| LAYOUTS.map(|leaves| (it, leaves))) {
        let manager = tiered_pool(&options(24), 40, placement);
        let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
        let found = torment(&tree, &manager, 12_000);
        assert_right(&tree, &found);
        let statistics = manager.statistics();
        println!("{placement}: {statistics:?}");
        let tier = statistics.tier;
        assert!(tier.loads > 1000 && tier.evictions > 500, "{placement}: {statistics:?}");
        let by_lines = placement != Placement::BasicNvm;
        assert_eq!(tier.lines_written > 1000, by_lines, "{placement}: {statistics:?}");
    }
}

#[test]
fn threads_lose_nothing_in_memory() {
    let options = BufferOptions { frames: 1024, ..options(0) };
    for leaves in LAYOUTS {
        let manager = Arc::new(BufferManager::in_memory(hardware(), &options).unwrap());
        let tree = Tree::create_with(Arc::clone(&manager), NoStructureLog, leaves).unwrap();
        let found = torment(&tree, &manager, 60_000);
        assert_right(&tree, &found);
    }
}
