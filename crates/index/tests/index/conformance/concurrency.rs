//! Many threads at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::harness::{Keys, On, Tested, assert_sound, entries, many, so_many};

const THREADS: u64 = 4;
/// Keys that are looked up at the same time.
const LOOK_UPS: u64 = 6;

fn spread<K: Keys + ?Sized>(number: u64) -> K::Buf {
    K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Each thread owns the keys of one residue and knows what every operation on them must say, while
/// the others change the nodes around them.
pub fn four_threads_change_their_own_keys<K: Keys + ?Sized>(tested: Tested) {
    for index in tested.geometries::<K>() {
        own_keys(&index, so_many(1500), |_, random| random.random_range(0..10) < 6);
    }
}

/// The same with few keys, which come and go in waves, while threads are held up in the middle of
/// what they do: between two steps of a split or a merge, whole neighbourhoods change.
pub fn threads_that_are_held_up_keep_their_keys<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.with_hold_ups::<K>();
    own_keys(&index, 60, |step, random| {
        random.random_range(0..10) < if step / 250 % 2 == 0 { 6 } else { 4 }
    });
}

/// `comes` says of a step whether its key is to be there rather than not.
fn own_keys<K: Keys + ?Sized>(
    index: &On<K>,
    keys_per_thread: u64,
    comes: impl Fn(u64, &mut StdRng) -> bool + Sync,
) {
    let expected = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let comes = &comes;
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(thread);
                    let mut mine: BTreeMap<K::Buf, u64> = BTreeMap::new();
                    let own = (0..keys_per_thread).map(|it| spread::<K>(it * THREADS + thread));
                    let own: BTreeSet<K::Buf> = own.collect();
                    for step in 0..so_many(6000) {
                        let number = random.random_range(0..keys_per_thread);
                        let buf = spread::<K>(number * THREADS + thread);
                        let (key, before) = (K::borrow(&buf), mine.get(&buf).copied());
                        let comes = comes(step, &mut random);
                        match random.random_range(0..8u32) {
                            0 if step.is_multiple_of(keys_per_thread / 8) => {
                                let mut found: Vec<_> = entries(index);
                                found.retain(|(key, _)| own.contains(key));
                                found.sort();
                                assert!(found.iter().map(|(key, value)| (key, value)).eq(&mine));
                            }
                            0 => assert_eq!(index.get(key), before),
                            1 => {
                                let first = number - number % LOOK_UPS;
                                let keys: Vec<_> = (first..first + LOOK_UPS)
                                    .map(|number| spread::<K>(number * THREADS + thread))
                                    .collect();
                                let expected: Vec<_> =
                                    keys.iter().map(|key| mine.get(key).copied()).collect();
                                assert_eq!(many::<_, K>(index, &keys), expected);
                            }
                            2 => {
                                assert_eq!(index.update(key, step).unwrap().previous, before);
                                mine.entry(buf).and_modify(|value| *value = step);
                            }
                            3 if comes => {
                                assert_eq!(index.put(key, step).unwrap().previous, before);
                                mine.insert(buf, step);
                            }
                            _ if comes => {
                                assert_eq!(index.insert(key, step).unwrap().previous, before);
                                mine.entry(buf).or_insert(step);
                            }
                            _ => {
                                assert_eq!(index.remove(key).unwrap().previous, before);
                                mine.remove(&buf);
                            }
                        }
                    }
                    mine
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_sound(index, &expected);
}

pub fn readers_never_see_a_value_go_back<K: Keys + ?Sized>(tested: Tested) {
    const KEYS: u64 = 8;
    let index = tested.in_memory::<K>();
    for number in 0..KEYS {
        let _ = index.insert(K::borrow(&spread::<K>(number)), 0).unwrap();
    }
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = [0; KEYS as usize];
                while !done.load(Ordering::Relaxed) {
                    for number in 0..KEYS {
                        let floor = acknowledged[number as usize].load(Ordering::Acquire);
                        let value = index.get(K::borrow(&spread::<K>(number))).unwrap();
                        let seen = &mut seen[number as usize];
                        assert!(value >= floor && value >= *seen, "{value} after {seen}, {floor}");
                        *seen = value;
                    }
                }
            });
        }
        for value in 1..so_many(4000) {
            for number in 0..KEYS {
                let _ = index.update(K::borrow(&spread::<K>(number)), value).unwrap();
                acknowledged[number as usize].store(value, Ordering::Release);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Each insertion and removal of four threads that reports success is counted; what is left must be
/// the difference.
pub fn four_threads_change_the_same_keys<K: Keys + ?Sized>(tested: Tested) {
    tested.geometries::<K>().into_iter().for_each(same_keys::<K>);
}

fn same_keys<K: Keys + ?Sized>(index: On<K>) {
    const KEYS: u64 = so_many(600);
    let balance: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (index, balance) = (&index, &balance);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(thread);
                for round in 0..so_many(8000) {
                    let number = random.random_range(0..KEYS);
                    let (key, balance) = (K::number(number), &balance[number as usize]);
                    // Runs of insertions and of removals, so that nodes fill and empty.
                    let others = u64::from(random.random_range(0..4) == 3);
                    if (round / so_many(500) + others).is_multiple_of(2) {
                        let previous = index.insert(K::borrow(&key), number).unwrap().previous;
                        balance.fetch_add(u64::from(previous.is_none()), Ordering::Relaxed);
                    } else {
                        let previous = index.remove(K::borrow(&key)).unwrap().previous;
                        balance.fetch_sub(u64::from(previous.is_some()), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let left = (0..KEYS).filter(|&number| match balance[number as usize].load(Ordering::Relaxed) {
        0 => false,
        1 => true,
        other => panic!("key {number} was inserted {other} times more often than removed"),
    });
    assert_sound(&index, &left.map(|number| (K::number(number), number)).collect());
}

/// Two threads add and remove keys, so that nodes are split, replaced and freed; two look for keys
/// that stay, by searching and by iterating.
pub fn keys_that_stay_are_found_while_others_come_and_go<K: Keys + ?Sized>(tested: Tested) {
    tested.geometries::<K>().into_iter().for_each(staying_keys::<K>);
}

fn staying_keys<K: Keys + ?Sized>(index: On<K>) {
    const STAYING: u64 = so_many(300);
    let staying: BTreeMap<K::Buf, u64> =
        (0..STAYING).map(|number| (spread::<K>(number), !number)).collect();
    for (key, value) in &staying {
        let _ = index.insert(K::borrow(key), *value).unwrap();
    }
    let running = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (index, running) = (&index, &running);
            scope.spawn(move || {
                for round in 0..2 {
                    let numbers = || (0..so_many(4000)).map(|number| STAYING + number * 2 + thread);
                    for number in numbers() {
                        let outcome = index.insert(K::borrow(&spread::<K>(number)), round).unwrap();
                        assert_eq!(outcome.previous, None);
                    }
                    for number in numbers() {
                        let outcome = index.remove(K::borrow(&spread::<K>(number))).unwrap();
                        assert_eq!(outcome.previous, Some(round));
                    }
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) > 0 {
                for (key, value) in &staying {
                    assert_eq!(index.get(K::borrow(key)), Some(*value), "{key:?}");
                }
            }
        });
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) > 0 {
                let mut found: Vec<_> = entries(&index);
                found.retain(|(key, _)| staying.contains_key(key));
                found.sort();
                assert!(found.iter().map(|(key, value)| (key, value)).eq(&staying));
            }
        });
    });
    assert_sound(&index, &staying);
}

/// Every value put is unique, so each may be what exactly one operation says it replaced or
/// removed.
pub fn one_key_contended_by_four_threads_has_one_history<K: Keys + ?Sized>(tested: Tested) {
    const STEPS: u64 = so_many(2000);
    let index = tested.in_memory::<K>();
    let buf = spread::<K>(5);
    let mut histories: Vec<(u64, Option<u64>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (index, key) = (&index, K::borrow(&buf));
                scope.spawn(move || {
                    (0..STEPS)
                        .map(|step| {
                            let value = thread * STEPS + step;
                            if step % 5 == 4 {
                                (u64::MAX, index.remove(key).unwrap().previous)
                            } else {
                                (value, index.put(key, value).unwrap().previous)
                            }
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    histories.push((u64::MAX, index.get(K::borrow(&buf))));
    let mut put: Vec<u64> = histories.iter().map(|(value, _)| *value).collect();
    let mut ended: Vec<u64> = histories.iter().filter_map(|(_, previous)| *previous).collect();
    put.retain(|value| *value != u64::MAX);
    put.sort_unstable();
    ended.sort_unstable();
    assert!(put == ended, "{} values were put, {} ended", put.len(), ended.len());
}
