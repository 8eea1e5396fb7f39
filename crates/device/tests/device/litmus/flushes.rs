//! Rule R4: flushes and fences.

use lapis_device::set_current_worker;

use crate::litmus::bench::{B, Bench, set};

#[test]
fn r4_a_flush_promises_nothing_until_the_fence() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r4_flush_and_fence_make_durable() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[1]]));
}

#[test]
fn r4_the_fence_promises_the_contents_at_the_flush() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.ordered(0, 2);
    bench.ordered(1, 3);
    bench.fence();
    assert_eq!(bench.at_end([0, 1]), set(&[[1, 0], [2, 0], [2, 3]]));
}

#[test]
fn r4_a_flush_covers_the_whole_line_and_no_other() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.ordered(7, 2);
    bench.ordered(B, 3);
    bench.flush(4);
    bench.fence();
    assert_eq!(bench.at_end([0, 7, B]), set(&[[1, 2, 0], [1, 2, 3]]));
}

#[test]
fn r4_one_fence_covers_several_flushes() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.ordered(B, 2);
    bench.flush(B);
    bench.fence();
    assert_eq!(bench.at_end([0, B]), set(&[[1, 2]]));
}

#[test]
fn r4_the_fence_of_another_worker_promises_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    set_current_worker(1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r4_a_worker_may_flush_and_fence_what_another_stored() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    set_current_worker(1);
    bench.flush(0);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[1]]));
}

#[test]
fn r4_a_flush_before_the_store_promises_nothing() {
    let bench = Bench::new();
    bench.flush(0);
    bench.ordered(0, 1);
    bench.fence();
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}
