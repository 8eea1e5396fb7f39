//! Pages: what they look like, in frames and on the SSD, and how damage shows.
//!
//! After section 3 of A. van Renen, V. Leis, A. Kemper, T. Neumann, T. Hashida, K. Oe, Y. Doi,
//! L. Harada, M. Sato, *Managing non-volatile memory in database systems*, SIGMOD 2018: fixed-size
//! pages carry the data through all tiers. What the paper keeps in front of a page in DRAM (masks,
//! parent, slot, child count) is a frame's here, and never written anywhere; what follows is on the medium.
//!
//! # Layout
//!
//! ```text
//!   0  4  magic        "LPAG"
//!   4  1  version      1
//!   5  1  kind         what the page is (PageKind); the manager gives it no meaning
//!   6  1  stamp        writes of this page, modulo 64: shows a write that was lost
//!   7  1  zero
//!   8  8  number       of the page: shows one that was misdirected
//!  16  8  LSN          of the last change
//!  24  4  checksum     CRC-32C of the whole page, these four bytes taken as zero
//!  28  2  references   the word at which references to children begin, in words from the page's start
//!  30  2  count        how many there are
//!  32  …  contents
//! ```
//!
//! # Invariants
//!
//! * P1. A page on the SSD is *sealed*: its checksum and stamp are right for its contents. In a frame
//!   both are whatever they were when it was read.
//! * P2. References to other pages that may be swizzled are aligned words, all of them in the array that
//!   the header names. So the manager finds them without knowing what a page holds.
//! * P3. On the SSD, the top bit of every reference is clear: it is a page number.

pub(crate) mod lines;
pub(crate) mod missing;
pub mod view;

use lapis_pmem::Domain;

use crate::mutants::PAGE_LSN_NOT_RAISED;
use view::{PageRead, PageWrite};

/// The smallest page.
pub const SMALLEST_PAGE_BYTES: usize = 4 << 10;
/// The largest page.
pub const LARGEST_PAGE_BYTES: usize = 64 << 10;
/// The size of a page unless another is asked for.
pub const DEFAULT_PAGE_BYTES: usize = 16 << 10;
/// Where the contents of a page begin.
pub const PAGE_HEADER_BYTES: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"LPAG");
const FORMAT_VERSION: u8 = 1;
const VERSION_AT: usize = 4;
const KIND_AT: usize = 5;
const STAMP_AT: usize = 6;
const NUMBER_AT: usize = 8;
const LSN_AT: usize = 16;
const CHECKSUM_AT: usize = 24;
const REFERENCES_AT: usize = 28;
const COUNT_AT: usize = 30;
const _: () = {
    assert!(COUNT_AT + 2 == PAGE_HEADER_BYTES);
    // A word index of the largest page fits in two bytes.
    assert!(LARGEST_PAGE_BYTES / 8 <= u16::MAX as usize);
};

/// The number of a page, from 1 on. It says where on the SSD the page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(u64);

impl PageNumber {
    /// The first page.
    pub const FIRST: Self = Self(1);
    /// The highest number: references have room for 48 bits.
    pub const LAST: Self = Self((1 << 48) - 1);

    /// A page number; none if there is no such page.
    pub fn new(number: u64) -> Option<Self> {
        (Self::FIRST.0..=Self::LAST.0).contains(&number).then_some(Self(number))
    }

    /// As a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl core::fmt::Display for PageNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a page is. Numbers below 16 are those of the space's own pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageKind(pub u8);

impl PageKind {
    pub(crate) const SUPERBLOCK: Self = Self(1);
    pub(crate) const JOURNAL: Self = Self(2);
    pub(crate) const SPACE_MAP: Self = Self(3);
}

/// What is wrong with a page that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageDamage {
    /// There are zeroes where it should be: it was never written, or given back.
    #[error("was never written")]
    NeverWritten,
    /// The bytes are something else's.
    #[error("is not a page")]
    NotAPage,
    /// A newer Lapis wrote it.
    #[error("has format {found}; this build knows formats up to {FORMAT_VERSION}")]
    NewerFormat {
        /// Its version.
        found: u8,
    },
    /// Its contents are not those that were written: torn or rotten.
    #[error("is torn or rotten: its checksum is wrong")]
    Checksum,
    /// It is another page, whole: a write or read went to the wrong place.
    #[error("is page {found}: a write or read went to the wrong place")]
    Misdirected {
        /// The page that it says it is.
        found: u64,
    },
    /// It is an earlier version of the page, whole: the device lost a write.
    #[error("is an earlier version: a write was lost (stamp {found}, not {expected})")]
    Lost {
        /// The stamp of the last write.
        expected: u8,
        /// Its own.
        found: u8,
    },
    /// A reference in it is an address in memory.
    #[error("holds a reference that means nothing outside of memory")]
    SwizzledReference,
}

fn checksum(page: &[u8]) -> u32 {
    let before = crc32c::crc32c(&page[..CHECKSUM_AT]);
    let zeroed = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(zeroed, &page[CHECKSUM_AT + 4..])
}

fn bytes_at<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    page[at..].first_chunk().copied().unwrap_or([0; N])
}

/// The checksum that a page carries.
pub(crate) fn checksum_of(page: &[u8]) -> u32 {
    u32::from_le_bytes(bytes_at(page, CHECKSUM_AT))
}

/// Makes the header of a page that the space keeps for itself.
pub(crate) fn begin_page(page: &mut [u8], kind: PageKind, number: u64, lsn: u64) {
    page[..PAGE_HEADER_BYTES].fill(0);
    page[..4].copy_from_slice(&MAGIC.to_le_bytes());
    page[VERSION_AT] = FORMAT_VERSION;
    page[KIND_AT] = kind.0;
    page[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_le_bytes());
    page[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.to_le_bytes());
}

/// Gives a page that is about to be written its stamp and checksum (P1).
pub(crate) fn seal(page: &mut [u8], stamp: u8) {
    page[STAMP_AT] = stamp;
    let sum = checksum(page);
    page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Checks that something begins like a page.
pub(crate) fn check_header(page: &[u8]) -> Result<(), PageDamage> {
    if u32::from_le_bytes(bytes_at(page, 0)) != MAGIC {
        let zero = page[..PAGE_HEADER_BYTES].iter().all(|&byte| byte == 0);
        return Err(if zero { PageDamage::NeverWritten } else { PageDamage::NotAPage });
    }
    if page[VERSION_AT] > FORMAT_VERSION {
        return Err(PageDamage::NewerFormat { found: page[VERSION_AT] });
    }
    Ok(())
}

/// Checks a page that was read, and tells its stamp.
pub(crate) fn check(page: &[u8], number: u64) -> Result<u8, PageDamage> {
    check_header(page)?;
    if page[VERSION_AT] != FORMAT_VERSION || checksum(page) != checksum_of(page) {
        return Err(PageDamage::Checksum);
    }
    let found = number_of(page);
    if found != number {
        return Err(PageDamage::Misdirected { found });
    }
    Ok(page[STAMP_AT])
}

/// The number that a page carries.
pub(crate) fn number_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(bytes_at(page, NUMBER_AT))
}

/// Whether a page says that it has references to children.
pub(crate) fn has_references(page: &[u8]) -> bool {
    bytes_at::<2>(page, COUNT_AT) != [0; 2]
}

/// The LSN that a page carries.
pub fn lsn_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(bytes_at(page, LSN_AT))
}

/// What a page says that it is.
pub fn kind_of(page: &[u8]) -> PageKind {
    PageKind(page[KIND_AT])
}

/// What every page says of itself.
impl<D: Domain> PageRead<'_, D> {
    /// What it is.
    #[inline]
    pub fn kind(&self) -> PageKind {
        PageKind(self.byte(KIND_AT))
    }

    /// Which it is.
    #[inline]
    pub fn number(&self) -> u64 {
        self.word(NUMBER_AT)
    }

    /// The last change.
    #[inline]
    pub fn lsn(&self) -> u64 {
        self.word(LSN_AT)
    }

    /// The offsets of its references to children (P2).
    #[inline]
    pub fn references(&self) -> impl Iterator<Item = usize> + use<D> {
        let first = usize::from(self.quarter(REFERENCES_AT));
        let (count, words) = (usize::from(self.quarter(COUNT_AT)), self.bytes() / 8);
        let first = first.max(PAGE_HEADER_BYTES / 8);
        (first..first + count).take_while(move |word| *word < words).map(|word| word * 8)
    }
}

impl<D: Domain> PageWrite<'_, D> {
    /// Makes an empty page of all bytes.
    pub fn begin(&mut self, kind: PageKind, number: PageNumber) {
        self.zero_from(0);
        self.set_half(0, MAGIC);
        self.set_byte(VERSION_AT, FORMAT_VERSION);
        self.set_byte(KIND_AT, kind.0);
        self.set_word(NUMBER_AT, number.get());
    }

    /// Says which change was the last.
    #[inline]
    pub fn set_lsn(&mut self, lsn: u64) {
        if !self.read().domain().commits(PAGE_LSN_NOT_RAISED) {
            self.set_word(LSN_AT, lsn);
        }
    }

    /// Says where its references to children are: `count` words from `offset` on (P2).
    ///
    /// # Panics
    /// If they do not lie in the page's contents, or are not aligned.
    pub fn set_references(&mut self, offset: usize, count: usize) {
        let end = offset + count * 8;
        assert!(
            offset.is_multiple_of(8) && offset >= PAGE_HEADER_BYTES && end <= self.read().bytes()
        );
        self.set_quarter(REFERENCES_AT, (offset / 8) as u16);
        self.set_quarter(COUNT_AT, count as u16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(number: u64) -> Vec<u8> {
        let mut page = vec![0; SMALLEST_PAGE_BYTES];
        begin_page(&mut page, PageKind(16), number, 0);
        page[1000..2000].fill(7);
        seal(&mut page, 5);
        page
    }

    #[test]
    fn a_sealed_page_is_accepted_under_its_number_alone() {
        let page = sealed(9);
        assert_eq!(check(&page, 9), Ok(5));
        assert_eq!(check(&page, 8), Err(PageDamage::Misdirected { found: 9 }));
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let page = sealed(9);
        let step = if cfg!(miri) { 4099 } else { 7 };
        for bit in (0..SMALLEST_PAGE_BYTES * 8).step_by(step).chain(0..256) {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&flipped, 9).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_page_torn_at_any_sector_is_found() {
        let (old, mut new) = (sealed(9), sealed(9));
        for sector in new.chunks_exact_mut(512) {
            sector[100] = 1;
        }
        seal(&mut new, 6);
        for sectors in 1..SMALLEST_PAGE_BYTES / 512 {
            let mut torn = old.clone();
            torn[..sectors * 512].copy_from_slice(&new[..sectors * 512]);
            assert_eq!(check(&torn, 9), Err(PageDamage::Checksum), "{sectors}");
        }
    }

    #[test]
    fn zeroes_and_strange_bytes_and_newer_pages_are_told_apart() {
        assert_eq!(check(&[0; SMALLEST_PAGE_BYTES], 9), Err(PageDamage::NeverWritten));
        assert_eq!(check(&[1; SMALLEST_PAGE_BYTES], 9), Err(PageDamage::NotAPage));
        let mut newer = sealed(9);
        newer[VERSION_AT] = 2;
        assert_eq!(check(&newer, 9), Err(PageDamage::NewerFormat { found: 2 }));
    }
}
