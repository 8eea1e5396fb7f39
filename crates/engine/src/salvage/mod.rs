//! Salvage: reading all that can be read of a damaged store.
//!
//! Nothing above a leaf is needed for what is in it: every page of the device is read, and a leaf says itself which keys it
//! has, of which tree, and as of which change. What the log has is laid over that. So a damaged inner page, catalog, map
//! or superblock costs no entry, and a damaged leaf costs its own, but for those that the log still has.
//!
//! 1. The space is opened over an overlay, so that the devices stay as they are; its superblock, journal and maps
//!    are found out anew where they have to be.
//! 2. The log is read as far as it goes. Changes of structure are redone on the overlay, page by page; the last write of each
//!    key is kept in memory, which is less than the log is long.
//! 3. All pages are read: which leaf has which keys (`leaves.rs`). Where several leaves have the same, because the
//!    map that tells free pages from others is lost, or the end of the log, the newest counts.
//! 4. The catalog is read from its leaves, and then each table from its own, or from its index (`indexes.rs`).
//!
//! Persistent memory is looked at where its pool can be opened: the log and the newest pages may be there, and indexes
//! are. Its region was opened to read, so that it stays as it is.
//!
//! # What comes out
//!
//! * G1. A value that a key had at some moment: pages hold nothing uncommitted (E1), and all of them have checksums. What
//!   has expired by now is left out.
//! * G2. If the log is whole and so are the maps, it is the last one, and a key that is missing lies in a range that is
//!   listed as lost.

mod indexes;
mod leaves;
mod logged;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use lapis_buffer::{BufferManager, BufferOptions, NoLog, PageNumber, Placement, Space};
use lapis_pmem::{BlockDevice, Domain, OverlayDevice};
use lapis_tree::mark_of_tree;

use leaves::{DamagedPage, Pages, Segment, Tree};
use logged::Logged;

use crate::contents::Place;
use crate::expiry::Clock;
use crate::key_range::KeyRange;
use crate::storage::Storage;
use crate::tables::{CATALOG, CHUNKS, CatalogEntry, TableId};
use crate::value::{self, LongValue, Stored};

/// Pages kept in memory besides those that change.
const FRAMES: usize = 256;

/// Where an entry was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SalvagedTable {
    /// A table.
    Named(String),
    /// A table whose entry in the catalog is lost: the number of its first page, or the last bits of that.
    Nameless(u64),
    /// A table that only the log knows of: its number.
    Numbered(u32),
}

impl fmt::Display for SalvagedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "table {name:?}"),
            Self::Nameless(tree) => write!(f, "the table without a name of tree {tree}"),
            Self::Numbered(number) => write!(f, "the table without a name of number {number}"),
        }
    }
}

/// Something that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The table that it is missing from, where that is known.
    pub table: Option<SalvagedTable>,
    /// The keys among which entries may be missing, where that is known; none are if there is a page and no
    /// table.
    pub keys: Option<KeyRange>,
    /// The page, where it is known.
    pub page: Option<PageNumber>,
    /// What is wrong.
    pub why: String,
}

impl Lost {
    fn of_store(why: impl Into<String>) -> Self {
        Self { table: None, keys: None, page: None, why: why.into() }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(table) = &self.table {
            write!(f, "{table}, ")?;
        }
        if let Some(keys) = &self.keys {
            write!(f, "{keys}, ")?;
        }
        if let Some(page) = self.page {
            write!(f, "page {page}: ")?;
        }
        write!(f, "{}", self.why)
    }
}

/// What a salvage came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Entries that were found.
    pub entries: u64,
    /// What cannot be read.
    pub lost: Vec<Lost>,
    /// Whether it was told to stop.
    pub stopped: bool,
}

/// What is done with a record: its key and itself.
type Each<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// What is told of an entry: its table, key, and value.
pub type TellEntry<'t> = &'t mut dyn FnMut(&SalvagedTable, &[u8], &[u8]) -> ControlFlow<()>;

/// Reads everything that can be read of the store on what is left of its storage, whatever is wrong with that: table by
/// table, keys in order. It writes nothing to devices, and never fails itself. Nobody has the store open; the pool, if
/// there is one, lies in a region that was opened to read.
pub fn salvage<D: Domain>(domain: D, storage: &Storage<D>, tell: TellEntry<'_>) -> SalvageReport {
    let mut report = SalvageReport::default();
    let manager = open_pages(&domain, storage, &mut report.lost);
    let log = match storage.find_log() {
        Ok(found) => found.map(|(device, _)| device),
        Err(error) => {
            report.lost.push(Lost::of_store(error.to_string()));
            None
        }
    };
    let logged = logged::read(&domain, log, manager.as_ref(), &mut report.lost);
    let pages = match manager {
        Some(manager) => Pages::read(manager, &mut report.lost),
        None => Pages::none(),
    };
    let now_ms = Clock::System.now_ms();
    let salvage = Salvage { pages, memory: storage, logged, report, tell, now_ms };
    let mut report = salvage.run();
    report.lost.extend(domain.health().err().map(|fault| Lost::of_store(fault.to_string())));
    report
}

fn open_pages<D: Domain>(
    domain: &D,
    storage: &Storage<D>,
    lost: &mut Vec<Lost>,
) -> Option<BufferManager<D>> {
    let device = Arc::clone(storage.pages.as_ref()?);
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::over(device));
    let mut told = |what: String| lost.push(Lost::of_store(what));
    let tier = storage.tier();
    let identity = tier.as_ref().and_then(|tier| tier.as_ref().ok()).map_or(0, |it| it.identity());
    let space = Space::open_damaged(domain.clone(), Arc::clone(&overlay), identity, &mut told);
    if let Err(error) = space.map(drop) {
        lost.push(Lost::of_store(error.to_string()));
        return None;
    }
    let options = BufferOptions {
        frames: FRAMES,
        most_changed_frames: FRAMES / 2,
        swizzling: false,
        ..BufferOptions::default()
    };
    let (device, log) = (|| Arc::clone(&overlay), || Arc::new(NoLog));
    let with_tier = tier.map(|tier| {
        let placement = Placement::ThreeTier;
        BufferManager::open_with_tier(tier?, device(), log(), &options, placement)
    });
    let opened = match with_tier {
        Some(Ok(manager)) => return Some(manager),
        Some(Err(error)) => Err(error),
        None => BufferManager::open(domain.clone(), device(), log(), &options),
    };
    let opened = opened.or_else(|error| {
        lost.push(Lost::of_store(format!("{error}; entries may be out of date")));
        BufferManager::open_without_tier(domain.clone(), device(), log(), &options)
    });
    opened.inspect_err(|error| lost.push(Lost::of_store(error.to_string()))).ok()
}

/// What the catalog says.
#[derive(Default)]
struct Catalog {
    tables: Vec<(String, TableId, Place)>,
    /// Roots of trees of which nothing is wanted.
    gone: HashSet<PageNumber>,
    chunks: Option<PageNumber>,
}

struct Salvage<'t, D: Domain> {
    pages: Pages<D>,
    memory: &'t Storage<D>,
    logged: Logged,
    report: SalvageReport,
    tell: TellEntry<'t>,
    now_ms: u64,
}

impl<D: Domain> Salvage<'_, D> {
    fn run(mut self) -> SalvageReport {
        let tree = self.pages.take_tree(PageNumber::FIRST);
        let catalog = self.read_catalog(&tree);
        let is_known = self.logged.is_whole && tree.is_whole();
        self.note_gaps(&tree, &SalvagedTable::Named("(the catalog)".to_owned()));
        // The second tree that is made.
        let chunks = catalog.chunks.or(PageNumber::new(PageNumber::FIRST.get() + 1));
        let chunks = chunks.map_or_else(Tree::none, |root| self.pages.take_tree(root));
        self.note_gaps(&chunks, &SalvagedTable::Named("(parts of long values)".to_owned()));
        let mut numbers = HashSet::from([CATALOG, CHUNKS]);
        let mut going_on = ControlFlow::Continue(());
        // The catalog has them in order of their names.
        for (name, id, place) in catalog.tables {
            numbers.insert(id);
            let table = SalvagedTable::Named(name);
            let tree = match place {
                Place::Tree(root) => self.pages.take_tree(root),
                Place::Index(kind, root) => {
                    if going_on.is_continue() {
                        going_on = self.tell_index(&table, id, (kind, root), &chunks);
                    }
                    continue;
                }
            };
            self.note_gaps(&tree, &table);
            if going_on.is_continue() {
                going_on = self.tell_tree(&table, &tree, Some(id), &chunks);
            }
        }
        catalog.gone.iter().for_each(|&root| _ = self.pages.take_tree(root));
        // What nobody has named is a table's, unless everything is known that has a name.
        for (nameless, tree) in self.pages.take_rest() {
            let table = SalvagedTable::Nameless(nameless);
            if !is_known && going_on.is_continue() {
                going_on = self.tell_tree(&table, &tree, None, &chunks);
            }
        }
        for id in self.logged.tables().filter(|id| !is_known && !numbers.contains(id)) {
            if going_on.is_continue() {
                let table = SalvagedTable::Numbered(id);
                going_on = self.tell_tree(&table, &Tree::none(), Some(id), &chunks);
            }
        }
        for DamagedPage { page, why, .. } in self.pages.take_damaged() {
            self.report.lost.push(Lost { table: None, keys: None, page: Some(page), why });
        }
        self.report.stopped = going_on.is_break();
        self.report
    }

    fn read_catalog(&self, tree: &Tree) -> Catalog {
        let mut catalog = Catalog::default();
        let _ = self.walk(tree, Some(CATALOG), &KeyRange::all(), &mut |key, value| {
            match CatalogEntry::parse(key, value) {
                Ok(CatalogEntry::Table { name, id, place, .. }) => {
                    catalog.tables.push((name, id, place));
                }
                Ok(
                    CatalogEntry::Dropped { place: Place::Tree(root), .. }
                    | CatalogEntry::Loading { root, .. },
                ) => _ = catalog.gone.insert(root),
                Ok(CatalogEntry::Chunks { root }) => catalog.chunks = Some(root),
                Ok(_) | Err(_) => {}
            }
            ControlFlow::Continue(())
        });
        catalog
    }

    /// Lists what a tree lacks.
    fn note_gaps(&mut self, tree: &Tree, table: &SalvagedTable) {
        for segment in &tree.segments {
            let keys = Some(segment.range());
            match (&segment.leaf, self.pages.damaged_among(tree, segment)) {
                (Some(leaf), _) if leaf.is_doubtful => self.report.lost.push(Lost {
                    table: Some(table.clone()),
                    keys,
                    page: Some(leaf.number),
                    why: "these entries may be out of date".to_owned(),
                }),
                (Some(_), _) => {}
                (None, damaged) if damaged.is_empty() => self.report.lost.push(Lost {
                    table: Some(table.clone()),
                    keys,
                    page: None,
                    why: "no page was found that has these keys".to_owned(),
                }),
                (None, damaged) => {
                    self.report.lost.extend(damaged.into_iter().map(|damaged| Lost {
                        table: Some(table.clone()),
                        keys: keys.clone(),
                        page: Some(damaged.page),
                        why: damaged.why,
                    }))
                }
            }
        }
    }

    /// Tells the entries of a table.
    fn tell_tree(
        &mut self,
        table: &SalvagedTable,
        tree: &Tree,
        id: Option<TableId>,
        chunks: &Tree,
    ) -> ControlFlow<()> {
        let mut told: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        // Of a leaf at a time, for telling takes what walking looks at.
        let mut going_on = ControlFlow::Continue(());
        for segment in tree.segments_or_all() {
            let _ = self.walk_segment(segment, id, &mut |key, record| {
                told.push((key.to_vec(), record.to_vec()));
                ControlFlow::Continue(())
            });
            for (key, record) in told.drain(..) {
                going_on = self.tell_record(table, &key, &record, chunks, going_on);
            }
            if going_on.is_break() {
                break;
            }
        }
        going_on
    }

    /// Tells a record, if there is somebody to go on telling, or lists it.
    fn tell_record(
        &mut self,
        table: &SalvagedTable,
        key: &[u8],
        record: &[u8],
        chunks: &Tree,
        going_on: ControlFlow<()>,
    ) -> ControlFlow<()> {
        if value::expiry_of(record).is_some_and(|at| at <= self.now_ms) {
            return going_on;
        }
        let value = match value::parse(record) {
            Some(Stored::Short(value)) => Ok(value.to_vec()),
            Some(Stored::Long(long)) => {
                self.read_long(long, chunks).ok_or("its value lacks a part")
            }
            None => Err("its value makes no sense"),
        };
        match value {
            Ok(value) if going_on.is_continue() => {
                self.report.entries += 1;
                (self.tell)(table, key, &value)
            }
            Ok(_) => going_on,
            Err(why) => {
                self.report.lost.push(Lost {
                    table: Some(table.clone()),
                    keys: Some(KeyRange::new::<&[u8]>(&(key..=key))),
                    page: None,
                    why: why.to_owned(),
                });
                going_on
            }
        }
    }

    fn read_long(&self, long: LongValue, chunks: &Tree) -> Option<Vec<u8>> {
        let (first, last) = long.chunk_keys();
        let mut value = Vec::new();
        let range = KeyRange::new(&(first..=last));
        let _ = self.walk(chunks, Some(CHUNKS), &range, &mut |_, chunk| {
            value.extend_from_slice(chunk);
            match long.has_room_for(&value) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        long.is_whole(&value).then_some(value)
    }

    /// The records of a tree in a range, those of the log among them.
    fn walk(
        &self,
        tree: &Tree,
        id: Option<TableId>,
        range: &KeyRange,
        each: Each<'_>,
    ) -> ControlFlow<()> {
        let segments = tree.segments_or_all();
        let first = match range.lower() {
            Bound::Included(key) | Bound::Excluded(key) => {
                segments.partition_point(|it| it.to.as_deref().is_some_and(|to| to <= key))
            }
            Bound::Unbounded => 0,
        };
        for segment in segments.iter().skip(first) {
            if !range.is_before_end(&segment.from) {
                break;
            }
            self.walk_segment(segment, id, &mut |key, record| match range.contains(key) {
                true => each(key, record),
                false => ControlFlow::Continue(()),
            })?;
        }
        ControlFlow::Continue(())
    }

    fn walk_segment(
        &self,
        segment: &Segment,
        id: Option<TableId>,
        each: Each<'_>,
    ) -> ControlFlow<()> {
        let range = segment.range();
        let mut records = match &segment.leaf {
            Some(leaf) => self.pages.records(leaf.number, &range),
            None => BTreeMap::new(),
        };
        let since = segment.leaf.as_ref().map_or(0, |leaf| leaf.lsn);
        for (key, lsn, value) in self.logged.of(id, &range) {
            // Where the end of the log is missing, a page may be newer than what is left.
            if !self.logged.is_whole && lsn < since {
                continue;
            }
            match value {
                Some(value) => _ = records.insert(key.to_vec(), value.to_vec()),
                None => _ = records.remove(key),
            }
        }
        records.iter().try_for_each(|(key, record)| each(key, record))
    }
}

/// The mark of a tree's pages.
fn mark(root: PageNumber) -> u16 {
    mark_of_tree(root)
}
