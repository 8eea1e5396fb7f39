//! What survives besides what was flushed: ADR, eADR for a trace of one worker, and a failed global
//! persistent flush. eADR for traces of several workers is in `visible_order`.

use std::collections::BTreeSet;

use lapis_device::{Event, Marker, PowerFailDomain};
use lapis_pmem::Domain;

use crate::litmus::bench::{B, Bench, at_end_of_trace, set};

const EADR: PowerFailDomain = PowerFailDomain::Eadr;

/// All subsets of these words.
fn subsets<const N: usize>(words: [u64; N]) -> BTreeSet<[u64; N]> {
    let subset = |mask: u32| std::array::from_fn(|at| u64::from(mask >> at & 1) * words[at]);
    (0..1u32 << N).map(subset).collect()
}

#[test]
fn eadr_makes_visible_durable_up_to_the_store_buffers() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    bench.ordered(1, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B, 1]), legal);
}

#[test]
fn eadr_needs_a_fence_and_no_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    bench.fence();
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), set(&[[1, 2]]));
}

#[test]
fn eadr_a_locked_store_is_durable_with_all_before_it() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.domain.swap::<u64>(bench.word(B), 2);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), set(&[[1, 2]]));
}

#[test]
fn eadr_a_non_temporal_store_may_be_missing_although_later_stores_are_not() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.ordered(B, 2);
    let legal = set(&[[0, 0], [1, 0], [0, 2], [1, 2]]);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, B]), legal);
}

#[test]
fn eadr_any_subset_of_non_temporal_stores_may_be_missing() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1, 2]);
    bench.ordered(B, 3);
    assert_eq!(bench.at_end_of(EADR, [0, 1, B]), subsets([1, 2, 3]));
}

#[test]
fn eadr_a_non_temporal_store_may_be_there_although_an_earlier_store_is_not() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.nontemporal(B, &[2]);
    assert_eq!(bench.at_end_of(EADR, [0, B]), subsets([1, 2]));
}

#[test]
fn eadr_a_non_temporal_store_stays_behind_an_earlier_store_to_its_word() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.nontemporal(0, &[2]);
    assert_eq!(bench.at_end_of(EADR, [0]), set(&[[0], [1], [2]]));
}

#[test]
fn eadr_a_store_over_a_non_temporal_one_brings_it_along() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1, 5]);
    bench.ordered(0, 2);
    let legal = set(&[[0, 0], [0, 5], [1, 0], [1, 5], [2, 0], [2, 5]]);
    assert_eq!(bench.at_end_of(EADR, [0, 1]), legal);
}

#[test]
fn eadr_a_fence_completes_non_temporal_stores_and_those_after_it_are_lost_alone() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.fence();
    bench.nontemporal(B, &[2]);
    assert_eq!(bench.at_end_of(EADR, [0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn eadr_a_locked_operation_empties_the_write_combining_buffers_too() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.domain.swap::<u64>(bench.word(B), 2);
    assert_eq!(bench.at_end_of(EADR, [0, B]), set(&[[1, 2]]));
}

#[test]
fn eadr_of_relaxed_stores_any_subset_may_be_missing_whatever_their_lines() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(B, 2);
    bench.relaxed(1, 3);
    assert_eq!(bench.at_end_of(EADR, [0, B, 1]), subsets([1, 2, 3]));
}

#[test]
fn eadr_an_ordered_store_stays_behind_relaxed_ones_of_all_lines() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(B, 2);
    bench.ordered(2 * B, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end_of(EADR, [0, B, 2 * B]), legal);
}

#[test]
fn eadr_relaxed_stores_after_an_ordered_one_stay_behind_it() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.relaxed(B, 2);
    bench.relaxed(2 * B, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]);
    assert_eq!(bench.at_end_of(EADR, [0, B, 2 * B]), legal);
}

#[test]
fn eadr_relaxed_stores_to_one_word_stay_in_order() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.relaxed(0, 2);
    bench.relaxed(B, 3);
    let legal = set(&[[0, 0], [1, 0], [2, 0], [0, 3], [1, 3], [2, 3]]);
    assert_eq!(bench.at_end_of(EADR, [0, B]), legal);
}

#[test]
fn eadr_a_fence_between_relaxed_stores_orders_them() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.fence();
    bench.relaxed(B, 2);
    assert_eq!(bench.at_end_of(EADR, [0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn eadr_a_clwb_between_relaxed_stores_orders_nothing() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.flush(0);
    bench.relaxed(1, 2);
    bench.relaxed(B, 3);
    assert_eq!(bench.at_end_of(EADR, [0, 1, B]), subsets([1, 2, 3]));
}

#[test]
fn eadr_a_clflush_between_relaxed_stores_orders_them() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    let mut trace = bench.domain.take_trace();
    trace.events.push(Event::StrongFlush { worker: 0, line: 0 });
    bench.relaxed(B, 2);
    trace.events.extend(bench.domain.take_trace().events);
    let legal = set(&[[0, 0], [1, 0], [1, 2]]);
    assert_eq!(at_end_of_trace(trace, EADR, [0, B]), legal);
}

#[test]
fn eadr_a_copy_tears_between_its_words_within_a_line_and_across_lines() {
    let bench = Bench::new();
    bench.copy(6, &[1, 2, 3]);
    assert_eq!(bench.at_end_of(EADR, [6, 7, B]), subsets([1, 2, 3]));
}

#[test]
fn eadr_a_store_that_publishes_a_copy_is_there_with_all_of_it_only() {
    let bench = Bench::new();
    bench.copy(7, &[1, 2]);
    bench.ordered(2 * B, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(bench.at_end_of(EADR, [7, B, 2 * B]), legal);
}

#[test]
fn eadr_eight_unaligned_bytes_tear_at_the_boundary_of_the_words() {
    let bench = Bench::new();
    // SAFETY: inside the mapped region, and no other thread uses it.
    unsafe { bench.domain.copy(bench.region.base().add(5), &[0xFF; 8]) };
    let (low, high) = (u64::MAX << 40, u64::MAX >> 24);
    assert_eq!(bench.at_end_of(EADR, [0, 1]), subsets([low, high]));
}

#[test]
fn eadr_what_was_acknowledged_without_a_fence_may_be_lost() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.domain.mark(Marker::End(0));
    assert_eq!(bench.at_end_of(EADR, [0]), set(&[[0], [1]]));
}

#[test]
fn a_failed_global_flush_loses_what_eadr_had_promised() {
    let store_and_fence = || {
        let bench = Bench::new();
        bench.ordered(0, 1);
        bench.fence();
        bench
    };
    assert_eq!(store_and_fence().at_end_of(PowerFailDomain::Eadr, [0]), set(&[[1]]));
    assert_eq!(store_and_fence().at_end_of(PowerFailDomain::GpfFailed, [0]), set(&[[0], [1]]));
}

#[test]
fn a_failed_global_flush_keeps_what_was_flushed_and_fenced() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.fence();
    bench.ordered(0, 2);
    assert_eq!(bench.at_end_of(PowerFailDomain::GpfFailed, [0]), set(&[[1], [2]]));
}
