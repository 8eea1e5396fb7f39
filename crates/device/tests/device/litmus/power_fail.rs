//! What survives besides what was flushed: eADR for a trace of one worker. That for traces of several
//! workers is in `visible_order`.

use lapis_device::PowerFailDomain;
use lapis_pmem::Domain;

use crate::litmus::bench::Step::{
    Acknowledge, Copy, Fence, Flush, NonTemporal, Ordered, Relaxed, StrongFlush, Swap,
};
use crate::litmus::bench::{B, Bench, litmus, subsets};

litmus! { left, Eadr;
    eadr_makes_visible_durable_up_to_the_store_buffers:
        [Ordered(0, 1), Ordered(B, 2), Ordered(1, 3)], [0, B, 1]
            => [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]];
    eadr_needs_a_fence_and_no_flush:
        [Ordered(0, 1), Ordered(B, 2), Fence], [0, B] => [[1, 2]];
    eadr_a_locked_store_is_durable_with_all_before_it:
        [Ordered(0, 1), Swap(B, 2)], [0, B] => [[1, 2]];
    eadr_a_non_temporal_store_may_be_missing_although_later_stores_are_not:
        [NonTemporal(0, &[1]), Ordered(B, 2)], [0, B] => subsets([1, 2]);
    eadr_any_subset_of_non_temporal_stores_may_be_missing:
        [NonTemporal(0, &[1, 2]), Ordered(B, 3)], [0, 1, B] => subsets([1, 2, 3]);
    eadr_a_non_temporal_store_may_be_there_although_an_earlier_store_is_not:
        [Ordered(0, 1), NonTemporal(B, &[2])], [0, B] => subsets([1, 2]);
    eadr_a_non_temporal_store_stays_behind_an_earlier_store_to_its_word:
        [Ordered(0, 1), NonTemporal(0, &[2])], [0] => [[0], [1], [2]];
    eadr_a_store_over_a_non_temporal_one_brings_it_along:
        [NonTemporal(0, &[1, 5]), Ordered(0, 2)], [0, 1]
            => [[0, 0], [0, 5], [1, 0], [1, 5], [2, 0], [2, 5]];
    eadr_a_fence_completes_non_temporal_stores_and_those_after_it_are_lost_alone:
        [NonTemporal(0, &[1]), Fence, NonTemporal(B, &[2])], [0, B] => [[1, 0], [1, 2]];
    eadr_a_locked_operation_empties_the_write_combining_buffers_too:
        [NonTemporal(0, &[1]), Swap(B, 2)], [0, B] => [[1, 2]];
    eadr_of_relaxed_stores_any_subset_may_be_missing_whatever_their_lines:
        [Relaxed(0, 1), Relaxed(B, 2), Relaxed(1, 3)], [0, B, 1] => subsets([1, 2, 3]);
    eadr_an_ordered_store_stays_behind_relaxed_ones_of_all_lines:
        [Relaxed(0, 1), Relaxed(B, 2), Ordered(2 * B, 3)], [0, B, 2 * B]
            => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]];
    eadr_relaxed_stores_after_an_ordered_one_stay_behind_it:
        [Ordered(0, 1), Relaxed(B, 2), Relaxed(2 * B, 3)], [0, B, 2 * B]
            => [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]];
    eadr_relaxed_stores_to_one_word_stay_in_order:
        [Relaxed(0, 1), Relaxed(0, 2), Relaxed(B, 3)], [0, B]
            => [[0, 0], [1, 0], [2, 0], [0, 3], [1, 3], [2, 3]];
    eadr_a_fence_between_relaxed_stores_orders_them:
        [Relaxed(0, 1), Fence, Relaxed(B, 2)], [0, B] => [[1, 0], [1, 2]];
    eadr_a_clwb_between_relaxed_stores_orders_nothing:
        [Relaxed(0, 1), Flush(0), Relaxed(1, 2), Relaxed(B, 3)], [0, 1, B] => subsets([1, 2, 3]);
    eadr_a_clflush_between_relaxed_stores_orders_them:
        [Relaxed(0, 1), StrongFlush(0), Relaxed(B, 2)], [0, B] => [[0, 0], [1, 0], [1, 2]];
    eadr_a_copy_tears_between_its_words_within_a_line_and_across_lines:
        [Copy(6, &[1, 2, 3])], [6, 7, B] => subsets([1, 2, 3]);
    eadr_a_store_that_publishes_a_copy_is_there_with_all_of_it_only:
        [Copy(7, &[1, 2]), Ordered(2 * B, 3)], [7, B, 2 * B]
            => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]];
    eadr_what_was_acknowledged_without_a_fence_may_be_lost:
        [Ordered(0, 1), Acknowledge], [0] => [[0], [1]];
    eadr_makes_a_store_durable_by_a_fence:
        [Ordered(0, 1), Fence], [0] => [[1]];
}

#[test]
fn eadr_eight_unaligned_bytes_tear_at_the_boundary_of_the_words() {
    let bench = Bench::new();
    // SAFETY: inside the mapped region, and no other thread uses it.
    unsafe { bench.domain.copy(bench.region.base().add(5), &[0xFF; 8]) };
    let (low, high) = (u64::MAX << 40, u64::MAX >> 24);
    assert_eq!(bench.at_end_of(PowerFailDomain::Eadr, [0, 1]), subsets([low, high]));
}
