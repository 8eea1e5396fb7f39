//! What can only be seen from inside: tables, growth, damage.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use lapis_pmem::{Hardware, MIN_POOL_BYTES, Region};

use super::*;
use crate::hash_table::bucket::{FROZEN, is_changing};
use crate::hash_table::tests::{
    self, assert_sound, changed_by_two_handles, pool, refuses_more_entries_than_any_table_holds,
};
use crate::key::place_hash;

type Numbers = PClht<Hardware, u64>;

fn made(expected_entries: usize) -> Numbers {
    tests::made(&IndexOptions { expected_entries, ..IndexOptions::DEFAULT })
}

#[test]
fn the_smallest_tables_fit_the_smallest_pools() {
    let region = Region::anonymous(MIN_POOL_BYTES + (64 << 10), MIN_POOL_BYTES + (64 << 10));
    let pool = Arc::new(Pool::create(region.unwrap(), Hardware::detect()).unwrap());
    let index = Numbers::create_named(&pool, "index", &IndexOptions::DEFAULT).unwrap();
    for key in 0..100 {
        assert!(index.insert(&key, key).unwrap().previous.is_none());
    }
    assert_eq!(index.statistics().entries, 100);
}

#[test]
fn a_table_grows_through_every_size_and_keeps_every_entry() {
    let index = made(1);
    let mut sizes = vec![index.table().log2()];
    for key in 0..50_000u64 {
        let _ = index.insert(&key, key ^ 5).unwrap();
        if index.table().log2() != *sizes.last().unwrap() {
            sizes.push(index.table().log2());
        }
    }
    assert_eq!(sizes, [2, 4, 6, 10, 12, 14, 16]);
    assert!((0..50_000).all(|key| index.get(&key) == Some(key ^ 5)));
    assert_sound(&index);
}

#[test]
fn a_table_made_for_so_many_entries_does_not_grow_on_the_way() {
    for expected_entries in [1usize, 100, 5000, 100_000] {
        let index = made(expected_entries);
        let before = index.table();
        for key in 0..expected_entries as u64 {
            let _ = index.insert(&key, 0).unwrap();
        }
        assert_eq!(index.table(), before, "{expected_entries}");
    }
}

#[test]
fn an_emptied_overflow_bucket_is_unlinked_at_once() {
    let index = made(1);
    // Five keys of one chain, in a table too small to count two overflow buckets as too many.
    let table = index.table();
    index.not_before.store(u64::MAX, Ordering::Relaxed);
    let keys: Vec<u64> = (0..).filter(|key| table.index_of(place_hash(key)) == 1).take(8).collect();
    for key in &keys {
        let _ = index.insert(key, *key).unwrap();
    }
    assert_eq!(index.statistics().max_depth, 3);
    // The middle bucket of the chain goes; the last stays reachable.
    for key in &keys[3..6] {
        assert_eq!(index.remove(key).unwrap().previous, Some(*key));
    }
    assert_eq!(index.statistics().nodes, table.len() + 1);
    assert_eq!(index.get(&keys[7]), Some(keys[7]));
    assert_eq!(index.overflow_buckets(), 1);
    assert_sound(&index);
}

#[test]
fn a_unit_of_256_bytes_fills_before_anything_overflows_and_outlives_its_entries() {
    let pool = pool();
    let made = |node_bytes, name| {
        let options = IndexOptions { expected_entries: 1, node_bytes, ..IndexOptions::default() };
        Numbers::create_named(&pool, name, &options)
    };
    assert!(matches!(made(128, "other"), Err(IndexError::BadOption { .. })));
    let index = made(XPLINE_BYTES, "index").unwrap();
    // In no order: neighbours are spread so evenly that nothing would overflow.
    let keys = || (0..20_000u64).map(|number| number.to_be_bytes()[..].hash64());
    // The table is one unit.
    for key in keys().take(12) {
        let _ = index.insert(&key, key).unwrap();
    }
    assert_eq!((index.overflow_buckets(), index.statistics().max_depth), (0, 4));
    assert_sound(&index);
    for key in keys().skip(12) {
        let _ = index.insert(&key, key).unwrap();
    }
    assert!(index.table().log2() > 10 && index.overflow_buckets() > 0);
    assert_sound(&index);
    let again = Numbers::open(Arc::clone(&pool), index.root).unwrap();
    for key in keys() {
        assert_eq!(again.remove(&key).unwrap().previous, Some(key));
    }
    assert_eq!(again.statistics().nodes, again.table().len(), "what overflowed is gone");
    assert_sound(&again);
    index.root().words[UNIT_WORD].store(pool.domain(), 3);
    assert!(matches!(Numbers::open(pool, index.root), Err(IndexError::Damaged { .. })));
}

#[test]
fn keys_of_one_chain_have_different_tags() {
    let table = Table::<Bucket>::new(Link::NULL, 16);
    let mut chains: HashMap<u64, Vec<u64>> = HashMap::new();
    for number in 0..200_000u64 {
        let key = number.to_be_bytes();
        chains.entry(table.index_of(place_hash(&key[..]))).or_default().push(key[..].tag());
    }
    let (mut pairs, mut equal) = (0u64, 0u64);
    for tags in chains.values() {
        pairs += (tags.len() - 1) as u64;
        equal += tags[1..].iter().filter(|tag| **tag == tags[0]).count() as u64;
    }
    assert!(pairs > 100_000 && equal < 20, "{equal} of {pairs}");
}

#[test]
fn check_finds_a_key_that_is_twice_in_its_chain_and_one_in_a_wrong_chain() {
    let index = made(0);
    let pool = &index.pool;
    let table = index.table();
    let _ = index.insert(&1, 1).unwrap();
    let chain = table.index_of(place_hash(&1u64));
    let copy = |to: u64, slot: usize| {
        let bucket = pool.at(table.at(to));
        bucket.entries[slot].key.store(pool.domain(), 1);
        let occupancy = bucket.occupancy(pool.domain());
        let _ = bucket.publish_occupancy(pool.domain(), None, occupancy | 1 << slot).persist();
    };
    copy(chain, 2);
    assert_eq!(index.check(), [format!("I3: 1 is twice in chain {chain}")]);
    copy(chain ^ 1, 0);
    assert!(index.check().contains(&format!("I3: 1 is in chain {}, not in its own", chain ^ 1)));
}

#[test]
fn check_finds_a_cycle_and_get_refuses_to_follow_it_for_ever() {
    let index = made(0);
    let pool = &index.pool;
    let table = index.table();
    let absent = 77u64;
    let link = table.at(table.index_of(place_hash(&absent)));
    pool.at(link).next.word().store(pool.domain(), link.bits());
    assert_eq!(index.check(), [format!("I4: the bucket at {link:?} has two predecessors")]);
    assert!(matches!(index.insert(&absent, 0), Err(IndexError::Damaged { .. })));
    let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| index.get(&absent)));
    let message = *got.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.starts_with("the pool is damaged"), "{message}");
}

#[test]
fn an_index_whose_table_is_not_in_the_pool_is_not_opened() {
    let index = made(0);
    let pool = &index.pool;
    for damage in [0, u64::MAX, 30 << 48 | 4096, 20 << 48 | 4096] {
        index.root().top.word().store(pool.domain(), damage);
        assert!(matches!(
            Numbers::open(Arc::clone(pool), index.root),
            Err(IndexError::Damaged { .. })
        ));
        assert_eq!(index.check().len(), 1);
        let reachable = pool.reachable(|visitor| index.visit_blocks(visitor, &mut |_, _| {}));
        assert!(!pool.audit(&reachable).problems.is_empty());
    }
}

#[test]
fn handles_of_one_index_share_locks_growth_and_counts() {
    let handles = changed_by_two_handles::<Numbers>(&IndexOptions::DEFAULT);
    for index in &handles {
        assert_eq!(index.overflow_buckets(), index.statistics().nodes - index.table().len());
    }
}

#[test]
fn inserting_by_one_handle_and_removing_by_another_stays_bounded() {
    const LIVE: u64 = 500;
    let first = made(0);
    let pool = &first.pool;
    let second = Numbers::open(Arc::clone(pool), first.root).unwrap();
    for key in 0..200 * LIVE {
        let _ = first.insert(&key, key).unwrap();
        if key >= LIVE {
            let _ = second.remove(&(key - LIVE)).unwrap();
        }
    }
    assert_eq!(first.statistics().entries, LIVE);
    assert!(first.table().log2() <= 10, "2^{} buckets", first.table().log2());
}

#[test]
fn a_lock_left_by_an_earlier_generation_is_free_and_keeps_its_entries() {
    let index = made(0);
    let pool = &index.pool;
    let _ = index.insert(&1, 10).unwrap();
    let earlier = LockGeneration::of(pool.generation() + 1);
    let head = pool.at(index.table().at(index.table().index_of(place_hash(&1u64))));
    // As a growth that was cut short would leave them.
    for lock in [&head.lock, index.growing()] {
        lock.lock(pool.domain(), earlier);
        lock.set_payload(pool.domain(), lock.read(pool.domain()).payload() | FROZEN | 1);
    }
    assert_eq!(index.get(&1), Some(10));
    assert_eq!(index.check(), Vec::<String>::new());
    assert_eq!(index.update(&1, 11).unwrap().previous, Some(10));
    assert!(!is_changing(head.lock.read(pool.domain()), index.generation));
    assert_eq!(head.lock.read(pool.domain()).payload() & FROZEN, 0);
    for key in 2..500 {
        let _ = index.insert(&key, key).unwrap();
    }
    assert!(index.table().log2() > 6);
    assert_eq!(index.statistics().entries, 499);
}

#[test]
fn check_finds_a_lock_that_nobody_holds() {
    let index = made(0);
    let pool = &index.pool;
    pool.at(index.table().at(3)).lock.lock(pool.domain(), index.generation);
    index.growing().lock(pool.domain(), index.generation);
    let problems = index.check();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.starts_with("I6")));
}

#[test]
fn a_refused_growth_gives_every_chain_back_as_it_was() {
    let index = made(0);
    let pool = &index.pool;
    let table = index.table();
    let _ = index.insert(&1, 1).unwrap();
    let word = |chain| pool.at(table.at(chain)).lock.read(pool.domain());
    let mut frozen = locks::Frozen::none_of(pool, index.generation, table, 1);
    while word(63).payload() & FROZEN == 0 {
        assert!(frozen.freeze_next().is_some());
    }
    assert!((0..64).all(|chain| word(chain).is_locked(index.generation)));
    assert!((0..64).all(|chain| !is_changing(word(chain), index.generation)));
    assert_eq!(index.get(&1), Some(1));
    drop(frozen);
    assert!((0..64).all(|chain| word(chain).payload() & FROZEN == 0));
    assert_eq!(index.check(), Vec::<String>::new());
    assert_eq!(index.remove(&1).unwrap().previous, Some(1));
}

#[test]
fn more_entries_than_any_table_holds_are_a_bad_option() {
    refuses_more_entries_than_any_table_holds::<Numbers>();
}
