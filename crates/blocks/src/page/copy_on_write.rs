//! Copying a page to another slot: with version numbers, and with a checksum.

use super::{PageKind, PageRun};
use crate::declaration::Declaration;
use lapis_pmem::{Committed, Domain, LINE_BYTES};

use super::layout::{Owner, address, page_checksum};
use super::{DirtyLines, Lane, PageError, PageScheme, PageStore, Place, Spare, mutants};

impl<D: Domain> PageStore<D> {
    /// Writes a page to a slot that is not current and makes it so. If the page does not exist yet,
    /// room for it has been set aside.
    pub(super) fn copy(
        &self,
        lane: &mut Lane,
        id: u32,
        current: Option<Place>,
        page: &[u8],
        dirty: &DirtyLines,
    ) -> Result<Committed, PageError> {
        let domain = self.pool.domain();
        let spare = lane.spare.take().or_else(|| {
            // As many slots are neither current nor spare as there are lanes without a spare and
            // pages that do not exist; so there is one.
            self.free.lock().pop().map(|slot| Spare { slot, names: None })
        });
        let Some(spare) = spare else {
            return Err(PageError::Full { capacity_pages: self.geometry.capacity_pages as usize });
        };
        domain.happens(match current {
            Some(_) => "a page is copied",
            None => "a page is new",
        });
        let slot = spare.slot;
        let version = current.map_or(0, |current| current.version) + 1;
        let scheme = self.geometry.scheme;
        let committed = match current {
            _ if scheme.has_checksums => {
                self.write_contents(slot, page);
                let header = self.header(slot);
                // I2: in any order with the contents.
                let checksum = page_checksum(id, version, page);
                header.page.store(domain, Owner::new(id, checksum).0);
                header.version.store(domain, version);
                domain.flush(&header.page);
                Committed::after_fence(domain)
            }
            Some(current) if scheme.loads_clean_lines => {
                self.write_merged(slot, self.contents(current.slot), page, dirty);
                self.make_current(spare, id, version)
            }
            _ => {
                self.write_contents(slot, page);
                self.make_current(spare, id, version)
            }
        };
        // What was current is an outdated version from here on (I3).
        lane.spare = current.map(|current| Spare { slot: current.slot, names: Some(id) });
        *self.place(lane, id) = Place { slot, version };
        lane.copies += 1;
        lane.lines_written += self.geometry.lines() as u64 + 1;
        domain.health()?;
        Ok(committed)
    }

    /// Writes a whole page past the caches.
    fn write_contents(&self, slot: u32, page: &[u8]) {
        let start = address(&self.pool, self.geometry.slot(self.root, slot));
        // SAFETY: the slot lies in the store's block and has as many bytes as a page. Its lane is locked for writing,
        // so nobody else writes it. Who still looks at words that lay there (`words_at`) loads them one by one, and finds
        // out that he was overtaken: whole lines are written by instructions that the compiler does not look into, or word
        // by word.
        unsafe { self.pool.domain().copy_nontemporal(start, page) };
    }

    /// Writes a page past the caches whose clean lines are those of `base`.
    fn write_merged(&self, slot: u32, base: &[u8], page: &[u8], dirty: &DirtyLines) {
        let start = address(&self.pool, self.geometry.slot(self.root, slot));
        for (run, is_dirty) in dirty.alternating_runs(self.geometry.lines()) {
            let bytes = run.start * LINE_BYTES..run.end * LINE_BYTES;
            let source = if is_dirty { &page[bytes.clone()] } else { &base[bytes.clone()] };
            // SAFETY: as in `write_contents`, of whole lines; `base` is another slot.
            unsafe { self.pool.domain().copy_nontemporal(start.add(bytes.start), source) };
        }
    }

    /// Makes a slot that has been written the current one of a page.
    fn make_current(&self, spare: Spare, id: u32, version: u64) -> Committed {
        let domain = self.pool.domain();
        {
            let _mutant = domain.omitting(mutants::VALID_WITH_CONTENTS);
            // I2: the contents, before the header says whose they are.
            domain.fence();
        }
        let header = self.header(spare.slot);
        let store_page = || header.page.store(domain, Owner::new(id, 0).0);
        let store_version = || header.version.store(domain, version);
        let version_first = domain.commits(mutants::VERSION_BEFORE_ID);
        if version_first {
            store_version()
        } else {
            store_page()
        }
        if spare.names.is_some() {
            // I2: orders the two stores; there is nothing to wait for. A header that names no page
            // cannot lift one above its current version.
            domain.fence();
        }
        if version_first {
            store_page()
        } else {
            store_version()
        }
        // I1. Both are in one line.
        domain.flush(&header.version);
        Committed::after_fence(domain)
    }
}

impl PageScheme {
    /// The whole page to another slot.
    pub const COPY_ON_WRITE: Self = Self {
        kind: PageKind::CopyOnWrite,
        name: "page-cow",
        number: 1,
        copies: true,
        has_micro_logs: false,
        loads_clean_lines: false,
        has_checksums: false,
    };
    /// The same where DRAM holds only the dirty lines: the clean ones are loaded from the current
    /// slot.
    pub const COPY_ON_WRITE_LOADING: Self =
        Self { name: "page-cow-load", number: 2, loads_clean_lines: true, ..Self::COPY_ON_WRITE };
    /// The whole page to another slot with a checksum, by one barrier. Torn pages are detected with
    /// probability, and opening reads every page. For comparison.
    pub const CHECKSUM: Self =
        Self { name: "page-checksum", number: 4, has_checksums: true, ..Self::COPY_ON_WRITE };
}

/// See [`PageScheme::logs`].
pub(crate) fn logs(_: usize, _: usize) -> bool {
    false
}

pub(crate) const DECLARATION: Declaration<PageRun> = Declaration {
    name: "page-cow",
    sources: &["blocks/src/page"],
    mutants: mutants::PAGE_COW,
    runs: &[
        PageRun { name: "page-cow:whole", scheme: PageScheme::COPY_ON_WRITE, page_bytes: 4096 },
        PageRun {
            name: "page-cow:load",
            scheme: PageScheme::COPY_ON_WRITE_LOADING,
            page_bytes: 4096,
        },
        PageRun { name: "page-cow:checksum", scheme: PageScheme::CHECKSUM, page_bytes: 4096 },
    ],
    operations: 40,
    persist_points: (64, 2),
};
