//! CCEH.

use lapis_index::IndexKind::Cceh;
use lapis_index::{IndexKey, IndexOptions};

use crate::watched::{Counted, beside_a_writer_at_its_first_fence, counting};

fn made_for<K: IndexKey + ?Sized>(expected_entries: usize) -> Counted<K> {
    Counted::with(Cceh, &IndexOptions { expected_entries, ..IndexOptions::default() })
}

#[test]
fn an_insert_into_a_free_slot_costs_one_flush_and_one_fence() {
    let index = made_for::<u64>(10_000);
    for key in 0..1000 {
        assert_eq!(index.insert(&key), (1, 1), "key {key}");
    }
}

#[test]
fn an_insert_of_a_byte_string_also_flushes_the_key_and_fences_before_it_counts() {
    let index = made_for::<[u8]>(10_000);
    // The first allocates a slab for keys.
    let _ = index.insert(b"first");
    assert_eq!(index.insert(b"second"), (2, 2));
}

#[test]
fn a_change_of_a_present_key_costs_one_flush_and_one_fence() {
    let index = made_for::<u64>(1000).holding(&[1]);
    assert_eq!(index.update(&1), (1, 1));
    assert_eq!(index.put(&1), (1, 1));
    assert_eq!(index.remove(&1), (1, 1));
}

/// The new segment's header, the record, the entries of the directory, the entry; what is written past
/// the caches counts as neither. A larger directory comes on top, and now and then a slab.
#[test]
fn a_split_flushes_four_lines_and_fences_four_times_where_the_directory_stays() {
    let index = Counted::<u64>::with_nodes(Cceh, 384);
    let (mut before, mut splits) = (index.0.statistics(), 0);
    for key in 0..400 {
        let cost = index.insert(&key);
        let after = index.0.statistics();
        if after.blocks == before.blocks + 1 && after.bytes == before.bytes + 384 {
            assert!(cost == (4, 4) || cost == (5, 5), "key {key}: {cost:?}");
            splits += u32::from(cost == (4, 4));
        }
        before = after;
    }
    assert!(splits > 5, "{splits}");
}

#[test]
fn a_reader_of_another_segment_persists_nothing() {
    let index = made_for::<u64>(1000).holding(&Vec::from_iter(0..64));
    let machine = index.0.pool().domain();
    let write = || _ = index.0.update(&1, 11).unwrap();
    let read = || {
        let costs = (2..64).map(|key| counting(machine, || index.0.get(&key)).1);
        costs.filter(|cost| *cost == (0, 0)).count()
    };
    // There are four segments.
    assert!(beside_a_writer_at_its_first_fence(machine, write, read) > 30);
}
