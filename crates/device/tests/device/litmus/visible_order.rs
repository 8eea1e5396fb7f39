//! eADR for traces whose order is that of visibility: each store is durable where it stands, and of
//! what nobody can have seen the order of any subset.

use lapis_device::{CrashCause, CrashPoints, PowerFailDomain};

use crate::litmus::bench::Step::{Copy, Fence, Flush, NonTemporal, Ordered, Relaxed, Worker};
use crate::litmus::bench::{B, Bench, at_points, litmus, set, subsets};

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

litmus! { left_at_any_point, EadrVisible;
    a_copy_tears_between_its_words_in_any_order:
        [Copy(7, &[1, 2])], [7, B] => subsets([1, 2]);
    a_non_temporal_copy_tears_between_its_words_in_any_order:
        [NonTemporal(7, &[1, 2])], [7, B] => subsets([1, 2]);
    an_ordered_store_is_there_with_all_of_the_copy_before_it_only:
        [Copy(7, &[1, 2]), Ordered(2 * B, 3)], [7, B, 2 * B]
            => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]];
    a_copy_does_not_overtake_the_ordered_store_before_it:
        [Ordered(2 * B, 3), Copy(7, &[1, 2])], [7, B, 2 * B]
            => [[0, 0, 0], [0, 0, 3], [1, 0, 3], [0, 2, 3], [1, 2, 3]];
    a_store_of_another_worker_settles_what_was_visible_before_it:
        [Relaxed(0, 1), Worker(1), Relaxed(B, 2)], [0, B] => [[0, 0], [1, 0], [1, 2]];
    a_fence_settles_what_was_visible_before_it:
        [Relaxed(0, 1), Fence, Relaxed(B, 2)], [0, B] => [[0, 0], [1, 0], [1, 2]];
    a_flush_does_not_settle_what_was_visible_before_it:
        [Relaxed(0, 1), Flush(0), Relaxed(B, 2)], [0, B] => subsets([1, 2]);
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
