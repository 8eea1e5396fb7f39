//! The space of pages: a block device as pages with numbers, written in batches that power cuts leave whole.
//!
//! A page's number says where it lies, so there is no second map to recover, and a page can be found by
//! whoever salvages. A page that is written in place may be torn by a power cut, and then the log has
//! nothing to redo its changes on. So pages are written in *batches*: first, in one run, to a journal,
//! then in place. (InnoDB's doublewrite buffer has this idea; there it takes two flushes for a batch.
//! Two areas that take turns make it one. The alternative, whole pages in the log after each
//! checkpoint, writes as many bytes, and on the path of commits.)
//!
//! # Layout
//!
//! ```text
//!  page │ superblock │ journal: area 0     │ area 1              │ region 0         │ region 1 …
//!       │            │ descriptor │ pages … │ descriptor │ pages … │ map │ pages …     │ map │ pages …
//!         1            1            batch     1            batch     1     page_bytes - 32
//!
//!  superblock (the first block)      map of a region (a page of kind 3, numbered by region)
//!    0 32  header, kind 1              0 32  header
//!   32  8  page_bytes                 32  …  a byte for each page: bit 7 written, bits 0-5 its stamp
//!   40  8  batch_pages                (the LSN in its header is the batch's sequence number;
//!   48  8  identity of the tier        regions end where a map is zero)
//!          that has pages of it, or 0
//! ```
//!
//! The descriptor is drawn in `batch.rs`, pages in [`crate::page`].
//!
//! # Invariants, at every instant a power cut may come
//!
//! * J1. A page in place is touched only while a durable journal area holds all of its batch.
//! * J2. An area of the journal is written only when the batch that it holds is durable in place. The
//!   flush of a batch's journal also covers the previous batch's pages in place, which had been
//!   completed; and the area that comes next holds the batch before.
//! * J3. A batch in the journal is redone only if its descriptor and all of its pages are whole, each with
//!   the checksum that the descriptor says. Of two, the earlier is redone first. What is in place as
//!   new, or by one batch newer, stays: a journal that went bad takes back nothing.
//! * J4. Who opens goes on only if it is known what is to be redone. A descriptor that cannot be read may be that of the last
//!   batch. A copy that cannot be read is not needed if its page is in place, or in the next batch. What is to be redone
//!   heals a place that cannot be read.
//! * M1. A page that the durable map calls written is whole on the device: the map changes in the batch
//!   that writes a page first.
//! * M2. A freed page is given out again only when the durable map calls it free, and the map does so only
//!   when the log holds the change that freed it: recovery never follows a reference to a page that has
//!   become another.
//! * M3. The stamp in the durable map is at most 31 writes behind that of the page. So a page that is
//!   older than the map says is found out, and, as long as the space is open, one that is older
//!   than its last write.
//! * M4. What is given out is the lowest page that is free, and the device has storage for it first. So a page that lies far
//!   behind all that the device has, and all that the log has made, was never given out.
//!
//! # Order
//!
//! * Batch: pages and descriptor to the area; **flush** (J1, J2); pages in place.
//! * Close: **flush**; a descriptor without pages that says *settled*; **flush**. Opening redoes nothing then.
//! * Open: pages of batches that are whole, where they are not in place; **flush**.

mod batch;
mod error;
mod geometry;
mod map;
mod mend;
mod promise;
mod redo;

use std::sync::{Arc, OnceLock};

use lapis_pmem::{
    BLOCK_BYTES, BlockBuffer, BlockCounts, BlockDevice, BlockError, Domain, host_lock,
};
use parking_lot::Mutex;

use crate::mutants::FREED_PAGE_REUSED_EARLY;
pub use batch::{Added, Batch};
use batch::{Writer, page_buffer};
pub use error::SpaceError;
use geometry::{Geometry, index_of};
use map::SpaceMap;
pub use promise::{Promise, RESERVED_PAGES, RoomFor};

use crate::page::{self, DEFAULT_PAGE_BYTES, PageDamage, PageNumber};

/// The device grows by an eighth, and by so many blocks at least and at most.
const GROWTH_BLOCKS: (u64, u64) = (256, 1 << 14);

/// How a space is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceOptions {
    /// Bytes of a page, a power of two from 4 KiB to 64 KiB.
    pub page_bytes: usize,
    /// Pages that are written together at most.
    pub batch_pages: usize,
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self { page_bytes: DEFAULT_PAGE_BYTES, batch_pages: 64 }
    }
}

impl SpaceOptions {
    /// Bytes of a page, if pages can have as many.
    pub(crate) fn checked_page_bytes(&self) -> Result<usize, SpaceError> {
        Ok(Geometry::new(self.page_bytes, geometry::FEWEST_BATCH_PAGES)?.page_bytes)
    }
}

/// What a walk over all pages found wrong.
#[derive(Debug)]
pub enum SpaceProblem {
    /// The map of pages from this number on is damaged: which of them exist is not known.
    Map(PageNumber),
    /// A page cannot be read.
    Page(SpaceError),
}

/// Pages on a block device. See the [module documentation](self).
#[derive(Debug)]
pub struct Space<D: Domain> {
    domain: D,
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    tier: u64,
    /// Held for moments, never across a request.
    map: Mutex<SpaceMap>,
    /// The turn to write.
    writer: Mutex<Writer>,
    read_buffers: Mutex<Vec<BlockBuffer>>,
    redone_pages: usize,
    /// Why nothing is written any more.
    lost: OnceLock<String>,
}

impl<D: Domain> Space<D> {
    /// Makes an empty space on a device, whatever it holds. Durable when this returns.
    ///
    /// # Errors
    /// [`SpaceError::BadPageSize`], [`SpaceError::BadBatch`], [`SpaceError::Device`].
    pub fn create(
        domain: D,
        device: Arc<dyn BlockDevice>,
        options: &SpaceOptions,
    ) -> Result<Self, SpaceError> {
        Self::create_with_tier(domain, device, options, 0)
    }

    /// As [`Space::create`], of pages of which later versions may be in the tier of persistent memory with
    /// this identity.
    pub(crate) fn create_with_tier(
        domain: D,
        device: Arc<dyn BlockDevice>,
        options: &SpaceOptions,
        tier: u64,
    ) -> Result<Self, SpaceError> {
        redo::lay_out(&*device, options, tier)?;
        Self::open(domain, device)
    }

    /// Opens the space on a device, after a crash or not.
    ///
    /// # Errors
    /// [`SpaceError::NotASpace`], [`SpaceError::JournalDamaged`], [`SpaceError::JournalUnreadable`],
    /// [`SpaceError::MapUnreadable`], [`SpaceError::Device`].
    pub fn open(domain: D, device: Arc<dyn BlockDevice>) -> Result<Self, SpaceError> {
        let (geometry, tier) = redo::read_superblock(&*device)?;
        let opened = redo::redo(&domain, &*device, geometry)?;
        let writer = Writer::new(&*device, geometry, opened.next_sequence)?;
        Ok(Self {
            domain,
            device,
            geometry,
            tier,
            map: Mutex::new(opened.map),
            writer: Mutex::new(writer),
            read_buffers: Mutex::new(Vec::new()),
            redone_pages: opened.redone_pages,
            lost: OnceLock::new(),
        })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.geometry.page_bytes
    }

    /// The identity of the tier of persistent memory that may have later versions of pages; 0 for none.
    pub(crate) fn tier(&self) -> u64 {
        self.tier
    }

    /// What was asked of the device since it was opened.
    pub fn device_counts(&self) -> BlockCounts {
        self.device.counts()
    }

    /// Bytes of the device.
    pub fn device_bytes(&self) -> u64 {
        self.device.capacity_blocks() * BLOCK_BYTES as u64
    }

    /// Pages of the last batches that opening wrote again.
    pub fn redone_pages(&self) -> usize {
        self.redone_pages
    }

    /// Pages that are in use, or were and cannot be given out yet.
    pub fn used_pages(&self) -> u64 {
        self.map.lock().used()
    }

    /// Whether the map can be read that says whether there is such a page.
    pub fn is_known(&self, number: PageNumber) -> bool {
        self.map.lock().is_known(index_of(number))
    }

    /// Whether there is such a page on the device.
    pub fn contains(&self, number: PageNumber) -> bool {
        self.map.lock().is_on_device(index_of(number))
    }

    /// Whether a page is nobody's, durably: it may be given out.
    pub(crate) fn is_free(&self, number: PageNumber) -> bool {
        self.map.lock().is_free(index_of(number))
    }

    /// Gives out the lowest page that is free. Nothing is durable before it is written. Who may not be refused has a
    /// [`Space::promise`].
    ///
    /// # Errors
    /// [`SpaceError::Device`] if the device cannot grow, [`SpaceError::Full`].
    pub fn allocate(&self) -> Result<PageNumber, SpaceError> {
        let index = self.map.lock().reserve();
        let number = PageNumber::new(index + 1).ok_or(SpaceError::Full);
        // The map is not held: others look into it while the device grows.
        let grown = number.and_then(|number| Ok(self.grow_to_hold(index).map(|()| number)?));
        if grown.is_err() {
            self.map.lock().unreserve(index);
        }
        grown
    }

    /// Takes a number back that [`Space::allocate`] gave out and nobody came to know of.
    pub(crate) fn unreserve(&self, number: PageNumber) {
        self.map.lock().unreserve(index_of(number));
    }

    /// Takes a number into use again that an earlier [`Space::allocate`] gave out: to redo that.
    ///
    /// # Errors
    /// [`SpaceError::NeverGivenOut`] if there was none, [`SpaceError::Device`] if the device cannot grow.
    pub fn allocate_again(&self, number: PageNumber) -> Result<(), SpaceError> {
        if !self.map.lock().may_be_given_out(index_of(number)) {
            return Err(SpaceError::NeverGivenOut { number });
        }
        self.grow_to_hold(index_of(number))?;
        self.map.lock().reserve_again(index_of(number));
        Ok(())
    }

    /// The numbers of the pages on the device.
    pub fn numbers(&self) -> Vec<PageNumber> {
        let map = self.map.lock();
        let on_device = (0..map.end()).filter(|&index| map.is_on_device(index));
        on_device.filter_map(|index| PageNumber::new(index + 1)).collect()
    }

    fn grow_to_hold(&self, index: u64) -> Result<(), BlockError> {
        let (needed, capacity) = (self.geometry.end(index + 1), self.device.capacity_blocks());
        if needed <= capacity {
            return Ok(());
        }
        let more = (capacity / 8).clamp(GROWTH_BLOCKS.0, GROWTH_BLOCKS.1);
        match self.device.grow_to(needed.max(capacity + more)) {
            Err(BlockError::NoSpace { .. }) => self.device.grow_to(needed),
            grown => grown,
        }
    }

    /// Frees a page, by the change `lsn` of the log (0 if there is none). It is given out again when
    /// that is durable (M2).
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`].
    pub fn free(&self, number: PageNumber, lsn: u64) -> Result<(), SpaceError> {
        let at_once = self.domain.commits(FREED_PAGE_REUSED_EARLY);
        match self.map.lock().free(index_of(number), lsn, at_once) {
            true => Ok(()),
            false => Err(SpaceError::NotInUse { number }),
        }
    }

    /// Reads a page and shows it to `with`, checked.
    ///
    /// # Errors
    /// [`SpaceError::NotInUse`], [`SpaceError::Page`], [`SpaceError::Device`].
    pub fn read<T>(
        &self,
        number: PageNumber,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, SpaceError> {
        let index = index_of(number);
        if !self.map.lock().is_on_device(index) {
            return Err(SpaceError::NotInUse { number });
        }
        let spare = self.read_buffers.lock().pop();
        let mut buffer = spare.unwrap_or_else(|| page_buffer(self.geometry));
        let read = match self.read_into(number, index, &mut buffer) {
            // It was freed meanwhile, and its storage given back.
            Err(_) if !self.map.lock().is_on_device(index) => Err(SpaceError::NotInUse { number }),
            read => read,
        };
        let outcome = read.map(|()| with(&buffer));
        self.read_buffers.lock().push(buffer);
        outcome
    }

    fn read_into(&self, number: PageNumber, index: u64, into: &mut [u8]) -> Result<(), SpaceError> {
        self.device.read_blocks(self.geometry.page(index), into)?;
        let damaged = |damage: PageDamage| SpaceError::Page { number, damage };
        let stamp = page::check(into, number.get()).map_err(damaged)?;
        self.map.lock().check_stamp(index, stamp).map_err(damaged)
    }

    /// Takes the turn to write, and begins an empty batch.
    pub fn begin_batch(&self) -> Batch<'_, D> {
        Batch::new(self, host_lock::lock(&self.domain, &self.writer))
    }

    /// The first change that freed a page which is not free on the device yet.
    pub fn oldest_freed(&self) -> Option<u64> {
        self.map.lock().oldest_freed()
    }

    /// Makes durable what was freed by changes that the log holds, so that it can be given out again.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn write_freed(&self, flushed_lsn: u64) -> Result<(), SpaceError> {
        loop {
            self.begin_batch().write(flushed_lsn)?;
            if self.map.lock().freed_regions(flushed_lsn).is_empty() {
                return Ok(());
            }
        }
    }

    /// Gives the storage behind the last page that is in use back. Returns how many pages that were. The device becomes
    /// shorter, but not so much as to lose the map of a region.
    ///
    /// # Errors
    /// [`SpaceError::Device`].
    pub fn trim(&self) -> Result<u64, SpaceError> {
        // No batch is under way that could write there, and nobody is promised a page there meanwhile (S1).
        let _turn = host_lock::lock(&self.domain, &self.writer);
        let (cut, regions) = {
            let mut map = self.map.lock();
            (map.cut_end(), map.regions())
        };
        if cut.is_empty() {
            return Ok(0);
        }
        // Maps of regions stay, and may lie in between.
        let mut at = self.geometry.end(cut.start);
        let last = self.geometry.end(cut.end).min(self.device.capacity_blocks());
        for region in 0..regions {
            let map = self.geometry.map(region);
            if (at..last).contains(&map) {
                self.device.discard(at, map - at)?;
                at = self.geometry.page(region * self.geometry.region_pages());
            }
        }
        let last_map = self.geometry.map(regions.saturating_sub(1)) + self.geometry.page_blocks();
        self.device.shrink_to(at.max(last_map))?;
        Ok(cut.end - cut.start)
    }

    /// Ends an orderly use: the next opening has nothing to redo.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn settle(&self, flushed_lsn: u64) -> Result<(), SpaceError> {
        loop {
            let mut batch = self.begin_batch();
            batch.add_maps(self.map.lock().changed_regions(flushed_lsn));
            let is_last = batch.is_empty();
            batch.write(flushed_lsn)?;
            if is_last {
                break;
            }
        }
        self.check_not_lost()?;
        self.write_settled(&mut host_lock::lock(&self.domain, &self.writer))
    }

    /// Walks over all pages on the device. Never fails itself.
    pub fn check(&self) -> Vec<SpaceProblem> {
        let damaged: Vec<_> = self.map.lock().damaged_regions().collect();
        let first = |region: u64| PageNumber::new(region * self.geometry.region_pages() + 1);
        let maps = damaged.into_iter().filter_map(first).map(SpaceProblem::Map);
        let pages = self.numbers().into_iter();
        let pages = pages.filter_map(|number| self.read(number, |_| ()).err());
        maps.chain(pages.map(SpaceProblem::Page)).collect()
    }

    fn check_not_lost(&self) -> Result<(), SpaceError> {
        match self.lost.get() {
            Some(reason) => Err(SpaceError::WritesLost { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// From here on nothing is written: what is on the device is not known.
    fn lose(&self, error: BlockError) -> SpaceError {
        let _already = self.lost.set(error.to_string());
        error.into()
    }

    fn flush(&self) -> Result<(), SpaceError> {
        self.device.flush().map_err(|error| self.lose(error))
    }
}
