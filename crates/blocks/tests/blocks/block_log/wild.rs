//! Any bytes on the device: no panic, and no record that was not appended.

use std::sync::Arc;

use lapis_blocks::block_log::BlockLog;
use lapis_pmem::{BLOCK_BYTES, Hardware};
use proptest::prelude::*;

use super::super::Numbers;
use super::{Owned, SMALL, append, commit, device_of, image, on_ssd, recovered};

/// A header with any fields and a checksum that is right, of a log that was closed or not.
fn header(fields: [u64; 10], closed: u32) -> Vec<u8> {
    let mut block = b"lapisWAL".to_vec();
    block.extend(1u32.to_le_bytes());
    block.extend(closed.to_le_bytes());
    fields.iter().for_each(|field| block.extend(field.to_le_bytes()));
    let checksum = crc32c::crc32c(&block);
    block.extend(checksum.to_le_bytes());
    block.resize(BLOCK_BYTES, 0);
    block
}

fn fields_of(image: &[u8]) -> [u64; 10] {
    std::array::from_fn(|at| u64::from_le_bytes(*image[16 + 8 * at..].first_chunk().unwrap()))
}

/// Else what follows would try nothing.
#[test]
fn a_header_that_is_made_here_is_as_the_log_makes_it() {
    let (image, _) = log_of(3);
    assert!(header(fields_of(&image), 0) == image[..BLOCK_BYTES]);
}

fn log_of(seed: u64) -> (Vec<u8>, Vec<Owned>) {
    let mut numbers = Numbers(seed);
    let (device, log) = on_ssd();
    let mut records = Vec::new();
    for number in 0..20 + numbers.below(200) {
        let bytes = [20, 200, 1500][numbers.below(3)];
        let bytes = numbers.below(bytes);
        if log.reserve(3, 3 * bytes as u64).is_err() {
            log.sync().unwrap();
            log.truncate_before(log.durable()).unwrap();
        }
        records.push(append(&log, bytes, number));
        if numbers.below(3) == 0 {
            records.push(commit(&log, bytes / 2, number));
        }
    }
    log.sync().unwrap();
    (image(&device), records)
}

/// Opens what is there, and goes on with it if it can be opened.
fn open_and_use(image: &[u8], appended: &[Owned]) {
    let Ok((found, log)) = recovered(device_of(image)) else { return };
    for record in &found {
        assert!(appended.contains(record), "{} was never appended", record.0);
    }
    if log.append(1, &[b"more"]).is_ok() {
        log.sync().unwrap();
    }
    log.truncate_before(log.durable()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_give_no_record_that_was_not_appended(
        seed in 0u64..20,
        changes in prop::collection::vec((any::<u32>(), any::<u8>()), 0..12),
        copies in prop::collection::vec((0usize..80, 0usize..80), 0..4),
    ) {
        let (mut image, appended) = log_of(seed);
        for (at, value) in changes {
            let at = at as usize % image.len();
            image[at] = value;
        }
        for (from, to) in copies {
            image.copy_within(from * 512..(from + 1) * 512, to * 512);
        }
        open_and_use(&image, &appended);
    }

    #[test]
    fn a_header_with_any_fields_gives_no_record_that_was_not_appended(
        seed in 0u64..20,
        fields in prop::array::uniform10(prop_oneof![
            (0u64..64).prop_map(|field| field * 8),
            (0u64..16).prop_map(|field| field * 4096),
            any::<u64>(),
        ]),
        kept in 0u32..1024,
        closed in 0u32..3,
    ) {
        let (mut image, appended) = log_of(seed);
        let mut mixed = fields;
        for (at, field) in fields_of(&image).iter().enumerate().filter(|(at, _)| kept >> at & 1 == 1) {
            mixed[at] = *field;
        }
        let header = header(mixed, closed);
        image[..BLOCK_BYTES].copy_from_slice(&header);
        image[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&header);
        // What two batches take is no more than a device of that size can ask for.
        if mixed[3] <= 1 << 20 {
            open_and_use(&image, &appended);
        }
    }

    #[test]
    fn noise_gives_no_record(seed in any::<u64>(), with_header in any::<bool>()) {
        let mut image = Numbers(seed).bytes(10 * BLOCK_BYTES);
        if with_header {
            let header = header([7, SMALL.segment_bytes, 4, SMALL.batch_bytes, 0, 4, 4, 1, 0, 0], 0);
            image[..BLOCK_BYTES].copy_from_slice(&header);
        }
        open_and_use(&image, &[]);
    }
}

#[test]
fn records_within_records_are_not_taken_for_records() {
    let (device, log) = on_ssd();
    commit(&log, 40, 1);
    // A log within the log: as it would lie there, and one round on.
    let inner = image(&device);
    let lsn = log.append(2, &[&inner[2 * BLOCK_BYTES..2 * BLOCK_BYTES + 4000]]).unwrap();
    log.sync().unwrap();
    let (found, _) = recovered(device.clone()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].0, lsn);
    let domain = Hardware::detect();
    assert!(BlockLog::open(domain, Arc::new(device)).is_ok());
}
