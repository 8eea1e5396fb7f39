//! What lies where: the root, slot headers, µlogs and slots. The diagrams are in the
//! [header of the store](super).

use lapis_pmem::{
    Domain, LARGEST_BLOCK_BYTES, LINE_BYTES, Link, PCell, Pool, XPLINE_BYTES, persistent,
};

use super::dirty_lines::{DirtyLines, LARGEST_PAGE_LINES};
use super::{LARGEST_PAGE_BYTES, PageError, PageScheme, PageStoreOptions, SMALLEST_PAGE_BYTES};
use crate::root_checksum::root_checksum;

/// "LAPISPAG", read as a little-endian word.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"LAPISPAG");
/// The format this code writes and the newest it reads.
pub(super) const FORMAT_VERSION: u64 = 1;
/// Bytes of a µlog before its lines.
pub(super) const LOG_HEADER_BYTES: usize = XPLINE_BYTES;
/// Words of the set of dirty lines in the first line of a µlog.
pub(super) const LINE_SET_WORDS: usize = 4;
/// Most lanes.
pub(super) const LARGEST_LANES: usize = 1 << 16;

persistent! {
    /// The header of a page store: what the caller publishes. Everything else lies behind it, in
    /// the same block.
    pub struct PageStoreRoot: 256 {
        pub(super) magic: PCell<u64>,
        pub(super) format_version: PCell<u64>,
        /// [`PageScheme`] by its number.
        pub(super) scheme: PCell<u64>,
        pub(super) page_bytes: PCell<u64>,
        pub(super) page_ids: PCell<u64>,
        pub(super) capacity_pages: PCell<u64>,
        pub(super) lanes: PCell<u64>,
        /// CRC-32C of the seven words above.
        pub(super) checksum: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 24],
    }
}

persistent! {
    /// Says which page a slot holds. A line of its own.
    pub(super) struct SlotHeader: 64 {
        /// [`Owner`]; 0 if the slot holds no page.
        pub(super) page: PCell<u64>,
        /// The page's version number.
        pub(super) version: PCell<u64>,
        pub(super) reserved: [PCell<u64>; 6],
    }
}

persistent! {
    /// The first lines of a µlog; the logged lines follow, one after the other.
    pub(super) struct LogHeader: 256 {
        /// [`Target`]; 0 if the log is not valid.
        pub(super) target: PCell<u64>,
        /// The version of the page that the log is to be applied to.
        pub(super) version: PCell<u64>,
        /// Lines 0 to 255 of the page: which are logged.
        pub(super) lines: [PCell<u64>; LINE_SET_WORDS],
        pub(super) reserved: [PCell<u64>; 2],
        /// Lines 256 to 1023, for pages that have as many.
        pub(super) more_lines: [PCell<u64>; 12],
        pub(super) unused: [PCell<u64>; 12],
    }
}

persistent! {
    /// Where the bytes of a slot, or the lines of a µlog, begin.
    pub(super) struct Start: 0 {}
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(PageStoreRoot, checksum) == 56);
    // I2: page and version share a line.
    assert!(size_of::<SlotHeader>() == LINE_BYTES);
    assert!(offset_of!(SlotHeader, page) == 0 && offset_of!(SlotHeader, version) == 8);
    // I5: what the target vouches for within its line.
    assert!(offset_of!(LogHeader, reserved) + 16 == LINE_BYTES);
    assert!(offset_of!(LogHeader, more_lines) == LINE_BYTES);
    assert!(size_of::<LogHeader>() == LOG_HEADER_BYTES);
    assert!(64 * (LINE_SET_WORDS + 12) == LARGEST_PAGE_LINES);
};

/// What a valid µlog is to be applied to.
///
/// ```text
///  63                              32 31                               0
/// +----------------------------------+----------------------------------+
/// | slot                             | id of the page plus one          |
/// +----------------------------------+----------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target(pub(super) u64);

impl Target {
    pub(super) fn new(slot: u32, id: u32) -> Self {
        Self(u64::from(slot) << 32 | (u64::from(id) + 1))
    }

    /// Slot and page; none if the log is not valid.
    pub(super) fn get(self) -> Option<(u32, u32)> {
        Some(((self.0 >> 32) as u32, (self.0 as u32).checked_sub(1)?))
    }
}

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) scheme: PageScheme,
    pub(super) page_bytes: usize,
    pub(super) page_ids: u32,
    pub(super) capacity_pages: u32,
    pub(super) lanes: u32,
}

impl Geometry {
    /// Checks what was asked for.
    pub(super) fn new(options: &PageStoreOptions) -> Result<Self, PageError> {
        let PageStoreOptions { scheme, page_bytes, page_ids, capacity_pages, lanes } = *options;
        if !page_bytes.is_power_of_two()
            || !(SMALLEST_PAGE_BYTES..=LARGEST_PAGE_BYTES).contains(&page_bytes)
        {
            return Err(PageError::BadPageSize { page_bytes });
        }
        let bad = |what: String, choose| Err(PageError::BadOptions { what, choose });
        if lanes == 0 || lanes > LARGEST_LANES {
            return bad(format!("{lanes} lanes"), "1 to 65536");
        }
        // Ids plus one, and slots, have 32 bits.
        if capacity_pages == 0 || capacity_pages > (u32::MAX as usize) - LARGEST_LANES {
            return bad(format!("room for {capacity_pages} pages"), "1 to 4294901759");
        }
        if page_ids < capacity_pages || page_ids >= u32::MAX as usize {
            let what = format!("{page_ids} page ids and room for {capacity_pages} pages");
            return bad(what, "as many ids as pages or more, fewer than 4294967295");
        }
        let (page_ids, capacity_pages) = (page_ids as u32, capacity_pages as u32);
        let geometry = Self { scheme, page_bytes, page_ids, capacity_pages, lanes: lanes as u32 };
        let asked_bytes = geometry.block_bytes();
        if asked_bytes > LARGEST_BLOCK_BYTES {
            let why = lapis_pmem::AllocError::TooLarge { asked_bytes };
            return Err(PageError::RegionTooSmall { needed_bytes: asked_bytes, why });
        }
        Ok(geometry)
    }

    pub(super) fn lines(&self) -> usize {
        self.page_bytes / LINE_BYTES
    }

    /// One for each page there is room for, and one more for each lane that writes to another slot
    /// than the current one.
    pub(super) fn slots(&self) -> u32 {
        let spares = if self.scheme.copies { self.lanes } else { 0 };
        self.capacity_pages + spares
    }

    fn log_bytes(&self) -> usize {
        if self.scheme.has_micro_logs { LOG_HEADER_BYTES + self.page_bytes } else { 0 }
    }

    fn logs_start(&self) -> usize {
        let headers_end = size_of::<PageStoreRoot>() + self.slots() as usize * LINE_BYTES;
        headers_end.next_multiple_of(XPLINE_BYTES)
    }

    fn slots_start(&self) -> usize {
        self.logs_start() + self.lanes as usize * self.log_bytes()
    }

    /// Bytes of the store's block. At most 2^48 and a bit, whatever the options.
    pub(super) fn block_bytes(&self) -> usize {
        self.slots_start() + self.slots() as usize * self.page_bytes
    }

    /// Bytes from the end of the root to the end of the slot headers.
    pub(super) fn header_bytes(&self) -> usize {
        self.slots() as usize * LINE_BYTES
    }

    /// Where µlogs begin, in bytes from the end of the root.
    pub(super) fn log_tails(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, bytes) = (self.logs_start() - size_of::<PageStoreRoot>(), self.log_bytes());
        let logs = if bytes == 0 { 0 } else { self.lanes as usize };
        (0..logs).map(move |lane| start + lane * bytes)
    }

    pub(super) fn header(&self, root: Link<PageStoreRoot>, slot: u32) -> Link<SlotHeader> {
        let at = size_of::<PageStoreRoot>() + slot as usize * LINE_BYTES;
        Link::from_bits(root.offset() + at as u64)
    }

    pub(super) fn slot(&self, root: Link<PageStoreRoot>, slot: u32) -> Link<Start> {
        let at = self.slots_start() + slot as usize * self.page_bytes;
        Link::from_bits(root.offset() + at as u64)
    }

    pub(super) fn log(&self, root: Link<PageStoreRoot>, lane: u32) -> Link<LogHeader> {
        let at = self.logs_start() + lane as usize * self.log_bytes();
        Link::from_bits(root.offset() + at as u64)
    }

    pub(super) fn lane_of(&self, id: u32) -> u32 {
        id % self.lanes
    }
}

impl PageStoreRoot {
    /// The checksum that the words ask for.
    pub(super) fn expected_checksum<D: Domain>(&self, domain: &D) -> u64 {
        let words = [
            &self.magic,
            &self.format_version,
            &self.scheme,
            &self.page_bytes,
            &self.page_ids,
            &self.capacity_pages,
            &self.lanes,
        ];
        root_checksum(words.map(|word| word.load(domain)))
    }
}

impl LogHeader {
    /// Which lines are logged.
    pub(super) fn line_set<D: Domain>(&self, domain: &D, lines: usize) -> DirtyLines {
        let mut words = [0; LARGEST_PAGE_LINES / 64];
        let cells = self.lines.iter().chain(&self.more_lines);
        for (word, cell) in words.iter_mut().zip(cells).take(lines.div_ceil(64)) {
            *word = cell.load(domain);
        }
        DirtyLines::from_words(words)
    }
}

/// Whose page a slot holds, in one word, which persists whole or not at all.
///
/// ```text
///  63                              32 31                               0
/// +----------------------------------+----------------------------------+
/// | CRC-32C of id, version, contents | id of the page plus one          |
/// | (checksum scheme; otherwise 0)   |                                  |
/// +----------------------------------+----------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(pub(super) u64);

impl Owner {
    pub(super) fn new(id: u32, checksum: u32) -> Self {
        Self(u64::from(checksum) << 32 | (u64::from(id) + 1))
    }

    /// The page; none if the slot holds none.
    pub(super) fn id(self) -> Option<u32> {
        (self.0 as u32).checked_sub(1)
    }

    pub(super) fn checksum(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// What the checksum scheme stores with a page.
pub(super) fn page_checksum(id: u32, version: u64, contents: &[u8]) -> u32 {
    let mut seed = [0; 12];
    seed[..4].copy_from_slice(&id.to_le_bytes());
    seed[4..].copy_from_slice(&version.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&seed), contents)
}

/// The address of a pool offset. Valid for as many bytes as the caller knows to be in the pool.
#[inline(always)]
pub(super) fn address<D: Domain, T>(pool: &Pool<D>, at: Link<T>) -> *mut u8 {
    pool.region().base().wrapping_add(at.offset() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(scheme: PageScheme) -> Geometry {
        let options = PageStoreOptions {
            scheme,
            page_bytes: 4096,
            page_ids: 100,
            capacity_pages: 10,
            lanes: 3,
        };
        Geometry::new(&options).unwrap()
    }

    #[test]
    fn headers_logs_and_slots_follow_one_another_and_start_on_xplines() {
        let geometry = geometry(PageScheme::HYBRID);
        let root = Link::from_bits(1 << 16);
        assert_eq!(geometry.slots(), 13);
        assert_eq!(geometry.header(root, 0).offset() - root.offset(), 256);
        let headers_end = geometry.header(root, 12).offset() + 64;
        let log = geometry.log(root, 0).offset();
        assert!(log >= headers_end && log.is_multiple_of(256));
        assert_eq!(geometry.log(root, 1).offset() - log, 256 + 4096);
        assert_eq!(geometry.slot(root, 0).offset(), geometry.log(root, 3).offset());
        let end = geometry.slot(root, 12).offset() + 4096;
        assert_eq!(end - root.offset(), geometry.block_bytes() as u64);
    }

    #[test]
    fn schemes_that_need_neither_logs_nor_spares_have_none() {
        let logged = geometry(PageScheme::MICRO_LOG);
        assert_eq!((logged.slots(), logged.log_tails().count()), (10, 3));
        let copied = geometry(PageScheme::COPY_ON_WRITE);
        assert_eq!((copied.slots(), copied.log_tails().count()), (13, 0));
    }

    #[test]
    fn a_target_keeps_slot_and_page_apart_and_zero_is_none() {
        assert_eq!(Target(0).get(), None);
        assert_eq!(Target::new(7, 0).get(), Some((7, 0)));
        let largest = u32::MAX - 1;
        assert_eq!(Target::new(u32::MAX, largest).get(), Some((u32::MAX, largest)));
    }

    #[test]
    fn sizes_do_not_overflow_and_are_refused() {
        let options = PageStoreOptions {
            scheme: PageScheme::HYBRID,
            page_bytes: 65536,
            page_ids: 4_294_901_759,
            capacity_pages: 4_294_901_759,
            lanes: 65536,
        };
        let error = Geometry::new(&options).unwrap_err();
        assert!(matches!(error, PageError::RegionTooSmall { .. }), "{error}");
    }
}
