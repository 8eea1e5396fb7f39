//! Format 1, as it is written: once released it can be read for ever.
//!
//! The fixture is the sectors of a device that are not zero: number (4 bytes), and 512 bytes.

use lapis_pmem::SECTOR_BYTES;

use super::{
    BLOCK_BYTES, Owned, SMALL_BLOCKS, append, commit, device_of, image, on_ssd, recovered,
};

const VERSION_1: &[u8] = include_bytes!("../../fixtures/block-log-v1.sectors");

/// A log that has come to a second segment, with a batch of several records at its end: its image and
/// records.
fn written() -> (Vec<u8>, Vec<Owned>) {
    let (device, log) = on_ssd();
    commit(&log, 3000, 10);
    commit(&log, 4000, 11);
    log.truncate_before(log.durable()).unwrap();
    let mut records = vec![commit(&log, 1700, 12)];
    records.extend((13..20).map(|number| append(&log, number * 5 % 40, number)));
    log.close().unwrap();
    (image(&device), records)
}

fn fixture() -> Vec<u8> {
    let mut image = vec![0; SMALL_BLOCKS as usize * BLOCK_BYTES];
    for entry in VERSION_1.chunks(4 + SECTOR_BYTES) {
        let (number, bytes) = entry.split_first_chunk::<4>().unwrap();
        let at = u32::from_le_bytes(*number) as usize * SECTOR_BYTES;
        image[at..at + SECTOR_BYTES].copy_from_slice(bytes);
    }
    image
}

#[test]
fn a_log_of_version_1_is_read() {
    let (found, log) = recovered(device_of(&fixture())).unwrap();
    assert_eq!(found, written().1);
    let record = commit(&log, 10, 1);
    assert!(record.0 > found[found.len() - 1].0);
}

#[test]
fn a_log_is_written_as_version_1_says() {
    assert!(written().0 == fixture(), "the format has changed");
}

#[test]
#[ignore = "writes the fixture; from the first release on versions are what they are"]
fn write_the_fixture() {
    let mut entries = Vec::new();
    for (number, sector) in (0u32..).zip(written().0.chunks(SECTOR_BYTES)) {
        if sector.iter().any(|&byte| byte != 0) {
            entries.extend(number.to_le_bytes());
            entries.extend(sector);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/block-log-v1.sectors");
    std::fs::write(path, entries).unwrap();
}
