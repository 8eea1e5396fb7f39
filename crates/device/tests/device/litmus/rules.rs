//! Rules R1 to R6 on the machine that records: a program each, and what it may leave.

use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::Domain;

use crate::litmus::bench::Step::{
    Byte, CompareExchange, Copy, Fence, Flush, NonTemporal, Ordered, Relaxed, StrongFlush, Swap,
    Worker,
};
use crate::litmus::bench::{B, Bench, litmus, subsets};

litmus! { left, Adr;
    r1_without_stores_memory_is_as_it_was:
        [Flush(0), Fence], [0] => [[0]];

    r2_ordered_stores_of_one_line_persist_in_program_order:
        [Ordered(0, 1), Ordered(1, 2)], [0, 1] => [[0, 0], [1, 0], [1, 2]];
    r2_relaxed_stores_of_one_line_persist_in_any_order:
        [Relaxed(0, 1), Relaxed(1, 2)], [0, 1] => subsets([1, 2]);
    r2_relaxed_stores_persist_before_the_ordered_store_that_follows:
        [Relaxed(0, 1), Relaxed(1, 2), Ordered(2, 3)], [0, 1, 2]
            => [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 3]];
    r2_relaxed_stores_persist_after_the_ordered_store_that_precedes:
        [Ordered(0, 1), Relaxed(1, 2), Relaxed(2, 3)], [0, 1, 2]
            => [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]];
    r2_stores_to_one_word_persist_in_order_even_if_relaxed:
        [Relaxed(0, 1), Relaxed(0, 2)], [0] => [[0], [1], [2]];
    r2_a_byte_over_a_word_never_persists_without_the_word:
        [Relaxed(0, 0x1111), Byte(0, 0x22)], [0] => [[0], [0x1111], [0x1122]];
    r2_eight_aligned_bytes_are_never_torn_and_the_units_of_a_copy_are_unordered:
        [Copy(0, &[u64::MAX, u64::MAX])], [0, 1] => subsets([u64::MAX, u64::MAX]);
    r2_a_flush_separates_relaxed_stores_of_its_line:
        [Relaxed(0, 1), Flush(0), Relaxed(1, 2)], [0, 1] => [[0, 0], [1, 0], [1, 2]];
    r2_a_flush_separates_relaxed_stores_also_with_a_non_temporal_store_in_between:
        [Relaxed(0, 1), Flush(0), NonTemporal(2, &[7]), Relaxed(1, 2)], [0, 1]
            => [[0, 0], [1, 0], [1, 2]];
    r2_a_fence_separates_relaxed_stores_of_one_line:
        [Relaxed(0, 1), Fence, Relaxed(1, 2)], [0, 1] => [[0, 0], [1, 0], [1, 2]];
    r2_stores_of_another_worker_in_between_end_a_run_of_unordered_stores:
        [Relaxed(0, 1), Worker(1), Relaxed(1, 2), Worker(0), Relaxed(2, 3)], [0, 1, 2]
            => [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]];

    r3_lines_persist_independently:
        [Ordered(0, 1), Ordered(B, 2)], [0, B] => subsets([1, 2]);
    r3_a_line_written_back_early_takes_none_of_the_others_with_it:
        [Ordered(0, 1), Ordered(B, 2), Ordered(2 * B, 3)], [0, B, 2 * B] => subsets([1, 2, 3]);
    r3_a_line_may_persist_without_a_flush:
        [Ordered(0, 1), Fence], [0] => [[0], [1]];

    r4_a_flush_promises_nothing_until_the_fence:
        [Ordered(0, 1), Flush(0)], [0] => [[0], [1]];
    r4_flush_and_fence_make_durable:
        [Ordered(0, 1), Flush(0), Fence], [0] => [[1]];
    r4_the_fence_promises_the_contents_at_the_flush:
        [Ordered(0, 1), Flush(0), Ordered(0, 2), Ordered(1, 3), Fence], [0, 1]
            => [[1, 0], [2, 0], [2, 3]];
    r4_a_flush_covers_the_whole_line_and_no_other:
        [Ordered(0, 1), Ordered(7, 2), Ordered(B, 3), Flush(4), Fence], [0, 7, B]
            => [[1, 2, 0], [1, 2, 3]];
    r4_one_fence_covers_several_flushes:
        [Ordered(0, 1), Flush(0), Ordered(B, 2), Flush(B), Fence], [0, B] => [[1, 2]];
    r4_the_fence_of_another_worker_promises_nothing:
        [Ordered(0, 1), Flush(0), Worker(1), Fence], [0] => [[0], [1]];
    r4_a_worker_may_flush_and_fence_what_another_stored:
        [Ordered(0, 1), Worker(1), Flush(0), Fence], [0] => [[1]];
    r4_a_flush_before_the_store_promises_nothing:
        [Flush(0), Ordered(0, 1), Fence], [0] => [[0], [1]];

    r5_a_compare_exchange_is_visible_without_being_durable:
        [CompareExchange(0, 0, 1)], [0] => [[0], [1]];
    r5_a_compare_exchange_completes_earlier_flushes_of_its_worker:
        [Ordered(0, 1), Flush(0), CompareExchange(B, 0, 2)], [0, B] => [[1, 0], [1, 2]];
    r5_a_swap_completes_earlier_flushes_of_its_worker:
        [Ordered(0, 1), Flush(0), Swap(B, 2)], [0, B] => [[1, 0], [1, 2]];
    r5_a_locked_store_follows_earlier_stores_of_its_line:
        [Relaxed(0, 1), Swap(1, 2)], [0, 1] => [[0, 0], [1, 0], [1, 2]];
    r5_a_compare_exchange_that_fails_stores_and_completes_nothing:
        [Ordered(0, 1), Flush(0), CompareExchange(B, 5, 2)], [0, B] => [[0, 0], [1, 0]];
    r5_a_compare_exchange_completes_non_temporal_stores_of_its_worker:
        [NonTemporal(0, &[1]), CompareExchange(B, 0, 2)], [0, B] => [[1, 0], [1, 2]];
    r5_a_swap_of_another_worker_completes_no_non_temporal_stores:
        [NonTemporal(0, &[1]), Worker(1), Swap(B, 2)], [0, B] => subsets([1, 2]);
    r5_a_compare_exchange_that_fails_completes_no_non_temporal_stores:
        [NonTemporal(0, &[1]), CompareExchange(B, 5, 2)], [0, B] => [[0, 0], [1, 0]];

    r6_non_temporal_stores_persist_in_any_subset_of_words:
        [NonTemporal(0, &[1, 2, 3])], [0, 1, 2] => subsets([1, 2, 3]);
    r6_a_fence_makes_non_temporal_stores_durable_without_a_flush:
        [NonTemporal(6, &[1, 2, 3, 4]), Fence], [6, 7, B, B + 1] => [[1, 2, 3, 4]];
    r6_the_fence_of_another_worker_leaves_non_temporal_stores_pending:
        [NonTemporal(0, &[1]), Worker(1), Fence], [0] => [[0], [1]];
    r6_a_fence_completes_only_its_worker_s_part_of_a_line:
        [NonTemporal(0, &[1]), Worker(1), NonTemporal(1, &[2]), Fence], [0, 1] => [[0, 2], [1, 2]];
    r6_an_ordered_store_may_persist_before_an_earlier_non_temporal_one:
        [NonTemporal(0, &[1]), Ordered(1, 2)], [0, 1] => subsets([1, 2]);
    r6_a_non_temporal_store_over_a_pending_word_persists_after_it:
        [Ordered(1, 7), Ordered(0, 8), NonTemporal(0, &[1]), Fence], [0, 1] => [[1, 7]];
    r6_a_clflush_makes_the_cached_stores_of_its_line_durable_and_no_non_temporal_ones:
        [NonTemporal(0, &[1]), Ordered(1, 2), StrongFlush(0)], [0, 1] => [[0, 2], [1, 2]];
}

litmus! { left, AdrPortable;
    r5_on_a_portable_machine_a_compare_exchange_completes_nothing:
        [Ordered(0, 1), Flush(0), CompareExchange(B, 0, 2)], [0, B] => subsets([1, 2]);
    r5_on_a_portable_machine_a_swap_completes_no_non_temporal_stores:
        [NonTemporal(0, &[1]), Swap(B, 2)], [0, B] => subsets([1, 2]);
    r5_on_a_portable_machine_the_next_fence_completes_flushes_before_a_compare_exchange:
        [Ordered(0, 1), Flush(0), CompareExchange(B, 0, 2), Fence], [0, B] => [[1, 0], [1, 2]];
}

#[test]
fn r1_a_store_outside_of_the_region_is_no_event() {
    let bench = Bench::new();
    let dram = AtomicU64::new(0);
    bench.domain.store::<u64>(&dram, 1, Ordering::Release);
    assert_eq!(bench.domain.load::<u64>(&dram, Ordering::Acquire), 1);
    assert_eq!(bench.domain.traced_events(), 0);
}
