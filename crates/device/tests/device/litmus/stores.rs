//! Rules R1 to R3: what is visible may persist; order within a line, none between lines.

use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::Domain;

use crate::litmus::bench::{B, Bench, set};

#[test]
fn r1_without_stores_memory_is_as_it_was() {
    let bench = Bench::new();
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0]]));
}

#[test]
fn r1_a_store_outside_of_the_region_is_no_event() {
    let bench = Bench::new();
    let dram = AtomicU64::new(0);
    bench.domain.store::<u64>(&dram, 1, Ordering::Release);
    assert_eq!(bench.domain.load::<u64>(&dram, Ordering::Acquire), 1);
    assert_eq!(bench.domain.traced_events(), 0);
}

#[test]
fn r2_ordered_stores_of_one_line_persist_in_program_order() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_relaxed_stores_of_one_line_persist_in_any_order() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r2_relaxed_stores_persist_before_the_ordered_store_that_follows() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(1, 2);
    bench.ordered(2, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r2_relaxed_stores_persist_after_the_ordered_store_that_precedes() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.relaxed(1, 2);
    bench.relaxed(2, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]);
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r2_stores_to_one_word_persist_in_order_even_if_relaxed() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(0, 2);
    assert_eq!(bench.at_end([0]), set(&[[0], [1], [2]]));
}

#[test]
fn r2_a_byte_over_a_word_never_persists_without_the_word() {
    let bench = Bench::new();
    bench.relaxed(0, 0x1111);
    bench.domain.store::<u8>(bench.byte(0), 0x22, Ordering::Relaxed);
    assert_eq!(bench.at_end([0]), set(&[[0], [0x1111], [0x1122]]));
}

#[test]
fn r2_eight_aligned_bytes_are_never_torn_and_the_units_of_a_copy_are_unordered() {
    let bench = Bench::new();
    bench.copy(0, &[u64::MAX, u64::MAX]);
    let legal = set(&[[0, 0], [u64::MAX, 0], [0, u64::MAX], [u64::MAX, u64::MAX]]);
    assert_eq!(bench.at_end([0, 1]), legal);
}

#[test]
fn r2_a_flush_separates_relaxed_stores_of_its_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.flush(0);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_a_flush_separates_relaxed_stores_also_with_a_non_temporal_store_in_between() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.flush(0);
    bench.nontemporal(2, &[7]);
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r2_a_fence_separates_relaxed_stores_of_one_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.fence();
    bench.relaxed(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r3_lines_persist_independently() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r3_a_line_may_persist_without_a_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}
