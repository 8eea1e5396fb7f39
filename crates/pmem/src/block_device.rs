//! Block devices: the SSD floor of the memory hierarchy.
//!
//! A [`BlockDevice`] stores blocks of 4 KiB. It has a volatile cache and is honest about that: a
//! completed write is *visible* (later reads return it), and becomes *durable* with the next
//! completed flush. The rules that software above may rely on, and no others, are
//!
//! * D1. A write that has completed is what later reads of those blocks return, until the power
//!   goes.
//! * D2. A flush makes durable every write (and discard) that had completed when the flush was
//!   *submitted*. Writes still in flight then are not covered.
//! * D3. A power cut leaves each 512-byte sector with its last durable contents or with those of
//!   any write to it since, completed or in flight, each sector for itself: writes tear at sectors
//!   and persist in any order. On a device whose unit is smaller than a sector
//!   ([`BlockDevice::unit_bytes`]), what is left whole is eight bytes and not the sector.
//! * D4. Requests in flight at the same time take effect in any order. Whoever needs an order waits
//!   for the first completion.
//! * D5. A write that failed leaves each of its sectors old or new. A flush that failed promises
//!   nothing; on a real device no later flush promises anything about those writes either, and
//!   the device refuses from then on ([`BlockError::WritesLost`]).
//! * D6. The device does not notice bit rot: it returns wrong data without an error. Checksums
//!   belong to whoever gives blocks their meaning.
//!
//! Implementations: [`FileDevice`](crate::FileDevice), `IoUringDevice` (Linux, feature `io-uring`),
//! [`PoolDevice`](crate::PoolDevice) in persistent memory, and `lapis_device::ModelledSsd`, which can be asked for every state that D3 allows.

use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

pub use crate::block_buffer::BLOCK_BYTES;
use crate::block_buffer::BlockBuffer;
use crate::domain::DomainFault;

/// Bytes in a sector: what a power cut leaves whole (rule D3).
pub const SECTOR_BYTES: usize = 512;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOperation {
    /// Reads a run of blocks.
    Read,
    /// Writes a run of blocks.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Zeroes a run of blocks and gives their storage back.
    Discard,
}

impl BlockOperation {
    /// The name users know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }
}

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The run does not lie within the device.
    #[error(
        "blocks {first_block} to {first_block}+{blocks} lie beyond the device's {capacity_blocks}"
    )]
    OutOfRange {
        /// Where the run begins.
        first_block: u64,
        /// Its length.
        blocks: u64,
        /// What the device holds.
        capacity_blocks: u64,
    },
    /// The buffer is not a whole number of blocks.
    #[error("a buffer of {bytes} bytes is not a whole number of {BLOCK_BYTES}-byte blocks")]
    Misaligned {
        /// Bytes in the buffer.
        bytes: usize,
    },
    /// The bytes are not whole units of the device.
    #[error("{bytes} bytes at byte {at} are not whole units of {unit_bytes} bytes")]
    NotWholeUnits {
        /// Where they begin.
        at: u64,
        /// How many there are.
        bytes: usize,
        /// The device's unit.
        unit_bytes: usize,
    },
    /// The device could not do it.
    #[error("the device failed to {} block {block}: {source}", operation.name())]
    Io {
        /// What was to be done.
        operation: BlockOperation,
        /// The first block that it was not done to; 0 for a flush.
        block: u64,
        /// What the operating system answered.
        source: io::Error,
    },
    /// The disk beneath the device is full.
    #[error("no space left beneath block {block}")]
    NoSpace {
        /// The first block that found no space.
        block: u64,
    },
    /// An earlier flush failed, so that completed writes may be gone (rule D5).
    #[error("an earlier flush failed ({reason}); reopen the device and recover")]
    WritesLost {
        /// What the operating system answered to that flush.
        reason: String,
    },
    /// The memory beneath the device has failed.
    #[error(transparent)]
    Memory(#[from] DomainFault),
    /// No queue can be that deep, or as shallow as zero.
    #[error("a queue depth of {asked} is not between 1 and {most}")]
    QueueDepth {
        /// What was asked for.
        asked: u32,
        /// The deepest there is.
        most: u32,
    },
    /// The operating system refuses what this back end is made of.
    #[error("{what} is not available here: {source}")]
    Unavailable {
        /// What was refused.
        what: &'static str,
        /// What the operating system answered.
        source: io::Error,
    },
}

impl BlockError {
    /// The number of blocks in `bytes`, if a run of them at `first_block` lies within the device.
    ///
    /// # Errors
    /// [`BlockError::Misaligned`] or [`BlockError::OutOfRange`].
    pub fn check_run(
        capacity_blocks: u64,
        first_block: u64,
        bytes: usize,
    ) -> Result<u64, BlockError> {
        if !bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(Self::Misaligned { bytes });
        }
        let blocks = (bytes / BLOCK_BYTES) as u64;
        Self::check_blocks(capacity_blocks, first_block, blocks)?;
        Ok(blocks)
    }

    /// Whether the `bytes` bytes at byte `at` are whole units, and lie within the device.
    ///
    /// # Errors
    /// [`BlockError::NotWholeUnits`] or [`BlockError::OutOfRange`].
    pub fn check_units(
        capacity_blocks: u64,
        unit_bytes: usize,
        at: u64,
        bytes: usize,
    ) -> Result<(), BlockError> {
        if !at.is_multiple_of(unit_bytes as u64) || !bytes.is_multiple_of(unit_bytes) {
            return Err(Self::NotWholeUnits { at, bytes, unit_bytes });
        }
        let block = BLOCK_BYTES as u64;
        let end = at.saturating_add(bytes as u64).div_ceil(block);
        Self::check_blocks(capacity_blocks, at / block, end - at / block)
    }

    /// Whether `blocks` blocks at `first_block` lie within the device.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`].
    pub fn check_blocks(
        capacity_blocks: u64,
        first_block: u64,
        blocks: u64,
    ) -> Result<(), BlockError> {
        match first_block.checked_add(blocks) {
            Some(end) if end <= capacity_blocks => Ok(()),
            _ => Err(Self::OutOfRange { first_block, blocks, capacity_blocks }),
        }
    }
}

/// What a device has been asked to do since it was opened. Counts requests and bytes that were
/// asked for and in range, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Discard requests.
    pub discards: u64,
    /// Bytes of the read requests.
    pub read_bytes: u64,
    /// Bytes of the write requests.
    pub written_bytes: u64,
    /// Requests of any kind that failed on the device.
    pub failures: u64,
}

/// [`BlockCounts`] in the making: what an implementation counts on.
#[derive(Debug, Default)]
pub struct BlockCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    failures: AtomicU64,
}

impl BlockCounters {
    /// Counts one request of `bytes` bytes.
    pub fn count(&self, operation: BlockOperation, bytes: usize) {
        let (requests, sum) = match operation {
            BlockOperation::Read => (&self.reads, Some(&self.read_bytes)),
            BlockOperation::Write => (&self.writes, Some(&self.written_bytes)),
            BlockOperation::Flush => (&self.flushes, None),
            BlockOperation::Discard => (&self.discards, None),
        };
        requests.fetch_add(1, Ordering::Relaxed);
        if let Some(sum) = sum {
            sum.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts a failure.
    pub fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far. Of requests on other threads, some may be missing.
    pub fn counts(&self) -> BlockCounts {
        BlockCounts {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
            discards: self.discards.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// A device of 4 KiB blocks. The rules of durability, D1 to D6, are in the [module
/// documentation](self).
///
/// All methods take a shared reference: devices are used by several threads at a time. Two threads
/// that write the same block at the same time get either order (rule D4).
pub trait BlockDevice: Debug + Send + Sync {
    /// Blocks that the device holds: grows with [`BlockDevice::grow_to`], and may shrink with
    /// [`BlockDevice::shrink_to`] alone.
    fn capacity_blocks(&self) -> u64;

    /// Reads the blocks from `first_block` on into `into`, and waits. Blocks that were never
    /// written are zero. What is read need not be durable.
    ///
    /// Memory from a [`BlockBuffer`] spares a copy where the page cache is bypassed.
    ///
    /// # Errors
    /// [`BlockError`]; the contents of `into` are then unspecified.
    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError>;

    /// Writes `from` to the blocks from `first_block` on, and waits. Nothing is durable when this
    /// returns: a [`BlockDevice::flush`] that begins afterwards makes it so (rules D1, D2).
    ///
    /// # Errors
    /// [`BlockError`]; each sector concerned is then old or new (rule D5).
    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError>;

    /// The unit of [`BlockDevice::write_units`], which divides a block: a block, unless less can be
    /// written for less.
    fn unit_bytes(&self) -> usize {
        BLOCK_BYTES
    }

    /// Writes `from` to the bytes from `at` on, as [`BlockDevice::write_blocks`] would. Both are whole units
    /// ([`BlockDevice::unit_bytes`]).
    ///
    /// # Errors
    /// [`BlockError`]; each eight bytes concerned are then old or new (rule D5).
    fn write_units(&self, at: u64, from: &[u8]) -> Result<(), BlockError> {
        BlockError::check_units(self.capacity_blocks(), BLOCK_BYTES, at, from.len())?;
        self.write_blocks(at / BLOCK_BYTES as u64, from)
    }

    /// Makes durable every write and discard, of any thread or queue, that had completed when this
    /// was called (rule D2).
    ///
    /// # Errors
    /// [`BlockError::Io`]; nothing became durable for certain (rule D5).
    fn flush(&self) -> Result<(), BlockError>;

    /// Makes `blocks` blocks from `first_block` on zero, and gives the storage beneath them back
    /// where that is possible. As durable as a write: not before a flush.
    ///
    /// # Errors
    /// [`BlockError`]; each sector concerned is then old or zero.
    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError>;

    /// Makes everything behind the first `capacity_blocks` blocks zero and gives the storage beneath back; the device may
    /// become as short as that. As durable as a discard. Nobody uses these blocks meanwhile.
    ///
    /// # Errors
    /// [`BlockError`]; each sector concerned is then old or zero.
    fn shrink_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        let behind = self.capacity_blocks().saturating_sub(capacity_blocks);
        if behind > 0 { self.discard(capacity_blocks, behind) } else { Ok(()) }
    }

    /// Enlarges the device to at least `capacity_blocks` blocks; the new ones are zero. The new
    /// capacity is durable when this returns; a power cut earlier leaves the old or the new one.
    ///
    /// # Errors
    /// [`BlockError`]; the device keeps its size.
    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError>;

    /// Puts storage beneath blocks of the device that a discard may have taken it from, so that writing to them finds
    /// room. What is in them stays.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`] and others; some of the blocks may have storage then.
    fn reserve(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.capacity_blocks(), first_block, blocks)
    }

    /// Opens a queue for requests that are answered later, of which `depth` can be in flight at a
    /// time. A queue belongs to one thread at a time; each thread opens its own. It keeps the
    /// device open as long as it lives.
    ///
    /// # Errors
    /// [`BlockError::QueueDepth`], or [`BlockError::Unavailable`] if the operating system refuses.
    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError>;

    /// What was asked of the device since it was opened, its queues included.
    fn counts(&self) -> BlockCounts;
}

/// A request to a queue. Buffers move in and come back with the [`Completion`], so that nobody can
/// touch them while the device does, and none has to be allocated anew.
#[derive(Debug)]
pub enum Request {
    /// Fills `buffer` from the blocks from `first_block` on.
    Read {
        /// Comes back with the completion.
        tag: u64,
        /// Where the run begins.
        first_block: u64,
        /// As long as the run.
        buffer: BlockBuffer,
    },
    /// Writes `buffer` to the blocks from `first_block` on. Durable after a flush.
    Write {
        /// Comes back with the completion.
        tag: u64,
        /// Where the run begins.
        first_block: u64,
        /// What to write.
        buffer: BlockBuffer,
    },
    /// Makes durable what had completed when this was submitted (rule D2).
    Flush {
        /// Comes back with the completion.
        tag: u64,
    },
}

impl Request {
    /// What it does.
    pub fn operation(&self) -> BlockOperation {
        match self {
            Self::Read { .. } => BlockOperation::Read,
            Self::Write { .. } => BlockOperation::Write,
            Self::Flush { .. } => BlockOperation::Flush,
        }
    }

    /// Takes it apart: tag, first block, buffer.
    pub fn into_parts(self) -> (u64, u64, Option<BlockBuffer>) {
        match self {
            Self::Read { tag, first_block, buffer } | Self::Write { tag, first_block, buffer } => {
                (tag, first_block, Some(buffer))
            }
            Self::Flush { tag } => (tag, 0, None),
        }
    }
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// What it was.
    pub operation: BlockOperation,
    /// Its buffer: of a read, what was read.
    pub buffer: Option<BlockBuffer>,
    /// How it ended. A completed write is visible (D1); a completed flush is durable (D2).
    pub outcome: Result<(), BlockError>,
}

/// Requests in flight. See [`BlockDevice::queue`].
///
/// Dropping a queue waits for what is in flight and throws the answers away.
pub trait BlockQueue: Debug + Send {
    /// Requests that can be in flight at a time.
    fn depth(&self) -> u32;

    /// Requests accepted and not yet given back by [`BlockQueue::complete`].
    fn in_flight(&self) -> u32;

    /// Takes requests from the front of `requests` while there is room, and starts all of them at
    /// once. Returns how many it took; the others stay. Whatever is wrong with a request itself is
    /// said in its completion.
    ///
    /// # Errors
    /// [`BlockError`] if the device could not be told. What was taken from `requests` is in flight
    /// all the same and will be started by the next call.
    fn submit(&mut self, requests: &mut Vec<Request>) -> Result<u32, BlockError>;

    /// Waits until at least `at_least` requests (or all in flight, if these are fewer) have been
    /// answered, and appends all answers there are to `completions`, in the order in which they
    /// came. Returns how many. Zero does not wait.
    ///
    /// # Errors
    /// [`BlockError`] if the device could not be asked; the requests stay in flight.
    fn complete(
        &mut self,
        at_least: u32,
        completions: &mut Vec<Completion>,
    ) -> Result<u32, BlockError>;
}

/// The deepest queue that any back end gives.
pub const DEEPEST_QUEUE: u32 = 4096;

/// `depth` if it is one that a queue can have.
///
/// # Errors
/// [`BlockError::QueueDepth`].
pub fn check_queue_depth(depth: u32) -> Result<u32, BlockError> {
    if (1..=DEEPEST_QUEUE).contains(&depth) {
        Ok(depth)
    } else {
        Err(BlockError::QueueDepth { asked: depth, most: DEEPEST_QUEUE })
    }
}
