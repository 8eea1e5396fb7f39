//! The schemes by their names, and what a new store is told.

use super::PageKind;

#[cfg(doc)]
use super::{LARGEST_PAGE_BYTES, SMALLEST_PAGE_BYTES};

/// How pages are written. See the [module documentation](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageScheme {
    /// What it is, or is a variant of.
    pub kind: PageKind,
    /// The name used in experiments and their JSON.
    pub name: &'static str,
    /// The number on the medium.
    pub number: u64,
    /// Whether lanes have a spare slot: pages that exist are copied, always or now and then.
    pub copies: bool,
    /// Whether lanes have a µlog.
    pub has_micro_logs: bool,
    /// Whether a copy takes its clean lines from the current slot, because DRAM does not hold them.
    pub loads_clean_lines: bool,
    /// Whether a CRC tells torn slots from whole ones, which saves a barrier.
    pub has_checksums: bool,
}

impl PageScheme {
    /// All of them: each is explored in some run.
    pub fn all() -> Vec<Self> {
        let runs = PageKind::ALL.iter().flat_map(|kind| kind.declaration().runs);
        let mut all: Vec<Self> = runs.map(|run| run.scheme).collect();
        all.sort_unstable_by_key(|scheme| scheme.number);
        all.dedup();
        all
    }

    /// Whether a page that exists is written by way of the µlog, and not copied: with so many dirty
    /// lines, where copying is cheaper from `copy_from_lines` on.
    pub fn logs(self, dirty_lines: usize, copy_from_lines: usize) -> bool {
        self.kind.logs(dirty_lines, copy_from_lines)
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        Self::all().into_iter().find(|scheme| scheme.number == number)
    }
}

impl std::fmt::Display for PageScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A run of the crash checker on pages.
#[derive(Clone, Copy, Debug)]
pub struct PageRun {
    /// Its name: the scheme's, a colon, and a word.
    pub name: &'static str,
    /// The scheme, which may be a variant for comparison.
    pub scheme: PageScheme,
    /// Bytes of a page.
    pub page_bytes: usize,
}

/// How to lay out a new store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageStoreOptions {
    /// How pages are written.
    pub scheme: PageScheme,
    /// Bytes of a page: a power of two from [`SMALLEST_PAGE_BYTES`] to [`LARGEST_PAGE_BYTES`].
    pub page_bytes: usize,
    /// Pages are called 0 to `page_ids - 1`. Each name costs 16 bytes of DRAM.
    pub page_ids: usize,
    /// How many pages there is room for.
    pub capacity_pages: usize,
    /// Lanes: several times the number of writers. Each costs a slot, with µlogs another one, and no
    /// more than there are pages are of use.
    pub lanes: usize,
}

impl Default for PageStoreOptions {
    fn default() -> Self {
        Self {
            scheme: PageScheme::HYBRID,
            page_bytes: 16 << 10,
            page_ids: 4096,
            capacity_pages: 4096,
            lanes: 64,
        }
    }
}
