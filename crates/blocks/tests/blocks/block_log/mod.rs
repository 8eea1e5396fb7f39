//! The write-ahead log on block devices.

mod damage;
mod faults;
mod format;
mod group_commit;
mod length;
mod model;
mod persistent_memory;
mod room;
mod torn;
mod wild;

use std::sync::Arc;

use lapis_blocks::block_log::{
    BlockLog, BlockLogError, BlockLogOptions, Durability, Lsn, Recovery,
};
use lapis_device::{ModelledSsd, SsdConfig};
use lapis_pmem::{BLOCK_BYTES, BlockDevice, Hardware};

type Log = BlockLog<Hardware>;
/// A record: position, kind, payload.
type Owned = (Lsn, u8, Vec<u8>);

/// Segments and batches that come to their ends often.
const SMALL: BlockLogOptions =
    BlockLogOptions { identity: 7, segment_bytes: 8192, batch_bytes: 16384, most_bytes: 0 };
/// The header and four segments.
const SMALL_BLOCKS: u64 = 10;

fn ssd() -> ModelledSsd {
    ModelledSsd::new(SMALL_BLOCKS, SsdConfig::default()).unwrap()
}

fn create(device: impl BlockDevice + 'static) -> Log {
    BlockLog::create(Hardware::detect(), Arc::new(device), SMALL).unwrap()
}

/// A device and a new log on it.
fn on_ssd() -> (ModelledSsd, Log) {
    let device = ssd();
    (device.clone(), create(device))
}

fn open(device: impl BlockDevice + 'static) -> Result<Log, BlockLogError> {
    BlockLog::open(Hardware::detect(), Arc::new(device))
}

fn recovery(device: impl BlockDevice + 'static) -> Result<Recovery<Hardware>, BlockLogError> {
    Recovery::begin(Hardware::detect(), Arc::new(device))
}

/// What a log that is open holds durably.
fn contents(log: &Log) -> Vec<Owned> {
    let mut reader = log.read_from(log.start()).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        found.push((record.lsn, record.kind, record.payload.to_vec()));
    }
    found
}

/// What recovery finds on a device, and the log; as [`contents`] of that.
fn recovered(device: impl BlockDevice + 'static) -> Result<(Vec<Owned>, Log), BlockLogError> {
    let mut recovery = recovery(device)?;
    let mut found = Vec::new();
    while let Some(record) = recovery.next_record()? {
        found.push((record.lsn, record.kind, record.payload.to_vec()));
    }
    let log = recovery.finish()?;
    assert_eq!(contents(&log), found);
    Ok((found, log))
}

/// A payload made from a number.
fn payload(bytes: usize, number: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Appends a record and commits it.
fn commit(log: &Log, bytes: usize, number: usize) -> Owned {
    let record = append(log, bytes, number);
    log.commit(record.0, Durability::Immediate).unwrap();
    record
}

fn append(log: &Log, bytes: usize, number: usize) -> Owned {
    let payload = payload(bytes, number);
    let lsn = log.append(number as u8, &[&payload]).unwrap();
    (lsn, number as u8, payload)
}

/// All blocks of a device, one after the other.
fn image(device: &dyn BlockDevice) -> Vec<u8> {
    let mut image = vec![0; device.capacity_blocks() as usize * BLOCK_BYTES];
    device.read_blocks(0, &mut image).unwrap();
    image
}

/// A device that holds `image` durably.
fn device_of(image: &[u8]) -> ModelledSsd {
    let blocks = (image.len() / BLOCK_BYTES) as u64;
    let device = ModelledSsd::new(blocks, SsdConfig::default()).unwrap();
    device.write_blocks(0, image).unwrap();
    device.flush().unwrap();
    device
}
