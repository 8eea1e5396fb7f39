//! A block device in a pool of persistent memory: what is made for block devices runs on PM unchanged.
//!
//! # Layout
//!
//! ```text
//!  PoolDeviceRoot (64 bytes; the caller publishes it)
//!     0   8  magic           "LAPISBLK"
//!     8   8  format_version  1
//!    16   8  blocks          how many there are
//!    24   8  frames          the blocks, one after the other, each where a page begins
//!    32   8  checksum        of the four words before: XXH3 of each, seeded with that of those before it
//!    40  24  reserved, zero
//! ```
//!
//! # Invariants
//!
//! * V1. A write that has completed is durable: it goes past the caches and ends with its fence, which is its
//!   thread's own (rule R6). So D2 holds for writes of any thread, and a flush has nothing to do but to ask
//!   whether every fence kept its promise.
//! * V2. Blocks that were never written are zero, durably, before the root can be published.
//!
//! A power cut leaves each eight bytes old or new, and no more (R6): D3 as a device of small units has it.
//! Readers share a lock and a writer has it alone, so that memory is not read while it changes.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::allocator::AllocError;
use crate::block_buffer::BLOCK_BYTES;
use crate::block_device::{
    BlockCounters, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue,
    check_queue_depth,
};
use crate::cell::{Link, PCell, Slot};
use crate::commit::Committed;
use crate::domain::{Domain, LINE_BYTES};
use crate::host_lock;
use crate::owned::{InFlight, Owned};
use crate::page_frame::PageFrame;
use crate::persistent;
use crate::pool::{Pool, RootError, SoleUse};
use crate::reachable::BlockVisitor;
use crate::serial_queue::SerialQueue;

const MAGIC: u64 = u64::from_le_bytes(*b"LAPISBLK");
const FORMAT_VERSION: u64 = 1;

persistent! {
    /// The root of a device: what the caller publishes.
    pub struct PoolDeviceRoot: 64 {
        magic: PCell<u64>,
        format_version: PCell<u64>,
        blocks: PCell<u64>,
        frames: Slot<PageFrame>,
        checksum: PCell<u64>,
        reserved: [PCell<u64>; 3],
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(PoolDeviceRoot, blocks) == 16 && offset_of!(PoolDeviceRoot, frames) == 24);
    assert!(offset_of!(PoolDeviceRoot, checksum) == 32);
    assert!(offset_of!(PoolDeviceRoot, reserved) == 40);
    assert!(size_of::<PageFrame>() == BLOCK_BYTES);
};

impl PoolDeviceRoot {
    fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let words = [
            self.magic.load(domain),
            self.format_version.load(domain),
            self.blocks.load(domain),
            self.frames.word().load(domain),
        ];
        words.into_iter().fold(0, |sum, word| xxh3_64_with_seed(&word.to_le_bytes(), sum))
    }
}

/// Why a device in a pool could not be made or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolDeviceError {
    /// The pool has no room for it.
    #[error(transparent)]
    Pool(#[from] AllocError),
    /// The pool has no such name for it.
    #[error(transparent)]
    Root(#[from] RootError),
    /// What the link refers to is none, or damaged.
    #[error("there is no block device at pool offset {pool_offset:#x}, or its root is damaged")]
    NotADevice {
        /// Where it was looked for.
        pool_offset: u64,
    },
    /// It is open: what uses it shares that device.
    #[error("the device is open already: it is to be shared")]
    InUse,
    /// A newer Lapis wrote it.
    #[error("the device has format {found}; this build knows formats up to {FORMAT_VERSION}")]
    NewerFormat {
        /// Its version.
        found: u64,
    },
}

/// A [`BlockDevice`] in a pool. See the [module documentation](self). All clones are one device.
pub struct PoolDevice<D: Domain> {
    pool: Arc<Pool<D>>,
    root: Link<PoolDeviceRoot>,
    frames: u64,
    blocks: u64,
    shared: Arc<Shared<D>>,
}

struct Shared<D: Domain> {
    contents: RwLock<()>,
    counters: BlockCounters,
    _alone: SoleUse<D>,
}

impl<D: Domain> Clone for PoolDevice<D> {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool), shared: Arc::clone(&self.shared), ..*self }
    }
}

impl<D: Domain> fmt::Debug for PoolDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolDevice({} blocks in {:?})", self.blocks, self.pool)
    }
}

impl<D: Domain> PoolDevice<D> {
    /// Lays out a device of zeroed blocks. It is durable with the caller's next fence; then the caller
    /// publishes it where he likes and calls [`PoolDevice::open`] with its link.
    ///
    /// # Errors
    /// [`AllocError`]; a device without blocks is too small by one.
    pub fn create(
        pool: &Pool<D>,
        blocks: u64,
    ) -> Result<Owned<'_, D, PoolDeviceRoot, InFlight>, AllocError> {
        let behind_the_first = usize::try_from(blocks.max(1) - 1).ok();
        let tail_bytes = behind_the_first.and_then(|blocks| blocks.checked_mul(BLOCK_BYTES));
        let too_large = AllocError::TooLarge { asked_bytes: usize::MAX };
        let frames = pool.allocate_with_tail::<PageFrame>(tail_bytes.ok_or(too_large)?)?;
        let domain = pool.domain();
        let mut root = pool.allocate::<PoolDeviceRoot>()?;
        root.magic.store(domain, MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.blocks.store(domain, blocks.max(1));
        // V2
        root.link_child(|root| &root.frames, frames.zero_nontemporal());
        root.checksum.store(domain, root.expected_checksum(domain));
        root.reserved.iter().for_each(|word| word.store(domain, 0));
        Ok(root.flush())
    }

    /// Opens the device at `root`, after a crash or not.
    ///
    /// # Errors
    /// [`PoolDeviceError`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<PoolDeviceRoot>) -> Result<Self, PoolDeviceError> {
        let not_a_device = PoolDeviceError::NotADevice { pool_offset: root.offset() };
        let domain = pool.domain();
        let header = pool.try_at(root).filter(|header| header.magic.load(domain) == MAGIC);
        let Some(header) = header else { return Err(not_a_device) };
        let found = header.format_version.load(domain);
        if found > FORMAT_VERSION {
            return Err(PoolDeviceError::NewerFormat { found });
        }
        let (frames, blocks) = (header.frames.load(domain), header.blocks.load(domain));
        let is_whole = header.checksum.load(domain) == header.expected_checksum(domain);
        let lies_in_pool = pool.try_slice(frames, blocks as usize).is_some();
        if !is_whole || !lies_in_pool {
            return Err(not_a_device);
        }
        let alone = pool.sole_use(root).ok_or(PoolDeviceError::InUse)?;
        let (contents, counters) = Default::default();
        let shared = Arc::new(Shared { contents, counters, _alone: alone });
        Ok(Self { pool, root, frames: frames.offset(), blocks, shared })
    }

    /// Makes a device and the root `name` of it, durably, and opens it.
    ///
    /// # Errors
    /// [`PoolDeviceError`].
    pub fn create_named(
        pool: &Arc<Pool<D>>,
        name: &str,
        blocks: u64,
    ) -> Result<Self, PoolDeviceError> {
        let device = pool.fence(Self::create(pool, blocks)?);
        let root = device.link();
        let _: Committed = pool.publish_root(name, MAGIC, device)?.persist();
        Self::open(Arc::clone(pool), root)
    }

    /// The device whose root is called `name`; none if there is no such root.
    ///
    /// # Errors
    /// [`PoolDeviceError`].
    pub fn open_named(pool: &Arc<Pool<D>>, name: &str) -> Result<Option<Self>, PoolDeviceError> {
        pool.root(name).map(|root| Self::open(Arc::clone(pool), root)).transpose()
    }

    /// The pool it lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// Says which blocks of the pool the device takes.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        visitor.visit::<PoolDeviceRoot>(self.root, size_of::<PoolDeviceRoot>());
        let bytes = self.blocks as usize * BLOCK_BYTES;
        visitor.visit::<PageFrame>(Link::from_bits(self.frames), bytes);
    }

    /// Changes bytes of the device, which lie within it, past the caches and durably (V1).
    fn change(&self, at: u64, change: impl FnOnce(&D, *mut u8)) -> Result<(), BlockError> {
        let domain = self.pool.domain();
        let _alone = host_lock::write(domain, &self.shared.contents);
        change(domain, self.pool.address_of(self.frames + at));
        // With the lock held: what was streamed is visible to others only now.
        domain.fence();
        self.check_health()
    }

    fn check_health(&self) -> Result<(), BlockError> {
        Ok(self.pool.domain().health()?)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), BlockError> {
        self.shared.counters.count(BlockOperation::Write, from.len());
        self.change(at, |domain, place| {
            // SAFETY: the range lies within the device (checked by the callers), which lies in the pool (checked
            // when it was opened) and is nobody else's; the lock is held alone.
            unsafe { domain.copy_nontemporal(place, from) };
        })
    }
}

impl<D: Domain> BlockDevice for PoolDevice<D> {
    fn capacity_blocks(&self) -> u64 {
        self.blocks
    }

    fn unit_bytes(&self) -> usize {
        LINE_BYTES
    }

    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        BlockError::check_run(self.blocks, first_block, into.len())?;
        self.shared.counters.count(BlockOperation::Read, into.len());
        let _shared = host_lock::read(self.pool.domain(), &self.shared.contents);
        let place = self.pool.address_of(self.frames + first_block * BLOCK_BYTES as u64);
        self.pool.domain().note_read(place, into.len());
        // SAFETY: the range lies within the device, as in `write`; nobody writes while the lock is held.
        into.copy_from_slice(unsafe { std::slice::from_raw_parts(place, into.len()) });
        self.check_health()
    }

    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        BlockError::check_run(self.blocks, first_block, from.len())?;
        self.write(first_block * BLOCK_BYTES as u64, from)
    }

    fn write_units(&self, at: u64, from: &[u8]) -> Result<(), BlockError> {
        BlockError::check_units(self.blocks, LINE_BYTES, at, from.len())?;
        self.write(at, from)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.shared.counters.count(BlockOperation::Flush, 0);
        self.check_health()
    }

    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.blocks, first_block, blocks)?;
        let bytes = blocks as usize * BLOCK_BYTES;
        self.shared.counters.count(BlockOperation::Discard, bytes);
        self.change(first_block * BLOCK_BYTES as u64, |domain, place| {
            // SAFETY: as in `write`.
            unsafe { domain.zero_nontemporal(place, bytes) };
        })
    }

    /// It has the blocks that it was created with.
    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        match capacity_blocks <= self.blocks {
            true => Ok(()),
            false => Err(BlockError::NoSpace { block: self.blocks }),
        }
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        Ok(Box::new(SerialQueue::new(self.clone(), check_queue_depth(depth)?)))
    }

    fn counts(&self) -> BlockCounts {
        self.shared.counters.counts()
    }
}
