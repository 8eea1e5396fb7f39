//! Bytes laid over the image of a log on a block device: opening it gives a log or an error, never a
//! record that was not appended, and a log that opened goes on working.

#![cfg_attr(fuzzing, no_main)]

use std::sync::{Arc, LazyLock};

use lapis_blocks::block_log::{BlockLog, BlockLogOptions, Recovery};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, Hardware};

const BLOCKS: u64 = 10;
const LENGTHS: [usize; 12] = [0, 1, 40, 3000, 700, 700, 8, 8, 8, 4000, 100, 16];

fn ssd() -> ModelledSsd {
    ModelledSsd::new(BLOCKS, SsdConfig::default()).unwrap()
}

/// A log of a record of each length, committed by pairs.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let device = ssd();
    let options =
        BlockLogOptions { identity: 7, segment_bytes: 8192, batch_bytes: 16384, most_bytes: 65536 };
    let log = BlockLog::create(Hardware::detect(), Arc::new(device.clone()), options).unwrap();
    for (kind, length) in (0u8..).zip(LENGTHS) {
        log.append(kind, &[&vec![kind; length]]).unwrap();
        if kind % 2 == 1 {
            log.sync().unwrap();
        }
    }
    let mut image = vec![0; BLOCKS as usize * BLOCK_BYTES];
    device.read_blocks(0, &mut image).unwrap();
    image
});

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    let mut image = IMAGE.clone();
    for spot in input.chunks_exact(11) {
        let at = usize::from(u16::from_le_bytes([spot[0], spot[1]])) % (image.len() - 512);
        match spot[2] % 3 {
            0 => image[at..at + 8].copy_from_slice(&spot[3..]),
            1 => image[at] ^= spot[3],
            _ => image.copy_within(at..at + 512, usize::from(spot[3]) % 80 * 512),
        }
    }
    let device = ssd();
    device.write_blocks(0, &image).unwrap();
    let Ok(mut recovery) = Recovery::begin(Hardware::detect(), Arc::new(device)) else { return };
    loop {
        match recovery.next_record() {
            Ok(Some(record)) => {
                let length = LENGTHS[usize::from(record.kind)];
                assert!(record.payload.len() == length, "{}", record.lsn);
                assert!(record.payload.iter().all(|&byte| byte == record.kind), "{}", record.lsn);
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    let log = recovery.finish().expect("a log that was read to its end can be opened");
    if log.append(1, &[b"one more"]).is_ok() {
        log.sync().expect("a log that opened can be written");
    }
    log.truncate_before(log.durable()).expect("a log that opened can be truncated");
});
