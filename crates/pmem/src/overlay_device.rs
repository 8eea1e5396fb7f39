//! A block device over another one that is only read: what is written stays in memory.
//!
//! For whoever tries something out on a device that must stay as it is: a recovery of what is damaged, above all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::block_device::{
    BLOCK_BYTES, BlockCounters, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue,
    check_queue_depth,
};
use crate::serial_queue::SerialQueue;

type Block = [u8; BLOCK_BYTES];

/// See the [module](self). Cheap to clone: all clones are one device. It ends with the last of them, so nothing is ever
/// more durable than that.
#[derive(Clone, Debug)]
pub struct OverlayDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    base: Arc<dyn BlockDevice>,
    /// As far as the device has grown.
    capacity_blocks: AtomicU64,
    written: RwLock<HashMap<u64, Box<Block>>>,
    counters: BlockCounters,
}

impl OverlayDevice {
    /// A device that begins as `base` is.
    pub fn over(base: Arc<dyn BlockDevice>) -> Self {
        let capacity_blocks = AtomicU64::new(base.capacity_blocks());
        let (written, counters) = (RwLock::default(), BlockCounters::default());
        Self(Arc::new(Shared { base, capacity_blocks, written, counters }))
    }

    /// Reads what the device beneath has of a run; beyond its end everything is zero.
    fn read_base(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        let there = self.0.base.capacity_blocks().saturating_sub(first_block);
        let bytes = usize::try_from(there).unwrap_or(usize::MAX).saturating_mul(BLOCK_BYTES);
        let (below, beyond) = into.split_at_mut(bytes.min(into.len()));
        beyond.fill(0);
        match below.is_empty() {
            true => Ok(()),
            false => self.0.base.read_blocks(first_block, below),
        }
    }
}

impl BlockDevice for OverlayDevice {
    fn capacity_blocks(&self) -> u64 {
        self.0.capacity_blocks.load(Ordering::Acquire)
    }

    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        let blocks = BlockError::check_run(self.capacity_blocks(), first_block, into.len())?;
        self.0.counters.count(BlockOperation::Read, into.len());
        let written = self.0.written.read();
        let run = first_block..first_block + blocks;
        // A block that cannot be read may have been written since.
        if !run.clone().all(|block| written.contains_key(&block)) {
            self.read_base(first_block, into)?;
        }
        for (block, into) in run.zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some(bytes) = written.get(&block) {
                into.copy_from_slice(&bytes[..]);
            }
        }
        Ok(())
    }

    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        BlockError::check_run(self.capacity_blocks(), first_block, from.len())?;
        self.0.counters.count(BlockOperation::Write, from.len());
        let mut written = self.0.written.write();
        for (block, from) in (first_block..).zip(from.as_chunks::<BLOCK_BYTES>().0) {
            written.insert(block, Box::new(*from));
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.0.counters.count(BlockOperation::Flush, 0);
        Ok(())
    }

    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.capacity_blocks(), first_block, blocks)?;
        self.0.counters.count(BlockOperation::Discard, 0);
        let mut written = self.0.written.write();
        for block in first_block..first_block + blocks {
            // Beyond the device beneath there is nothing to hide.
            if block < self.0.base.capacity_blocks() {
                written.insert(block, Box::new([0; BLOCK_BYTES]));
            } else {
                written.remove(&block);
            }
        }
        Ok(())
    }

    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        // As no file can be larger.
        let bytes = capacity_blocks.checked_mul(BLOCK_BYTES as u64);
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(BlockError::NoSpace { block: self.capacity_blocks() });
        }
        self.0.capacity_blocks.fetch_max(capacity_blocks, Ordering::AcqRel);
        Ok(())
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        Ok(Box::new(SerialQueue::new(self.clone(), check_queue_depth(depth)?)))
    }

    fn counts(&self) -> BlockCounts {
        self.0.counters.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectTransfers, FileDevice};

    fn base(directory: &tempfile::TempDir) -> Arc<FileDevice> {
        let file = directory.path().join("ssd");
        let base = FileDevice::create(&file, 3, DirectTransfers::Never).unwrap();
        base.write_blocks(0, &[7; 3 * BLOCK_BYTES]).unwrap();
        Arc::new(base)
    }

    fn read(device: &dyn BlockDevice, block: u64) -> u8 {
        let mut bytes = [0; BLOCK_BYTES];
        device.read_blocks(block, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn what_is_written_is_read_and_the_device_beneath_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let below = base(&directory);
        let device = OverlayDevice::over(Arc::clone(&below) as _);
        device.write_blocks(1, &[9; BLOCK_BYTES]).unwrap();
        device.discard(2, 1).unwrap();
        assert_eq!([0, 1, 2].map(|block| read(&device, block)), [7, 9, 0]);
        assert_eq!([0, 1, 2].map(|block| read(&*below, block)), [7, 7, 7]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn it_grows_where_the_device_beneath_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let below = base(&directory);
        let device = OverlayDevice::over(Arc::clone(&below) as _);
        assert!(device.read_blocks(3, &mut [0; BLOCK_BYTES]).is_err());
        device.grow_to(5).unwrap();
        device.write_blocks(4, &[9; BLOCK_BYTES]).unwrap();
        let mut run = vec![1; 3 * BLOCK_BYTES];
        device.read_blocks(2, &mut run).unwrap();
        assert_eq!((run[0], run[BLOCK_BYTES], run[2 * BLOCK_BYTES]), (7, 0, 9));
        assert_eq!((device.capacity_blocks(), below.capacity_blocks()), (5, 3));
    }
}
