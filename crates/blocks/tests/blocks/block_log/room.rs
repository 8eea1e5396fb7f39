//! A log that is full.

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BlockDevice, Hardware};

use super::{append, commit, contents, create, on_ssd, open, recovered, ssd};

/// Appends until there is no room; returns how many records there was room for.
fn fill(log: &super::Log, bytes: usize) -> usize {
    let payload = vec![3; bytes];
    for count in 0.. {
        match log.append(3, &[&payload]) {
            Ok(_) => {}
            Err(BlockLogError::Full { bytes: asked, .. }) => {
                assert_eq!(asked, bytes);
                return count;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn a_full_log_refuses_records_and_takes_every_commit() {
    for bytes in [0, 1, 40, 500, 4000] {
        let (device, log) = on_ssd();
        for _ in 0..5 {
            let count = fill(&log, bytes);
            assert!(
                count as u64 * bytes as u64 > log.capacity_bytes() / 3 || bytes < 500,
                "{bytes}"
            );
            log.sync().unwrap();
            assert!(log.end().number() - log.start().number() <= log.capacity_bytes());
            log.truncate_before(log.durable()).unwrap();
        }
        assert!(log.end().number() > 3 * log.capacity_bytes(), "the ring came round");
        log.close().unwrap();
        open(device).unwrap();
    }
}

#[test]
fn a_full_log_is_read_after_a_crash() {
    let (device, log) = on_ssd();
    for _ in 0..3 {
        let count = fill(&log, 90);
        log.sync().unwrap();
        let held = contents(&log);
        assert_eq!(held.len(), count);
        let (found, opened) = recovered(device.clone()).unwrap();
        assert_eq!(found, held);
        assert!(matches!(opened.append(3, &[&[0; 90]]), Err(BlockLogError::Full { .. })));
        log.truncate_before(log.durable()).unwrap();
    }
}

#[test]
fn commits_of_one_record_each_that_fill_the_log_are_all_there() {
    let (device, log) = on_ssd();
    let mut records = Vec::new();
    let number = loop {
        let number = records.len();
        if let Err(error) = log.reserve(1, 16) {
            assert!(matches!(error, BlockLogError::Full { .. }));
            break number;
        }
        records.push(commit(&log, 16, number));
    };
    assert!(number > 300);
    assert_eq!(recovered(device).unwrap().0, records);
}

#[test]
fn what_is_reserved_is_there_when_the_log_is_full_for_others() {
    for bytes in [0, 10, 333, 1000] {
        let (device, log) = on_ssd();
        let mut room = log.reserve(5, 5 * bytes as u64).unwrap();
        fill(&log, 50);
        for _ in 0..5 {
            let lsn = room.append(1, &[&vec![7; bytes]]).unwrap();
            log.commit(lsn, Durability::Immediate).unwrap();
            // It has taken less than the most that it could.
            fill(&log, 50);
        }
        drop(room);
        let found = contents(&log);
        assert_eq!(found.iter().filter(|record| record.1 == 1).count(), 5);
        assert_eq!(recovered(device).unwrap().0, found);
    }
}

#[test]
fn what_is_left_of_a_reservation_is_free_again() {
    let log = create(ssd());
    let room = log.reserve(100, 6000).unwrap();
    assert!(matches!(log.reserve(100, 6000), Err(BlockLogError::Full { .. })));
    drop(room);
    let mut room = log.reserve(100, 6000).unwrap();
    assert!(room.extend(100, 6000).is_err());
    assert!(log.reserve(1, u64::MAX).is_err() && log.reserve(u64::MAX, 1).is_err());
}

#[test]
fn a_record_larger_than_the_log_takes_is_refused_when_it_is_appended() {
    let log = create(ssd());
    let largest = log.largest_payload_bytes();
    append(&log, largest, 1);
    let refused = log.append(0, &[&vec![0; largest], &[0]]).unwrap_err();
    assert!(matches!(refused, BlockLogError::RecordTooLarge { bytes, .. } if bytes == largest + 1));
}

#[test]
fn more_than_a_batch_is_appended_without_a_commit() {
    let (device, log) = on_ssd();
    let records: Vec<_> = (0..20).map(|number| append(&log, 900, number)).collect();
    assert_eq!(log.statistics().syncs, 1, "a batch was full");
    log.sync().unwrap();
    assert_eq!(log.statistics().syncs, 2);
    assert_eq!(recovered(device).unwrap().0, records);
}

#[test]
fn a_device_that_is_too_small_is_refused_and_its_blocks_left_alone() {
    let device = ModelledSsd::new(3, SsdConfig::default()).unwrap();
    for (segment_bytes, batch_bytes) in [(8192, 16384), (5000, 16384), (4096, 4096)] {
        let options = BlockLogOptions { segment_bytes, batch_bytes, ..BlockLogOptions::new(1) };
        let domain = Hardware::detect();
        let refused = BlockLog::create(domain, std::sync::Arc::new(device.clone()), options);
        assert!(matches!(
            refused,
            Err(BlockLogError::DeviceTooSmall { .. } | BlockLogError::Options { .. })
        ));
    }
    assert_eq!(device.counts().writes, 0);
}
