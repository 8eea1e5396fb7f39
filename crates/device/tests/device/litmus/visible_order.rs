//! eADR for traces whose order is that of visibility: each store is durable where it stands, and of
//! what nobody can have seen the order of any subset.

use std::collections::BTreeSet;

use lapis_device::{CrashCause, CrashPoints, PowerFailDomain, set_current_worker};

use crate::litmus::bench::{B, Bench, at_points, set};

/// What the words may hold after a crash at any point.
fn at_any_point<const N: usize>(bench: &Bench, indices: [usize; N]) -> BTreeSet<[u64; N]> {
    at_points(&bench.domain.take_trace(), PowerFailDomain::EadrVisible, indices, |_| true)
}

#[test]
fn the_power_is_cut_before_every_store() {
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

#[test]
fn a_copy_tears_between_its_words_in_any_order() {
    for nontemporal in [false, true] {
        let bench = Bench::new();
        if nontemporal {
            bench.nontemporal(7, &[1, 2]);
        } else {
            bench.copy(7, &[1, 2]);
        }
        let legal = set(&[[0, 0], [1, 0], [0, 2], [1, 2]]);
        assert_eq!(at_any_point(&bench, [7, B]), legal, "non-temporal: {nontemporal}");
    }
}

#[test]
fn an_ordered_store_is_there_with_all_of_the_copy_before_it_only() {
    let bench = Bench::new();
    bench.copy(7, &[1, 2]);
    bench.ordered(2 * B, 3);
    let legal = set(&[[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]]);
    assert_eq!(at_any_point(&bench, [7, B, 2 * B]), legal);
}

#[test]
fn a_copy_does_not_overtake_the_ordered_store_before_it() {
    let bench = Bench::new();
    bench.ordered(2 * B, 3);
    bench.copy(7, &[1, 2]);
    let legal = set(&[[0, 0, 0], [0, 0, 3], [1, 0, 3], [0, 2, 3], [1, 2, 3]]);
    assert_eq!(at_any_point(&bench, [7, B, 2 * B]), legal);
}

#[test]
fn a_store_of_another_worker_settles_what_was_visible_before_it() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    set_current_worker(1);
    bench.relaxed(B, 2);
    assert_eq!(at_any_point(&bench, [0, B]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn a_fence_settles_what_was_visible_before_it_and_a_flush_does_not() {
    let words = |between: fn(&Bench)| {
        let bench = Bench::new();
        bench.relaxed(0, 1);
        between(&bench);
        bench.relaxed(B, 2);
        at_any_point(&bench, [0, B])
    };
    assert_eq!(words(|bench| bench.fence()), set(&[[0, 0], [1, 0], [1, 2]]));
    assert_eq!(words(|bench| bench.flush(0)), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn what_is_acknowledged_is_visible_and_so_durable_with_all_of_its_copy() {
    let bench = Bench::new();
    bench.copy(7, &[1, 2]);
    bench.domain.mark(lapis_device::Marker::End(5));
    let trace = bench.domain.take_trace();
    let at = |wanted: fn(CrashCause) -> bool| {
        at_points(&trace, PowerFailDomain::EadrVisible, [7, B], |point| wanted(point.cause))
    };
    let acknowledged = at(|cause| cause == CrashCause::OperationEnd(5));
    assert_eq!(acknowledged, set(&[[1, 2]]));
    let before = at(|cause| cause == CrashCause::AfterStore);
    assert_eq!(before, set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}
