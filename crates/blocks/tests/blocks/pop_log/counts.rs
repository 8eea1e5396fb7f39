//! Flushes and fences, counted.

use std::sync::Arc;

use lapis_blocks::log::{Placement, Position};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_device::{Config, Modelled};
use lapis_pmem::Pool;

use super::create;
use crate::modelled;

const OPTIONS: PopLogOptions =
    PopLogOptions { segment_bytes: 4096, spare_segments: 1, placement: Placement::Padded };
/// Lines for entries in a segment of [`OPTIONS`].
const LINES: u64 = 63;

fn log_of(options: PopLogOptions) -> (Arc<Pool<Modelled>>, PopLog<Modelled>) {
    let pool = modelled(1 << 20, Config::counting());
    let log = create(&pool, options);
    (pool, log)
}

/// Flushed lines and fences of `work`.
fn cost(pool: &Pool<Modelled>, work: impl FnOnce()) -> (u64, u64) {
    let before = pool.domain().counts();
    work();
    let spent = pool.domain().counts() - before;
    (spent.flushes, spent.fences)
}

#[test]
fn an_append_is_one_fence_and_as_many_flushes_as_lines() {
    let (pool, log) = log_of(PopLogOptions {
        segment_bytes: 64 << 10,
        spare_segments: 0,
        placement: Placement::Padded,
    });
    for (bytes, lines) in [(1, 1), (48, 1), (49, 2), (112, 2), (113, 3), (1000, 16), (8192, 129)] {
        let payload = vec![0xA5; bytes];
        let spent = cost(&pool, || {
            log.append(&payload).unwrap();
        });
        assert_eq!(spent, (lines, 1), "{bytes} bytes");
    }
}

/// As [`OPTIONS`], with entries that lie like that.
fn placed(placement: Placement) -> PopLogOptions {
    PopLogOptions { placement, ..OPTIONS }
}

#[test]
fn dense_entries_flush_the_line_that_they_share() {
    let (pool, log) = log_of(placed(Placement::Dense));
    // From 0, 24, 88, 184 and 320 on.
    for (bytes, lines) in [(8, 1), (48, 2), (80, 2), (120, 3), (48, 1)] {
        let payload = vec![0xA5; bytes];
        let spent = cost(&pool, || {
            log.append(&payload).unwrap();
        });
        assert_eq!(spent, (lines, 1), "{bytes} bytes");
    }
    assert_eq!(log.statistics().entry_bytes, 24 + 64 + 96 + 136 + 64);
}

#[test]
fn streamed_entries_take_one_fence_and_no_flush_and_share_a_line_only_whole() {
    let (pool, log) = log_of(placed(Placement::Streamed));
    // Two share a line, then one has a line left over, and all others begin one.
    for (bytes, taken) in [(8, 24), (8, 40), (24, 64), (48, 64), (100, 128), (1000, 1024)] {
        let before = log.statistics().entry_bytes;
        let payload = vec![0xA5; bytes];
        let spent = cost(&pool, || {
            log.append(&payload).unwrap();
        });
        assert_eq!(spent, (0, 1), "{bytes} bytes");
        assert_eq!(log.statistics().entry_bytes - before, taken, "{bytes} bytes");
    }
}

#[test]
fn parts_cost_what_the_whole_costs() {
    let (pool, log) = log_of(OPTIONS);
    let spent = cost(&pool, || {
        log.append_parts(&[&[1; 30], &[], &[2; 41], &[3; 41]]).unwrap();
    });
    assert_eq!(spent, (2, 1));
}

#[test]
fn an_append_that_takes_a_spare_costs_one_flush_more_and_no_fence() {
    let (pool, log) = log_of(OPTIONS);
    log.prepare_spares().unwrap();
    for _ in 0..LINES {
        log.append(&[7; 48]).unwrap();
    }
    let spent = cost(&pool, || {
        log.append(&[7; 48]).unwrap();
    });
    assert_eq!((spent, log.statistics().segments), ((2, 1), 2));
}

#[test]
fn an_append_that_allocates_a_segment_costs_one_fence_more() {
    let (pool, log) = log_of(OPTIONS);
    // The allocator has a slab of this class already.
    for _ in 0..LINES {
        log.append(&[7; 48]).unwrap();
    }
    let spent = cost(&pool, || {
        log.append(&[7; 48]).unwrap();
    });
    assert_eq!((spent, log.statistics().segments), ((2, 2), 2));
}

#[test]
fn recycling_adds_nothing_to_appends() {
    let (pool, log) = log_of(OPTIONS);
    log.prepare_spares().unwrap();
    let mut flushes_and_fences = (0, 0);
    for _ in 0..10 * LINES {
        let spent = cost(&pool, || {
            log.append(&[9; 20]).unwrap();
        });
        flushes_and_fences.0 += spent.0;
        flushes_and_fences.1 += spent.1;
        log.truncate(log.end()).unwrap();
    }
    // Ten segments were filled, nine of them recycled.
    assert_eq!(flushes_and_fences, (10 * LINES + 9, 10 * LINES));
    assert_eq!((log.statistics().segments, log.statistics().spare_segments), (1, 1));
}

#[test]
fn truncation_within_a_segment_is_one_flush_and_one_fence() {
    let (pool, log) = log_of(OPTIONS);
    for _ in 0..10 {
        log.append(&[1]).unwrap();
    }
    let spent = cost(&pool, || {
        log.truncate(Position::from_number(5)).unwrap();
    });
    assert_eq!(spent, (1, 1));
}

#[test]
fn truncation_that_makes_a_spare_costs_one_fence_more() {
    let (pool, log) = log_of(OPTIONS);
    for _ in 0..LINES + 1 {
        log.append(&[1]).unwrap();
    }
    let spent = cost(&pool, || {
        log.truncate(log.end()).unwrap();
    });
    assert_eq!((spent, log.statistics().spare_segments), ((1, 2), 1));
}

#[test]
fn truncating_what_is_gone_already_costs_nothing() {
    let (pool, log) = log_of(OPTIONS);
    log.append(&[1]).unwrap();
    log.truncate(log.end()).unwrap();
    let spent = cost(&pool, || {
        log.truncate(Position::FIRST).unwrap();
        log.truncate(log.end()).unwrap();
    });
    assert_eq!(spent, (0, 0));
}

#[test]
fn creation_needs_no_fence_of_its_own() {
    let pool = modelled(1 << 20, Config::counting());
    drop(pool.fence(PopLog::create(&pool, OPTIONS).unwrap()));
    // The slabs of both classes are there now.
    let spent = cost(&pool, || drop(PopLog::create(&pool, OPTIONS).unwrap()));
    assert_eq!(spent, (2, 0));
}
