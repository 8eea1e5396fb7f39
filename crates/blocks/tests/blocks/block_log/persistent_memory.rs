//! The log in persistent memory: its fences and lines, counted, beside those of PopLog.

use std::sync::Arc;

use lapis_blocks::block_log::{BlockLog, BlockLogOptions, Durability};
use lapis_blocks::log::{Log as _, Placement};
use lapis_blocks::pop_log::{PopLog, PopLogOptions};
use lapis_device::{Config, Modelled};
use lapis_pmem::{BlockDevice, Pool, PoolDevice, PoolDeviceError};

use crate::{ROOT, modelled};

/// Bytes of a record before its payload, and of the mark behind a batch.
const OWN_BYTES: u64 = 24 + 32;
/// Segments that do not come to their end.
const OPTIONS: BlockLogOptions =
    BlockLogOptions { segment_bytes: 256 << 10, batch_bytes: 64 << 10, ..BlockLogOptions::new(7) };

fn log_in(pool: &Arc<Pool<Modelled>>) -> BlockLog<Modelled> {
    let device = PoolDevice::create_named(pool, ROOT, 2 + 64).unwrap();
    let log = BlockLog::create(pool.domain().clone(), Arc::new(device), OPTIONS).unwrap();
    // Behind the record that the segment begins with.
    append(&log, 0);
    log
}

fn append(log: &BlockLog<Modelled>, bytes: usize) {
    let lsn = log.append(1, &[&vec![0xA5; bytes]]).unwrap();
    log.commit(lsn, Durability::Immediate).unwrap();
}

/// Fences, flushes and lines that reach the memory controller.
fn cost(pool: &Pool<Modelled>, work: impl FnOnce()) -> (u64, u64, u64) {
    let before = pool.domain().counts();
    work();
    let spent = pool.domain().counts() - before;
    (spent.fences, spent.flushes, spent.wpq_inserts())
}

#[test]
fn a_commit_is_one_fence_and_the_lines_of_its_record_and_at_most_one_more() {
    let pool = modelled(1 << 20, Config::counting());
    let log = log_in(&pool);
    for bytes in (0..300).chain([1000, 4096, 9000]) {
        let (fences, flushes, lines) = cost(&pool, || append(&log, bytes));
        let stream_bytes = (bytes as u64).next_multiple_of(8) + OWN_BYTES;
        assert_eq!((fences, flushes), (1, 0), "{bytes} bytes");
        assert!(lines <= stream_bytes.div_ceil(64) + 1, "{bytes} bytes: {lines} lines");
    }
}

#[test]
fn a_truncation_writes_two_lines_of_each_header() {
    let pool = modelled(1 << 20, Config::counting());
    let log = log_in(&pool);
    append(&log, 100);
    let spent = cost(&pool, || log.truncate_before(log.durable()).unwrap());
    assert_eq!(spent, (2, 0, 4));
}

#[test]
fn commits_take_as_many_fences_as_those_of_a_pop_log_and_less_than_two_lines_more() {
    const COMMITS: u64 = 64;
    for bytes in [8, 40, 100, 128, 256, 1000] {
        let pool = modelled(1 << 20, Config::counting());
        let log = log_in(&pool);
        let ours = cost(&pool, || (0..COMMITS).for_each(|_| append(&log, bytes)));
        let each = |spent: (u64, u64, u64)| spent.2 as f64 / COMMITS as f64;
        for placement in Placement::ALL {
            let pool = modelled(1 << 20, Config::counting());
            let options = PopLogOptions { segment_bytes: 256 << 10, spare_segments: 0, placement };
            let log = PopLog::create_named(&pool, ROOT, options).unwrap();
            let payload = vec![0xA5; bytes];
            let theirs =
                cost(&pool, || (0..COMMITS).for_each(|_| _ = log.append(&payload).unwrap()));
            println!(
                "{bytes} bytes: {:.2} lines, PopLog {placement} {:.2}",
                each(ours),
                each(theirs)
            );
            assert_eq!(ours.0, theirs.0, "fences for {bytes} bytes, {placement}");
            assert!(ours.2 < theirs.2 + 2 * COMMITS, "{bytes} bytes, {placement}");
        }
    }
}

#[test]
fn what_was_committed_is_there_when_the_pool_is_opened_again() {
    let pool = modelled(1 << 20, Config::counting());
    let log = log_in(&pool);
    (0..20).for_each(|number| append(&log, number * 37));
    let opened = PoolDevice::open_named(&pool, ROOT);
    assert!(matches!(opened.err(), Some(PoolDeviceError::InUse)));
    drop(log);
    let device = PoolDevice::open_named(&pool, ROOT).unwrap().unwrap();
    assert_eq!(device.capacity_blocks(), 66);
    let log = BlockLog::open(pool.domain().clone(), Arc::new(device)).unwrap();
    let mut reader = log.read_from(log.start()).unwrap();
    let mut lengths = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        lengths.push(record.payload.len());
    }
    let expected: Vec<_> = [0].into_iter().chain((0..20).map(|number| number * 37)).collect();
    assert_eq!(lengths, expected);
}
