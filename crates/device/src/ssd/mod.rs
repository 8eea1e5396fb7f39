//! A modelled SSD: a [`BlockDevice`] with a volatile write cache, in memory and in virtual time.
//!
//! It keeps the rules D1 to D6 of [`lapis_pmem::block_device`] and no more than these: a write that
//! was not flushed is one of the sectors' possible contents after a power cut
//! ([`ModelledSsd::crash_states`]), torn at 512 bytes and in any order; requests in flight complete
//! in an order of the model's choice; and faults come by script or by seed, bit rot without a word.
//!
//! Attached to a machine ([`ModelledSsd::attached_to`]) it is a part of that: its requests and answers
//! are events of the machine's trace, from which [`CrashPoints`](crate::CrashPoints) enumerate what a
//! power cut leaves in memory and on devices together; its time is that of the machine's workers; and
//! requests are points at which the scheduler may let another worker go on.
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
//!     states.apply_to_devices(&image, std::slice::from_ref(&after));
//!     // ... recover on `after`, check what is found, write to it ...
//!     after.revert();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod contents;
mod faults;
mod profile;
mod queue;
mod replay;
mod timing;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use lapis_pmem::block_device::{BlockCounters, check_queue_depth};
use lapis_pmem::{
    BLOCK_BYTES, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue, SECTOR_BYTES,
};
use parking_lot::Mutex;

use crate::modelled::Modelled;
use crate::random::Random;
use crate::scheduler::worker::current_worker;
use crate::trace::block_devices::BlockEvent;
use crate::trace::{Source, Trace};
use contents::{BLOCK_SECTORS, Contents, WriteId};
use faults::{FaultState, Strike};
use queue::ModelledQueue;
use timing::Timing;

pub use faults::{BlockDamage, SsdFaults};
pub use profile::{SsdProfile, SsdProfileError};
pub(crate) use replay::ReplayedDevices;
pub use replay::SsdContents;

pub(crate) use contents::{Contents as DeviceContents, Sector, WriteId as DeviceWrite};

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

/// More than an address can count to is more than any disk.
const MOST_BLOCKS: u64 = u64::MAX / 2 / BLOCK_BYTES as u64;

/// A modelled SSD. Clones are handles of one device. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct ModelledSsd {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The machine that it is attached to, and its number there.
    machine: Option<(Modelled, u8)>,
    state: Mutex<State>,
    counters: BlockCounters,
}

#[derive(Debug)]
struct State {
    capacity_blocks: u64,
    /// Blocks that the disk beneath has room for.
    most_blocks: u64,
    /// Capacity to go back to, of a copy for trying images.
    capacity_before: u64,
    contents: Contents,
    timing: Timing,
    faults: FaultState,
    reorder: Option<Random>,
    /// A flush has failed: writes may be lost, and the device refuses (rule D5).
    lost: bool,
    requests: u64,
    writes: u32,
    flushes: u32,
    reorder_seed: Option<u64>,
    /// The time of each worker, unless there is a machine.
    clocks: HashMap<u8, u64>,
    /// Of the machine's clocks, when the device was last asked for anything.
    clock_resets: u64,
    /// Sectors of which it is noted that they are read, and those that were, and were not written
    /// before.
    watched: BTreeSet<u64>,
    read: Vec<u64>,
}

/// A request that the device works on.
#[derive(Clone, Copy, Debug)]
struct Started {
    operation: BlockOperation,
    /// Among those of its kind.
    number: u64,
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
    Flush { number: u32, watermark: u64 },
}

impl ModelledSsd {
    /// A device of `capacity_blocks` zeroed blocks. Memory is taken for blocks that are written.
    ///
    /// # Errors
    /// [`SsdProfileError`] if the profile describes no device.
    pub fn new(capacity_blocks: u64, config: SsdConfig) -> Result<Self, SsdProfileError> {
        config.profile.check()?;
        Ok(Self::over(Contents::default(), capacity_blocks, config, None))
    }

    /// A device of `capacity_blocks` zeroed blocks at a machine: see the [module
    /// documentation](self). The machine's devices are numbered as they are attached.
    ///
    /// # Errors
    /// [`SsdProfileError`] if the profile describes no device.
    ///
    /// # Panics
    /// If the machine has 255 devices.
    pub fn attached_to(
        machine: &Modelled,
        capacity_blocks: u64,
        config: SsdConfig,
    ) -> Result<Self, SsdProfileError> {
        config.profile.check()?;
        let attached = Some((machine.clone(), machine.number_device()));
        let device = Self::over(Contents::default(), capacity_blocks, config, attached);
        device.shared.record_capacity(capacity_blocks);
        Ok(device)
    }

    fn over(
        contents: Contents,
        capacity_blocks: u64,
        config: SsdConfig,
        machine: Option<(Modelled, u8)>,
    ) -> Self {
        let state = State {
            capacity_blocks,
            capacity_before: capacity_blocks,
            most_blocks: MOST_BLOCKS,
            contents,
            timing: Timing::new(config.profile),
            faults: FaultState::new(config.faults),
            reorder: config.reorder_seed.map(Random::new),
            lost: false,
            requests: 0,
            writes: 0,
            flushes: 0,
            reorder_seed: config.reorder_seed,
            clocks: HashMap::new(),
            clock_resets: 0,
            watched: BTreeSet::new(),
            read: Vec::new(),
        };
        let (state, counters) = (Mutex::new(state), BlockCounters::default());
        Self { shared: Arc::new(Shared { machine, state, counters }) }
    }

    /// What it holds visibly: what [`CrashPoints::with_devices`](crate::CrashPoints::with_devices)
    /// begins with, for a trace that begins now.
    pub fn contents(&self) -> SsdContents {
        let state = self.shared.state.lock();
        let mut contents = state.contents.clone();
        contents.settle();
        SsdContents { contents: contents.durable_copy(), capacity_blocks: state.capacity_blocks }
    }

    /// Gives the device these contents, durably; [`ModelledSsd::revert`] takes it back to them.
    pub fn hold(&self, held: &SsdContents) {
        let mut state = self.shared.state.lock();
        state.contents = held.contents.tracked_copy();
        state.capacity_before = held.capacity_blocks;
        state.begin_again();
    }

    /// The virtual time of the calling thread's worker: how long its requests have taken.
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns(&self.shared.state.lock())
    }

    /// Lets the request of this kind fail that comes after `requests` others. May be called several
    /// times.
    pub fn fail_after(&self, operation: BlockOperation, requests: u64) {
        let faults = &mut self.shared.state.lock().faults;
        let number = faults.requests(operation) + requests;
        faults.fail(operation, number);
    }

    /// Lets a request fail, by its number among those of its kind, of which the first is 0. That of a
    /// device that is [reverted](ModelledSsd::revert) are numbered anew, and fail again.
    pub fn fail_request(&self, operation: BlockOperation, number: u64) {
        self.shared.state.lock().faults.fail(operation, number);
    }

    /// Damages a block.
    pub fn damage_block(&self, block: u64, damage: BlockDamage) {
        self.shared.state.lock().faults.damage(block, damage);
    }

    /// From here on the device grows to so many blocks at most: the disk beneath has no more.
    pub fn limit_to(&self, most_blocks: u64) {
        self.shared.state.lock().most_blocks = most_blocks.min(MOST_BLOCKS);
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
                self.shared.record_rot(block, bit);
            }
        }
    }

    /// Looks at what it holds.
    pub(crate) fn with_contents<R>(&self, look: impl FnOnce(&Contents) -> R) -> R {
        look(&self.shared.state.lock().contents)
    }

    /// A device of its own with the durable contents of this one, for trying images
    /// ([`CrashStates::apply_to_devices`], [`ModelledSsd::revert`]). It shares the blocks' memory until one
    /// of both changes them. Its time and counters begin at zero and it has no faults unless they
    /// are scripted.
    pub fn after_power_cut(&self) -> Self {
        let state = self.shared.state.lock();
        let config = SsdConfig { profile: *state.timing.profile(), ..SsdConfig::default() };
        Self::over(state.contents.tracked_copy(), state.capacity_blocks, config, None)
    }

    /// Puts back everything that changed on a device made by [`ModelledSsd::after_power_cut`], or since
    /// [`ModelledSsd::hold`], by an image or by requests; faults and orders begin anew. Costs as much as
    /// the blocks that changed. On another device this is a power cut that persists nothing.
    ///
    /// A queue that has requests in flight must not be used any more.
    pub fn revert(&self) {
        let mut state = self.shared.state.lock();
        state.contents.revert();
        state.begin_again();
    }

    /// Makes a sector durable as it stands, for an image.
    pub(crate) fn set_sector(&self, sector: u64, bytes: &Sector) {
        self.shared.state.lock().contents.set_durable(sector, bytes);
    }

    /// Notes from here on which of these sectors are read.
    pub fn watch_sectors(&self, sectors: impl IntoIterator<Item = u64>) {
        let mut state = self.shared.state.lock();
        state.watched = sectors.into_iter().collect();
        state.read.clear();
    }

    /// Takes the watched sectors that were read since they were named or this was last called, each
    /// once, and only if it was not written before it was read.
    pub fn take_read_sectors(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.state.lock().read)
    }

    /// Does one request from beginning to end.
    fn wait_for(
        &self,
        operation: BlockOperation,
        first_block: u64,
        blocks: u64,
        payload: &mut Payload<'_>,
    ) -> Result<(), BlockError> {
        let shared = &*self.shared;
        shared.request_point();
        let started = {
            let mut state = shared.state.lock();
            state.check_not_lost(operation)?;
            state.start(shared, operation, first_block, blocks, payload)
        };
        shared.answer_point();
        let mut state = shared.state.lock();
        shared.wait_until(&mut state, started.done_at.0);
        state.finish(shared, started, payload)
    }
}

/// What concerns the machine that the device is attached to, if it is.
impl Shared {
    fn request_point(&self) {
        if let Some((machine, _)) = &self.machine {
            machine.request_point();
        }
    }

    fn answer_point(&self) {
        if let Some((machine, _)) = &self.machine {
            machine.answer_point();
        }
    }

    fn record(&self, note: impl FnOnce(&mut Trace) -> BlockEvent) {
        if let Some((machine, device)) = &self.machine {
            machine.record(|trace, worker| {
                let what = note(trace);
                trace.block_event(worker, *device, what);
            });
        }
    }

    fn record_capacity(&self, blocks: u64) {
        self.record(|trace| BlockEvent::Capacity { payload: trace.keep_numbers(&[blocks]) });
    }

    fn record_rot(&self, block: u64, bit: usize) {
        let place = [block, bit as u64];
        self.record(|trace| BlockEvent::Rot { payload: trace.keep_numbers(&place) });
    }

    /// The time of the calling worker.
    fn now_ns(&self, state: &State) -> u64 {
        match &self.machine {
            Some((machine, _)) => machine.now_ns(current_worker()),
            None => state.clocks.get(&current_worker()).copied().unwrap_or_default(),
        }
    }

    fn wait_until(&self, state: &mut State, ns: u64) {
        match &self.machine {
            Some((machine, _)) => machine.wait_until_ns(current_worker(), ns),
            None => {
                let clock = state.clocks.entry(current_worker()).or_default();
                *clock = ns.max(*clock);
            }
        }
    }

    fn clock_resets(&self) -> u64 {
        self.machine.as_ref().map_or(0, |(machine, _)| machine.clock_resets())
    }
}

const MEDIUM_FAILED: &str = "the modelled medium failed";

/// The memory of a request.
enum Payload<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    Discard,
    None,
}

impl State {
    /// As after power came back: nothing in flight, nothing lost.
    fn begin_again(&mut self) {
        self.capacity_blocks = self.capacity_before;
        self.lost = false;
        self.faults.begin_again();
        self.reorder = self.reorder_seed.map(Random::new);
        self.timing = Timing::new(*self.timing.profile());
        self.requests = 0;
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
        shared: &Shared,
        operation: BlockOperation,
        first_block: u64,
        blocks: u64,
        payload: &Payload<'_>,
    ) -> Started {
        let bytes = blocks as usize * BLOCK_BYTES;
        let resets = shared.clock_resets();
        if std::mem::replace(&mut self.clock_resets, resets) != resets {
            self.timing = Timing::new(*self.timing.profile());
        }
        let submit_ns = shared.now_ns(self);
        let number = self.faults.number(operation);
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
            Payload::Write(_) | Payload::Discard => {
                let from = if let Payload::Write(from) = *payload { Some(from) } else { None };
                let number = self.writes;
                self.writes = number.wrapping_add(1);
                self.contents.begin_write(WriteId(number), first_block, blocks, from);
                shared.record(|trace| trace.block_write(number, first_block, blocks, from));
                Effect::Write(WriteId(number))
            }
            Payload::None => {
                let number = self.flushes;
                self.flushes = number.wrapping_add(1);
                shared.record(|_| BlockEvent::Flush { number });
                Effect::Flush { number, watermark: self.contents.begin_flush() }
            }
        };
        Started { operation, number, first_block, blocks, done_at, effect }
    }

    /// Completes a request.
    fn finish(
        &mut self,
        shared: &Shared,
        started: Started,
        payload: &mut Payload<'_>,
    ) -> Result<(), BlockError> {
        let Started { operation, number, first_block, blocks, effect, .. } = started;
        let struck = self.faults.strike(operation, number, first_block, blocks);
        let run = first_block * BLOCK_SECTORS..(first_block + blocks) * BLOCK_SECTORS;
        match (effect, payload) {
            (Effect::Read, Payload::Read(into)) if struck.is_none() => {
                self.contents.read(first_block, into);
                let seen: Vec<u64> = self.watched.range(run).copied().collect();
                seen.iter().for_each(|sector| _ = self.watched.remove(sector));
                self.read.extend(seen);
            }
            (Effect::Write(write), _) => {
                let faults = &mut self.faults;
                // Rule D5: of a write that fails, each sector is old or new. A block beyond repair
                // is not written.
                let mut lands = |strike: Strike, sector| match strike {
                    Strike { block, dead: true } if sector / BLOCK_SECTORS == block => false,
                    _ => faults.lands(),
                };
                let landed = struck.map(|strike| {
                    run.clone().map(|sector| lands(strike, sector).into()).collect::<Vec<u8>>()
                });
                self.contents.end_write(write, |sector| {
                    landed.as_ref().is_none_or(|landed| landed[(sector - run.start) as usize] == 1)
                });
                if landed.is_none() {
                    run.for_each(|sector| _ = self.watched.remove(&sector));
                }
                shared.record(|trace| {
                    let keep = |landed: Vec<u8>| trace.keep(Source::Bytes(&landed));
                    let landed = landed.map_or(BlockEvent::ALL, keep);
                    BlockEvent::Written { number: write.0, landed }
                });
                if operation == BlockOperation::Write {
                    for block in first_block..first_block + blocks {
                        if let Some(bit) = self.faults.rot(BLOCK_BYTES * 8) {
                            self.contents.flip_bit(block, bit);
                            shared.record_rot(block, bit);
                        }
                    }
                }
            }
            (Effect::Flush { number, watermark }, _) if struck.is_none() => {
                self.contents.end_flush(watermark);
                shared.record(|_| BlockEvent::Flushed { number });
            }
            (Effect::Flush { watermark, .. }, _) => self.contents.fail_flush(watermark),
            _ => {}
        }
        match struck {
            None => Ok(()),
            Some(Strike { block, .. }) => {
                shared.counters.count_failure();
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
        self.wait_for(BlockOperation::Discard, first_block, blocks, &mut Payload::Discard)
    }

    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        let mut state = self.shared.state.lock();
        if capacity_blocks > state.most_blocks.max(state.capacity_blocks) {
            return Err(BlockError::NoSpace { block: state.capacity_blocks });
        }
        if capacity_blocks > state.capacity_blocks {
            state.capacity_blocks = capacity_blocks;
            self.shared.record_capacity(capacity_blocks);
        }
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
