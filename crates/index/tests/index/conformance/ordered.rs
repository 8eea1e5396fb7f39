//! Scans and ranges.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_index::Direction;

use super::harness::{Keys, On, Tested, entries, so_many};
use crate::hold_ups::pool_in_memory;

/// Above all keys of [`tens`], and ten times as many as they are.
const TENS: u64 = 10 * so_many(500);

/// An index of the keys 0, 10, 20, …, 4990 in no order of insertion, and its model.
fn tens<K: Keys + ?Sized>(tested: Tested) -> (On<K>, BTreeMap<K::Buf, u64>) {
    let index = tested.in_memory::<K>();
    let mut model = BTreeMap::new();
    for number in (0..TENS / 10).map(|number| number * 7 % (TENS / 10) * 10) {
        let key = K::number(number);
        assert_eq!(index.insert(K::borrow(&key), number).unwrap().previous, None);
        model.insert(key, number);
    }
    (index, model)
}

pub fn iteration_is_in_order<K: Keys + ?Sized>(tested: Tested) {
    let (index, model) = tens::<K>(tested);
    assert!(entries(&index).into_iter().eq(model));
}

fn borrowed<K: Keys + ?Sized>(bound: &Bound<K::Buf>) -> Bound<&K> {
    bound.as_ref().map(K::borrow)
}

pub fn ranges_of_all_bounds_in_both_directions<K: Keys + ?Sized>(tested: Tested) {
    let (index, model) = tens::<K>(tested);
    let numbers = [0, 5, 10, 640, 645, 650, 1280, 4985, 4990, 4995, u64::MAX];
    let bounds: Vec<Bound<K::Buf>> = numbers
        .iter()
        .flat_map(|&number| {
            [Bound::Included(K::number(number)), Bound::Excluded(K::number(number))]
        })
        .chain([Bound::Unbounded])
        .collect();
    let within = |key: &K::Buf, lower: &Bound<K::Buf>, upper: &Bound<K::Buf>| {
        (match lower {
            Bound::Included(lower) => key >= lower,
            Bound::Excluded(lower) => key > lower,
            Bound::Unbounded => true,
        }) && match upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
    };
    for lower in &bounds {
        for upper in &bounds {
            let mut expected: Vec<_> = model
                .iter()
                .filter(|(key, _)| within(key, lower, upper))
                .map(|(key, value)| (key.clone(), *value))
                .collect();
            let forward: Vec<_> = index
                .range(borrowed::<K>(lower), borrowed::<K>(upper), Direction::Forward)
                .collect();
            assert_eq!(forward, expected, "{lower:?} to {upper:?}");
            expected.reverse();
            let backward: Vec<_> = index
                .range(borrowed::<K>(lower), borrowed::<K>(upper), Direction::Backward)
                .collect();
            assert_eq!(backward, expected, "{upper:?} down to {lower:?}");
        }
    }
}

pub fn first_and_last<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    assert_eq!((index.first(Direction::Forward), index.first(Direction::Backward)), (None, None));
    for number in [500, 3, u64::MAX, 0, 70] {
        let _ = index.insert(K::borrow(&K::number(number)), number).unwrap();
    }
    assert_eq!(index.first(Direction::Forward), Some((K::number(0), 0)));
    assert_eq!(index.first(Direction::Backward), Some((K::number(u64::MAX), u64::MAX)));
    for number in [0, u64::MAX] {
        let _ = index.remove(K::borrow(&K::number(number))).unwrap();
    }
    assert_eq!(index.first(Direction::Forward), Some((K::number(3), 3)));
    assert_eq!(index.first(Direction::Backward), Some((K::number(500), 500)));
}

pub fn a_scan_from_a_key_that_is_absent<K: Keys + ?Sized>(tested: Tested) {
    let (index, model) = tens::<K>(tested);
    for number in (0..TENS + 10).step_by(5) {
        let from = K::number(number);
        for direction in [Direction::Forward, Direction::Backward] {
            let expected: Vec<u64> = match direction {
                Direction::Forward => model.range(from.clone()..).take(3).map(|e| *e.1).collect(),
                Direction::Backward => {
                    model.range(..=from.clone()).rev().take(3).map(|e| *e.1).collect()
                }
            };
            let mut found = Vec::new();
            index.scan(Bound::Included(K::borrow(&from)), direction, &mut |_, value| {
                found.push(value);
                if found.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(found, expected, "from {number} {direction:?}");
        }
    }
}

/// Multiples of ten stay; a writer adds and removes the numbers between them.
pub fn a_range_beside_a_writer_has_all_stable_keys_in_strict_order<K: Keys + ?Sized>(
    tested: Tested,
) {
    let (index, stable) = tens::<K>(tested);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..3u64 {
                for number in (0..TENS).filter(|number| number % 10 != 0) {
                    let key = K::number(number * 7 % TENS / 10 * 10 + number % 10);
                    let _ = index.put(K::borrow(&key), round).unwrap();
                }
                for number in (0..TENS).filter(|number| number % 10 != 0) {
                    let _ = index.remove(K::borrow(&K::number(number))).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        for direction in [Direction::Forward, Direction::Backward] {
            let (index, stable, done) = (&index, &stable, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let mut found: Vec<_> =
                        index.range(Bound::Unbounded, Bound::Unbounded, direction).collect();
                    if direction == Direction::Backward {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{direction:?}");
                    found.retain(|(key, _)| stable.contains_key(key));
                    assert_eq!(found.len(), stable.len(), "{direction:?}");
                    assert!(found.iter().map(|(key, value)| (key, value)).eq(stable));
                }
            });
        }
    });
    assert!(entries(&index).into_iter().eq(stable));
}

/// Steady keys that a scan is to find before it stops.
const ENOUGH: usize = 6;
/// Loads of a scan from one before which something changes to the next.
const STEP: usize = if cfg!(miri) { 97 } else { 1 };
/// A steady key far from the others: the only one that has its highest bit.
const FAR: u64 = 1 << 40;

/// Inserts or removes all of these.
fn come_or_go<K: Keys + ?Sized>(index: &On<K>, numbers: impl Iterator<Item = u64>, come: bool) {
    for key in numbers.map(K::number) {
        let _ = match come {
            true => index.insert(K::borrow(&key), 0),
            false => index.remove(K::borrow(&key)),
        }
        .unwrap();
    }
}

/// What a scan from `from` shows until it has shown enough of the steady keys.
fn seen_from<K: Keys + ?Sized>(
    index: &On<K>,
    steady: &[K::Buf],
    from: &K::Buf,
    direction: Direction,
) -> Vec<K::Buf> {
    let (mut seen, mut left) = (Vec::new(), ENOUGH);
    index.scan(Bound::Included(K::borrow(from)), direction, &mut |key, _| {
        let key = key.to_buf();
        left -= usize::from(steady.contains(&key));
        seen.push(key);
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    seen
}

/// A scan begins at a key that is absent. Between two words that it reads, wherever these are, a writer adds or removes keys on
/// both sides of that one: the scan shows none that is before it, and all that stay behind it, in order.
pub fn whatever_changes_between_two_loads_of_a_scan_it_begins_at_its_bound<K: Keys + ?Sized>(
    tested: Tested,
) {
    if !tested.capabilities().lock_free_reads {
        return;
    }
    let numbers = || (0..60).map(|number| 10 * number).chain([FAR | 0x800]);
    let steady: Vec<K::Buf> = numbers().map(K::number).collect();
    // A bound, and what comes and goes around it; the first is next to where the bound belongs, and on the wrong side.
    let cases = [
        (Direction::Forward, 305, vec![304, 301, 302, 303, 306, 307, 308, 309]),
        (Direction::Backward, 305, vec![306, 301, 302, 303, 304, 307, 308, 309]),
        (Direction::Forward, FAR | 0x400, vec![FAR | 1]),
        (Direction::Backward, FAR | 0xC00, vec![FAR | 0xF00]),
    ];
    for options in [tested.default_options(), tested.explored_options()] {
        let index = Arc::new(tested.create_with(&pool_in_memory(), "index", &options));
        come_or_go::<K>(&index, numbers(), true);
        let watcher = &index.pool().domain().watcher().1;
        for ((direction, bound, changing), come) in
            cases.iter().flat_map(|case| [true, false].map(|come| (case, come)))
        {
            let (direction, from) = (*direction, K::number(*bound));
            let is_behind = |key: &K::Buf| match direction {
                Direction::Forward => *key >= from,
                Direction::Backward => *key <= from,
            };
            let mut expected: Vec<_> = steady.iter().filter(|key| is_behind(key)).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            for load in (0..).step_by(STEP) {
                come_or_go::<K>(&index, changing.iter().copied(), !come);
                let (writer, changing) = (Arc::clone(&index), changing.clone());
                watcher.before_load(load, move || {
                    // On a thread of its own: that of the scan has pinned the pool.
                    std::thread::scope(|scope| {
                        scope.spawn(|| come_or_go::<K>(&writer, changing.iter().copied(), come));
                    });
                });
                let mut seen = seen_from::<K>(&index, &steady, &from, direction);
                let has_changed = watcher.let_be();
                let what = format!("{direction:?} from {from:?}, load {load}, come: {come}");
                assert!(seen.iter().all(is_behind), "{what}: {seen:?}");
                assert!(
                    seen.is_sorted_by(|one, next| match direction {
                        Direction::Forward => one < next,
                        Direction::Backward => one > next,
                    }),
                    "{what}: {seen:?}"
                );
                seen.retain(|key| steady.contains(key));
                assert!(seen.iter().eq(expected.iter().copied().take(ENOUGH)), "{what}: {seen:?}");
                if !has_changed {
                    break;
                }
            }
            come_or_go::<K>(&index, changing.iter().copied(), false);
        }
    }
}
