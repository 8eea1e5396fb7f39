//! The tier of persistent memory: pages that were evicted from DRAM before, between DRAM and the SSD.
//!
//! After section 4 of the paper (Figs. 6 and 7, section 4.4). A page in PM is a page of a
//! [`PageStore`]: its propagation block (`page-hybrid`) writes dirty lines by way of a µlog, or the whole
//! page to another slot, whichever is cheaper, and either way a power cut leaves the page as it was or
//! as it is. Pages of the store are *frames* here: frame `i` is page `i` of the store, and the page that it
//! holds names itself in its header. So one page takes the place of another in a single write.
//!
//! # Layout
//!
//! ```text
//!  TierRoot (64 bytes; the caller publishes it)
//!     0   8  magic           "LAPISTIR"
//!     8   8  format_version  1
//!    16   8  identity        that of the space on the SSD to which the pages belong
//!    24   8  store           the page store: a frame is a page of it
//!    32   8  checksum        CRC-32C of bytes 0..32
//!    40  24  reserved, zero
//! ```
//!
//! Everything else is in DRAM and is made again from the headers of the pages when the tier is opened
//! (section 4.4): which frame has which page, by the page table; what the SSD does not have; the clock.
//!
//! # Invariants, at every instant a power cut may come
//!
//! * T1. A frame holds a page whole, of one moment, or none (I1 to I4 of the page store).
//! * T2. A page that PM has, and that is on the SSD by the space's durable map, is the SSD's or a later
//!   one. So a page in PM is written to PM alone; the SSD gets it from there. A frame is taken for
//!   another page only when the SSD has its page as it is, and until the other is in it, durably,
//!   nobody gets that page from the SSD: the page table leads to the frame, whose latch is held.
//! * T3. A page that PM has and that is not on the SSD, by the durable map, is nobody's: it was freed. Only
//!   pages that are on the SSD enter PM, so one that is given out anew does not; and before a number is
//!   given out again, PM has no page of that number, durably.
//! * T4. A page enters PM, or is changed there, only when the log is durable up to its LSN. From then on
//!   PM has the change: redo may begin behind it, though the SSD has never seen it.
//! * T5. A freed page leaves PM only when the durable map has it free: until then redo may come along
//!   changes of it, which need the page that they were made to.
//! * T6. References in PM are page numbers (P3).
//!
//! A page in PM has no checksum, which each line that is written would change: if its words rot there, nobody finds out but by what
//! they say, and the SSD gets them under a checksum that is right.
//!
//! After opening nobody knows what the SSD has of the pages in PM. All count as changed: each is written
//! to the SSD at most once more than it had to be.
//!
//! # Order of stores
//!
//! * Page into a frame: the log's flush (T4); the page store's write (T1, T2); then the page table.
//! * Number given out: the page store's deletion (T3); then the allocation.
//! * Open: pages that are nobody's are deleted (T3).

mod admission_set;
mod frames;

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use lapis_blocks::page::{DirtyLines, PageError, PageStore, PageStoreOptions, PageStoreRoot};
use lapis_pmem::{
    AllocError, BlockVisitor, Domain, InFlight, LINE_BYTES, Link, Owned, PCell, Pool, Slot,
    persistent,
};
use parking_lot::Mutex;

pub(crate) use admission_set::AdmissionSet;
pub(crate) use frames::{TierFrame, TierFrames};

use crate::frame_memory::Block;
use crate::page::lines::LineSource;
use crate::page::{self, PageDamage, PageNumber, SMALLEST_PAGE_BYTES};

const MAGIC: u64 = u64::from_le_bytes(*b"LAPISTIR");
const FORMAT_VERSION: u64 = 1;

persistent! {
    /// The root of a tier: what the caller publishes.
    pub struct TierRoot: 64 {
        magic: PCell<u64>,
        format_version: PCell<u64>,
        identity: PCell<u64>,
        store: Slot<PageStoreRoot>,
        checksum: PCell<u64>,
        reserved: [PCell<u64>; 3],
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(TierRoot, identity) == 16 && offset_of!(TierRoot, store) == 24);
    assert!(offset_of!(TierRoot, checksum) == 32 && offset_of!(TierRoot, reserved) == 40);
};

impl TierRoot {
    /// The page store that the frames are pages of.
    pub fn store<D: Domain>(&self, domain: &D) -> Link<PageStoreRoot> {
        self.store.load(domain)
    }

    fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let words = [
            self.magic.load(domain),
            self.format_version.load(domain),
            self.identity.load(domain),
            self.store.word().load(domain),
        ];
        let crc = |sum, word: u64| crc32c::crc32c_append(sum, &word.to_le_bytes());
        words.into_iter().fold(0, crc).into()
    }
}

/// How a tier is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// Pages in PM at most.
    pub frames: usize,
    /// Bytes of a page: those of the space.
    pub page_bytes: usize,
    /// Lanes of the page store: several times the number of threads that evict or write back.
    pub lanes: usize,
    /// A number that no other tier has; not 0. The space on the SSD gets it too.
    pub identity: u64,
}

/// Why a tier refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// 0 is the identity of spaces that have no tier.
    #[error("a tier of persistent memory cannot have the identity 0")]
    NoIdentity,
    /// The pool has no room.
    #[error(transparent)]
    Pool(#[from] AllocError),
    /// The page store refused or failed.
    #[error(transparent)]
    Store(#[from] PageError),
    /// The block is not the root of a tier.
    #[error("there is no tier of pages at pool offset {pool_offset:#x}")]
    NotATier {
        /// Where it was looked for.
        pool_offset: u64,
    },
    /// A newer Lapis wrote it.
    #[error("the tier has format {found}; this build knows formats up to {FORMAT_VERSION}")]
    NewerFormat {
        /// Its version.
        found: u64,
    },
    /// A page in it is damaged.
    #[error("frame {frame} of persistent memory: page {number} {damage}")]
    Page {
        /// The frame.
        frame: usize,
        /// The page that it says it holds.
        number: u64,
        /// What is wrong.
        damage: PageDamage,
    },
    /// Two frames hold the same page.
    #[error("page {number} is in two frames of persistent memory")]
    Twice {
        /// The page.
        number: PageNumber,
    },
    /// The pages are another space's.
    #[error(
        "the pages in persistent memory are those of space {found:#x}, the SSD's is {expected:#x}; \
         open both with what they were created with"
    )]
    Foreign {
        /// What the SSD says (0: it has no pages in persistent memory).
        expected: u64,
        /// What the tier says.
        found: u64,
    },
    /// Pages of the tier and of the space differ in size.
    #[error("pages of {found} bytes in persistent memory, of {expected} bytes on the SSD")]
    PageBytes {
        /// The SSD's.
        expected: usize,
        /// The tier's.
        found: usize,
    },
}

/// Frames of pages in a pool. See the [module documentation](self).
#[derive(Debug)]
pub struct PersistentTier<D: Domain> {
    root: Link<TierRoot>,
    identity: u64,
    pub(crate) store: PageStore<D>,
    pub(crate) frames: TierFrames<D>,
    pub(crate) denied: AdmissionSet<D>,
    /// Of a page each.
    buffers: Mutex<Vec<Box<[u8]>>>,
    lines_loaded: AtomicU64,
}

impl<D: Domain> PersistentTier<D> {
    /// Lays out an empty tier. It is durable with the caller's next fence; then the caller publishes it
    /// where he likes and calls [`PersistentTier::open`] with its link.
    ///
    /// # Errors
    /// [`TierError::NoIdentity`], [`TierError::Pool`], [`TierError::Store`].
    pub fn create<'p>(
        pool: &'p Pool<D>,
        options: &TierOptions,
    ) -> Result<Owned<'p, D, TierRoot, InFlight>, TierError> {
        let TierOptions { frames, page_bytes, lanes, identity } = *options;
        if identity == 0 {
            return Err(TierError::NoIdentity);
        }
        let store = PageStoreOptions {
            page_bytes,
            page_ids: frames,
            capacity_pages: frames,
            lanes,
            ..PageStoreOptions::default()
        };
        let domain = pool.domain();
        let store = PageStore::create(pool, &store)?;
        let mut root = pool.allocate::<TierRoot>()?;
        root.magic.store(domain, MAGIC);
        root.format_version.store(domain, FORMAT_VERSION);
        root.identity.store(domain, identity);
        root.link_child(|root| &root.store, store);
        root.checksum.store(domain, root.expected_checksum(domain));
        root.reserved.iter().for_each(|word| word.store(domain, 0));
        Ok(root.flush())
    }

    /// Opens the tier at `root`, after a crash or not, and reads which pages it has.
    ///
    /// # Errors
    /// [`TierError`].
    pub fn open(pool: Arc<Pool<D>>, root: Link<TierRoot>) -> Result<Self, TierError> {
        let (identity, store) = {
            let domain = pool.domain();
            let not_a_tier = TierError::NotATier { pool_offset: root.offset() };
            let Some(header) = pool.try_at(root) else { return Err(not_a_tier) };
            if header.magic.load(domain) != MAGIC {
                return Err(not_a_tier);
            }
            let found = header.format_version.load(domain);
            if found > FORMAT_VERSION {
                return Err(TierError::NewerFormat { found });
            }
            if header.checksum.load(domain) != header.expected_checksum(domain) {
                return Err(not_a_tier);
            }
            (header.identity.load(domain), header.store.load(domain))
        };
        let store = PageStore::open(pool, store)?;
        let frames = TierFrames::new(store.statistics().capacity_pages);
        // Pages that come and go in turn are to get in, though some more than fit do so.
        let denied = AdmissionSet::new(2 * frames.len());
        let (buffers, lines_loaded) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        let tier = Self { root, identity, store, frames, denied, buffers, lines_loaded };
        for frame in 0..tier.frames.len() {
            let number = tier.read_number(frame)?;
            tier.frames[frame].set_backing(tier.domain(), Some(frame), true);
            tier.frames[frame].begin(tier.domain(), number);
            if number.is_some() {
                tier.note_place(frame)?;
            }
            tier.frames.set_changed(tier.domain(), frame, number.is_some());
        }
        Ok(tier)
    }

    /// The page that a frame holds, by its header.
    fn read_number(&self, frame: usize) -> Result<Option<PageNumber>, TierError> {
        if !self.store.contains(frame as u64)? {
            return Ok(None);
        }
        let check = |header: &[u8]| {
            let (number, found) = (page::number_of(header), page::check_header(header));
            let number = found.map(|()| PageNumber::new(number)).map_err(|damage| (number, damage));
            number.and_then(|it| it.ok_or((0, PageDamage::NotAPage)))
        };
        let header = 0..page::PAGE_HEADER_BYTES;
        let found = self.store.with_bytes(frame as u64, header, check)?;
        found.map(Some).map_err(|(number, damage)| TierError::Page { frame, number, damage })
    }

    /// Writes a page to a frame, which is latched, or lines of the page that is there.
    pub(crate) fn write(
        &self,
        frame: usize,
        page: &[u8],
        dirty: &DirtyLines,
    ) -> Result<(), PageError> {
        let _committed = self.store.write_page(frame as u64, page, dirty)?;
        self.note_place(frame)
    }

    /// S2.
    fn note_place(&self, frame: usize) -> Result<(), PageError> {
        let place = self.store.place_of(frame as u64)?;
        self.frames[frame].block.set(Block::in_place(place));
        Ok(())
    }

    /// A buffer for a page.
    pub(crate) fn buffer(&self) -> Box<[u8]> {
        let spare = self.buffers.lock().pop();
        spare.unwrap_or_else(|| vec![0; self.page_bytes()].into_boxed_slice())
    }

    /// Keeps a buffer for the next who needs one.
    pub(crate) fn give_back(&self, buffer: Box<[u8]>) {
        self.buffers.lock().push(buffer);
    }

    /// Whether the page in a frame has references to others; a guess, unless its latch is held.
    pub(crate) fn has_references(&self, frame: usize) -> bool {
        let header = 0..page::PAGE_HEADER_BYTES;
        self.store.with_bytes(frame as u64, header, page::has_references).unwrap_or(false)
    }

    /// Lines that were loaded one by one, or in ranges.
    pub(crate) fn lines_loaded(&self) -> u64 {
        self.lines_loaded.load(Relaxed)
    }

    pub(crate) fn domain(&self) -> &D {
        self.store.pool().domain()
    }

    /// The pool it lies in.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        self.store.pool()
    }

    /// The identity it was created with.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.store.page_bytes()
    }

    /// Says which blocks of the pool the tier takes.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        visitor.visit::<TierRoot>(self.root, size_of::<TierRoot>());
        self.store.visit_blocks(visitor);
    }
}

impl<D: Domain> LineSource for PersistentTier<D> {
    fn copy_lines(&self, frame: usize, lines: Range<usize>, into: &[AtomicU64]) {
        let range = lines.start * LINE_BYTES..lines.end * LINE_BYTES;
        self.lines_loaded.fetch_add(lines.len() as u64, Relaxed);
        let copied = self.store.with_bytes(frame as u64, range, |bytes| {
            for (word, bytes) in into.iter().zip(bytes.chunks_exact(8)) {
                word.store(bytes.first_chunk().map_or(0, |it| u64::from_le_bytes(*it)), Relaxed);
            }
        });
        // The page is there as long as it is in DRAM, too.
        debug_assert!(copied.is_ok(), "{copied:?}");
    }

    fn words_at(&self, place: usize) -> &[AtomicU64] {
        self.store.words_at(place)
    }
}

const _: () = assert!(SMALLEST_PAGE_BYTES == lapis_blocks::page::SMALLEST_PAGE_BYTES);
const _: () = assert!(page::LARGEST_PAGE_BYTES == lapis_blocks::page::LARGEST_PAGE_BYTES);
