//! Page stores, one subject for each scheme.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapis_blocks::page::{
    CostModel, CostPoint, DirtyLines, PageScheme, PageStore, PageStoreOptions, PageStoreRoot,
};
use lapis_device::Modelled;
use lapis_pmem::{AuditReport, LINE_BYTES, Link, Pool};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::storage::Storage;
use crate::subject::{Live, Subject, text};

const ROOT: &str = "pages";
/// Fewer slots than names, so that slots change hands.
const PAGE_IDS: u64 = 9;
const CAPACITY_PAGES: usize = 6;
/// Few, so that the pages of a lane share its spare slot and its µlog.
const LANES: usize = 2;
/// With so many dirty lines the hybrid copies: every second write or so.
const COPY_FROM_LINES: usize = 6;

/// An operation on a page store.
#[derive(Clone, Debug)]
pub enum PageOperation {
    /// Writes a page, unless it is not there and the store is full.
    Write {
        /// Which page.
        id: u64,
        /// What the dirty lines hold.
        number: u32,
        /// Which lines are dirty.
        lines: Vec<usize>,
    },
    /// Deletes a page, if it is there.
    Delete {
        /// Which page.
        id: u64,
    },
}

/// What is in each page: the number in each of its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PageState {
    pages: BTreeMap<u64, Vec<u32>>,
}

/// A page store, to check.
#[derive(Debug)]
pub struct PageSubject {
    name: &'static str,
    scheme: PageScheme,
    page_bytes: usize,
}

impl PageSubject {
    /// Pages of `page_bytes`, written by `scheme`.
    pub fn new(name: &'static str, scheme: PageScheme, page_bytes: usize) -> Self {
        Self { name, scheme, page_bytes }
    }

    fn lines(&self) -> usize {
        self.page_bytes / LINE_BYTES
    }

    fn random_lines(&self, random: &mut SmallRng) -> Vec<usize> {
        let count = match random.random_range(0..8) {
            0 => self.lines() / 2,
            1..=3 => random.random_range(COPY_FROM_LINES..3 * COPY_FROM_LINES),
            _ => random.random_range(1..COPY_FROM_LINES),
        };
        let mut lines: Vec<usize> =
            (0..count).map(|_| random.random_range(0..self.lines())).collect();
        // Runs as well as single lines.
        if random.random() {
            lines.sort_unstable();
            let first = lines[0];
            for (index, line) in lines.iter_mut().enumerate() {
                *line = (first + index) % self.lines();
            }
        }
        lines
    }

    fn live(&self, pool: Pool<Modelled>, root: Link<PageStoreRoot>) -> Result<LivePages, String> {
        let store = PageStore::open(Arc::new(pool), root).map_err(text)?;
        let point = CostPoint {
            writers: 1,
            copy_ns: COPY_FROM_LINES as f64 - 0.5,
            log_ns: 0.0,
            log_line_ns: 1.0,
        };
        let model = CostModel { page_bytes: self.page_bytes, points: vec![point] };
        store.set_cost_model(&model, 1).map_err(text)?;
        Ok(LivePages { store })
    }
}

/// An open page store.
#[derive(Debug)]
pub struct LivePages {
    store: PageStore<Modelled>,
}

/// The words of a line: the first says which it is and what was written, the others follow from it.
fn line_word(id: u64, line: usize, number: u32, word: usize) -> u64 {
    let first = id << 56 | (line as u64) << 40 | u64::from(number);
    if word == 0 { first } else { (first ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) }
}

fn fill_line(page: &mut [u8], id: u64, line: usize, number: u32) {
    let bytes = &mut page[line * LINE_BYTES..(line + 1) * LINE_BYTES];
    for (word, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&line_word(id, line, number, word).to_le_bytes());
    }
}

/// The number in a line, if the line is whole and of that page.
fn number_in(page: &[u8], id: u64, line: usize) -> Option<u32> {
    let words = page[line * LINE_BYTES..(line + 1) * LINE_BYTES].as_chunks::<8>().0;
    let number = u64::from_le_bytes(words[0]) as u32;
    let whole = |(word, bytes): (usize, &[u8; 8])| {
        u64::from_le_bytes(*bytes) == line_word(id, line, number, word)
    };
    words.iter().enumerate().all(whole).then_some(number)
}

impl Subject for PageSubject {
    type Operation = PageOperation;
    type State = PageState;
    type Live = LivePages;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pool_bytes(&self) -> usize {
        let pages = (CAPACITY_PAGES + 3 * LANES) * self.page_bytes;
        (pages + (256 << 10)).next_multiple_of(64 << 10)
    }

    fn prior_contents(&self) -> u8 {
        0x5A
    }

    fn operations(&self, count: usize, seed: u64) -> Vec<PageOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut deleted = None;
        (0..count)
            .map(|index| {
                // Half of them to two pages of one lane, which then overtake one another.
                let id = if let Some(id) = deleted.take().filter(|_| random.random()) {
                    id
                } else if random.random() {
                    random.random_range(0..2) * LANES as u64
                } else {
                    random.random_range(0..PAGE_IDS)
                };
                if random.random_range(0..5) == 0 {
                    deleted = Some(id);
                    PageOperation::Delete { id }
                } else {
                    let lines = self.random_lines(&mut random);
                    PageOperation::Write { id, number: index as u32 + 1, lines }
                }
            })
            .collect()
    }

    fn probes(
        &self,
        state: &PageState,
        interrupted: Option<&PageOperation>,
        seed: u64,
    ) -> Vec<PageOperation> {
        let mut random = SmallRng::seed_from_u64(seed);
        let id = match interrupted {
            Some(PageOperation::Write { id, .. } | PageOperation::Delete { id }) => *id,
            None => random.random_range(0..PAGE_IDS),
        };
        let neighbour = (id + LANES as u64) % PAGE_IDS;
        let mut write = |id, number| {
            let lines = self.random_lines(&mut random);
            PageOperation::Write { id, number, lines }
        };
        let mut probes = vec![write(id, 1 << 20), write(neighbour, 1 << 21), write(id, 1 << 22)];
        if seed.is_multiple_of(3) {
            let first = state.pages.keys().next().copied().unwrap_or(id);
            probes.insert(1, PageOperation::Delete { id: first });
        }
        probes.push(PageOperation::Delete { id });
        probes
    }

    fn create(&self, storage: Storage) -> Result<LivePages, String> {
        let pool = storage.into_pool();
        let options = PageStoreOptions {
            scheme: self.scheme,
            page_bytes: self.page_bytes,
            page_ids: PAGE_IDS as usize,
            capacity_pages: CAPACITY_PAGES,
            lanes: LANES,
        };
        let root = PageStore::create(&pool, &options).map_err(text)?;
        let root = pool.fence(root);
        let link = root.link();
        let _committed = pool.publish_root(ROOT, 0, root).map_err(text)?.persist();
        self.live(pool, link)
    }

    fn open(&self, storage: Storage) -> Result<Option<LivePages>, String> {
        let pool = storage.into_pool();
        let Some(root) = pool.root::<PageStoreRoot>(ROOT) else { return Ok(None) };
        self.live(pool, root).map(Some)
    }

    fn initial(&self) -> PageState {
        PageState::default()
    }

    fn apply(&self, state: &mut PageState, operation: &PageOperation) {
        match operation {
            PageOperation::Write { id, number, lines } => {
                let full = state.pages.len() == CAPACITY_PAGES;
                if full && !state.pages.contains_key(id) {
                    return;
                }
                let page = state.pages.entry(*id).or_insert_with(|| vec![0; self.lines()]);
                for &line in lines {
                    page[line] = *number;
                }
            }
            PageOperation::Delete { id } => {
                state.pages.remove(id);
            }
        }
    }

    fn owns_source(&self, file: &str) -> bool {
        file.contains("blocks/src/page")
    }
}

impl LivePages {
    fn read(&self, id: u64) -> Result<Vec<u8>, String> {
        let mut page = vec![0; self.store.page_bytes()];
        self.store.read_page(id, &mut page).map_err(text)?;
        Ok(page)
    }
}

impl Live<PageOperation, PageState> for LivePages {
    fn perform(&mut self, operation: &PageOperation) -> Result<(), String> {
        match operation {
            PageOperation::Write { id, number, lines } => {
                let is_there = self.store.contains(*id).map_err(text)?;
                let mut page = if is_there {
                    self.read(*id)?
                } else {
                    let statistics = self.store.statistics();
                    if statistics.pages == statistics.capacity_pages {
                        return Ok(());
                    }
                    let mut page = vec![0; self.store.page_bytes()];
                    let count = page.len() / LINE_BYTES;
                    (0..count).for_each(|line| fill_line(&mut page, *id, line, 0));
                    page
                };
                let mut dirty = DirtyLines::none();
                for &line in lines {
                    fill_line(&mut page, *id, line, *number);
                    dirty.mark_line(line);
                }
                let scheme = self.store.scheme();
                if is_there && (scheme.loads_clean_lines || !scheme.copies) {
                    // The clean lines are nobody's business.
                    for line in (0..page.len() / LINE_BYTES).filter(|&line| !dirty.contains(line)) {
                        page[line * LINE_BYTES..(line + 1) * LINE_BYTES].fill(0xEE);
                    }
                }
                self.store.write_page(*id, &page, &dirty).map(|_| ()).map_err(text)
            }
            PageOperation::Delete { id } => {
                if self.store.contains(*id).map_err(text)? {
                    self.store.delete_page(*id).map_err(text)?;
                }
                Ok(())
            }
        }
    }

    fn observe(&self) -> Result<PageState, String> {
        let mut state = PageState::default();
        for id in 0..PAGE_IDS {
            if !self.store.contains(id).map_err(text)? {
                continue;
            }
            let page = self.read(id)?;
            let numbers: Result<Vec<u32>, String> = (0..page.len() / LINE_BYTES)
                .map(|line| {
                    number_in(&page, id, line)
                        .ok_or_else(|| format!("line {line} of page {id} is torn or of another"))
                })
                .collect();
            state.pages.insert(id, numbers?);
        }
        Ok(state)
    }

    fn check(&self) -> Vec<String> {
        self.store.check().iter().map(ToString::to_string).collect()
    }

    fn reclaim_and_audit(&self) -> AuditReport {
        let pool = self.store.pool();
        let reachable = pool.reachable(|visitor| self.store.visit_blocks(visitor));
        pool.reclaim_and_audit(&reachable)
    }

    fn pool(&self) -> Option<&Pool<Modelled>> {
        Some(self.store.pool())
    }
}
