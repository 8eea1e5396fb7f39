//! The schemes by their names, and what a new store is told.

use std::str::FromStr;

#[cfg(doc)]
use super::{LARGEST_PAGE_BYTES, SMALLEST_PAGE_BYTES};

/// How pages are written. See the [module documentation](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageScheme {
    /// The whole page to another slot.
    CopyOnWrite = 1,
    /// The same where DRAM holds only the dirty lines: the clean ones are loaded from the current
    /// slot.
    CopyOnWriteLoading = 2,
    /// The dirty lines to a log and then in place.
    MicroLog = 3,
    /// The whole page to another slot with a checksum, by one barrier. Torn pages are detected with
    /// probability, and opening reads every page. For comparison.
    Checksum = 4,
    /// Copy-on-write or µlog, whichever the cost model says is cheaper.
    Hybrid = 5,
}

impl PageScheme {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::CopyOnWrite, Self::CopyOnWriteLoading, Self::MicroLog, Self::Checksum, Self::Hybrid];

    /// The name used on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CopyOnWrite => "page-cow",
            Self::CopyOnWriteLoading => "page-cow-load",
            Self::MicroLog => "page-mulog",
            Self::Checksum => "page-checksum",
            Self::Hybrid => "page-hybrid",
        }
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| *scheme as u64 == number)
    }

    pub(super) fn has_micro_logs(self) -> bool {
        matches!(self, Self::MicroLog | Self::Hybrid)
    }
}

impl std::fmt::Display for PageScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no page scheme of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no page scheme {name:?}; choose one of {}", PageScheme::ALL.map(PageScheme::name).join(", "))]
pub struct UnknownScheme {
    /// The name.
    pub name: String,
}

impl FromStr for PageScheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let found = Self::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| UnknownScheme { name: name.to_owned() })
    }
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
            scheme: PageScheme::Hybrid,
            page_bytes: 16 << 10,
            page_ids: 4096,
            capacity_pages: 4096,
            lanes: 64,
        }
    }
}
