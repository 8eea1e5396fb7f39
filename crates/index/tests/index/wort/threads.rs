//! Readers while a writer is at work.

use std::sync::{Arc, Mutex};

use lapis_index::{Index, IndexKey, Wort};

use super::create;
use super::watched::{Watched, counting, watched_pool};

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
