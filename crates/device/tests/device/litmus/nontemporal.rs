//! Rule R6: non-temporal stores.

use std::collections::BTreeSet;

use lapis_device::{Event, PowerFailDomain, set_current_worker};

use crate::litmus::bench::{B, Bench, at_end_of_trace, set};

#[test]
fn r6_non_temporal_stores_persist_in_any_subset_of_words() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1, 2, 3]);
    let mut legal = BTreeSet::new();
    for mask in 0..8u64 {
        legal.insert([(mask & 1), (mask >> 1 & 1) * 2, (mask >> 2 & 1) * 3]);
    }
    assert_eq!(bench.at_end([0, 1, 2]), legal);
}

#[test]
fn r6_a_fence_makes_non_temporal_stores_durable_without_a_flush() {
    let bench = Bench::new();
    bench.nontemporal(6, &[1, 2, 3, 4]);
    bench.fence();
    assert_eq!(bench.at_end([6, 7, B, B + 1]), set(&[[1, 2, 3, 4]]));
}

#[test]
fn r6_the_fence_of_another_worker_leaves_non_temporal_stores_pending() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    set_current_worker(1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r6_a_fence_completes_only_its_worker_s_part_of_a_line() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    set_current_worker(1);
    bench.nontemporal(1, &[2]);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 2], [1, 2]]));
}

#[test]
fn r6_an_ordered_store_may_persist_before_an_earlier_non_temporal_one() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.ordered(1, 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r6_a_non_temporal_store_over_a_pending_word_persists_after_it() {
    let bench = Bench::new();
    bench.ordered(1, 7);
    bench.ordered(0, 8);
    bench.nontemporal(0, &[1]);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[1, 7]]));
}

#[test]
fn r6_a_clflush_makes_the_cached_stores_of_its_line_durable_and_no_non_temporal_ones() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.ordered(1, 2);
    let mut trace = bench.domain.take_trace();
    trace.events.push(Event::StrongFlush { worker: 0, line: 0 });
    let legal = at_end_of_trace(trace, PowerFailDomain::Adr, [0, 1]);
    assert_eq!(legal, set(&[[0, 2], [1, 2]]));
}
