//! What survives besides what was flushed: ADR, eADR, and a failed global persistent flush.

use lapis_device::{CrashCause, CrashPoints, PowerFailDomain};
use lapis_pmem::Domain;

use crate::bench::{B, Bench, set};

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
    let mut legal = std::collections::BTreeSet::new();
    for mask in 0..8u64 {
        legal.insert([mask & 1, (mask >> 1 & 1) * 2, (mask >> 2 & 1) * 3]);
    }
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, 1, B]), legal);
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

#[test]
fn eadr_with_visible_order_cuts_the_power_before_every_store() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(B, 2);
    let trace = bench.domain.take_trace();
    let mut points = CrashPoints::new(&trace, &[], PowerFailDomain::EadrVisible);
    let mut found = Vec::new();
    while let Some(point) = points.advance() {
        found.push((point.position, point.cause, points.states().image_count()));
    }
    let expected = [
        (0, CrashCause::BeforeStore, 1),
        (1, CrashCause::BeforeStore, 1),
        (2, CrashCause::TraceEnd, 1),
    ];
    assert_eq!(found, expected);
}
