//! P-CLHT: what each operation flushes and fences, and what readers persist beside a writer.

use std::sync::Arc;

use lapis_index::{Index, IndexKey, IndexOptions, PClht};

use crate::conformance::counting::{Stall, watched_pool};
use lapis_pmem::{PersistCounts, Watched, Watcher};

type Both = (PersistCounts, Stall);

fn create<K: IndexKey + ?Sized, T: Watcher + Default>(
    expected_entries: usize,
) -> PClht<Watched<T>, K> {
    let pool = watched_pool::<T>(1 << 20);
    let options = IndexOptions { expected_entries, ..IndexOptions::default() };
    let root = pool.fence(PClht::<_, K>::create(&pool, &options).unwrap());
    let link = root.link();
    let _ = pool.publish_root("index", 0, root).unwrap().persist();
    PClht::open(Arc::clone(&pool), link).unwrap()
}

/// Flushed lines and fences of `operation`.
fn cost<K: IndexKey + ?Sized>(
    index: &PClht<Watched<PersistCounts>, K>,
    operation: impl FnOnce(&PClht<Watched<PersistCounts>, K>),
) -> (u64, u64) {
    let counts = index.pool().domain().watcher();
    counts.take();
    operation(index);
    counts.take()
}

#[test]
fn an_insert_into_a_free_slot_costs_one_flush_and_one_fence() {
    let index = create::<u64, PersistCounts>(100_000);
    for key in 0..1000 {
        let cost = cost(&index, |index| _ = index.insert(&key, key).unwrap());
        assert_eq!(cost, (1, 1), "key {key}");
    }
}

#[test]
fn an_insert_of_a_byte_string_also_flushes_the_key_and_fences_before_it_is_published() {
    let index = create::<[u8], PersistCounts>(100_000);
    // The first allocates a slab for keys.
    let _ = index.insert(b"first", 0).unwrap();
    let costs = cost(&index, |index| _ = index.insert(b"second", 0).unwrap());
    assert_eq!(costs, (2, 2));
}

#[test]
fn a_change_of_a_present_key_costs_one_flush_and_one_fence() {
    let index = create::<u64, PersistCounts>(1000);
    let _ = index.insert(&1, 1).unwrap();
    assert_eq!(cost(&index, |index| _ = index.update(&1, 2).unwrap()), (1, 1));
    assert_eq!(cost(&index, |index| _ = index.put(&1, 3).unwrap()), (1, 1));
    assert_eq!(cost(&index, |index| _ = index.remove(&1).unwrap()), (1, 1));
}

#[test]
fn whatever_changes_nothing_costs_nothing() {
    let index = create::<u64, PersistCounts>(1000);
    let _ = index.insert(&1, 1).unwrap();
    let cost = cost(&index, |index| {
        let _ = index.insert(&1, 2).unwrap();
        let _ = index.update(&2, 2).unwrap();
        let _ = index.remove(&2).unwrap();
        assert_eq!((index.get(&1), index.get(&2)), (Some(1), None));
        index.for_each(&mut |_, _| std::ops::ControlFlow::Continue(()));
        assert_eq!(index.check(), Vec::<String>::new());
    });
    assert_eq!(cost, (0, 0));
}

#[test]
fn an_overflow_bucket_costs_two_flushes_and_two_fences_and_its_end_one_and_one() {
    // 64 buckets: up to eight overflow buckets before the table grows.
    let index = create::<u64, PersistCounts>(100);
    let mut overflowed = 0;
    for key in 0..120 {
        let nodes = index.statistics().nodes;
        let inserted = cost(&index, |index| _ = index.insert(&key, key).unwrap());
        if index.statistics().nodes == nodes + 1 {
            assert_eq!(inserted, (2, 2));
            let removed = cost(&index, |index| _ = index.remove(&key).unwrap());
            assert_eq!(removed, (1, 1));
            assert_eq!(index.statistics().nodes, nodes);
            overflowed += 1;
        }
    }
    assert!(overflowed > 0);
}

#[test]
fn growing_flushes_what_overflows_and_two_more_lines_and_fences_twice() {
    let index = create::<u64, PersistCounts>(4000);
    let (mut key, mut nodes) = (0, index.statistics().nodes);
    loop {
        let cost = cost(&index, |index| _ = index.insert(&key, key).unwrap());
        key += 1;
        let statistics = index.statistics();
        if statistics.nodes > nodes + 1 {
            // The insert that led to it: 2 and 2. Bucket 0 and the root: 2, with a fence each. The
            // counter sees what is written past the caches as neither.
            let table = 1u64 << statistics.nodes.ilog2();
            let overflow = statistics.nodes - table;
            assert!(cost.0 >= 4 + overflow && cost.1 >= 4, "{cost:?}, {overflow}");
            // New runs and slabs of the allocator: at most as many of each.
            assert!(cost.0 <= 4 + overflow + (cost.1 - 4) && cost.1 <= 4 + 8, "{cost:?}");
            break;
        }
        nodes = statistics.nodes;
    }
}

/// What a reader of `key` flushes and fences while an operation on the index is asleep before its
/// first fence.
fn cost_beside<R>(
    prepare: impl FnOnce(&PClht<Watched<Both>, u64>),
    stalled: impl FnOnce(&PClht<Watched<Both>, u64>) + Send,
    read: impl FnOnce(&PClht<Watched<Both>, u64>) -> R,
) -> (R, (u64, u64)) {
    let index = create::<u64, Both>(1000);
    prepare(&index);
    let (counts, stall) = index.pool().domain().watcher();
    std::thread::scope(|scope| {
        let index = &index;
        scope.spawn(move || {
            stall.this_thread();
            stalled(index);
        });
        stall.wait_for_one();
        counts.take();
        let said = read(index);
        let cost = counts.take();
        stall.open();
        (said, cost)
    })
}

#[test]
fn a_reader_persists_a_value_that_its_writer_has_not_yet_made_durable() {
    let seen = cost_beside(
        |index| _ = index.insert(&1, 10).unwrap(),
        |index| _ = index.update(&1, 11).unwrap(),
        |index| index.get(&1),
    );
    assert_eq!(seen, (Some(11), (1, 1)));
}

#[test]
fn a_reader_persists_the_absence_of_a_key_that_is_being_removed() {
    let seen = cost_beside(
        |index| _ = index.insert(&1, 10).unwrap(),
        |index| _ = index.remove(&1).unwrap(),
        |index| index.get(&1),
    );
    assert_eq!(seen, (None, (1, 1)));
}

#[test]
fn a_reader_of_another_chain_persists_nothing() {
    let seen = cost_beside(
        |index| {
            let _ = index.insert(&1, 10).unwrap();
            let _ = index.insert(&2, 20).unwrap();
        },
        |index| _ = index.update(&1, 11).unwrap(),
        |index| index.get(&2),
    );
    assert_eq!(seen, (Some(20), (0, 0)));
}
