//! Creating, opening, refusing, filling up.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lapis_index::{IndexError, IndexKey, IndexKind, Outcome};

use super::harness::{Keys, On, Place, Tested, assert_sound, root_field, set_root_field, so_many};

const COUNT: u64 = so_many(1000);

fn fill<K: Keys + ?Sized>(index: &On<K>, count: u64) -> BTreeMap<K::Buf, u64> {
    (0..count)
        .map(|number| {
            let key = K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            assert_eq!(index.insert(K::borrow(&key), number).unwrap().previous, None);
            (key, number)
        })
        .collect()
}

pub fn a_reopened_index_holds_what_it_held<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::new();
    let pool = place.create();
    let index = tested.create::<_, K>(&pool, "index");
    let mut expected = fill::<K>(&index, COUNT);
    drop((index, pool));
    for round in 0..3 {
        let pool = place.open();
        assert!(pool.opened_clean());
        let index = tested.open::<K>(&pool, "index");
        assert_sound(&index, &expected);
        let (key, _) = expected.pop_first().unwrap();
        let _ = index.remove(K::borrow(&key)).unwrap();
        let key = K::number(round);
        let _ = index.put(K::borrow(&key), round).unwrap();
        expected.insert(key, round);
        assert_sound(&index, &expected);
    }
}

pub fn an_index_abandoned_as_by_a_crash_holds_what_was_acknowledged<K: Keys + ?Sized>(
    tested: Tested,
) {
    let place = Place::new();
    let pool = place.create();
    let index = tested.create::<_, K>(&pool, "index");
    let mut expected = fill::<K>(&index, COUNT);
    pool.abandon();
    drop((index, pool));
    let pool = place.open();
    assert!(!pool.opened_clean());
    let index = tested.open::<K>(&pool, "index");
    for (key, value) in expected.iter_mut().take(100) {
        *value += 1;
        let _ = index.put(K::borrow(key), *value).unwrap();
    }
    let reachable = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
    let _ = pool.reclaim(&reachable);
    assert_sound(&index, &expected);
}

pub fn two_indexes_in_one_pool_do_not_meet<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::new();
    let pool = place.create();
    let one = tested.create::<_, K>(&pool, "one");
    let two = tested.create::<_, K>(&pool, "two");
    for number in 0..COUNT {
        let key = K::number(number);
        let _ = one.insert(K::borrow(&key), 1).unwrap();
        if number % 2 == 0 {
            let _ = two.insert(K::borrow(&key), 2).unwrap();
        }
        if number % 3 == 0 {
            let _ = one.remove(K::borrow(&key)).unwrap();
        }
    }
    for number in 0..COUNT {
        let key = K::number(number);
        assert_eq!(one.get(K::borrow(&key)), (number % 3 != 0).then_some(1));
        assert_eq!(two.get(K::borrow(&key)), (number % 2 == 0).then_some(2));
    }
    let reachable = pool.reachable(|visitor| {
        one.visit_blocks(visitor, &mut |_, _| {});
        two.visit_blocks(visitor, &mut |_, _| {});
    });
    assert!(pool.audit(&reachable).is_clean());
}

pub fn a_second_handle_is_refused_unless_locks_are_in_the_pool<K: Keys + ?Sized>(tested: Tested) {
    use IndexKind::{Cceh, FastFair, LevelHash, PClht};
    let place = Place::new();
    let pool = place.create();
    let first = tested.create::<_, K>(&pool, "index");
    let second = tested.try_open::<K>(&pool, "index");
    if [Cceh, FastFair, LevelHash, PClht].contains(&tested.kind) {
        let key = K::number(1);
        let _ = second.unwrap().insert(K::borrow(&key), 1).unwrap();
        assert_eq!(first.get(K::borrow(&key)), Some(1));
        return;
    }
    assert!(matches!(second.err(), Some(IndexError::InUse)));
    drop(first);
    assert!(tested.try_open::<K>(&pool, "index").is_ok());
}

pub fn a_root_of_another_kind_is_refused<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::new();
    let pool = place.create();
    drop(tested.create::<_, K>(&pool, "index"));
    let kind = root_field(&pool, "index", 0);
    assert_eq!(kind, tested.kind as u32);
    for other in [0, kind + 1, u32::MAX] {
        set_root_field(&pool, "index", 0, other);
        let refused = tested.try_open::<K>(&pool, "index").err();
        assert!(
            matches!(refused, Some(IndexError::WrongKind { found, .. }) if found == other),
            "{refused:?}"
        );
    }
}

pub fn a_root_of_another_key_kind_is_refused<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::new();
    let pool = place.create();
    drop(tested.create::<_, K>(&pool, "index"));
    let refused = tested.try_open::<K::Other>(&pool, "index").err();
    assert!(matches!(refused, Some(IndexError::WrongKind { .. })), "{refused:?}");
}

pub fn a_newer_format_is_refused<K: Keys + ?Sized>(tested: Tested) {
    let place = Place::new();
    let pool = place.create();
    drop(tested.create::<_, K>(&pool, "index"));
    // The version is in the upper half.
    let form = root_field(&pool, "index", 4);
    set_root_field(&pool, "index", 4, form + (1 << 16));
    let refused = tested.try_open::<K>(&pool, "index").err();
    let newer = (form >> 16) + 1;
    assert!(
        matches!(refused, Some(IndexError::NewerFormat { found, .. }) if found == newer),
        "{refused:?}"
    );
}

pub fn a_full_pool_refuses_cleanly_and_takes_keys_again_after_removals<K: Keys + ?Sized>(
    tested: Tested,
) {
    let place = Place::of(1 << 20);
    let pool = place.create();
    let index = tested.create::<_, K>(&pool, "index");
    let mut expected = BTreeMap::new();
    let spread = |number: u64| K::number(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut number = 0;
    let refused = loop {
        let key = spread(number);
        match index.insert(K::borrow(&key), number) {
            Ok(outcome) => assert_eq!(outcome.previous, None),
            Err(error) => break error,
        }
        expected.insert(key, number);
        number += 1;
        assert!(number < 1_000_000, "a pool of a mebibyte cannot hold so much");
    };
    assert!(matches!(refused, IndexError::Alloc(_)), "{refused:?}");
    assert!(number > 1000, "only {number} keys fitted");
    assert_sound(&index, &expected);
    // What is there can be removed from a full pool, and what was removed makes room.
    for round in 0..3u64 {
        let keys: Vec<K::Buf> = expected.keys().cloned().collect();
        let mut removed = Vec::new();
        for (position, key) in keys.iter().enumerate().filter(|(position, _)| position % 4 != 0) {
            let said = index.remove(K::borrow(key)).unwrap().previous;
            assert_eq!(said, expected.remove(key), "key {position}");
            removed.push(key.clone());
        }
        assert_sound(&index, &expected);
        for (key, value) in &mut expected {
            // Structures that replace leaves need room for this too.
            let said = patiently::<K>(&index, || index.update(K::borrow(key), round));
            assert_eq!(said, Some(*value));
            *value = round;
        }
        assert_sound(&index, &expected);
        removed.truncate(removed.len() / 2);
        for key in removed {
            let said = patiently::<K>(&index, || index.insert(K::borrow(&key), round));
            assert_eq!(said, None);
            expected.insert(key, round);
        }
        assert_sound(&index, &expected);
    }
}

/// Changes an index in a pool that has room, but perhaps in blocks that readers may still be
/// looking at: tests that run at the same time share their epochs.
fn patiently<K: IndexKey + ?Sized>(
    index: &On<K>,
    change: impl Fn() -> Result<Outcome, IndexError>,
) -> Option<u64> {
    for _ in 0..2000 {
        match change() {
            Ok(outcome) => return outcome.previous,
            Err(IndexError::Alloc(_)) => {
                // Pinning is what makes epochs pass.
                (0..256).for_each(|_| drop(index.pool().pin()));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("removals made no room");
}

pub fn iteration_stops_when_it_is_told_to<K: Keys + ?Sized>(tested: Tested) {
    let index = tested.in_memory::<K>();
    let _ = fill::<K>(&index, 100);
    let mut visits = 0;
    index.for_each(&mut |_, _| {
        visits += 1;
        if visits == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(visits, 7);
}
