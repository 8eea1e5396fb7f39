//! Making the page writes of one thread or worker.

use lapis_blocks::page::{DirtyLines, PageScheme, PageStore, PageStoreOptions};
use lapis_pmem::{Committed, Domain, LINE_BYTES, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

use super::{ExperimentError, Options};

/// Several times the number of writers.
const LANES: usize = 256;
/// Sets of dirty lines that a writer prepares.
const DIRTY_SETS: usize = 64;
/// Pages in DRAM that a writer takes its contents from: more than the caches hold.
const SOURCE_BYTES: usize = 32 << 20;

/// Bytes of a pool for a store of so many pages.
pub(super) fn pool_bytes(options: &Options, pages: usize) -> usize {
    // Spare slots and µlogs of the lanes, headers, and the pool's own.
    let slots = pages + 2 * LANES;
    (slots * (options.page_bytes + 256) + (4 << 20)).next_multiple_of(64 << 10)
}

/// A store of `pages` pages, all of which exist.
pub(super) fn full_store<D: Domain>(
    pool: Pool<D>,
    options: &Options,
    scheme: PageScheme,
    pages: usize,
) -> Result<PageStore<D>, ExperimentError> {
    let pool = Arc::new(pool);
    let store_options = PageStoreOptions {
        scheme,
        page_bytes: options.page_bytes,
        page_ids: pages,
        capacity_pages: pages,
        lanes: LANES,
    };
    let root = pool.fence(PageStore::create(&pool, &store_options)?);
    let link = root.link();
    let _: Committed = pool.publish_root("pages", 0, root)?.persist();
    let store = PageStore::open(pool, link)?;
    let page = vec![1; options.page_bytes];
    let all = DirtyLines::all(options.page_bytes);
    // Once more in each lane, which then has a spare slot that names a page, as it will ever after.
    for id in (0..pages).chain(0..pages.min(LANES)) {
        store.write_page(id as u64, &page, &all)?;
    }
    Ok(store)
}

/// What one thread or worker writes.
pub(super) struct Writer {
    random: SmallRng,
    pages: u64,
    page_bytes: usize,
    dirty: Vec<DirtyLines>,
    source: Vec<u8>,
    at: usize,
}

impl Writer {
    /// A writer of pages with so many dirty lines, scattered. `source_bytes` bounds the DRAM that it
    /// reads from.
    pub(super) fn new(
        options: &Options,
        pages: usize,
        dirty_lines: usize,
        number: usize,
        source_bytes: usize,
    ) -> Self {
        let mut random = SmallRng::seed_from_u64(options.seed ^ (number as u64) << 32);
        let lines = options.page_bytes / LINE_BYTES;
        let mut order: Vec<usize> = (0..lines).collect();
        let dirty = (0..DIRTY_SETS)
            .map(|_| {
                let mut dirty = DirtyLines::none();
                for at in 0..dirty_lines {
                    order.swap(at, random.random_range(at..lines));
                    dirty.mark_line(order[at]);
                }
                dirty
            })
            .collect();
        let mut source = vec![0; source_bytes.max(options.page_bytes)];
        random.fill(&mut source[..]);
        let page_bytes = options.page_bytes;
        Self { random, pages: pages as u64, page_bytes, dirty, source, at: 0 }
    }

    /// A writer with as much DRAM as caches do not hold.
    pub(super) fn with_cold_source(
        options: &Options,
        pages: usize,
        dirty_lines: usize,
        number: usize,
    ) -> Self {
        Self::new(options, pages, dirty_lines, number, SOURCE_BYTES)
    }

    /// Writes the next page; returns its id.
    #[inline]
    pub(super) fn write<D: Domain>(
        &mut self,
        store: &PageStore<D>,
    ) -> Result<u64, ExperimentError> {
        let id = self.random.random_range(0..self.pages);
        self.at += 1;
        let page = self.page();
        store.write_page(id, page, &self.dirty[self.at % DIRTY_SETS])?;
        Ok(id)
    }

    /// Runs of dirty lines in the next page that is written.
    pub(super) fn next_runs(&self) -> usize {
        self.dirty[(self.at + 1) % DIRTY_SETS].runs(self.page_bytes / LINE_BYTES).count()
    }

    /// The contents that were written last.
    fn page(&self) -> &[u8] {
        let pages = self.source.len() / self.page_bytes;
        let start = self.at % pages * self.page_bytes;
        &self.source[start..start + self.page_bytes]
    }

    /// Whether the dirty lines of page `id`, which was written last, hold what was written.
    pub(super) fn wrote<D: Domain>(
        &self,
        store: &PageStore<D>,
        id: u64,
    ) -> Result<bool, ExperimentError> {
        let mut found = vec![0; self.page_bytes];
        store.read_page(id, &mut found)?;
        let mut runs = self.dirty[self.at % DIRTY_SETS].runs(self.page_bytes / LINE_BYTES);
        Ok(runs.all(|run| {
            let bytes = run.start * LINE_BYTES..run.end * LINE_BYTES;
            found[bytes.clone()] == self.page()[bytes]
        }))
    }
}
