//! Rule R5: locked instructions.

use std::sync::atomic::Ordering;

use lapis_device::PowerFailDomain;
use lapis_pmem::Domain;

use crate::litmus::bench::{B, Bench, set};

#[test]
fn r5_a_compare_exchange_is_visible_without_being_durable() {
    let bench = Bench::new();
    bench.domain.compare_exchange::<u64>(bench.word(0), 0, 1).unwrap();
    assert_eq!(bench.word(0).load(Ordering::Relaxed), 1);
    assert_eq!(bench.at_end([0]), set(&[[0], [1]]));
}

#[test]
fn r5_a_compare_exchange_completes_earlier_flushes_of_its_worker() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    assert_eq!(bench.at_end([0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_a_swap_completes_earlier_flushes_of_its_worker() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.swap::<u64>(bench.word(B), 2);
    assert_eq!(bench.at_end([0, B]), set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_on_a_portable_machine_a_compare_exchange_completes_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    let legal = bench.at_end_of(PowerFailDomain::AdrPortable, [0, B]);
    assert_eq!(legal, set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}

#[test]
fn r5_on_a_portable_machine_the_next_fence_completes_flushes_before_a_compare_exchange() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    bench.fence();
    let legal = bench.at_end_of(PowerFailDomain::AdrPortable, [0, B]);
    assert_eq!(legal, set(&[[1, 0], [1, 2]]));
}

#[test]
fn r5_a_locked_store_follows_earlier_stores_of_its_line() {
    let bench = Bench::new();
    bench.relaxed(0, 1);
    bench.domain.swap::<u64>(bench.word(1), 2);
    assert_eq!(bench.at_end([0, 1]), set(&[[0, 0], [1, 0], [1, 2]]));
}

#[test]
fn r5_a_compare_exchange_that_fails_stores_and_completes_nothing() {
    let bench = Bench::new();
    bench.ordered(0, 1);
    bench.flush(0);
    assert_eq!(bench.domain.compare_exchange::<u64>(bench.word(B), 5, 2), Err(0));
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0]]));
}

#[test]
fn r5_a_compare_exchange_does_not_complete_non_temporal_stores() {
    let bench = Bench::new();
    bench.nontemporal(0, &[1]);
    bench.domain.compare_exchange::<u64>(bench.word(B), 0, 2).unwrap();
    assert_eq!(bench.at_end([0, B]), set(&[[0, 0], [1, 0], [0, 2], [1, 2]]));
}
