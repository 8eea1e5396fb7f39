//! Real threads on one tree.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_pmem::Hardware;

use super::{ints, strings};
use crate::fast_fair::FastFair;
use crate::index::{Direction, Index, OrderedIndex};
use crate::key::IndexKey;

fn string(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

#[test]
fn disjoint_writers_all_succeed() {
    let tree = ints(256);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let tree = &tree;
            scope.spawn(move || {
                for key in (thread..20_000).step_by(4) {
                    assert_eq!(tree.insert(&key.hash64(), key).unwrap().previous, None);
                }
                for key in (thread..20_000).step_by(4) {
                    assert_eq!(tree.get(&key.hash64()), Some(key));
                    if key % 3 == 0 {
                        assert_eq!(tree.remove(&key.hash64()).unwrap().previous, Some(key));
                    }
                }
            });
        }
    });
    for key in 0..20_000u64 {
        assert_eq!(tree.get(&key.hash64()), (key % 3 != 0).then_some(key));
    }
    tree.assert_sound();
}

/// Each insertion and removal that reports success is counted; what is left must be the difference.
fn overlapping<K: IndexKey + ?Sized>(
    tree: &FastFair<Hardware, K>,
    key_of: impl Fn(u64) -> K::Buf + Sync,
) {
    let balance: Vec<i64> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let key_of = &key_of;
            move || {
                let mut balance = vec![0i64; 600];
                for round in 0..30_000u64 {
                    let draw = (thread << 32 | round).hash64();
                    // Runs of insertions and of removals, so that leaves fill and empty.
                    let number = (draw >> 8) % 600;
                    let key = key_of(number);
                    if (round / 1500 + draw % 4 / 3).is_multiple_of(2) {
                        let outcome = tree.insert(K::borrow(&key), number).unwrap();
                        balance[number as usize] += i64::from(outcome.previous.is_none());
                    } else {
                        let outcome = tree.remove(K::borrow(&key)).unwrap();
                        balance[number as usize] -= i64::from(outcome.previous.is_some());
                    }
                }
                balance
            }
        };
        let workers: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        let mut total = vec![0; 600];
        for worker in workers {
            for (sum, part) in total.iter_mut().zip(worker.join().unwrap()) {
                *sum += part;
            }
        }
        total
    });
    for (number, &left) in balance.iter().enumerate() {
        let found = tree.get(K::borrow(&key_of(number as u64)));
        assert_eq!(left, i64::from(found.is_some()), "{number}");
    }
    tree.assert_sound();
    for number in 0..600 {
        let _ = tree.remove(K::borrow(&key_of(number))).unwrap();
    }
    tree.assert_sound();
    assert_eq!(tree.statistics().blocks, 2);
}

#[test]
fn overlapping_writers_of_integers_lose_nothing() {
    overlapping::<u64>(&ints(256), |number| number);
}

#[test]
fn overlapping_writers_of_byte_strings_lose_nothing() {
    overlapping::<[u8]>(&strings(256), string);
}

/// Even keys are there all the time; odd keys come and go beside them.
fn steady_keys_are_always_found<K: IndexKey + ?Sized>(
    tree: &FastFair<Hardware, K>,
    key_of: impl Fn(u64) -> K::Buf + Sync,
) {
    const KEYS: u64 = 200;
    for number in (0..KEYS).step_by(2) {
        let _ = tree.insert(K::borrow(&key_of(number)), number).unwrap();
    }
    let done = AtomicBool::new(false);
    let key_of = &key_of;
    let done = &done;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for round in 0..40_000u64 {
                let number = (round.hash64() % KEYS) | 1;
                let key = key_of(number);
                if tree.insert(K::borrow(&key), number).unwrap().previous.is_some() {
                    let _ = tree.remove(K::borrow(&key)).unwrap();
                }
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                for number in (0..KEYS).step_by(2) {
                    assert_eq!(tree.get(K::borrow(&key_of(number))), Some(number));
                }
            }
        });
        for direction in [Direction::Forward, Direction::Backward] {
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let mut seen = Vec::new();
                    tree.scan(Bound::Unbounded, direction, &mut |key, value| {
                        assert_eq!(key.to_buf(), key_of(value));
                        seen.push(value);
                        ControlFlow::Continue(())
                    });
                    if direction == Direction::Backward {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|left, right| left < right));
                    let seen: BTreeSet<u64> = seen.into_iter().collect();
                    assert!((0..KEYS).step_by(2).all(|number| seen.contains(&number)));
                }
            });
        }
        writer.join().unwrap();
    });
    tree.assert_sound();
}

#[test]
fn readers_never_miss_an_integer_that_is_always_there() {
    steady_keys_are_always_found::<u64>(&ints(256), |number| number);
    steady_keys_are_always_found::<u64>(&ints(4096), |number| number);
}

#[test]
fn readers_never_miss_a_byte_string_that_is_always_there() {
    steady_keys_are_always_found::<[u8]>(&strings(256), string);
}

#[test]
fn readers_see_old_or_new_values_only() {
    let tree = ints(256);
    for key in 0..100 {
        let _ = tree.insert(&key, key << 32).unwrap();
    }
    std::thread::scope(|scope| {
        let tree = &tree;
        scope.spawn(move || {
            for round in 0..50_000u64 {
                let key = round % 100;
                let _ = tree.update(&key, key << 32 | round).unwrap();
            }
        });
        scope.spawn(move || {
            let mut last = vec![0; 100];
            for round in 0..50_000u64 {
                let key = round.hash64() % 100;
                let value = tree.get(&key).unwrap();
                assert_eq!(value >> 32, key);
                assert!(value >= last[key as usize], "values go back in time");
                last[key as usize] = value;
            }
        });
    });
}

#[test]
fn writers_repair_and_adopt_together_after_a_restart() {
    let tree = ints(256);
    for key in 0..4000u64 {
        let _ = tree.insert(&key.hash64(), key).unwrap();
    }
    for reopened in 1..6 {
        let tree = tree.reopened(reopened);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let tree = &tree;
                scope.spawn(move || {
                    for key in (0..4000u64).filter(|key| key % 4 == thread) {
                        assert_eq!(tree.remove(&key.hash64()).unwrap().previous, Some(key));
                        assert_eq!(tree.insert(&key.hash64(), key).unwrap().previous, None);
                    }
                });
            }
        });
        tree.assert_sound();
    }
}
