//! Page propagation: whole pages from DRAM to slots on persistent memory, failure-atomically.
//!
//! After section 3.2 of A. van Renen, L. Vogel, V. Leis, T. Neumann, A. Kemper, *Building blocks
//! for persistent memory: How to get the most out of your new memory?*, The VLDB Journal 29 (2020):
//! a buffer manager keeps pages in DRAM and writes the dirty ones back. A page that is written in
//! place may be torn by a power cut, so it is written elsewhere and made valid then (*copy-on-write*,
//! all of it), or its dirty lines are written twice, to a small log and then in place (*µlog*).
//! Which is cheaper depends on how many lines are dirty; the *hybrid* decides for each write.
//!
//! | scheme | barriers | ordering fences | lines written, of `L`, `n` dirty | tells torn from whole |
//! |---|---|---|---|---|
//! | [`PageScheme::COPY_ON_WRITE`] | 2 | 1 | `L` + 1 | by version numbers |
//! | [`PageScheme::COPY_ON_WRITE_LOADING`] | 2 | 1 | `L` + 1, and `L - n` read | by version numbers |
//! | [`PageScheme::MICRO_LOG`] | 4 | 0 | 2 `n` + 2 (+ 2 if `L` > 256) | by the validity of the log |
//! | [`PageScheme::CHECKSUM`] | 1 | 0 | `L` + 1 | by CRC, with probability |
//! | [`PageScheme::HYBRID`] | 2 or 4 | 1 or 0 | as copy-on-write or µlog | both |
//!
//! A barrier waits for lines to become durable; the ordering fence has nothing to wait for, and is
//! left out where the slot names no page. The first write of a page finds no slot to log for: µlog
//! and hybrid copy then.
//!
//! # Layout
//!
//! ```text
//!  One block:  root │ slot headers │ µlogs, one for each lane │ slots
//!              256    64 each        256 + page_bytes each      page_bytes each
//!                     └ to the next 256 ┘   (µlog and hybrid only)
//!
//!  PageStoreRoot (256 bytes; the caller publishes it)
//!     0   8  magic           "LAPISPAG"
//!     8   8  format_version  1
//!    16   8  scheme          1 copy-on-write, 2 its loading variant, 3 µlog, 4 checksum, 5 hybrid
//!    24   8  page_bytes      4 KiB to 64 KiB, a power of two
//!    32   8  page_ids        pages are called 0 to page_ids - 1
//!    40   8  capacity_pages  pages there is room for
//!    48   8  lanes
//!    56   8  checksum        CRC-32C of bytes 0..56
//!    64 192  reserved, zero
//!
//!  slot header (one line)                    µlog of a lane (starts on an XPLine)
//!     0   8  page     id + 1, 0 = none          0   8  target   slot << 32 | id + 1, 0 = invalid
//!                     (+ CRC << 32: checksum)   8   8  version  of the page it applies to
//!     8   8  version  of the page              16  32  lines 0 to 255: which are logged
//!    16  48  reserved                          48  16  reserved
//!                                              64  96  lines 256 to 1023 (larger pages only)
//!                                             256   …  the logged lines, end to end
//! ```
//!
//! Slot headers stand apart from the slots, so that recovery reads 64 bytes for a slot and a slot's
//! XPLines are all written whole.
//!
//! # Lanes
//!
//! Pages belong to lanes (`id % lanes`). A lane has a lock, a µlog, and at most one *spare* slot: the
//! one that the last page copied in this lane has left. The next copy goes there. So writers of
//! different lanes share nothing; there are more lanes than writers, so that two seldom meet. The
//! published scheme gives each *thread* a µlog and free slots; then two valid µlogs may hold the same
//! page, of which only one may be applied, and outdated versions of a page may lie anywhere. With
//! lanes there is one µlog that can hold a page, and one slot that can hold an outdated version.
//!
//! # Invariants, at every instant a crash may come
//!
//! * I1. An acknowledged page has a slot whose header names it with the highest version of all headers
//!   that do (of equal ones, in the slot with the higher number): its *current* slot. Header and
//!   contents are durable.
//! * I2. A slot that is not current is not made so before its contents are durable: first they are,
//!   then `page` is, then `version`, which is higher than that of the current slot. In between the
//!   header has the new page and the old version: then it is an outdated version of the new page, or,
//!   should the old version happen to be higher, the latest, which is right too. (Checksum: all in
//!   any order, and the CRC tells whether all of it has persisted. What is torn is made to name no
//!   page, durably, before it is written again: a write that was lost and the next one may differ in
//!   few lines, and then the next one, half done, may complete the one that was lost. The
//!   CRC shares a word with the id: what clears one clears the other, and no page of the same
//!   name can inherit it.)
//! * I3. A slot that is neither current nor the spare of a lane names no page, durably. A spare names
//!   a page of its own lane, or none. So a page has at most one outdated version, and deleting it
//!   removes that first.
//! * I4. A current slot is written in place only while a durably valid µlog holds every line that is
//!   being written.
//! * I5. A µlog is valid only while its lines are durable: it is made invalid, durably, before any of
//!   them is written again.
//! * I6. A valid µlog that names the current slot of its page with the version of that slot holds what
//!   was written to it last; any other valid µlog has been overtaken by a copy, and its page's
//!   current slot has another number or a higher version. A page that is deleted takes its µlog with
//!   it, because a new page of that name starts with version 1 again; of a deletion that a power cut has
//!   left half done opening removes the rest.
//!
//! # Order of stores
//!
//! * Copy: contents past the caches; **barrier** (I2); `page`; *ordering fence*; `version`; flush;
//!   **barrier** (I1). The two stores of the header are relaxed and in one line: without the fence
//!   they might persist in either order, and the version might lift the page that the slot held
//!   before above its current version (state 2 of Fig. 6 is then followed by a false one). If the
//!   slot names no page there is no such page and no such fence.
//! * Copy with checksum: contents and header; **barrier**.
//! * µlog: `target` = 0; flush; **barrier** (I5); lines past the caches; **barrier** (I5); version,
//!   lines and then `target`, in one line in order (rule R2 of [`lapis_pmem::domain`]); flush;
//!   **barrier** (I4); lines to the slot past the caches; **barrier** (I5 of the next one).
//! * Deletion: if the spare names the page: its `page` = 0; flush; **barrier** (I3). The current
//!   slot's `page` = 0; flush; if the µlog names the page, its `target` = 0; flush; **barrier**.
//! * Open: reads all slot headers (checksum: all slots) and µlogs; applies the valid ones (I6) past
//!   the caches, clears `target` of those of pages that are gone (I6) and `page` of torn slots (I2) and
//!   flushes them; if there were any, **barrier**.
//!   Doing so again changes nothing.

mod cost_model;
mod deletion;
mod dirty_lines;
mod error;
mod inspection;
mod layout;
pub mod mutants;
mod recovery;
mod scheme;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lapis_pmem::{Committed, Domain, InFlight, LINE_BYTES, Link, Owned, Pool, SoleUse, host_lock};
use parking_lot::{Mutex, RwLock};

pub use cost_model::{CostModel, CostPoint};
pub use dirty_lines::{DirtyLines, LARGEST_PAGE_LINES};
pub use error::{PageDamage, PageError};
pub use inspection::PageStatistics;
pub use layout::PageStoreRoot;
use layout::{FORMAT_VERSION, Geometry, MAGIC, SlotHeader, Start};
use recovery::Scan;
pub use scheme::{PageRun, PageScheme, PageStoreOptions};

// The scheme, a name for its tests, and its module.
page_schemes! { ($)
    CopyOnWrite page_cow copy_on_write;
    MicroLog page_mulog micro_log;
    Hybrid page_hybrid hybrid;
}

/// The smallest page.
pub const SMALLEST_PAGE_BYTES: usize = 4 << 10;
/// The largest page.
pub const LARGEST_PAGE_BYTES: usize = 64 << 10;

/// Pages in a pool. See the [module documentation](self).
///
/// All methods may be called from several threads. Writers of pages in different lanes do not wait
/// for one another; readers wait for a writer of their page's lane.
///
/// ```
/// use std::sync::Arc;
/// use lapis_blocks::page::{DirtyLines, PageStore, PageStoreOptions};
/// use lapis_pmem::{Committed, Pool};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::create_anonymous(1 << 21)?);
/// let options =
///     PageStoreOptions { page_ids: 100, capacity_pages: 16, lanes: 4, ..Default::default() };
/// let root = pool.fence(PageStore::create(&pool, &options)?);
/// let link = root.link();
/// let _: Committed = pool.publish_root("pages", 0, root)?.persist();
///
/// let store = PageStore::open(Arc::clone(&pool), link)?;
/// let mut page = vec![0; store.page_bytes()];
/// let mut dirty = DirtyLines::none();
/// page[100..105].copy_from_slice(b"lapis");
/// dirty.mark(100, 5);
/// store.write_page(7, &page, &dirty)?; // durable, all of it or nothing
///
/// let mut read = vec![0; store.page_bytes()];
/// store.read_page(7, &mut read)?;
/// assert_eq!(read, page);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PageStore<D: Domain> {
    pool: Arc<Pool<D>>,
    root: Link<PageStoreRoot>,
    geometry: Geometry,
    lanes: Box<[PaddedLane]>,
    /// Slots that name no page (I3).
    free: Mutex<Vec<u32>>,
    /// Pages that exist, or for which a slot is set aside.
    live_pages: AtomicUsize,
    /// Hybrid: with so many dirty lines or more, copying is cheaper.
    copy_from_lines: AtomicUsize,
    /// Valid µlogs that the last open has applied, and slots that it found torn.
    recovered: Recovered,
    _alone: SoleUse<D>,
}

/// What open had to do.
#[derive(Clone, Copy, Debug, Default)]
struct Recovered {
    redone_logs: usize,
    torn_slots: usize,
}

/// On lines of its own: lanes are taken by different threads.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedLane(RwLock<Lane>);

/// What the writer of a lane's pages owns.
#[derive(Debug)]
struct Lane {
    /// The page with id `i` at `i / lanes`.
    pages: Vec<Place>,
    spare: Option<Spare>,
    /// The page that the lane's µlog is valid for.
    logged: Option<u32>,
    copies: u64,
    logs: u64,
    lines_written: u64,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    slot: u32,
    version: u64,
}

impl Place {
    /// Of a page that does not exist.
    const NONE: Self = Self { slot: u32::MAX, version: 0 };

    fn get(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// A slot that is not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spare {
    slot: u32,
    /// The page of this lane that its header names.
    names: Option<u32>,
}

impl<D: Domain> PageStore<D> {
    /// Lays out an empty store. It is durable with the caller's next fence; then the caller publishes
    /// it where he likes and calls [`PageStore::open`] with its link. No fence but the allocator's.
    ///
    /// # Errors
    /// [`PageError::BadPageSize`], [`PageError::BadOptions`], [`PageError::RegionTooSmall`].
    pub fn create<'p>(
        pool: &'p Pool<D>,
        options: &PageStoreOptions,
    ) -> Result<Owned<'p, D, PageStoreRoot, InFlight>, PageError> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let geometry = Geometry::new(options)?;
        let (domain, needed_bytes) = (pool.domain(), geometry.block_bytes());
        let mut root = pool
            .allocate_with_tail::<PageStoreRoot>(needed_bytes - size_of::<PageStoreRoot>())
            .map_err(|why| PageError::RegionTooSmall { needed_bytes, why })?;
        // I3: no slot names a page.
        for at in (0..geometry.header_bytes()).step_by(ZEROES.len()) {
            let bytes = ZEROES.len().min(geometry.header_bytes() - at);
            root.write_tail_nontemporal(at, &ZEROES[..bytes]);
        }
        // I5: no µlog is valid.
        for at in geometry.log_tails() {
            root.write_tail_nontemporal(at, &ZEROES[..LINE_BYTES]);
        }
        root.magic.store(domain, MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.scheme.store(domain, geometry.scheme.number);
        root.page_bytes.store(domain, geometry.page_bytes as u64);
        root.page_ids.store(domain, geometry.page_ids.into());
        root.capacity_pages.store(domain, geometry.capacity_pages.into());
        root.lanes.store(domain, geometry.lanes.into());
        root.checksum.store(domain, root.expected_checksum(domain));
        for word in &root.reserved {
            word.store(domain, 0);
        }
        Ok(root.flush_head())
    }

    /// Opens the store at `root`, after a crash or not: finds the current slot of every page, applies
    /// the µlogs that are valid. At most one fence.
    ///
    /// A hybrid uses [`CostModel::default`] for one writer; see [`PageStore::set_cost_model`].
    ///
    /// # Errors
    /// [`PageError::NotAPageStore`], [`PageError::NewerVersion`], [`PageError::InUse`],
    /// [`PageError::Damaged`]: nothing was written. [`PageError::Fault`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<PageStoreRoot>) -> Result<Self, PageError> {
        let not_a_store = PageError::NotAPageStore { pool_offset: root.offset() };
        let Some(header) = pool.try_at(root) else { return Err(not_a_store) };
        let domain = pool.domain();
        if !root.offset().is_multiple_of(LINE_BYTES as u64) || header.magic.load(domain) != MAGIC {
            return Err(not_a_store);
        }
        let found = header.format_version.load(domain);
        if found > FORMAT_VERSION {
            return Err(PageError::NewerVersion { found, supported: FORMAT_VERSION });
        }
        let damaged = |what| PageError::Damaged(PageDamage { what, pool_offset: root.offset() });
        if found == 0 || header.checksum.load(domain) != header.expected_checksum(domain) {
            return Err(damaged("a root with a wrong checksum"));
        }
        let scheme = PageScheme::from_number(header.scheme.load(domain));
        let options = PageStoreOptions {
            scheme: scheme.ok_or_else(|| damaged("a root with an unknown scheme"))?,
            page_bytes: header.page_bytes.load(domain) as usize,
            page_ids: header.page_ids.load(domain) as usize,
            capacity_pages: header.capacity_pages.load(domain) as usize,
            lanes: header.lanes.load(domain) as usize,
        };
        let geometry =
            Geometry::new(&options).map_err(|_| damaged("a root with impossible sizes"))?;
        let end = root.offset() as usize + geometry.block_bytes();
        if end > pool.region().mapped_bytes() {
            return Err(damaged("a root of a store that leaves the pool"));
        }
        let alone = pool.sole_use(root).ok_or(PageError::InUse)?;
        let scan = Scan::new(&pool, root, geometry).map_err(PageError::Damaged)?;
        let recovered = scan.repair(&pool, root);
        domain.health()?;
        let lanes = scan.lanes.into_iter().map(|lane| PaddedLane(RwLock::new(lane))).collect();
        let store = Self {
            root,
            geometry,
            lanes,
            free: Mutex::new(scan.free),
            live_pages: AtomicUsize::new(scan.live_pages),
            copy_from_lines: AtomicUsize::new(0),
            recovered,
            _alone: alone,
            pool,
        };
        store.set_cost_model(&CostModel::default(), 1)?;
        Ok(store)
    }

    /// The pool the store lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// The root the store was opened with.
    pub fn root(&self) -> Link<PageStoreRoot> {
        self.root
    }

    /// How pages are written.
    pub fn scheme(&self) -> PageScheme {
        self.geometry.scheme
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.geometry.page_bytes
    }

    /// Tells a hybrid what writing costs on the machine that it runs on, and how many threads write
    /// at a time. Others do not care.
    ///
    /// # Errors
    /// [`PageError::BadCostModel`].
    pub fn set_cost_model(&self, model: &CostModel, writers: usize) -> Result<(), PageError> {
        let lines = model.copy_from_lines(self.geometry.page_bytes, writers)?;
        self.copy_from_lines.store(lines, Ordering::Relaxed);
        Ok(())
    }

    /// With so many dirty lines or more a hybrid copies.
    pub fn copy_from_lines(&self) -> usize {
        self.copy_from_lines.load(Ordering::Relaxed)
    }

    /// Writes a page. It is durable on return, and a crash before that leaves the page as it was or
    /// as it is now, with every scheme.
    ///
    /// `page` is the whole page and `dirty` says which of its lines differ from what was last
    /// written; the others are not looked at by the schemes that need not ([`PageScheme::MICRO_LOG`],
    /// [`PageScheme::COPY_ON_WRITE_LOADING`]). If no line is dirty nothing happens. A page that does not
    /// exist yet is written whole, whatever is dirty. Fences and lines: see the
    /// [module documentation](self).
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`], [`PageError::WrongPageSize`], [`PageError::DirtyBeyondPage`],
    /// [`PageError::Full`]: nothing was written. [`PageError::Fault`].
    pub fn write_page(
        &self,
        id: u64,
        page: &[u8],
        dirty: &DirtyLines,
    ) -> Result<Committed, PageError> {
        let id = self.check_id(id)?;
        self.check_bytes(page.len())?;
        if let Some(line) = dirty.last().filter(|&line| line >= self.geometry.lines()) {
            return Err(PageError::DirtyBeyondPage { line, last: self.geometry.lines() - 1 });
        }
        let mut lane = host_lock::write(self.pool.domain(), self.lane(id));
        let Some(current) = self.place(&mut lane, id).get() else {
            self.set_slot_aside()?;
            return self.copy(&mut lane, id, None, page, dirty);
        };
        let dirty_lines = dirty.count();
        if dirty_lines == 0 {
            return Ok(Committed::nothing_to_do());
        }
        if self.geometry.scheme.logs(dirty_lines, self.copy_from_lines()) {
            self.write_through_log(&mut lane, id, current, page, dirty)
        } else {
            self.copy(&mut lane, id, Some(current), page, dirty)
        }
    }

    /// Reads a page.
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`], [`PageError::WrongPageSize`], [`PageError::NoSuchPage`].
    pub fn read_page(&self, id: u64, page: &mut [u8]) -> Result<(), PageError> {
        let number = self.check_id(id)?;
        self.check_bytes(page.len())?;
        self.show(number, 0..page.len(), |bytes| page.copy_from_slice(bytes))
    }

    /// Shows the bytes of a range of a page to `with`, where they lie. Writers of the page's lane wait
    /// meanwhile.
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`], [`PageError::WrongPageSize`] for a range beyond the page,
    /// [`PageError::NoSuchPage`].
    pub fn with_bytes<T>(
        &self,
        id: u64,
        range: Range<usize>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, PageError> {
        let number = self.check_id(id)?;
        let expected_bytes = self.geometry.page_bytes;
        if range.start > range.end || range.end > expected_bytes {
            return Err(PageError::WrongPageSize { given_bytes: range.end, expected_bytes });
        }
        self.show(number, range, with)
    }

    fn show<T>(
        &self,
        id: u32,
        range: Range<usize>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, PageError> {
        let lane = host_lock::read(self.pool.domain(), self.lane(id));
        let place = lane.pages[self.index(id)];
        let place = place.get().ok_or(PageError::NoSuchPage { id: id.into() })?;
        let slot = self.geometry.slot(self.root, place.slot).offset();
        let start = Link::<Start>::from_bits(slot + range.start as u64);
        Ok(with(self.pool.tail(start, range.len())))
    }

    /// Where a page lies, for [`PageStore::words_at`]: in words from the pool's beginning on. Once it is
    /// written again it may lie elsewhere.
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`], [`PageError::NoSuchPage`].
    pub fn place_of(&self, id: u64) -> Result<usize, PageError> {
        let number = self.check_id(id)?;
        let lane = host_lock::read(self.pool.domain(), self.lane(number));
        let place = lane.pages[self.index(number)].get().ok_or(PageError::NoSuchPage { id })?;
        Ok(self.geometry.slot(self.root, place.slot).offset() as usize / size_of::<AtomicU64>())
    }

    /// As many words as a page has, from a place on that [`PageStore::place_of`] has told: the page, or what is there
    /// by now. Nobody waits. Writers of the page fence before they return; whoever reads beside them finds out by
    /// himself that he was overtaken.
    ///
    /// # Panics
    /// If they do not lie in the pool.
    pub fn words_at(&self, place: usize) -> &[AtomicU64] {
        let (bytes, region) = (self.geometry.page_bytes, self.pool.region());
        let room = region.mapped_bytes().saturating_sub(bytes);
        assert!(place <= room / size_of::<AtomicU64>(), "no page lies at word {place} of the pool");
        let first = region.base().wrapping_add(place * size_of::<AtomicU64>());
        // SAFETY: in the pool, which is mapped as long as the store is there, and aligned as pages are; any bits are the
        // value of an atomic word.
        unsafe { std::slice::from_raw_parts(first.cast(), bytes / size_of::<AtomicU64>()) }
    }

    /// Whether there is such a page.
    ///
    /// # Errors
    /// [`PageError::IdOutOfRange`].
    pub fn contains(&self, id: u64) -> Result<bool, PageError> {
        let id = self.check_id(id)?;
        let lane = host_lock::read(self.pool.domain(), self.lane(id));
        Ok(lane.pages[self.index(id)].get().is_some())
    }

    fn check_id(&self, id: u64) -> Result<u32, PageError> {
        if id >= u64::from(self.geometry.page_ids) {
            let last = u64::from(self.geometry.page_ids) - 1;
            return Err(PageError::IdOutOfRange { id, last });
        }
        Ok(id as u32)
    }

    fn check_bytes(&self, given_bytes: usize) -> Result<(), PageError> {
        let expected_bytes = self.geometry.page_bytes;
        if given_bytes != expected_bytes {
            return Err(PageError::WrongPageSize { given_bytes, expected_bytes });
        }
        Ok(())
    }

    fn lane(&self, id: u32) -> &RwLock<Lane> {
        &self.lanes[self.geometry.lane_of(id) as usize].0
    }

    /// Where a page is in the table of its lane.
    fn index(&self, id: u32) -> usize {
        (id / self.geometry.lanes) as usize
    }

    fn place<'l>(&self, lane: &'l mut Lane, id: u32) -> &'l mut Place {
        &mut lane.pages[self.index(id)]
    }

    fn header(&self, slot: u32) -> &SlotHeader {
        self.pool.at(self.geometry.header(self.root, slot))
    }

    /// What a slot holds. Its lane is locked by the caller, who does not write to it meanwhile.
    fn contents(&self, slot: u32) -> &[u8] {
        self.pool.tail(self.geometry.slot(self.root, slot), self.geometry.page_bytes)
    }

    /// Makes sure of a slot for a page that does not exist yet.
    fn set_slot_aside(&self) -> Result<(), PageError> {
        let capacity_pages = self.geometry.capacity_pages as usize;
        let more = |live: usize| (live < capacity_pages).then_some(live + 1);
        self.live_pages
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map(|_| ())
            .map_err(|_| PageError::Full { capacity_pages })
    }
}
