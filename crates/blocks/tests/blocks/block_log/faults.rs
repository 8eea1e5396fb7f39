//! Devices that fail, and every state that a power cut leaves of a batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lapis_blocks::block_log::{BlockLogError, Durability};
use lapis_device::{ImageBudget, ModelledSsd};
use lapis_pmem::{BLOCK_BYTES, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue};
use parking_lot::Mutex;

use super::{Owned, append, commit, contents, create, on_ssd, open, recovered, ssd};

/// Every image that a power cut now may leave, or many of them, is opened.
fn after_every_power_cut(device: &ModelledSsd, mut look: impl FnMut(ModelledSsd)) -> u64 {
    let states = device.crash_states();
    let after = device.after_power_cut();
    let budget = ImageBudget { exhaustive_limit: 1 << 12, samples: 400, seed: 1 };
    let mut images = 0;
    for image in states.images(budget) {
        states.apply_to_devices(&image, std::slice::from_ref(&after));
        look(after.clone());
        after.revert();
        images += 1;
    }
    images
}

fn survives(device: &ModelledSsd, acknowledged: &[Owned], all: &[Owned]) -> u64 {
    after_every_power_cut(device, |after| {
        let (found, log) = recovered(after.clone()).unwrap();
        assert!(found.len() >= acknowledged.len(), "{} records", found.len());
        assert_eq!(all[..found.len()], found);
        // What is appended next is followed by nothing.
        let record = commit(&log, 8, 77);
        let (again, _) = recovered(after).unwrap();
        assert_eq!(again[..found.len()], found);
        assert_eq!(again[found.len()..], [record]);
    })
}

#[test]
fn a_torn_write_of_a_block_keeps_what_was_acknowledged_in_it() {
    let mut images = 0;
    for bytes in [8, 40, 300, 700] {
        let (device, log) = on_ssd();
        let mut records: Vec<_> = (0..5).map(|number| commit(&log, bytes, number)).collect();
        device.fail_after(BlockOperation::Flush, 0);
        let acknowledged = records.clone();
        records.extend((5..9).map(|number| append(&log, bytes, number)));
        let lsn = records[8].0;
        assert!(matches!(log.commit(lsn, Durability::Immediate), Err(BlockLogError::Failed(_))));
        images += survives(&device, &acknowledged, &records);
    }
    assert!(images > 80, "{images}");
}

#[test]
fn a_batch_over_many_blocks_and_segments_is_there_up_to_its_first_gap() {
    let (device, log) = on_ssd();
    let mut records: Vec<_> = (0..20).map(|number| commit(&log, 200, number)).collect();
    device.fail_after(BlockOperation::Flush, 0);
    let acknowledged = records.clone();
    records.extend((20..50).map(|number| append(&log, 200, number)));
    assert!(log.sync().is_err());
    let images = survives(&device, &acknowledged, &records);
    assert!(images > 150, "{images}");
}

#[test]
fn a_batch_across_the_end_of_the_ring_is_survived() {
    let (device, log) = on_ssd();
    while log.end().number() < log.capacity_bytes() - 3000 {
        commit(&log, 200, 1);
        log.truncate_before(log.durable()).unwrap();
    }
    let mut records: Vec<_> = (0..3).map(|number| commit(&log, 200, number)).collect();
    device.fail_after(BlockOperation::Flush, 0);
    let acknowledged = records.clone();
    records.extend((3..30).map(|number| append(&log, 200, number)));
    assert!(log.sync().is_err());
    assert!(log.end().number() > log.capacity_bytes());
    assert!(survives(&device, &acknowledged, &records) > 300);
}

#[test]
fn a_truncation_whose_flush_failed_is_not_done_when_it_is_asked_for_again() {
    let (device, log) = on_ssd();
    let ends = [1, 2, 3].map(|number| {
        commit(&log, 200, number);
        log.durable()
    });
    device.fail_after(BlockOperation::Flush, 0);
    for end in [ends[1], ends[1], ends[0]] {
        assert!(matches!(log.truncate_before(end), Err(BlockLogError::Failed(_))));
        assert_eq!(contents(&log).len(), 3);
    }
}

#[test]
fn after_a_failed_flush_nothing_is_acknowledged_any_more() {
    let (device, log) = on_ssd();
    let (before, ..) = commit(&log, 10, 1);
    let (lsn, ..) = append(&log, 10, 2);
    device.fail_after(BlockOperation::Flush, 0);
    let ticket = log.commit(lsn, Durability::Group).unwrap();
    assert!(!ticket.is_durable());
    assert!(matches!(ticket.wait(), Err(BlockLogError::Failed(_))));
    for durability in [Durability::Immediate, Durability::Group, Durability::Eventual] {
        assert!(matches!(log.commit(lsn, durability), Err(BlockLogError::Failed(_))));
    }
    assert!(matches!(log.append(1, &[]), Err(BlockLogError::Failed(_))));
    assert!(matches!(log.reserve(1, 1), Err(BlockLogError::Failed(_))));
    assert!(matches!(log.sync(), Err(BlockLogError::Failed(_))));
    assert!(matches!(log.truncate_before(log.durable()), Err(BlockLogError::Failed(_))));
    log.commit(before, Durability::Immediate).unwrap();
    assert_eq!(contents(&log).len(), 1, "what is durable can be read");
    assert!(matches!(log.close(), Err(BlockLogError::Failed(_))));
}

#[test]
fn a_failed_write_is_for_good_although_the_device_goes_on() {
    let (device, log) = on_ssd();
    let first = commit(&log, 10, 1);
    let second = append(&log, 2000, 2);
    device.fail_after(BlockOperation::Write, 0);
    assert!(matches!(log.sync(), Err(BlockLogError::Failed(_))));
    assert!(matches!(log.sync(), Err(BlockLogError::Failed(_))));
    drop(log);
    let (found, log) = recovered(device.clone()).unwrap();
    assert_eq!(found[0], first);
    assert!(found[1..].iter().all(|record| *record == second));
    let third = commit(&log, 30, 3);
    assert_eq!(contents(&log).last(), Some(&third));
}

#[test]
fn a_header_that_could_not_be_written_ends_the_log_and_drops_all_or_nothing() {
    for operation in [BlockOperation::Write, BlockOperation::Flush] {
        let (device, log) = on_ssd();
        let records: Vec<_> = (0..9).map(|number| commit(&log, 100, number)).collect();
        device.fail_after(operation, 0);
        let refused = log.truncate_before(records[4].0).unwrap_err();
        assert!(matches!(refused, BlockLogError::Failed(_)), "{refused}");
        assert!(matches!(log.append(1, &[]), Err(BlockLogError::Failed(_))));
        let images = after_every_power_cut(&device, |after| {
            let (found, _) = recovered(after).unwrap();
            assert!(found == records || found == records[4..], "{}", found.len());
        });
        assert!(images >= 2, "{images}");
    }
}

#[test]
fn a_power_cut_while_the_log_is_opened_leaves_no_damage() {
    let device = ssd();
    let refusing = Refusing { device: device.clone(), flushes: Arc::default() };
    let log = create(refusing.clone());
    let mut records: Vec<_> = (0..5).map(|number| commit(&log, 150, number)).collect();
    let acknowledged = records.clone();
    // Written, visible when the log is opened again, and never durable.
    refusing.flushes.store(true, Ordering::Relaxed);
    records.extend((5..40).map(|number| append(&log, 150, number)));
    assert!(log.sync().is_err());
    drop(log);
    let mut recovery = super::recovery(refusing.clone()).unwrap();
    let found = std::iter::from_fn(|| recovery.next_record().unwrap().map(|record| record.lsn));
    assert_eq!(found.count(), records.len());
    assert!(matches!(recovery.finish(), Err(BlockLogError::Device(_))));
    let images = survives(&device, &acknowledged, &records);
    assert!(images > 150, "{images}");
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_and_not_the_end() {
    let (device, log) = on_ssd();
    (0..40).for_each(|number| _ = commit(&log, 150, number));
    drop(log);
    device.fail_after(BlockOperation::Read, 3);
    assert!(matches!(open(device.clone()), Err(BlockLogError::Device(_))));
    // One copy of the header does.
    let device = device.after_power_cut();
    device.fail_after(BlockOperation::Read, 0);
    assert_eq!(recovered(device).unwrap().0.len(), 40);
}

/// A device that can be told to refuse flushes, and nothing else.
#[derive(Clone, Debug)]
struct Refusing {
    device: ModelledSsd,
    flushes: Arc<AtomicBool>,
}

/// A device behind a page cache that, like the kernel's, takes pages for clean which it failed to
/// write: later reads give them, and later flushes do not write them.
#[derive(Clone, Debug)]
struct PageCache {
    medium: ModelledSsd,
    pages: Arc<Mutex<HashMap<u64, Page>>>,
    fails: Arc<Mutex<bool>>,
}

/// Its bytes, and whether they are to be written.
type Page = (Vec<u8>, bool);

fn failure() -> BlockError {
    let source = std::io::Error::other("the disk is gone");
    BlockError::Io { operation: BlockOperation::Flush, block: 0, source }
}

impl PageCache {
    fn over(medium: ModelledSsd) -> Self {
        Self { medium, pages: Arc::default(), fails: Arc::default() }
    }

    fn flush_pages(&self) -> Result<(), BlockError> {
        let fails = std::mem::take(&mut *self.fails.lock());
        for (block, (bytes, dirty)) in self.pages.lock().iter_mut() {
            if std::mem::take(dirty) && !fails {
                self.medium.write_blocks(*block, bytes)?;
            }
        }
        if fails { Err(failure()) } else { self.medium.flush() }
    }
}

macro_rules! block_device {
    ($type:ty, $inner:ident, $($method:item)+) => {
        impl BlockDevice for $type {
            $($method)+
            fn capacity_blocks(&self) -> u64 {
                self.$inner().capacity_blocks()
            }
            fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
                self.$inner().discard(first_block, blocks)
            }
            fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
                self.$inner().grow_to(capacity_blocks)
            }
            fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
                self.$inner().queue(depth)
            }
            fn counts(&self) -> BlockCounts {
                self.$inner().counts()
            }
        }
    };
}
pub(super) use block_device;

impl Refusing {
    fn inner(&self) -> &ModelledSsd {
        &self.device
    }
}

impl PageCache {
    fn inner(&self) -> &ModelledSsd {
        &self.medium
    }
}

block_device! { Refusing, inner,
    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.device.read_blocks(first_block, into)
    }
    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        self.device.write_blocks(first_block, from)
    }
    fn flush(&self) -> Result<(), BlockError> {
        if self.flushes.load(Ordering::Relaxed) { Err(failure()) } else { self.device.flush() }
    }
}

block_device! { PageCache, inner,
    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.medium.read_blocks(first_block, into)?;
        for (block, into) in (first_block..).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some((bytes, _)) = self.pages.lock().get(&block) {
                into.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        for (block, bytes) in (first_block..).zip(from.chunks_exact(BLOCK_BYTES)) {
            self.pages.lock().insert(block, (bytes.to_vec(), true));
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.flush_pages()
    }
}

#[test]
fn what_a_kernel_shows_and_has_failed_to_write_is_written_again_before_it_counts() {
    for bytes in [20, 300, 900] {
        let medium = ssd();
        let cache = PageCache::over(medium.clone());
        let log = create(cache.clone());
        let mut records: Vec<_> = (0..7).map(|number| commit(&log, bytes, number)).collect();
        records.extend((7..20).map(|number| append(&log, bytes, number)));
        *cache.fails.lock() = true;
        assert!(matches!(log.sync(), Err(BlockLogError::Failed(_))));
        drop(log);
        let (found, log) = recovered(cache).unwrap();
        assert_eq!(found, records, "the kernel goes on showing them");
        drop(log);
        assert_eq!(recovered(medium).unwrap().0, records, "{bytes}");
    }
}
