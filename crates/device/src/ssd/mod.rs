//! A modelled SSD: a [`BlockDevice`] with a volatile write cache, in memory and in virtual time.
//!
//! It keeps the rules D1 to D6 of [`lapis_pmem::block_device`] and no more than these: a write that
//! was not flushed is one of the sectors' possible contents after a power cut
//! ([`ModelledSsd::crash_states`]), torn at 512 bytes and in any order; requests in flight complete
//! in an order of the model's choice; and faults come by script or by seed, bit rot without a word.
//!
//! A crash is explored without copying the device for each image:
//!
//! ```
//! use lapis_device::{ImageBudget, ModelledSsd, SsdConfig};
//! use lapis_pmem::{BLOCK_BYTES, BlockDevice};
//!
//! let ssd = ModelledSsd::new(16, SsdConfig::default())?;
//! ssd.write_blocks(3, &[7; BLOCK_BYTES])?;
//! let states = ssd.crash_states();
//! assert_eq!(states.image_count(), 1 << 8); // eight sectors, each old or new
//! let after = ssd.after_power_cut();
//! for image in states.images(ImageBudget::default()) {
//!     states.apply(&image, &after);
//!     // ... recover on `after`, check what is found, write to it ...
//!     after.revert();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod contents;
mod faults;
mod images;
mod profile;
mod queue;
mod timing;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use lapis_pmem::block_device::{BlockCounters, check_queue_depth};
use lapis_pmem::{
    BLOCK_BYTES, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue, SECTOR_BYTES,
};
use parking_lot::Mutex;

use crate::random::Random;
use crate::worker::current_worker;
use contents::{BLOCK_SECTORS, Contents, WriteId};
use faults::{FaultState, Strike};
use queue::ModelledQueue;
use timing::Timing;

pub use faults::{BlockDamage, SsdFaults};
pub use images::{SsdCrashStates, SsdImage, SsdImages};
pub use profile::{SsdProfile, SsdProfileError};

/// How a modelled SSD is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdConfig {
    /// Its latencies and bandwidths.
    pub profile: SsdProfile,
    /// What goes wrong at random.
    pub faults: SsdFaults,
    /// Completes requests that are in flight together in an order that this seed determines
    /// (rule D4), instead of the one in which they are done.
    pub reorder_seed: Option<u64>,
}

impl Default for SsdConfig {
    /// Without faults, without times, in order.
    fn default() -> Self {
        Self { profile: SsdProfile::UNTIMED, faults: SsdFaults::default(), reorder_seed: None }
    }
}

/// A modelled SSD. Clones are handles of one device. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct ModelledSsd {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    counters: BlockCounters,
}

#[derive(Debug)]
struct State {
    capacity_blocks: u64,
    /// Capacity to go back to, of a copy for trying images.
    capacity_before: u64,
    contents: Contents,
    timing: Timing,
    faults: FaultState,
    reorder: Option<Random>,
    /// A flush has failed: writes may be lost, and the device refuses (rule D5).
    lost: bool,
    requests: u64,
    /// The time of each worker.
    clocks: HashMap<u8, u64>,
}

/// A request that the device works on.
#[derive(Clone, Copy, Debug)]
struct Started {
    operation: BlockOperation,
    first_block: u64,
    blocks: u64,
    /// When it is done, and which of those done at the same time comes first.
    done_at: (u64, u64),
    effect: Effect,
}

/// What completing a request does.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// A read copies out.
    Read,
    /// A write or discard becomes visible.
    Write(WriteId),
    /// A flush makes durable what had completed by this event.
    Flush { watermark: u64 },
}

impl ModelledSsd {
    /// A device of `capacity_blocks` zeroed blocks. Memory is taken for blocks that are written.
    ///
    /// # Errors
    /// [`SsdProfileError`] if the profile describes no device.
    pub fn new(capacity_blocks: u64, config: SsdConfig) -> Result<Self, SsdProfileError> {
        config.profile.check()?;
        Ok(Self::over(Contents::default(), capacity_blocks, config))
    }

    fn over(contents: Contents, capacity_blocks: u64, config: SsdConfig) -> Self {
        let state = State {
            capacity_blocks,
            capacity_before: capacity_blocks,
            contents,
            timing: Timing::new(config.profile),
            faults: FaultState::new(config.faults),
            reorder: config.reorder_seed.map(Random::new),
            lost: false,
            requests: 0,
            clocks: HashMap::new(),
        };
        let counters = BlockCounters::default();
        Self { shared: Arc::new(Shared { state: Mutex::new(state), counters }) }
    }

    /// The virtual time of the calling thread's worker: how long its requests have taken, beyond
    /// what [`ModelledSsd::advance_to_ns`] told.
    pub fn now_ns(&self) -> u64 {
        self.shared.state.lock().now_ns()
    }

    /// Tells that the calling thread's worker did something else until `now_ns`. Time never goes
    /// back.
    pub fn advance_to_ns(&self, now_ns: u64) {
        let mut state = self.shared.state.lock();
        let clock = state.clock();
        *clock = now_ns.max(*clock);
    }

    /// Lets the request of this kind fail that comes after `requests` others. May be called several
    /// times.
    pub fn fail_after(&self, operation: BlockOperation, requests: u64) {
        self.shared.state.lock().faults.fail_after(operation, requests);
    }

    /// Damages a block.
    pub fn damage_block(&self, block: u64, damage: BlockDamage) {
        self.shared.state.lock().faults.damage(block, damage);
    }

    /// Flips `bits` bits of a block, chosen by `seed`, in the cache and on the media. Reads return
    /// wrong data and no error (rule D6).
    pub fn rot(&self, block: u64, bits: u32, seed: u64) {
        let mut state = self.shared.state.lock();
        let mut random = Random::new(seed);
        let mut flipped = Vec::new();
        while flipped.len() < (bits as usize).min(BLOCK_BYTES * 8) {
            let bit = random.below(BLOCK_BYTES * 8);
            if !flipped.contains(&bit) {
                flipped.push(bit);
                state.contents.flip_bit(block, bit);
            }
        }
    }

    /// The states that a power cut now may leave, requests in flight included.
    pub fn crash_states(&self) -> SsdCrashStates {
        SsdCrashStates::of(&self.shared.state.lock().contents)
    }

    /// A device of its own with the durable contents of this one, for trying images
    /// ([`SsdCrashStates::apply`], [`ModelledSsd::revert`]). It shares the blocks' memory until one
    /// of both changes them. Its time and counters begin at zero and it has no faults unless they
    /// are scripted.
    pub fn after_power_cut(&self) -> Self {
        let state = self.shared.state.lock();
        let config = SsdConfig { profile: *state.timing.profile(), ..SsdConfig::default() };
        Self::over(state.contents.tracked_copy(), state.capacity_blocks, config)
    }

    /// Puts back everything that changed on a device made by [`ModelledSsd::after_power_cut`] since
    /// then, by an image or by writes. Costs as much as the blocks that changed. On another device
    /// this is a power cut that persists nothing.
    ///
    /// A queue that has requests in flight must not be used any more.
    pub fn revert(&self) {
        let mut state = self.shared.state.lock();
        state.contents.revert();
        state.capacity_blocks = state.capacity_before;
        state.lost = false;
    }

    /// Does one request from beginning to end.
    fn wait_for(
        &self,
        operation: BlockOperation,
        first_block: u64,
        blocks: u64,
        payload: &mut Payload<'_>,
    ) -> Result<(), BlockError> {
        let mut state = self.shared.state.lock();
        state.check_not_lost(operation)?;
        let started = state.start(operation, first_block, blocks, payload);
        let clock = state.clock();
        *clock = started.done_at.0.max(*clock);
        let outcome = state.finish(started, payload);
        if outcome.is_err() {
            self.shared.counters.count_failure();
        }
        outcome
    }
}

const MEDIUM_FAILED: &str = "the modelled medium failed";

/// The memory of a request.
enum Payload<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    None,
}

impl State {
    fn clock(&mut self) -> &mut u64 {
        self.clocks.entry(current_worker()).or_default()
    }

    fn now_ns(&self) -> u64 {
        self.clocks.get(&current_worker()).copied().unwrap_or_default()
    }

    fn check_not_lost(&self, operation: BlockOperation) -> Result<(), BlockError> {
        if !self.lost || operation == BlockOperation::Read {
            return Ok(());
        }
        Err(BlockError::WritesLost { reason: MEDIUM_FAILED.to_owned() })
    }

    /// Puts a request in flight.
    fn start(
        &mut self,
        operation: BlockOperation,
        first_block: u64,
        blocks: u64,
        payload: &Payload<'_>,
    ) -> Started {
        let bytes = blocks as usize * BLOCK_BYTES;
        let submit_ns = self.now_ns();
        let done_ns = self.timing.schedule(operation, bytes, submit_ns);
        let turn = self.requests;
        self.requests += 1;
        let done_at = match &mut self.reorder {
            None => (done_ns, turn),
            // Up to twice the time, and any turn among equals.
            Some(random) => {
                let delay = random.below((done_ns - submit_ns) as usize + 1) as u64;
                (done_ns + delay, random.next())
            }
        };
        let effect = match payload {
            Payload::Read(_) => Effect::Read,
            Payload::Write(from) => Effect::Write(self.contents.begin_write(first_block, from)),
            Payload::None => Effect::Flush { watermark: self.contents.watermark() },
        };
        Started { operation, first_block, blocks, done_at, effect }
    }

    /// Completes a request.
    fn finish(&mut self, started: Started, payload: &mut Payload<'_>) -> Result<(), BlockError> {
        let Started { operation, first_block, blocks, effect, .. } = started;
        let struck = self.faults.strike(operation, first_block, blocks);
        match (effect, payload) {
            (Effect::Read, Payload::Read(into)) if struck.is_none() => {
                self.contents.read(first_block, into);
            }
            (Effect::Write(write), _) => {
                let faults = &mut self.faults;
                // Rule D5: of a write that fails, each sector is old or new. A block beyond repair
                // is not written.
                let landed = |sector: u64| match struck {
                    None => true,
                    Some(Strike { block, dead: true }) if sector / BLOCK_SECTORS == block => false,
                    Some(_) => faults.lands(),
                };
                self.contents.end_write(write, first_block, blocks, landed);
                if operation == BlockOperation::Write {
                    for block in first_block..first_block + blocks {
                        if let Some(bit) = self.faults.rot(BLOCK_BYTES * 8) {
                            self.contents.flip_bit(block, bit);
                        }
                    }
                }
            }
            (Effect::Flush { watermark }, _) if struck.is_none() => {
                self.contents.end_flush(watermark);
            }
            _ => {}
        }
        match struck {
            None => Ok(()),
            Some(Strike { block, .. }) => {
                self.lost |= operation == BlockOperation::Flush;
                let source = io::Error::other(MEDIUM_FAILED);
                Err(BlockError::Io { operation, block, source })
            }
        }
    }
}

impl BlockDevice for ModelledSsd {
    fn capacity_blocks(&self) -> u64 {
        self.shared.state.lock().capacity_blocks
    }

    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        let blocks = BlockError::check_run(self.capacity_blocks(), first_block, into.len())?;
        self.shared.counters.count(BlockOperation::Read, into.len());
        self.wait_for(BlockOperation::Read, first_block, blocks, &mut Payload::Read(into))
    }

    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        let blocks = BlockError::check_run(self.capacity_blocks(), first_block, from.len())?;
        self.shared.counters.count(BlockOperation::Write, from.len());
        self.wait_for(BlockOperation::Write, first_block, blocks, &mut Payload::Write(from))
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.shared.counters.count(BlockOperation::Flush, 0);
        self.wait_for(BlockOperation::Flush, 0, 0, &mut Payload::None)
    }

    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        BlockError::check_blocks(self.capacity_blocks(), first_block, blocks)?;
        self.shared.counters.count(BlockOperation::Discard, 0);
        let zeroes = vec![0; blocks as usize * BLOCK_BYTES];
        self.wait_for(BlockOperation::Discard, first_block, blocks, &mut Payload::Write(&zeroes))
    }

    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        // More than an address can count to is more than any disk.
        const MOST_BLOCKS: u64 = u64::MAX / 2 / BLOCK_BYTES as u64;
        let mut state = self.shared.state.lock();
        if capacity_blocks > MOST_BLOCKS {
            return Err(BlockError::NoSpace { block: state.capacity_blocks });
        }
        state.capacity_blocks = state.capacity_blocks.max(capacity_blocks);
        Ok(())
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        let depth = check_queue_depth(depth)?;
        Ok(Box::new(ModelledQueue::new(self.clone(), depth)))
    }

    fn counts(&self) -> BlockCounts {
        self.shared.counters.counts()
    }
}

const _: () = assert!(BLOCK_SECTORS as usize * SECTOR_BYTES == BLOCK_BYTES);
