//! Logs that something else than a crash has changed.

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Lsn};
use lapis_pmem::{BLOCK_BYTES, Hardware};

use super::super::Numbers;
use super::{
    Owned, SMALL, commit, contents, create, device_of, image, on_ssd, open, recovered, ssd,
};

const HEADER_BYTES: usize = 2 * BLOCK_BYTES;

/// A log of several rounds, of which the last two segments and a half are retained: its image and
/// records.
fn rounds() -> (Vec<u8>, Vec<Owned>) {
    let (device, log) = on_ssd();
    let mut numbers = Numbers(4);
    for number in 0.. {
        commit(&log, numbers.below(300), number);
        if log.end().number() > 3 * log.capacity_bytes() + 20_000 {
            break;
        }
        let records = contents(&log);
        if log.end().number() - log.start().number() > 20_000 {
            log.truncate_before(records[records.len() / 4].0).unwrap();
        }
    }
    let records = contents(&log);
    drop(log);
    (image(&device), records)
}

/// What a changed log may say: that it is damaged; or else what was there, but for what nothing behind
/// it shows to have been there: the last batch, or more of the last block if that is gone.
fn check(changed: &[u8], records: &[Owned], told: &str) -> bool {
    check_but(1, changed, records, told)
}

fn check_but(last: usize, changed: &[u8], records: &[Owned], told: &str) -> bool {
    match recovered(device_of(changed)) {
        Err(BlockLogError::Damaged(damage)) => {
            assert!(damage.at < damage.witness, "{told}: {damage}");
            true
        }
        Err(error) => panic!("{told}: {error}"),
        Ok((found, _)) => {
            assert!(found.len() + last >= records.len(), "{told}: {} records", found.len());
            assert_eq!(records[..found.len()], found, "{told}");
            false
        }
    }
}

fn offset_of(lsn: Lsn) -> usize {
    let ring_bytes = 4 * SMALL.segment_bytes;
    HEADER_BYTES + (lsn.number() % ring_bytes) as usize
}

#[test]
fn the_log_is_read_as_it_was_left() {
    let (image, records) = rounds();
    assert!(!check(&image, &records, "unchanged"));
    assert!(records.len() > 60, "{}", records.len());
}

#[test]
fn a_flipped_bit_of_a_record_is_damage_and_not_the_end() {
    let (image, records) = rounds();
    let mut numbers = Numbers(9);
    for (lsn, _, payload) in &records[..records.len() - 1] {
        let bit = numbers.below((24 + payload.len()) * 8);
        let mut changed = image.clone();
        changed[offset_of(*lsn) + bit / 8] ^= 1 << (bit % 8);
        assert!(check(&changed, &records, &format!("bit {bit} of {lsn}")), "bit {bit} of {lsn}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_or_harmless() {
    let (image, records) = rounds();
    let mut numbers = Numbers(10);
    let mut found = 0;
    for _ in 0..1500 {
        let bit = numbers.below((image.len() - HEADER_BYTES) * 8);
        let mut changed = image.clone();
        changed[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        found += u32::from(check(&changed, &records, &format!("bit {bit}")));
    }
    assert!(found > 500, "{found}");
}

#[test]
fn blocks_that_are_lost_misdirected_or_swapped_are_noticed() {
    let (image, records) = rounds();
    let blocks = image.len() / BLOCK_BYTES;
    let last_block = offset_of(records[records.len() - 1].0) / BLOCK_BYTES;
    let begins_before = |record: &&Owned| offset_of(record.0) / BLOCK_BYTES != last_block;
    // And one that lies in it and in the block before.
    let last = 1 + records.iter().rev().take_while(|record| !begins_before(record)).count();
    let check = |changed: &[u8], told: &str| check_but(last, changed, &records, told);
    let mut found = 0;
    for to in 2..blocks {
        for from in 0..blocks {
            let block = |number: usize| number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES;
            let mut changed = image.clone();
            changed.copy_within(block(from), to * BLOCK_BYTES);
            found += u32::from(check(&changed, &format!("{from} copied to {to}")));
            changed[block(from)].copy_from_slice(&image[block(to)]);
            if from >= 2 {
                check(&changed, &format!("{from} and {to} swapped"));
            }
        }
        let mut changed = image.clone();
        changed[to * BLOCK_BYTES..(to + 1) * BLOCK_BYTES].fill(0);
        check(&changed, &format!("{to} zeroed"));
    }
    assert!(found > 30, "{found}");
}

#[test]
fn more_than_a_batch_of_zeroes_is_damage_if_anything_is_behind_it() {
    let options = BlockLogOptions { segment_bytes: 4096, ..SMALL };
    let device = lapis_device::ModelledSsd::new(34, lapis_device::SsdConfig::default()).unwrap();
    let domain = Hardware::detect();
    let log = BlockLog::create(domain, std::sync::Arc::new(device.clone()), options).unwrap();
    let records: Vec<_> = (0..400).map(|number| commit(&log, 200, number)).collect();
    assert!(log.end().number() > 100_000);
    drop(log);
    let image = image(&device);
    for blocks in 1..22 {
        let mut changed = image.clone();
        changed[3 * BLOCK_BYTES..(3 + blocks) * BLOCK_BYTES].fill(0);
        assert!(check(&changed, &records, &format!("{blocks} blocks")), "{blocks} blocks");
    }
}

#[test]
fn a_write_that_the_device_has_lost_shows_the_round_before_and_is_damage() {
    let (image, records) = rounds();
    let mut stale = image.clone();
    let earlier = {
        let (device, log) = on_ssd();
        (0..150).for_each(|number| _ = commit(&log, 150, number));
        super::image(&device)
    };
    let lost = offset_of(records[3].0) / BLOCK_BYTES * BLOCK_BYTES;
    stale[lost..lost + BLOCK_BYTES].copy_from_slice(&earlier[lost..lost + BLOCK_BYTES]);
    assert!(check(&stale, &records, "a stale block"));
}

#[test]
fn one_copy_of_the_header_is_enough() {
    let (image, records) = rounds();
    for copy in 0..2 {
        for bit in (0..100 * 8).step_by(7) {
            let mut changed = image.clone();
            changed[copy * BLOCK_BYTES + bit / 8] ^= 1 << (bit % 8);
            assert!(!check(&changed, &records, "one copy"));
            changed[(1 - copy) * BLOCK_BYTES + 30] ^= 1;
            assert!(matches!(
                open(device_of(&changed)),
                Err(BlockLogError::DamagedHeader | BlockLogError::NewerVersion { .. })
            ));
        }
    }
}

#[test]
fn the_older_of_two_headers_does_not_count() {
    let (device, log) = on_ssd();
    let older = image(&device);
    let records: Vec<_> = (0..20).map(|number| commit(&log, 100, number)).collect();
    log.truncate_before(records[7].0).unwrap();
    drop(log);
    for copy in 0..2 {
        let mut image = image(&device);
        let block = copy * BLOCK_BYTES..(copy + 1) * BLOCK_BYTES;
        image[block.clone()].copy_from_slice(&older[block]);
        assert_eq!(recovered(device_of(&image)).unwrap().0, records[7..]);
    }
}

#[test]
fn what_is_no_log_or_of_a_newer_version_is_refused_by_name() {
    assert!(matches!(open(ssd()), Err(BlockLogError::NotALog)));
    assert!(matches!(open(device_of(&[0; BLOCK_BYTES])), Err(BlockLogError::NotALog)));
    let device = ssd();
    drop(create(device.clone()));
    let mut image = image(&device);
    for copy in 0..2 {
        image[copy * BLOCK_BYTES + 8] = 2;
    }
    let refused = open(device_of(&image)).unwrap_err();
    assert!(matches!(refused, BlockLogError::NewerVersion { found: 2, supported: 1 }), "{refused}");
    let shorter = image.len() - BLOCK_BYTES;
    image[8] = 1;
    let refused = open(device_of(&image[..shorter])).unwrap_err();
    assert!(matches!(refused, BlockLogError::DeviceTooSmall { .. }), "{refused}");
}

#[test]
fn a_log_that_is_laid_out_where_another_one_was_is_empty() {
    let (device, log) = on_ssd();
    (0..20).for_each(|number| _ = commit(&log, 100, number));
    drop(log);
    let domain = Hardware::detect();
    let other = BlockLogOptions { identity: 8, ..SMALL };
    let log = BlockLog::create(domain, std::sync::Arc::new(device.clone()), other).unwrap();
    let record = commit(&log, 100, 0);
    drop(log);
    assert_eq!(recovered(device).unwrap().0, [record]);
}
