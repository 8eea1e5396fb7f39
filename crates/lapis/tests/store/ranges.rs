//! Ranges and iteration.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis::{Direction, Entries, Error, Hardware, Table};

use crate::harness::*;

type Keys = Vec<Vec<u8>>;

fn keys(entries: Entries<Hardware>) -> Keys {
    entries.map(|entry| entry.unwrap().0).collect()
}

/// 200 keys of one to three bytes, more than a batch.
fn fill(table: &Table) -> Keys {
    let mut all: Keys = (0..200u32)
        .map(|number| {
            let mut key = number.wrapping_mul(2_654_435_761).to_be_bytes()[..3].to_vec();
            key.truncate(1 + number as usize % 3);
            key
        })
        .collect();
    all.sort();
    all.dedup();
    for key in &all {
        table.put(key, key).unwrap();
    }
    all
}

#[test]
fn every_pair_of_bounds_gives_what_a_sorted_map_gives_in_both_directions() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        let model: BTreeMap<Vec<u8>, ()> = fill(&table).into_iter().map(|key| (key, ())).collect();
        let present: Keys = model.keys().step_by(37).cloned().collect();
        let absent: Keys = present.iter().map(|key| [key.as_slice(), &[0]].concat()).collect();
        let bounds: Vec<Bound<Vec<u8>>> = present
            .into_iter()
            .chain(absent)
            .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key)])
            .chain([Bound::Unbounded])
            .collect();
        for lower in &bounds {
            for upper in &bounds {
                let range = (lower.clone(), upper.clone());
                let inside = |key: &&Vec<u8>| {
                    std::ops::RangeBounds::contains(
                        &range,
                        key.as_slice().to_vec().as_ref() as &Vec<u8>,
                    )
                };
                let mut expected: Keys = model.keys().filter(inside).cloned().collect();
                assert_eq!(keys(table.range(range.clone()).unwrap()), expected, "{kind} {range:?}");
                expected.reverse();
                let backward = table.range(range.clone()).unwrap().backward();
                assert_eq!(keys(backward), expected, "{kind} {range:?} backward");
            }
        }
    }
}

#[test]
fn a_prefix_gives_exactly_the_keys_that_begin_with_it() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        let all = fill(&table);
        table.put(b"\xFF\xFF", b"").unwrap();
        for prefix in all.iter().step_by(11).map(Vec::as_slice).chain([b"".as_slice(), b"\xFF"]) {
            let mut expected: Keys = all
                .iter()
                .cloned()
                .chain([vec![0xFF; 2]])
                .filter(|key| key.starts_with(prefix))
                .collect();
            expected.dedup();
            assert_eq!(keys(table.prefix(prefix).unwrap()), expected, "{kind} {prefix:?}");
        }
    }
}

#[test]
fn values_come_with_their_keys() {
    let store = in_memory();
    for kind in KINDS {
        let table = table_of(&store, kind);
        let all = fill(&table);
        let mut found = contents(&table);
        found.sort();
        assert_eq!(found, all.into_iter().map(|key| (key.clone(), key)).collect::<Vec<_>>());
    }
}

#[test]
fn turned_round_mid_way_an_iterator_gives_what_is_left_from_the_other_end() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        let all = fill(&table);
        for taken in [0, 1, 30, 63, 64, 65, 100, all.len()] {
            let mut entries = table.iter().unwrap();
            for key in &all[..taken] {
                assert_eq!(entries.next().unwrap().unwrap().0, *key);
            }
            let mut left = all[taken..].to_vec();
            left.reverse();
            assert_eq!(keys(entries.backward()), left, "{kind} {taken}");
        }
    }
}

#[test]
fn turned_round_twice_mid_way_nothing_is_lost_or_repeated() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        let all = fill(&table);
        let mut entries = table.iter().unwrap();
        let head: Keys = entries.by_ref().take(10).map(|entry| entry.unwrap().0).collect();
        let mut entries = entries.backward();
        let tail: Keys = entries.by_ref().take(70).map(|entry| entry.unwrap().0).collect();
        let middle = keys(entries.backward());
        let whole: Keys = head.into_iter().chain(middle).chain(tail.into_iter().rev()).collect();
        assert_eq!(whole, all, "{kind}");
    }
}

#[test]
fn large_values_end_a_batch_and_lose_nothing() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        for number in 0..20u8 {
            table.put(&[number], &vec![number; 300_000]).unwrap();
        }
        let found: Vec<_> = table
            .iter()
            .unwrap()
            .map(|entry| {
                let (key, value) = entry.unwrap();
                assert!(value.len() == 300_000 && value.iter().all(|&byte| byte == key[0]));
                key[0]
            })
            .collect();
        assert_eq!(found, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn a_table_without_order_refuses_ranges_and_gives_every_entry_once() {
    let store = in_memory();
    let table = table_of(&store, KINDS[2]);
    let all = fill(&table);
    assert!(matches!(table.range(..), Err(Error::Unordered { .. })));
    assert!(matches!(table.prefix(b"a"), Err(Error::Unordered { .. })));
    assert!(store.transaction().unwrap().range(&table, .., Direction::Forward).is_err());
    assert!(store.snapshot().range(&table, .., Direction::Forward).is_err());
    let mut found = keys(table.iter().unwrap());
    found.sort();
    assert_eq!(found, all);
}

#[test]
fn an_iterator_outlives_its_handles_and_goes_to_another_thread() {
    fn is_static_and_send<T: Send + 'static>(value: T) -> T {
        value
    }
    for kind in KINDS {
        let store = in_memory();
        let table = table_of(&store, kind);
        let count = fill(&table).len();
        let entries = is_static_and_send(table.iter().unwrap());
        drop((table, store));
        assert_eq!(std::thread::spawn(move || keys(entries).len()).join().unwrap(), count);
    }
}

#[test]
fn an_iterator_is_lazy_and_sees_what_is_put_before_it_gets_there() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        for number in 0..200u8 {
            table.put(&[number], b"old").unwrap();
        }
        let mut entries = table.iter().unwrap();
        entries.next().unwrap().unwrap();
        table.put(&[199], b"new").unwrap();
        table.put(&[255], b"new").unwrap();
        table.delete(&[198]).unwrap();
        let rest: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
        assert_eq!(rest.len(), 199);
        assert_eq!((rest[197].0[0], &*rest[197].1), (199, b"new".as_slice()));
        assert_eq!(rest[198].0, [255]);
    }
}

#[test]
fn what_does_not_change_is_seen_whole_while_others_write_around_it() {
    let store = in_memory();
    for kind in ordered() {
        let table = table_of(&store, kind);
        for number in 0..300u32 {
            table.put(&(number * 2).to_be_bytes(), b"stays").unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = ((round * 7 % 300) * 2 + 1).to_be_bytes();
                    if round / 300 % 2 == 0 {
                        table.put(&key, b"passes").unwrap();
                    } else {
                        table.delete(&key).unwrap();
                    }
                }
            });
            for round in 0..60 {
                let entries = table.iter().unwrap();
                let mut seen = keys(if round % 2 == 0 { entries } else { entries.backward() });
                if round % 2 == 1 {
                    seen.reverse();
                }
                assert!(seen.is_sorted_by(|left, right| left < right));
                seen.retain(|key| key[3] % 2 == 0);
                assert_eq!(seen.len(), 300, "{kind}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
