//! A log that grows, and one that was closed.

use std::sync::Arc;

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BlockDevice, Hardware};

use super::{Log, SMALL, SMALL_BLOCKS, append, commit, contents, open, recovered};

/// A log of one segment that may have eight.
fn short() -> (ModelledSsd, Log) {
    let device = ModelledSsd::new(4, SsdConfig::default()).unwrap();
    let options = BlockLogOptions { most_bytes: 8 * SMALL.segment_bytes, ..SMALL };
    let log = BlockLog::create(Hardware::detect(), Arc::new(device.clone()), options).unwrap();
    (device, log)
}

#[test]
fn a_log_grows_where_it_would_be_full_until_it_is_as_long_as_it_may_be() {
    let (device, log) = short();
    let mut records = Vec::new();
    while log.statistics().growths < 2 {
        records.push(commit(&log, 300, records.len()));
        assert_eq!(recovered(device.clone()).unwrap().0, records);
    }
    assert_eq!(log.capacity_bytes(), log.most_capacity_bytes());
    assert_eq!(device.capacity_blocks(), 2 + 16);
    let full = loop {
        match log.append(0, &[&[1; 300]]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, BlockLogError::Full { .. }));
    log.sync().unwrap();
    assert!(contents(&log).len() as u64 * 300 > log.capacity_bytes() / 2);
}

#[test]
fn a_log_that_is_cut_in_time_stays_short() {
    let (device, log) = short();
    for number in 0..200 {
        commit(&log, 300, number);
        log.truncate_before(log.durable()).unwrap();
    }
    assert!(log.end().number() > 5 * log.capacity_bytes());
    assert_eq!((log.statistics().growths, device.capacity_blocks()), (0, 4));
}

#[test]
fn a_log_whose_device_cannot_grow_is_a_ring_of_the_length_it_has() {
    let (device, log) = short();
    device.limit_to(4);
    while log.append(0, &[&[1; 300]]).is_ok() {}
    log.sync().unwrap();
    log.truncate_before(log.durable()).unwrap();
    // It has come round, and could not grow now if there were room.
    let record = commit(&log, 3000, 1);
    device.limit_to(u64::MAX);
    assert!(!log.grow_beyond(log.capacity_bytes()).unwrap());
    assert_eq!(recovered(device).unwrap().0, [record]);
}

#[test]
fn what_was_read_before_a_log_has_grown_is_where_it_was() {
    let (_, log) = short();
    let first = commit(&log, 300, 0);
    let mut reader = log.read_from(first.0).unwrap();
    while log.statistics().growths < 2 {
        commit(&log, 300, 1);
    }
    assert_eq!(reader.next_record().unwrap().unwrap().payload, first.2);
}

#[test]
fn a_log_with_nothing_in_it_is_as_short_as_at_first_when_it_is_closed() {
    let (device, log) = short();
    while log.statistics().growths < 2 {
        commit(&log, 300, 1);
    }
    log.close().unwrap();
    assert_eq!(log.capacity_bytes(), log.most_capacity_bytes(), "there is something in it");
    log.truncate_before(log.durable()).unwrap();
    commit(&log, 300, 1);
    log.truncate_before(log.durable()).unwrap();
    log.close().unwrap();
    assert_eq!(log.capacity_bytes(), SMALL.segment_bytes);
    let log = open(device.clone()).unwrap();
    assert_eq!(log.capacity_bytes(), SMALL.segment_bytes);
    let mut records = Vec::new();
    while log.statistics().growths < 2 {
        records.push(commit(&log, 300, records.len()));
        assert_eq!(recovered(device.clone()).unwrap().0, records);
    }
}

#[test]
fn what_is_appended_after_the_ring_became_shorter_is_there() {
    let (device, log) = short();
    while log.statistics().growths < 2 {
        commit(&log, 300, 1);
    }
    log.truncate_before(log.durable()).unwrap();
    log.close().unwrap();
    assert_eq!(log.capacity_bytes(), SMALL.segment_bytes);
    assert_eq!(log.start(), log.durable());
    let mut records = Vec::new();
    while log.statistics().growths < 3 {
        records.push(commit(&log, 300, records.len()));
        assert_eq!(recovered(device.clone()).unwrap().0, records);
    }
}

#[test]
fn a_log_that_was_closed_is_opened_without_a_write_or_a_flush() {
    let (device, log) = super::on_ssd();
    let record = commit(&log, 300, 1);
    log.close().unwrap();
    let before = device.counts();
    let (found, log) = recovered(device.clone()).unwrap();
    log.close().unwrap();
    let counts = device.counts();
    assert_eq!((counts.writes, counts.flushes), (before.writes, before.flushes));
    assert_eq!(found, std::slice::from_ref(&record));
    let more = append(&log, 300, 2);
    log.sync().unwrap();
    drop(log);
    assert_eq!(recovered(device).unwrap().0, [record, more]);
}

#[test]
fn what_is_appended_after_a_log_was_closed_is_there() {
    let device = ModelledSsd::new(SMALL_BLOCKS, SsdConfig::default()).unwrap();
    let log = super::create(device.clone());
    let records: Vec<_> = (0..5)
        .map(|number| {
            let record = commit(&log, 300, number);
            log.close().unwrap();
            record
        })
        .collect();
    assert_eq!(recovered(device).unwrap().0, records);
}
