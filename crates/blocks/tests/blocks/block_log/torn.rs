//! Batches of which a power cut left parts, and what comes where they were.

use lapis_blocks::block_log::{BlockLog, Durability};
use lapis_pmem::Hardware;

use super::{commit, contents, device_of, image, on_ssd, recovered};

const SECTOR_BYTES: usize = 512;
/// Of a record, and so two sectors or three.
const PAYLOAD_BYTES: usize = 700;
/// What distinguishes one attempt from the next: the rest of their payloads is the same.
const ATTEMPT_BYTES: usize = 8;

/// What is to be durable when an attempt is, and whatever its number is.
fn attempt(log: &BlockLog<Hardware>, number: u8) {
    let payload = [[number; ATTEMPT_BYTES].as_slice(), &[7; PAYLOAD_BYTES]].concat();
    let lsn = log.append(1, &[&payload]).unwrap();
    log.commit(lsn, Durability::Immediate).unwrap();
}

/// The sectors of `newer` in `after`, those of `older` otherwise, among those in which they differ.
fn torn(before: &[u8], after: &[u8], newer: u32) -> Vec<u8> {
    let sectors = before.chunks(SECTOR_BYTES).zip(after.chunks(SECTOR_BYTES));
    let mut place = 0;
    let of_image = sectors.map(|(before, after)| {
        let differ = before != after;
        place += u32::from(differ);
        if differ && newer >> (place - 1) & 1 == 0 { before } else { after }
    });
    of_image.collect::<Vec<_>>().concat()
}

fn differing_sectors(before: &[u8], after: &[u8]) -> u32 {
    let sectors = before.chunks(SECTOR_BYTES).zip(after.chunks(SECTOR_BYTES));
    sectors.filter(|(before, after)| before != after).count() as u32
}

#[test]
fn an_attempt_that_is_torn_twice_is_not_made_whole_by_the_next() {
    // From 480 bytes before the end of a block, which is written again as a whole, to where the next begins: in between
    // a header is in two sectors, whichever of its words the boundary lies behind.
    let filled = (3528..=4008).step_by(8);
    for (bytes_before, header_says) in filled.flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let (device, log) = on_ssd();
        let first = commit(&log, bytes_before, 1);
        if header_says {
            // Where the log ends: an opening then need not write the header.
            log.truncate_before(first.0).unwrap();
        }
        let before = image(&device);
        attempt(&log, 2);
        drop(log);
        let after = image(&device);
        for left in 0..(1 << differing_sectors(&before, &after)) - 1 {
            let device = device_of(&torn(&before, &after, left));
            let (found, log) = recovered(device.clone()).unwrap();
            if found.len() != 1 {
                continue;
            }
            let opened = image(&device.after_power_cut());
            attempt(&log, 3);
            let whole = contents(&log);
            drop(log);
            let again = image(&device);
            for left_again in 0..1 << differing_sectors(&opened, &again) {
                let image = torn(&opened, &again, left_again);
                let (found, _) = recovered(device_of(&image)).unwrap();
                assert_eq!(found[0], first);
                let is_one = found.len() == 1 || found == whole;
                assert!(is_one, "{bytes_before} {left:b} {left_again:b}: {:?}", &found[1].2[..8]);
            }
        }
    }
}
