//! Readers while a writer is at work.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lapis_index::{Direction, Index, IndexKey, OrderedIndex, Wort};
use lapis_pmem::Pool;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::watched::{Watched, counting, watched_pool};
use super::{audited_blocks, create};

/// What a read between a writer's stores and each of its fences says, and what it costs.
fn reads_at_each_fence<K: IndexKey + ?Sized>(
    index: &Arc<Wort<Watched, K>>,
    key: &'static K,
    write: impl FnOnce(&Wort<Watched, K>),
) -> Vec<(Option<u64>, (u64, u64))> {
    let domain = index.pool().domain().clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    domain.watcher().1.before_each_fence({
        let (reader, seen, domain) = (Arc::clone(index), Arc::clone(&seen), domain.clone());
        move || seen.lock().unwrap().push(counting(&domain, || reader.get(key)))
    });
    write(index);
    domain.watcher().1.let_be();
    std::mem::take(&mut seen.lock().unwrap())
}

/// Lines flushed and fences of a read that relies on nothing that may not be durable.
const FREE: (u64, u64) = (0, 0);
/// Of one that makes what it saw durable.
const PERSISTED: (u64, u64) = (1, 1);

#[test]
fn a_reader_that_sees_an_insert_before_its_fence_persists_it_before_it_returns() {
    let index: Arc<Wort<_, u64>> = Arc::new(create(&watched_pool(4 << 20)));
    // The first insert has slabs to make; they have fences of their own.
    let _ = index.insert(&1, 1).unwrap();
    let reads = reads_at_each_fence(&index, &0x7000, |index| {
        let _ = index.insert(&0x7000, 7).unwrap();
    });
    let last = reads.len() - 1;
    assert!(reads[..last].iter().all(|read| *read == (None, FREE)), "{reads:?}");
    assert_eq!(reads[last], (Some(7), PERSISTED));
}

#[test]
fn a_reader_that_sees_a_new_value_before_its_fence_persists_it_before_it_returns() {
    let index: Arc<Wort<_, u64>> = Arc::new(create(&watched_pool(4 << 20)));
    let _ = index.insert(&1, 1).unwrap();
    let reads = reads_at_each_fence(&index, &1, |index| {
        let _ = index.update(&1, 2).unwrap();
    });
    assert_eq!(reads, [(Some(2), PERSISTED)]);
}

#[test]
fn a_reader_that_misses_a_key_before_the_fence_of_its_removal_persists_the_removal() {
    let index: Arc<Wort<_, [u8]>> = Arc::new(create(&watched_pool(4 << 20)));
    let _ = index.insert(b"a", 1).unwrap();
    let _ = index.insert(b"b", 2).unwrap();
    let reads = reads_at_each_fence(&index, b"a".as_slice(), |index| {
        let _ = index.remove(b"a").unwrap();
    });
    assert_eq!(reads, [(None, PERSISTED)]);
}

/// A value that a reader can check: it belongs to `key` and was current at `round`.
fn value_of(key: u64, round: u64) -> u64 {
    round << 32 | key.hash64() >> 32
}

#[test]
fn readers_see_every_stable_key_and_only_values_that_were_written() {
    const KEYS: u64 = 3000;
    const ROUNDS: u64 = 12;
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let index: Wort<_, [u8]> = create(&pool);
    // Even keys stay; odd ones come and go.
    let key = |number: u64| number.hash64().to_string().into_bytes();
    for number in (0..KEYS).step_by(2) {
        let _ = index.insert(&key(number), value_of(number, 0)).unwrap();
    }
    let finished = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (index, finished, reads) = (&index, &finished, &reads);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed);
                while !finished.load(Ordering::Relaxed) {
                    let number = random.random_range(0..KEYS);
                    match index.get(&key(number)) {
                        Some(value) => assert_eq!(value as u32, value_of(number, 0) as u32),
                        None => assert!(number % 2 == 1, "a stable key is missing"),
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (scanner, finished) = (&index, &finished);
        scope.spawn(move || {
            let mut forward = true;
            while !finished.load(Ordering::Relaxed) {
                let direction = if forward { Direction::Forward } else { Direction::Backward };
                let mut stable = 0;
                let mut last: Option<Vec<u8>> = None;
                scanner.scan(Bound::Unbounded, direction, &mut |key, value| {
                    let ordered =
                        last.as_deref().is_none_or(|last| forward == (last < key) && last != key);
                    assert!(ordered, "a scan went the wrong way");
                    last = Some(key.to_vec());
                    stable += u64::from(value & 1 << 63 == 0);
                    ControlFlow::Continue(())
                });
                assert_eq!(stable, KEYS / 2, "a scan missed or repeated a stable key");
                forward = !forward;
            }
        });
        for round in 1..=ROUNDS {
            for number in 0..KEYS {
                if number % 2 == 0 {
                    let _ = index.update(&key(number), value_of(number, round)).unwrap();
                } else {
                    let value = 1 << 63 | value_of(number, round);
                    let _ = index.insert(&key(number), value).unwrap();
                }
            }
            for number in (1..KEYS).step_by(2) {
                let _ = index.remove(&key(number)).unwrap();
            }
        }
        finished.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(index.check(), [""; 0]);
    assert_eq!(index.statistics().entries, KEYS / 2);
    audited_blocks(&index);
}

#[test]
fn writers_work_side_by_side_and_lose_nothing() {
    const KEYS: u64 = 2000;
    let pool = Arc::new(Pool::create_anonymous(8 << 20).unwrap());
    let index: Wort<_, u64> = create(&pool);
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let index = &index;
            scope.spawn(move || {
                for number in (writer..4 * KEYS).step_by(4) {
                    let _ = index.insert(&number.hash64(), number).unwrap();
                }
            });
        }
    });
    for number in 0..4 * KEYS {
        assert_eq!(index.get(&number.hash64()), Some(number));
    }
    assert_eq!(index.check(), [""; 0]);
}
