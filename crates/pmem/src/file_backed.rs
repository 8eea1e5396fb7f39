//! Every device over a file is a [`BlockDevice`].

use std::sync::Arc;

use crate::block_device::{BlockCounts, BlockDevice, BlockError, BlockQueue, check_queue_depth};
use crate::block_file::BlockFile;

/// A device over a file, of which only the queues differ: what waits for one request takes one
/// system call in any of them.
pub trait FileBacked: std::fmt::Debug + Send + Sync {
    /// The file.
    fn file(&self) -> &Arc<BlockFile>;

    /// A queue of this depth, which has been checked.
    ///
    /// # Errors
    /// [`BlockError::Unavailable`].
    fn queue_of(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError>;
}

impl<F: FileBacked> BlockDevice for F {
    fn capacity_blocks(&self) -> u64 {
        self.file().capacity_blocks()
    }

    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.file().read(first_block, into)
    }

    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        self.file().write(first_block, from)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.file().flush()
    }

    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        self.file().discard(first_block, blocks)
    }

    fn shrink_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        self.file().shrink_to(capacity_blocks)
    }

    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        self.file().grow_to(capacity_blocks)
    }

    fn reserve(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        self.file().reserve(first_block, blocks)
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        self.queue_of(check_queue_depth(depth)?)
    }

    fn counts(&self) -> BlockCounts {
        self.file().counters.counts()
    }
}
