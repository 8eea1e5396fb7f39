//! What lies where on the device. The diagram is in the [header of the space](super).

use lapis_pmem::BLOCK_BYTES;

use super::SpaceError;
use crate::page::{LARGEST_PAGE_BYTES, PAGE_HEADER_BYTES, PageNumber, SMALLEST_PAGE_BYTES};

/// Bytes of a batch's descriptor before its entries.
pub(super) const DESCRIPTOR_BYTES: usize = 64;
/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 16;
/// Fewer pages in a batch make no progress: a page may bring its map page.
pub(super) const FEWEST_BATCH_PAGES: usize = 2;

const _: () = assert!(SMALLEST_PAGE_BYTES == BLOCK_BYTES);

/// Pages that a batch can have: as many as its descriptor names.
pub(super) fn most_batch_pages(page_bytes: usize) -> usize {
    (page_bytes - DESCRIPTOR_BYTES) / ENTRY_BYTES
}

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) page_bytes: usize,
    /// Pages that a batch has room for.
    pub(super) batch_pages: usize,
}

impl Geometry {
    pub(super) fn new(page_bytes: usize, batch_pages: usize) -> Result<Self, SpaceError> {
        if !page_bytes.is_power_of_two()
            || !(SMALLEST_PAGE_BYTES..=LARGEST_PAGE_BYTES).contains(&page_bytes)
        {
            return Err(SpaceError::BadPageSize { page_bytes });
        }
        let most = most_batch_pages(page_bytes);
        if !(FEWEST_BATCH_PAGES..=most).contains(&batch_pages) {
            return Err(SpaceError::BadBatch { batch_pages, most });
        }
        Ok(Self { page_bytes, batch_pages })
    }

    pub(super) fn page_blocks(self) -> u64 {
        (self.page_bytes / BLOCK_BYTES) as u64
    }

    /// Pages of a region, each with a byte in the region's map.
    pub(super) fn region_pages(self) -> u64 {
        (self.page_bytes - PAGE_HEADER_BYTES) as u64
    }

    /// The first block of the descriptor of a batch with this sequence number; its pages follow.
    pub(super) fn journal(self, sequence: u64) -> u64 {
        let area = sequence % 2 * (1 + self.batch_pages as u64);
        (1 + area) * self.page_blocks()
    }

    /// The first block of a page of a batch.
    pub(super) fn journal_page(self, sequence: u64, at: usize) -> u64 {
        self.journal(sequence) + (1 + at as u64) * self.page_blocks()
    }

    fn region(self, region: u64) -> u64 {
        let before = 1 + 2 * (1 + self.batch_pages as u64);
        (before + region * (1 + self.region_pages())) * self.page_blocks()
    }

    /// The first block of a region's map.
    pub(super) fn map(self, region: u64) -> u64 {
        self.region(region)
    }

    /// The first block of a page, which is counted from 0.
    pub(super) fn page(self, index: u64) -> u64 {
        let (region, at) = (index / self.region_pages(), index % self.region_pages());
        self.region(region) + (1 + at) * self.page_blocks()
    }

    /// As many pages as end within so many blocks.
    pub(super) fn pages_within(self, blocks: u64) -> u64 {
        let Some(behind) = blocks.checked_sub(self.region(0)) else { return 0 };
        let pages = behind / self.page_blocks();
        let (region, at) = (pages / (1 + self.region_pages()), pages % (1 + self.region_pages()));
        region * self.region_pages() + at.saturating_sub(1)
    }

    /// Whether a page or map may begin at a block.
    pub(super) fn is_page(self, block: u64) -> bool {
        block.checked_sub(self.map(0)).is_some_and(|at| at.is_multiple_of(self.page_blocks()))
    }

    /// The block behind the last of so many pages.
    pub(super) fn end(self, pages: u64) -> u64 {
        match pages.checked_sub(1) {
            Some(last) => self.page(last) + self.page_blocks(),
            None => self.map(0) + self.page_blocks(),
        }
    }
}

/// Pages are numbered from 1 and counted from 0.
pub(super) fn index_of(number: PageNumber) -> u64 {
    number.get() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_follows_everything_without_a_gap() {
        let geometry = Geometry::new(8192, 4).unwrap();
        assert_eq!(geometry.journal(0), 2);
        assert_eq!(geometry.journal_page(0, 0), 4);
        assert_eq!(geometry.journal(1), geometry.journal_page(0, 3) + 2);
        assert_eq!(geometry.journal(2), geometry.journal(0));
        assert_eq!(geometry.map(0), geometry.journal_page(1, 3) + 2);
        assert_eq!(geometry.end(0), geometry.page(0));
        assert_eq!(geometry.page(0), geometry.map(0) + 2);
        let last = geometry.region_pages() - 1;
        assert_eq!(geometry.map(1), geometry.page(last) + 2);
        assert_eq!(geometry.page(last + 1), geometry.map(1) + 2);
        assert_eq!(geometry.end(last + 1), geometry.map(1));
        for pages in [0, 1, 2, last, last + 1, last + 2, 2 * last + 2, 2 * last + 3] {
            let end = geometry.end(pages);
            assert_eq!(geometry.pages_within(end), pages);
            assert_eq!(geometry.pages_within(end - 1), pages.saturating_sub(1));
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for page_bytes in [0, 2048, 12288, 131_072] {
            assert!(matches!(Geometry::new(page_bytes, 8), Err(SpaceError::BadPageSize { .. })));
        }
        for batch_pages in [0, 1, 253] {
            assert!(matches!(Geometry::new(4096, batch_pages), Err(SpaceError::BadBatch { .. })));
        }
        Geometry::new(4096, 252).unwrap();
    }
}
