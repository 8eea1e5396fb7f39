//! What can only be seen from inside: splits, merges, the directory, damage.

use lapis_pmem::{Hardware, PCell};

use super::*;
use crate::hash_table::tests::{
    self, assert_sound, changed_by_two_handles, pool, refuses_more_entries_than_any_table_holds,
};
use crate::key::place_hash;

type Numbers = Cceh<Hardware, u64>;

const SMALL: IndexOptions = IndexOptions { node_bytes: 384, ..IndexOptions::DEFAULT };

fn made(options: &IndexOptions) -> Numbers {
    tests::made(options)
}

#[test]
fn a_table_grows_by_segments_and_shrinks_to_the_first_two() {
    let index = made(&SMALL);
    let empty = index.statistics().bytes;
    for round in 0..2 {
        for key in 0..5000u64 {
            assert!(index.insert(&key, key ^ 5).unwrap().previous.is_none());
        }
        assert!(index.directory().log2() >= 9, "2^{}", index.directory().log2());
        assert!((0..5000).all(|key| index.get(&key) == Some(key ^ 5)), "round {round}");
        assert_sound(&index);
        for key in 0..5000u64 {
            assert_eq!(index.remove(&key).unwrap().previous, Some(key ^ 5));
        }
        assert_sound(&index);
        assert_eq!((index.directory().log2(), index.statistics().bytes), (1, empty));
    }
}

#[test]
fn a_split_leaves_the_upper_half_where_it_was_and_it_does_not_count() {
    let index = made(&IndexOptions::DEFAULT);
    let before = index.reference(0).unwrap();
    let mut key = 0;
    while index.reference(0).unwrap().depth() == 1 {
        let _ = index.insert(&key, key).unwrap();
        key += 1;
    }
    let after = index.reference(0).unwrap();
    assert_eq!((before.link(), after.depth()), (after.link(), 2));
    let segment = index.segment(after.link()).unwrap();
    let count = |prefix| segment.entries::<_, u64>(&index.pool, prefix).count();
    assert!(count(Prefix::of(0, 1)) > count(Prefix::of(0, 2)) + 100);
    assert_eq!(index.statistics().entries, key);
}

#[test]
fn a_table_made_for_so_many_entries_hardly_grows_on_the_way() {
    for expected_entries in [1usize, 5000, 100_000] {
        let options = IndexOptions { expected_entries, ..IndexOptions::DEFAULT };
        let index = made(&options);
        let before = index.statistics().blocks;
        for key in 0..expected_entries as u64 {
            let _ = index.insert(&key, 0).unwrap();
        }
        let after = index.statistics().blocks;
        assert!(after <= before + before / 64, "{expected_entries}: {before}, {after}");
    }
}

#[test]
fn a_change_that_a_crash_cut_short_is_completed_by_opening() {
    let index = made(&SMALL);
    for key in 0..300u64 {
        let _ = index.insert(&key, key).unwrap();
    }
    let change = index.recorded().unwrap().expect("there were splits");
    assert!(index.agrees(&change).unwrap());
    // As it was before the change: the segment of the lower half for both halves.
    let directory = index.directory();
    let entries = directory::range(directory, &index.pool, change.part).unwrap();
    let old = Reference::new(change.lower, change.part.depth());
    entries[entries.len() / 2..].iter().for_each(|entry| entry.store(index.domain(), old.0));
    assert!(index.check().contains(&"I5: the change that is recorded is not complete".to_owned()));
    let again = Numbers::open(Arc::clone(&index.pool), index.root).unwrap();
    assert_sound(&again);
    assert!((0..300).all(|key| again.get(&key) == Some(key)));
}

#[test]
fn handles_of_one_index_share_locks_and_growth() {
    changed_by_two_handles::<Numbers>(&SMALL);
}

#[test]
fn check_finds_a_key_that_is_twice_in_its_segment_and_one_out_of_its_window() {
    let index = made(&IndexOptions::DEFAULT);
    let _ = index.insert(&1, 1).unwrap();
    let hash = place_hash(&1u64);
    let segment = index.segment(index.reference(hash).unwrap().link()).unwrap();
    let home = segment.home(hash);
    let copy = |line: usize| {
        segment.lines[line % segment.lines.len()].entries[3].key.store(index.domain(), 1);
    };
    copy(home);
    assert_eq!(index.check(), [format!("I4: 1 is twice in the segment at {:?}", segment.link)]);
    copy(home + 4);
    assert!(index.check().iter().any(|problem| problem.ends_with("out of its window")));
}

#[test]
fn check_finds_a_lock_that_nobody_holds_and_a_segment_in_two_places() {
    let index = made(&IndexOptions::DEFAULT);
    let segment = index.segment(index.reference(0).unwrap().link()).unwrap();
    segment.header.lock.lock(index.domain(), index.generation);
    index.structure_lock().lock(index.domain(), index.generation);
    assert_eq!(index.check().iter().filter(|problem| problem.starts_with("I6")).count(), 2);
    let second: &PCell<u64> = index.pool.at(index.directory().at(1));
    second.store(index.domain(), index.reference(0).unwrap().0);
    let problems = index.check();
    assert!(problems.iter().any(|problem| problem.ends_with("is in two places")), "{problems:?}");
}

#[test]
fn an_index_whose_directory_or_record_cannot_be_is_not_opened() {
    let index = made(&SMALL);
    for key in 0..300u64 {
        let _ = index.insert(&key, key).unwrap();
    }
    let refuses = |word: &PCell<u64>, damage: u64| {
        let intact = word.load(index.domain());
        word.store(index.domain(), damage);
        let opened = Numbers::open(Arc::clone(&index.pool), index.root);
        assert!(matches!(opened, Err(IndexError::Damaged { .. })), "{damage:#x}");
        assert!(!index.check().is_empty());
        word.store(index.domain(), intact);
    };
    let root = index.root();
    for damage in [0, u64::MAX, 33 << 48 | 4096, 30 << 48 | 4096] {
        refuses(root.top.word(), damage);
    }
    for damage in [u64::MAX, 1 << 48, 3 << 48] {
        refuses(&root.words[3], damage);
    }
    refuses(&root.words[1], 1);
    assert_sound(&index);
}

#[test]
fn a_lock_left_by_an_earlier_generation_is_free() {
    let index = made(&IndexOptions::DEFAULT);
    let _ = index.insert(&1, 10).unwrap();
    let earlier = LockGeneration::of(index.pool.generation() + 1);
    let segment = index.segment(index.reference(place_hash(&1u64)).unwrap().link()).unwrap();
    for lock in [&segment.header.lock, index.structure_lock()] {
        lock.lock(index.domain(), earlier);
    }
    assert_eq!(index.check(), Vec::<String>::new());
    assert_eq!(index.update(&1, 11).unwrap().previous, Some(10));
    for key in 2..2000 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert!(index.directory().log2() > 1);
}

#[test]
fn more_entries_than_any_table_holds_are_a_bad_option() {
    refuses_more_entries_than_any_table_holds::<Numbers>();
}

#[test]
fn a_record_that_is_being_written_is_waited_for_and_no_damage() {
    let index = made(&SMALL);
    for key in 0..300u64 {
        let _ = index.insert(&key, key).unwrap();
    }
    let lower = &index.root().words[3];
    let whole = lower.load(index.domain());
    // As among the words of a change that another handle records: it holds the lock.
    let held = index.lock_structure();
    lower.store(index.domain(), 1 << 48);
    assert!(index.recorded().is_err());
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| Numbers::open(Arc::clone(&index.pool), index.root));
        std::thread::sleep(std::time::Duration::from_millis(50));
        lower.store(index.domain(), whole);
        held.leave_unchanged();
        assert!(opening.join().unwrap().is_ok());
    });
    assert_sound(&index);
}

#[test]
fn a_table_for_more_entries_than_the_pool_can_have_is_refused() {
    for expected_entries in [1 << 40, 1 << 24] {
        let options = IndexOptions { expected_entries, ..IndexOptions::DEFAULT };
        let pool = pool();
        let refused = Numbers::create(&pool, &options);
        assert!(matches!(refused, Err(IndexError::Alloc(_))), "{refused:?}");
    }
}

#[test]
fn an_entry_deeper_than_the_directory_is_damage_and_the_table_can_still_be_opened() {
    let index = made(&SMALL);
    for key in 0..300u64 {
        let _ = index.insert(&key, key).unwrap();
    }
    let directory = index.directory();
    let entry: &PCell<u64> = index.pool.at(directory.at(0));
    let intact = Reference(entry.load(index.domain()));
    let damaged = directory.log2() + 3;
    entry.store(index.domain(), Reference::new(intact.link(), damaged).0);
    let deep = Prefix::of(0, damaged);
    let mut keys = (1000..).filter(|key| deep.covers(place_hash(key)));
    let error = keys.find_map(|key| index.insert(&key, key).err()).unwrap();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
    assert_eq!(index.directory().log2(), directory.log2());
    // No merge is recorded of it either.
    let locked = index.lock(0).unwrap();
    index.merge_if_sparse(locked);
    assert!(Numbers::open(Arc::clone(&index.pool), index.root).is_ok());
}
