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
mod swizzle;
mod write_back;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_pmem::{BlockDevice, Domain, DramCell};
use parking_lot::Mutex;

pub use guards::{ExclusivePage, OptimisticPage};

use crate::error::{BufferError, Interruption};
use crate::frame::{Frame, FrameMemory};
use crate::latch::Patience;
use crate::log::{NoLog, WriteAheadLog};
use crate::page::PageNumber;
use crate::page_table::PageTable;
use crate::placement::Placement;
use crate::space::{Space, SpaceOptions};

/// A path down a tree, its sibling and some to evict.
const FEWEST_FRAMES: usize = 4;

/// How a manager is to be.
#[derive(Clone, Copy, Debug)]
pub struct BufferOptions {
    /// Pages in DRAM at most.
    pub frames: usize,
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
            most_changed_frames: 2048,
            swizzling: true,
            space: SpaceOptions::default(),
        }
    }
}

/// What has happened since the manager was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages read from the device.
    pub loads: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// Batches written.
    pub batches: u64,
    /// Pages in them.
    pub pages_written: u64,
    /// References that became frames.
    pub swizzled: u64,
    /// References that became page numbers again.
    pub unswizzled: u64,
    /// Times that somebody had to write pages before going on.
    pub back_pressure: u64,
    /// Attempts that were begun again by [`BufferManager::retry`].
    pub restarts: u64,
    /// Frames with changes that the device does not have, now.
    pub changed_frames: u64,
}

#[derive(Debug, Default)]
struct Counters {
    loads: AtomicU64,
    evictions: AtomicU64,
    batches: AtomicU64,
    pages_written: AtomicU64,
    swizzled: AtomicU64,
    unswizzled: AtomicU64,
    back_pressure: AtomicU64,
    restarts: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
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
    frames: Box<[Frame<D>]>,
    memory: FrameMemory,
    page_bytes: usize,
    table: PageTable<D>,
    /// Of the clock: the frame that is looked at next, and before that as often as it went round.
    hand: DramCell<u64, D>,
    changed_frames: DramCell<u64, D>,
    options: BufferOptions,
    storage: Storage<D>,
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
        Self::new(domain, options, page_bytes, storage, Arc::new(NoLog))
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
    /// [`BufferError::TooFewFrames`], [`BufferError::Space`].
    pub fn open(
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
        let page_bytes = space.page_bytes();
        Self::new(domain, options, page_bytes, Storage::Space(Box::new(space)), log)
    }

    fn new(
        domain: D,
        options: &BufferOptions,
        page_bytes: usize,
        storage: Storage<D>,
        log: Arc<dyn WriteAheadLog>,
    ) -> Result<Self, BufferError> {
        let frames = options.frames;
        // A swizzled reference has 32 bits for the frame.
        if !(FEWEST_FRAMES..u32::MAX as usize).contains(&frames) {
            return Err(BufferError::TooFewFrames { frames, fewest: FEWEST_FRAMES });
        }
        Ok(Self {
            frames: (0..frames).map(|_| Frame::new()).collect(),
            memory: FrameMemory::new(frames, page_bytes),
            page_bytes,
            table: PageTable::new(frames),
            hand: DramCell::new(0),
            changed_frames: DramCell::new(0),
            options: *options,
            storage,
            log,
            counters: Counters::default(),
            domain,
        })
    }

    /// Which tiers there are.
    pub fn placement(&self) -> Placement {
        match self.storage {
            Storage::None(_) => Placement::MainMemory,
            Storage::Space(_) => Placement::Ssd,
        }
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

    /// What has happened so far.
    pub fn statistics(&self) -> Statistics {
        let Counters {
            loads,
            evictions,
            batches,
            pages_written,
            swizzled,
            unswizzled,
            back_pressure,
            restarts,
        } = &self.counters;
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            loads: now(loads),
            evictions: now(evictions),
            batches: now(batches),
            pages_written: now(pages_written),
            swizzled: now(swizzled),
            unswizzled: now(unswizzled),
            back_pressure: now(back_pressure),
            restarts: now(restarts),
            changed_frames: self.changed_frames.load(&self.domain),
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

    /// Adds to the number of changed frames.
    fn count_changed(&self, add: i64) {
        let (domain, cell) = (&self.domain, &self.changed_frames);
        let mut now = cell.load(domain);
        while let Err(found) = cell.compare_exchange(domain, now, now.wrapping_add_signed(add)) {
            now = found;
        }
    }
}
