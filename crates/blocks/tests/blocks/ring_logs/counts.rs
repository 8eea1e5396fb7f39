//! Barriers, flushed lines, space, and lines persisted twice in a row: counted.

use std::collections::HashSet;

use lapis_blocks::classic_log::Classic;
use lapis_blocks::header_log::Header;
use lapis_blocks::log::{Layout, Placement, Position};
use lapis_blocks::pop_ring::Pop;
use lapis_blocks::rawl::Raw;
use lapis_blocks::ring_log::{RingKind, RingLog};
use lapis_device::{Config, Counts, Event, Modelled};
use lapis_pmem::Pool;

use super::{create, modelled};

fn options(placement: Placement, size_fields: usize) -> Layout {
    Layout { bytes: 64 << 10, placement, size_fields }
}

fn cost<D: Fn()>(pool: &Pool<Modelled>, work: D) -> Counts {
    let before = pool.domain().counts();
    work();
    pool.domain().counts() - before
}

/// Flushed lines and fences of an append of so many bytes, in a new log.
fn append_cost<K: RingKind>(options: Layout, bytes: usize) -> (u64, u64) {
    let pool = modelled(Config::counting());
    let log = create::<K, _>(&pool, options);
    log.append(&[1; 40]).unwrap();
    let spent = cost(&pool, || {
        log.append(&vec![0xA5; bytes]).unwrap();
    });
    (spent.flushes, spent.fences)
}

#[test]
fn flushed_lines_are_those_of_the_entry_and_of_what_says_that_it_is_there() {
    let padded = options(Placement::Padded, 64);
    for (bytes, lines) in [(1, 1), (48, 1), (49, 2), (112, 2), (113, 3), (1000, 16)] {
        assert_eq!(append_cost::<Classic>(padded, bytes).0, lines + 1, "{bytes}");
        assert_eq!(append_cost::<Header>(padded, bytes).0, lines + 1, "{bytes}");
        assert_eq!(append_cost::<Pop>(padded, bytes).0, lines, "{bytes}");
    }
    // RAWL needs the next line eight bytes earlier; from 512 bytes on, sixteen.
    for (bytes, lines) in [(1, 1), (40, 1), (47, 1), (48, 2), (110, 2), (111, 3), (992, 16)] {
        assert_eq!(append_cost::<Raw>(padded, bytes).0, lines, "{bytes}");
    }
}

/// Bytes that an entry takes.
fn space<K: RingKind>(placement: Placement, bytes: usize) -> u64 {
    let pool = modelled(Config::default());
    let log = create::<K, _>(&pool, options(placement, 1));
    log.append(&vec![7; bytes]).unwrap();
    log.statistics().entry_bytes
}

#[test]
fn dense_entries_take_a_header_and_a_footer_or_a_bit_in_sixty_four_or_nothing() {
    for bytes in [8usize, 40, 64, 200, 504, 1000, 4096] {
        let whole = bytes.next_multiple_of(8) as u64;
        for placement in [Placement::Dense, Placement::Streamed] {
            assert_eq!(space::<Classic>(placement, bytes), 16 + whole + 8);
            assert_eq!(space::<Header>(placement, bytes), 16 + whole);
            assert_eq!(space::<Raw>(placement, bytes), (128 + 8 * bytes as u64).div_ceil(63) * 8);
        }
        assert_eq!(space::<Pop>(Placement::Dense, bytes), 16 + whole);
    }
}

#[test]
fn streamed_entries_of_pop_log_share_a_line_only_whole() {
    // Two of 24, of 32 bytes; one of 40 and more; lines from there on.
    for (bytes, taken) in [(8, 24), (16, 32), (24, 64), (48, 64), (49, 128), (1000, 1024)] {
        assert_eq!(space::<Pop>(Placement::Streamed, bytes), taken, "{bytes}");
    }
    let streamed = Layout { bytes: 128 << 10, ..options(Placement::Streamed, 0) };
    assert_eq!(persisted_again::<Pop>(streamed, 8), 50);
    assert_eq!(persisted_again::<Pop>(streamed, 16), 50);
    for bytes in [24, 40, 48, 100, 512, 1000] {
        assert_eq!(persisted_again::<Pop>(streamed, bytes), 0, "{bytes}");
    }
    // RAWL persists lines again where it is dense, but for entries that happen to fill them.
    assert_eq!(persisted_again::<Raw>(streamed, 8), 50);
    assert_eq!(persisted_again::<Raw>(streamed, 40), 0);
    for bytes in [24, 48, 100, 512, 1000] {
        assert!(persisted_again::<Raw>(streamed, bytes) >= 49, "{bytes}");
    }
}

#[test]
fn padding_is_less_than_a_line_and_less_than_two_in_the_classic_log() {
    let mut most = [0; 4];
    for bytes in 1..200 {
        let dense = |of: fn(Placement, usize) -> u64, most: &mut u64| {
            let padding = of(Placement::Padded, bytes) - of(Placement::Dense, bytes);
            *most = padding.max(*most);
        };
        dense(space::<Classic>, &mut most[0]);
        dense(space::<Header>, &mut most[1]);
        dense(space::<Raw>, &mut most[2]);
        dense(space::<Pop>, &mut most[3]);
    }
    assert_eq!(most, [56 + 56, 56, 56, 56]);
}

#[test]
fn a_batch_takes_the_barriers_of_one_append() {
    fn fences<K: RingKind>() -> u64 {
        let pool = modelled(Config::counting());
        let log = create::<K, _>(&pool, options(Placement::Padded, 64));
        cost(&pool, || {
            log.append_batch(&[&[1; 30], &[2; 300], &[3; 3], &[4; 100]]).unwrap();
        })
        .fences
    }
    assert_eq!(
        [fences::<Classic>(), fences::<Header>(), fences::<Raw>(), fences::<Pop>()],
        [2, 2, 1, 1]
    );
}

/// Of a hundred appends of `bytes` bytes, how many lines were persisted that an earlier barrier of the
/// same append, or the append before, had persisted as well.
fn persisted_again<K: RingKind>(options: Layout, bytes: usize) -> usize {
    let pool = modelled(Config::tracing());
    let log: RingLog<_, K> = create(&pool, options);
    pool.domain().take_trace();
    let (mut before, mut again) = (HashSet::new(), 0);
    for _ in 0..100 {
        log.append(&vec![3; bytes]).unwrap();
        // Of the barriers of this append.
        let (mut earlier, mut barrier) = (HashSet::new(), HashSet::new());
        for event in pool.domain().take_trace().in_units().events {
            match event {
                Event::Flush { line, .. } | Event::NonTemporal { line, .. } => {
                    barrier.insert(line);
                }
                Event::Fence { .. } => {
                    let twice = |line: &&u32| before.contains(*line) || earlier.contains(*line);
                    again += barrier.iter().filter(twice).count();
                    earlier.extend(barrier.drain());
                }
                _ => {}
            }
        }
        before = earlier;
    }
    again
}

#[test]
fn padded_logs_persist_no_line_twice_but_the_one_size_field() {
    for bytes in [8, 48, 100, 200] {
        let padded = options(Placement::Padded, 64);
        assert_eq!(persisted_again::<Classic>(padded, bytes), 0);
        assert_eq!(persisted_again::<Header>(padded, bytes), 0);
        assert_eq!(persisted_again::<Raw>(padded, bytes), 0);
        assert_eq!(persisted_again::<Pop>(padded, bytes), 0);
        let aligned = options(Placement::Padded, 1);
        assert_eq!(persisted_again::<Header>(aligned, bytes), 99, "each but the first");
    }
}

#[test]
fn dense_logs_persist_lines_twice_unless_entries_happen_to_fill_them() {
    let dense = options(Placement::Dense, 1);
    // Entry and line are of one size: the spike of the thesis, eight bytes earlier for RAWL.
    assert_eq!(persisted_again::<Pop>(dense, 48), 0);
    assert_eq!(persisted_again::<Raw>(dense, 40), 0);
    assert!(persisted_again::<Raw>(dense, 48) > 80);
    // The line of the footer goes out with the body, and with the next body, often.
    for bytes in [8, 24] {
        assert!(persisted_again::<Classic>(dense, bytes) > 120);
        assert!(persisted_again::<Header>(dense, bytes) > 120);
        assert!(persisted_again::<Pop>(dense, bytes) > 30);
    }
}

#[test]
fn streamed_logs_flush_nothing_and_load_nothing_to_append() {
    fn counts<K: RingKind>() -> Counts {
        let pool = modelled(Config::counting());
        let log = create::<K, _>(&pool, options(Placement::Streamed, 64));
        log.append(&[1; 20]).unwrap();
        cost(&pool, || {
            for _ in 0..50 {
                log.append(&[1; 100]).unwrap();
            }
        })
    }
    let (classic, rawl, pop) = (counts::<Classic>(), counts::<Raw>(), counts::<Pop>());
    assert_eq!([classic.flushes, rawl.flushes, pop.flushes], [0; 3]);
    assert_eq!([classic.llc_misses, rawl.llc_misses, pop.llc_misses], [0; 3]);
    assert_eq!([classic.fences, rawl.fences, pop.fences], [100, 50, 50]);
    assert_eq!(pop.wpq_flush, 0);
    // The size field is stored and flushed in the ordinary way.
    assert_eq!(counts::<Header>().flushes, 50);
}

#[test]
fn truncation_takes_one_barrier_and_three_fences_where_space_is_zeroed() {
    fn spent<K: RingKind>() -> (u64, u64) {
        let pool = modelled(Config::counting());
        let log = create::<K, _>(&pool, options(Placement::Padded, 64));
        for _ in 0..10 {
            log.append(&[1; 100]).unwrap();
        }
        let spent = cost(&pool, || {
            log.truncate(Position::from_number(6)).unwrap();
        });
        (spent.flushes, spent.fences)
    }
    assert_eq!((spent::<Header>(), spent::<Raw>()), ((1, 1), (1, 1)));
    assert_eq!((spent::<Classic>(), spent::<Pop>()), ((2, 3), (2, 3)));
}

#[test]
fn opening_a_log_with_a_clean_end_takes_no_barrier() {
    fn spent<K: RingKind>() -> u64 {
        let pool = modelled(Config::counting());
        let log = create::<K, _>(&pool, options(Placement::Padded, 64));
        log.append(&[1; 100]).unwrap();
        drop(log);
        cost(&pool, || drop(super::open::<K, _>(&pool).unwrap())).fences
    }
    let spent = [spent::<Classic>(), spent::<Header>(), spent::<Raw>(), spent::<Pop>()];
    assert_eq!(spent, [0; 4]);
}
