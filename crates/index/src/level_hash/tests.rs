//! What can only be seen from inside: movements, growth, damage.

use std::ops::ControlFlow;

use lapis_pmem::{Committed, Hardware};

use super::levels::Hashes;
use super::movement::Room;
use super::*;
use crate::hash_table::tests::{
    self, assert_sound, changed_by_two_handles, refuses_more_entries_than_any_table_holds,
};

type Numbers = LevelHash<Hardware, u64>;

fn made(expected_entries: usize) -> Numbers {
    tests::made(&IndexOptions { expected_entries, ..IndexOptions::DEFAULT })
}

fn word(index: &Numbers, at: usize) -> u64 {
    index.root().words[at].load(index.domain())
}

fn hashes_of(key: &u64) -> Hashes {
    Hashes::of(key, 0)
}

/// The lock of the first group of a key.
fn lock_of(index: &Numbers, key: u64) -> &GenerationLock {
    let levels = index.levels();
    &index.bucket(levels.leader(levels.group_of(hashes_of(&key).0[0]))).lock
}

/// Puts a key into a slot, whoever's it is.
fn put_into(index: &Numbers, link: Link<Bucket>, slot: usize, key: u64) {
    let bucket = index.bucket(link);
    bucket.fill(index.domain(), slot, key, key);
    let _: Committed = bucket.publish_occupancy(index.domain(), None, 1 << slot).persist();
}

#[test]
fn locks_are_those_of_the_top_level_whatever_is_taken_for_the_bottom_level() {
    let index = made(1);
    let top = index.levels().top;
    let mut inserted = 0..;
    while index.levels().top.log2() < top.log2() + 2 {
        let _ = index.insert(&inserted.next().unwrap(), 0).unwrap();
    }
    // Who has read the word of the one, and that of the other two growths later.
    let levels = Levels { top, bottom: index.levels().bottom };
    let leaders: Vec<_> = (0..levels.top.len() / 2).map(|group| levels.leader(group)).collect();
    for key in 0..100u64 {
        let groups = hashes_of(&key).0.map(|hash| levels.group_of(hash));
        assert!(groups.iter().all(|&group| leaders.contains(&levels.leader(group))), "{groups:?}");
    }
}

#[test]
fn a_table_doubles_when_it_is_full_and_keeps_every_entry() {
    let index = made(1);
    let mut loads = Vec::new();
    let mut before = index.levels();
    for key in 0..20_000u64 {
        let _ = index.insert(&key, key ^ 5).unwrap();
        let levels = index.levels();
        if levels != before {
            assert_eq!((levels.top.log2(), levels.bottom), (before.top.log2() + 1, before.top));
            loads.push(key as f64 / (9 * before.bottom.len()) as f64);
            before = levels;
        }
    }
    assert!(loads.len() >= 10 && loads[6..].iter().all(|load| *load > 0.7), "{loads:?}");
    assert!((0..20_000).all(|key| index.get(&key) == Some(key ^ 5)));
    assert_sound(&index);
}

#[test]
fn a_table_made_for_so_many_entries_does_not_grow_on_the_way() {
    for expected_entries in [100usize, 5000, 100_000] {
        let index = made(expected_entries);
        let before = index.levels();
        for key in 0..expected_entries as u64 {
            let _ = index.insert(&key, 0).unwrap();
        }
        assert_eq!(index.levels(), before, "{expected_entries}");
    }
}

#[test]
fn entries_are_moved_but_not_while_somebody_iterates() {
    let index = made(1000);
    let levels = index.levels();
    let mut key = 0;
    while word(&index, MOVED_WORD) == 0 {
        let _ = index.insert(&key, key).unwrap();
        key += 1;
    }
    assert_eq!(index.levels(), levels);
    assert!((0..key).all(|key| index.get(&key) == Some(key)));
    assert_sound(&index);
    let moved = word(&index, MOVED_WORD);
    let mut found = 0;
    index.for_each(&mut |_, _| {
        if found == 0 {
            // What takes a movement otherwise makes the table grow.
            for another in key..key + 2000 {
                let _ = index.insert(&another, another).unwrap();
            }
        }
        found += 1;
        ControlFlow::Continue(())
    });
    assert!(found >= key && index.levels() != levels, "{found} of {key}");
    assert_ne!(word(&index, MOVED_WORD), moved, "a movement was tried");
    assert_eq!(index.iterations().get(), 0);
    assert_sound(&index);
}

/// Whoever has looked into the one bucket before, and looks into the other now, would find the entry in
/// neither.
#[test]
fn readers_learn_of_a_movement_before_it_has_ended() {
    let index = made(1000);
    let levels = index.levels();
    for key in 0u64.. {
        let hashes = hashes_of(&key);
        if index.free_slot(levels, hashes).is_some() {
            let _ = index.insert(&key, key).unwrap();
            continue;
        }
        let held = index.lock(hashes, true);
        let Room::By(movement) = index.find_movable(hashes, &held) else { unreachable!() };
        let moved =
            index.bucket(movement.source.0).entries[movement.source.1].key.load(index.domain());
        let lock = lock_of(&index, moved);
        let before = lock.read(index.domain());
        let (source, _) = index.make_room(&movement, &held).unwrap();
        let found = index.find(levels, hashes_of(&moved), &moved, 0).unwrap().bucket;
        assert!(!std::ptr::eq(found, source));
        let now = lock.read(index.domain());
        assert!(now.is_locked(index.generation) && !before.is_same_section(now));
        // A change of a bucket's occupancy shows in its own word: it has to be another's.
        if ![source, found].iter().any(|bucket| std::ptr::eq(lock, &raw const bucket.lock)) {
            return;
        }
    }
}

/// A table in which a crash has left a key in its two buckets of the top level: the key, and the bucket that it was to leave.
fn with_an_entry_left_twice() -> (Numbers, u64, Link<Bucket>) {
    let index = made(100);
    let levels = index.levels();
    let places = |key: u64| levels.candidates(hashes_of(&key));
    let key = (0..).find(|key| places(*key)[0] != places(*key)[1]).unwrap();
    let [stays, leaves, ..] = places(key);
    put_into(&index, stays, 0, key);
    put_into(&index, leaves, 1, key);
    index.root().words[MOVED_WORD].store(index.domain(), leaves.bits() | 1);
    (index, key, leaves)
}

#[test]
fn an_entry_that_a_crash_has_left_twice_is_there_once_when_the_table_is_opened() {
    let (index, key, _) = with_an_entry_left_twice();
    assert_eq!(index.check().len(), 2);
    let opened = Numbers::open(Arc::clone(&index.pool), index.root).unwrap();
    assert_sound(&opened);
    assert_eq!(opened.remove(&key).unwrap().previous, Some(key));
    assert_eq!(opened.get(&key), None);
}

#[test]
fn a_movement_is_not_completed_under_the_hands_of_who_changes_its_buckets() {
    let (index, key, source) = with_an_entry_left_twice();
    let source = index.bucket(source);
    let held = index.lock(hashes_of(&key), true);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Numbers::open(Arc::clone(&index.pool), index.root));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(source.occupancy(index.domain()), 1 << 1);
        drop(held);
        assert!(opening.join().unwrap().is_ok());
    });
    assert_eq!(source.occupancy(index.domain()), 0);
    assert_sound(&index);
}

#[test]
fn handles_of_one_index_share_locks_growth_and_movements() {
    let options = IndexOptions { expected_entries: 1, ..IndexOptions::DEFAULT };
    let [first, _] = changed_by_two_handles::<Numbers>(&options);
    assert_ne!(word(&first, MOVED_WORD), 0);
}

#[test]
fn a_reader_waits_for_no_lock_and_writes_none() {
    let index = made(100);
    let _ = index.insert(&1, 10).unwrap();
    let (group, structure) = (lock_of(&index, 1), index.structure());
    for lock in [group, structure] {
        lock.lock(index.domain(), index.generation);
    }
    let words = || [group, structure].map(|lock| lock.read(index.domain()));
    let before = words();
    assert_eq!((index.get(&1), words()), (Some(10), before));
}

#[test]
fn check_finds_a_key_in_a_bucket_that_is_not_its_own_and_locks_that_nobody_holds() {
    let index = made(1000);
    let levels = index.levels();
    let not_its_own = |link: &Link<Bucket>| !levels.candidates(hashes_of(&1u64)).contains(link);
    put_into(&index, (0..).map(|at| levels.top.at(at)).find(not_its_own).unwrap(), 2, 1);
    assert!(index.check()[0].starts_with("I3: 1 is in the bucket at"));
    index.bucket(levels.leader(3)).lock.lock(index.domain(), index.generation);
    index.structure().lock(index.domain(), index.generation);
    assert_eq!(index.check().iter().filter(|problem| problem.starts_with("I4")).count(), 2);
}

#[test]
fn an_index_whose_levels_are_not_in_the_pool_is_not_opened() {
    let index = made(0);
    let root = index.root();
    for damaged in [root.top.word(), index.bottom_word(DEFAULT_LOG2)] {
        let intact = damaged.load(index.domain());
        for damage in [0, u64::MAX, 29 << 48 | 4096, 24 << 48 | 4096] {
            damaged.store(index.domain(), damage);
            let opened = Numbers::open(Arc::clone(&index.pool), index.root);
            assert!(matches!(opened, Err(IndexError::Damaged { .. })));
            assert_eq!(index.check().len(), 1);
        }
        damaged.store(index.domain(), intact);
    }
    // A movement that cannot be is none.
    root.words[MOVED_WORD].store(index.domain(), u64::MAX);
    assert!(Numbers::open(Arc::clone(&index.pool), index.root).is_ok());
}

#[test]
fn what_an_earlier_generation_left_locked_is_free() {
    let index = made(1);
    let _ = index.insert(&1, 10).unwrap();
    let earlier = LockGeneration::of(index.pool.generation() + 1);
    for lock in [lock_of(&index, 1), index.structure()] {
        lock.lock(index.domain(), earlier);
    }
    // As in the middle of a growth, and of an iteration.
    index.structure().set_payload(index.domain(), table_locks::PUBLISHING);
    let earlier_generation = index.pool.generation() + 1;
    Counter::new(&index.root().words[ITERATIONS_WORD], index.domain(), earlier_generation).set(7);
    assert_eq!(index.check(), Vec::<String>::new());
    assert_eq!(index.update(&1, 11).unwrap().previous, Some(10));
    for key in 2..500 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert_eq!((index.statistics().entries, index.iterations().get()), (499, 0));
}

#[test]
fn more_entries_than_any_table_holds_are_a_bad_option() {
    refuses_more_entries_than_any_table_holds::<Numbers>();
}

/// The table before a history of two inserts, and their keys.
fn before_two_inserts(name: &str) -> (Numbers, [u64; 2]) {
    let histories = DECLARATION.exploration.histories;
    let Some((_, History::TwoInserts(before, other))) = histories.iter().find(|it| it.0 == name)
    else {
        panic!("{name} is no history of two inserts");
    };
    let index = made(DECLARATION.exploration.options.expected_entries);
    for key in 0..*before {
        let _ = index.insert(&key, 1).unwrap();
    }
    (index, [*before, *other])
}

#[test]
fn in_the_history_of_movements_two_entries_are_moved_under_different_locks() {
    let (index, keys) = before_two_inserts("level-hash:moving");
    let levels = index.levels();
    let group_of = |bucket: &Bucket| {
        let is_it = |link| std::ptr::eq(index.bucket(link), bucket);
        let top = (0..levels.top.len()).find(|&at| is_it(levels.top.at(at))).map(|at| at >> 1);
        top.or_else(|| (0..levels.bottom.len()).find(|&at| is_it(levels.bottom.at(at)))).unwrap()
    };
    let groups = keys.map(|key| {
        let hashes = hashes_of(&key);
        let held = index.lock(hashes, true);
        assert!(index.free_slot(levels, hashes).is_none(), "{key}");
        let Room::By(movement) = index.find_movable(hashes, &held) else { panic!("{key}") };
        let target = group_of(movement.target.0);
        drop(movement);
        held.leave_unchanged();
        let [first, second] = hashes.0.map(|hash| levels.group_of(hash));
        [first, second, target]
    });
    assert!(groups[0].iter().all(|group| !groups[1].contains(group)), "{groups:?}");
}

#[test]
fn in_the_history_of_a_shared_bucket_both_keys_go_into_the_same_slot() {
    let (index, keys) = before_two_inserts("level-hash:sharing");
    let slots = keys.map(|key| {
        let place = index.free_slot(index.levels(), hashes_of(&key)).unwrap();
        ((&raw const *place.bucket).addr(), place.slot, place.hash)
    });
    assert_eq!((slots[0].0, slots[0].1), (slots[1].0, slots[1].1));
    assert_eq!(slots.map(|slot| slot.2), [1, 0], "the one by its second hash");
}
