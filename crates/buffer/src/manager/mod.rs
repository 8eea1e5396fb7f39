//! The manager: pages in frames. See the [crate](crate) for how it is used.
//!
//! # Invariants
//!
//! * B1. A page is in at most one frame, and the page table says which: who loads a page enters it in the
//!   table, its frame latched, before reading it; who evicts one takes it out, the frame latched.
//! * B2. A frame is taken for another page only when the device has its page as it is in the frame: the
//!   write of it has completed, in the journal durably and in place.
//! * B3. A page is written only when the log is durable up to its LSN.
//! * B4. A frame counts as unchanged only if its latch still has the version that was copied and written.
//! * B5. A swizzled reference lies in a frame's page, in the array of its references, and names the frame
//!   of a child that names the parent's frame in turn. Both change together, both latches held. A page that
//!   refers to frames is not evicted, so a child's parent is always where the child says.
//! * B6. Latches of a child and its parent are waited for from the parent to the child only. In the other
//!   direction (eviction) the parent's is tried.

mod evict;
mod fix;
mod guards;
mod in_place;
mod promotion;
mod statistics;
mod swizzle;
mod tier;
mod tuning;
mod write_back;

use std::collections::BTreeSet;
use std::sync::Arc;

use lapis_pmem::{BlockDevice, Domain, DramCell};
use parking_lot::Mutex;

pub use guards::{ExclusivePage, OptimisticPage};
use statistics::{Counters, count};
pub use statistics::{ResidentPages, Statistics, TierStatistics};

use crate::counter::Counter;
use crate::error::{BufferError, Interruption};
use crate::frame::Frame;
use crate::frame_memory::FrameMemory;
use crate::latch::Patience;
use crate::log::{NoLog, WriteAheadLog};
use crate::migration::Migrations;
use crate::page::PageNumber;
use crate::page::lines::{LineMasks, LineSource};
use crate::page_table::PageTable;
use crate::placement::Placement;
use crate::space::{Space, SpaceOptions};
use crate::tier::{PersistentTier, TierError};

/// A path down a tree, its sibling and some to evict.
const FEWEST_FRAMES: usize = 4;

/// Spare blocks at most: threads that change mini pages at a time without promoting them first. As many workspaces: pages in
/// persistent memory that are changed there at a time.
const MOST_SPARES: usize = 8;

/// Bytes of DRAM that a mini frame takes, with what is known of a page of 16 KiB in it: about.
pub const MINI_FRAME_BYTES: usize = 1344;

/// How a manager is to be.
#[derive(Clone, Copy, Debug)]
pub struct BufferOptions {
    /// Pages in DRAM at most, but for mini pages.
    pub frames: usize,
    /// Mini pages in DRAM at most: pages in persistent memory of which sixteen lines (1 KiB) at most are used. With
    /// [`Placement::ThreeTier`] and [`Placement::Spitfire`] alone. If there are some, a few pages more than `frames` are set
    /// aside for those that change them.
    pub mini_frames: usize,
    /// Frames that may hold changes which the device does not have, beside those that are latched. Whoever
    /// would change one more first writes some.
    pub most_changed_frames: usize,
    /// Whether parents refer to their children's frames.
    pub swizzling: bool,
    /// Of a space that is created.
    pub space: SpaceOptions,
}

impl Default for BufferOptions {
    /// 4,096 frames, half of which may be changed.
    fn default() -> Self {
        Self {
            frames: 4096,
            mini_frames: 0,
            most_changed_frames: 2048,
            swizzling: true,
            space: SpaceOptions::default(),
        }
    }
}

/// Page numbers where there is no space to give them out.
#[derive(Debug)]
struct Numbers {
    next: u64,
    free: BTreeSet<PageNumber>,
}

/// Where pages are that are not in frames.
#[derive(Debug)]
enum Storage<D: Domain> {
    /// Nowhere.
    None(Mutex<Numbers>),
    Space(Box<Space<D>>),
}

/// Pages in frames of DRAM, over an SSD or nothing. See the [crate](crate) documentation.
#[derive(Debug)]
pub struct BufferManager<D: Domain> {
    domain: D,
    /// Those that the clock goes round, and workspaces behind them.
    frames: Box<[Frame<D>]>,
    clocked: usize,
    memory: FrameMemory<D>,
    page_bytes: usize,
    table: PageTable<D>,
    /// Of the clock: the frame that is looked at next, and before that as often as it went round.
    hand: DramCell<u64, D>,
    changed_frames: Counter<D>,
    options: BufferOptions,
    placement: Placement,
    storage: Storage<D>,
    /// Persistent memory, between the frames and the space.
    tier: Option<Arc<PersistentTier<D>>>,
    /// None if it is not chance that decides how pages move.
    migrations: Option<Migrations>,
    log: Arc<dyn WriteAheadLog>,
    counters: Counters,
}

impl<D: Domain> BufferManager<D> {
    /// A manager of pages in memory alone ([`Placement::MainMemory`]).
    ///
    /// # Errors
    /// [`BufferError::TooFewFrames`], or [`BufferError::Space`] for an impossible size of pages.
    pub fn in_memory(domain: D, options: &BufferOptions) -> Result<Self, BufferError> {
        let page_bytes = options.space.checked_page_bytes()?;
        let numbers = Numbers { next: PageNumber::FIRST.get(), free: BTreeSet::new() };
        let storage = Storage::None(Mutex::new(numbers));
        let placement = Placement::MainMemory;
        Self::new(domain, options, page_bytes, placement, storage, None, Arc::new(NoLog))
    }

    /// A manager of the pages on an SSD, which gets an empty space ([`Placement::Ssd`]).
    ///
    /// # Errors
    /// [`BufferError::TooFewFrames`], [`BufferError::Space`].
    pub fn create(
        domain: D,
        device: Arc<dyn BlockDevice>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        let space = Space::create(domain.clone(), device, &options.space)?;
        Self::over(domain, space, log, options)
    }

    /// A manager of the pages that are on an SSD. The last batches are completed, nothing else: what the
    /// log has that pages have not is for whoever has the log.
    ///
    /// # Errors
    /// [`BufferError::TooFewFrames`], [`BufferError::Space`], [`BufferError::TierMissing`].
    pub fn open(
        domain: D,
        device: Arc<dyn BlockDevice>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        let space = Space::open(domain.clone(), device)?;
        match space.tier() {
            0 => Self::over(domain, space, log, options),
            identity => Err(BufferError::TierMissing { identity }),
        }
    }

    /// The same, whether or not the newest pages are in persistent memory, which cannot be had any more. What comes back is
    /// to be read, by who knows that it may be old.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn open_without_tier(
        domain: D,
        device: Arc<dyn BlockDevice>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        let space = Space::open(domain.clone(), device)?;
        Self::over(domain, space, log, options)
    }

    fn over(
        domain: D,
        space: Space<D>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        let (page_bytes, storage) = (space.page_bytes(), Storage::Space(Box::new(space)));
        Self::new(domain, options, page_bytes, Placement::Ssd, storage, None, log)
    }

    /// A manager of the pages on an SSD, which gets an empty space, with a tier of persistent memory, which
    /// is empty.
    ///
    /// # Errors
    /// [`BufferError::TooFewFrames`], [`BufferError::Space`], [`BufferError::Tier`],
    /// [`BufferError::NoTier`].
    pub fn create_with_tier(
        tier: PersistentTier<D>,
        device: Arc<dyn BlockDevice>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
        placement: Placement,
    ) -> Result<Self, BufferError> {
        let domain = tier.pool().domain().clone();
        let identity = tier.identity();
        let space = Space::create_with_tier(domain, device, &options.space, identity)?;
        Self::over_tier(tier, space, log, options, placement)
    }

    /// A manager of the pages that are on an SSD and in a tier of persistent memory. What is in PM is used
    /// as it is there.
    ///
    /// # Errors
    /// As [`BufferManager::create_with_tier`].
    pub fn open_with_tier(
        tier: PersistentTier<D>,
        device: Arc<dyn BlockDevice>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
        placement: Placement,
    ) -> Result<Self, BufferError> {
        let space = Space::open(tier.pool().domain().clone(), device)?;
        Self::over_tier(tier, space, log, options, placement)
    }

    fn over_tier(
        tier: PersistentTier<D>,
        space: Space<D>,
        log: Arc<dyn WriteAheadLog>,
        options: &BufferOptions,
        placement: Placement,
    ) -> Result<Self, BufferError> {
        if !placement.has_persistent_memory() {
            return Err(BufferError::NoTier { placement });
        }
        let (expected, found) = (space.tier(), tier.identity());
        if expected != found {
            return Err(TierError::Foreign { expected, found }.into());
        }
        let (expected, found) = (space.page_bytes(), tier.page_bytes());
        if expected != found {
            return Err(TierError::PageBytes { expected, found }.into());
        }
        let domain = tier.pool().domain().clone();
        let storage = Storage::Space(Box::new(space));
        let tier = Some(Arc::new(tier));
        let manager = Self::new(domain, options, found, placement, storage, tier, log)?;
        if let Some((tier, space)) = manager.tier.as_deref().zip(manager.space()) {
            manager.adopt_tier(tier, space)?;
        }
        Ok(manager)
    }

    fn new(
        domain: D,
        options: &BufferOptions,
        page_bytes: usize,
        placement: Placement,
        storage: Storage<D>,
        tier: Option<Arc<PersistentTier<D>>>,
        log: Arc<dyn WriteAheadLog>,
    ) -> Result<Self, BufferError> {
        let by_lines = tier.as_ref().filter(|_| placement.moves_lines());
        let source = by_lines.map(|tier| Arc::clone(tier) as Arc<dyn LineSource>);
        let (pages, minis) = (options.frames, by_lines.map_or(0, |_| options.mini_frames));
        let clocked = pages.saturating_add(minis);
        let migrations = placement.migration().map(|migration| Migrations::new(&migration));
        let aside = (pages / 16).clamp(1, MOST_SPARES);
        let workspaces = aside * usize::from(migrations.is_some());
        let frames = clocked.saturating_add(workspaces);
        let slots = frames.saturating_add(tier.as_ref().map_or(0, |tier| tier.frames.len()));
        // The page table counts the frames of both tiers by 32 bits.
        if pages < FEWEST_FRAMES || slots >= u32::MAX as usize {
            return Err(BufferError::TooFewFrames { frames: pages, fewest: FEWEST_FRAMES });
        }
        let spares = aside * usize::from(minis > 0);
        let memory = FrameMemory::new(page_bytes, (minis, pages + workspaces, spares), source);
        let frame = |at: usize| {
            let block = match at {
                _ if at < pages => memory.full(at),
                _ if at < clocked => memory.mini(at - pages),
                _ => memory.full(at - minis),
            };
            let masks = memory.source.as_ref().map(|_| LineMasks::new(page_bytes));
            Frame::new(block, at >= pages, masks)
        };
        Ok(Self {
            frames: (0..frames).map(frame).collect(),
            clocked,
            memory,
            page_bytes,
            table: PageTable::new(slots),
            hand: DramCell::new(0),
            changed_frames: Counter::new(),
            options: *options,
            placement,
            storage,
            tier,
            migrations,
            log,
            counters: Counters::default(),
            domain,
        })
    }

    /// The number of a frame.
    fn index_of(&self, frame: &Frame<D>) -> usize {
        let bytes = core::ptr::from_ref(frame).addr() - self.frames.as_ptr().addr();
        bytes / size_of::<Frame<D>>()
    }

    /// Which tiers there are.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The pages in persistent memory, if there are to be some.
    pub fn tier(&self) -> Option<&PersistentTier<D>> {
        self.tier.as_deref()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The machine.
    pub fn domain(&self) -> &D {
        &self.domain
    }

    /// The pages on the SSD, if there is one.
    pub fn space(&self) -> Option<&Space<D>> {
        match &self.storage {
            Storage::None(_) => None,
            Storage::Space(space) => Some(space),
        }
    }

    /// Makes attempts until one is not overtaken.
    ///
    /// # Errors
    /// What an attempt failed with.
    pub fn retry<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Interruption>,
    ) -> Result<T, BufferError> {
        let mut patience = Patience::default();
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Interruption::Failed(error)) => return Err(error),
                Err(Interruption::Restart(_)) => {
                    count(&self.counters.restarts);
                    patience.wait(&self.domain);
                }
            }
        }
    }
}
