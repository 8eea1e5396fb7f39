//! Bringing pages to the state of the end of the log (E6).
//!
//! 1. Structure records, in order: then every tree has the shape that it had. What is found of the catalog on the way is
//!    applied afterwards: then it is known which tables there are.
//! 2. Logical records of these tables, and of dropped ones whose long values are still to be listed: so many at a time, the last write of each key, in the order of the keys. So a
//!    leaf is loaded once for many writes, and not for each, as they come; blind as replay is, only the last one of a
//!    key counts (E6).
//!
//! Nothing is undone, for pages hold nothing that the log does not commit (E1). A crash meanwhile changes nothing: the log
//! is cut only behind what pages have.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use lapis_blocks::block_log::Lsn;
use lapis_buffer::{BufferError, BufferManager, PageNumber, WriteAheadLog};
use lapis_index::IndexError;
use lapis_pmem::Domain;
use lapis_tree::{Redo, Tree};

use crate::contents::{Contents, Place};
use crate::drop::free_unlisted_root;
use crate::end_to_end::{EndToEnd, Span, whole};
use crate::error::EngineError;
use crate::index_table::IndexTable;
use crate::log::{EngineLog, kind};
use crate::mutants::{PARTS_LOST, UNFINISHED_REPLAYED};
use crate::persistent_memory::{PersistentMemory, not_reclaimed};
use crate::record::{self, Entries, Entry};
use crate::tables::{
    CATALOG, CHUNKS, CatalogEntry, FIRST_TABLE, Properties, Table, TableId, dropped_of,
};

/// The part of the log whose writes are collected before they are applied. Trees log their structure meanwhile, and the
/// log cannot be cut: it has a quarter of its length for that.
const COLLECTED_PART: u64 = 32;

/// The writes of a part of the log, as they come.
#[derive(Debug, Default)]
struct Collected {
    bytes: EndToEnd,
    writes: Vec<CollectedWrite>,
}

/// A write, and by which transaction.
#[derive(Clone, Copy, Debug)]
struct CollectedWrite {
    table: TableId,
    span: Span,
    lsn: u64,
}

impl Collected {
    fn push(&mut self, Entry { table, key, value }: Entry<'_>, lsn: u64) {
        let span = self.bytes.push(key, value.map(whole));
        self.writes.push(CollectedWrite { table, span, lsn });
    }

    /// Leaves the last write of each key, in the order of tables and keys.
    fn sort(&mut self) {
        let Self { bytes, writes } = self;
        let place = |write: &CollectedWrite| (write.table, bytes.get(write.span).0);
        writes.reverse();
        writes.sort_by(|one, other| place(one).cmp(&place(other)));
        writes.dedup_by(|earlier, last| place(earlier) == place(last));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
    }
}

/// What opening did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records of the log that were read again.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Changes to the structure of trees among them.
    pub structure_records: u64,
    /// Transactions among them.
    pub transactions: u64,
    /// Writes of those.
    pub writes: u64,
    /// How long all of that took.
    pub elapsed: Duration,
    /// How long of that pages were read.
    pub reading: Duration,
    pub(crate) last_transaction: u64,
    /// The greatest that a record has.
    pub(crate) last_token: u64,
}

/// How far an opening has come that does the log again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of the log that have been read. All of it is read twice.
    pub done_bytes: u64,
    /// Bytes to read.
    pub total_bytes: u64,
}

/// It is told each time that so many bytes more have been read.
const BYTES_BETWEEN_TELLING: u64 = 1 << 20;

/// An engine's tables as the log left them.
pub(crate) struct Recovered<D: Domain> {
    /// The catalog, and the chunks of long values.
    pub(crate) system: [Arc<Table<D>>; 2],
    pub(crate) tables: Vec<Arc<Table<D>>>,
    pub(crate) dropped: Vec<Arc<Table<D>>>,
    /// Of which no load came to its end, and their roots.
    pub(crate) loading: Vec<(Arc<Table<D>>, PageNumber)>,
    /// Long values that are to go.
    pub(crate) unwanted: Vec<u64>,
    pub(crate) next_table: TableId,
    pub(crate) report: RecoveryReport,
}

/// Opening, under way.
struct Recovery<'r, D: Domain> {
    domain: &'r D,
    manager: &'r Arc<BufferManager<D>>,
    log: &'r Arc<EngineLog<D>>,
    memory: &'r PersistentMemory<D>,
    /// Once it is known which tables there are.
    all_tables: Vec<Arc<Table<D>>>,
    report: RecoveryReport,
    /// Who is told how far it has come, and what was told last.
    tell: &'r mut dyn FnMut(RecoveryProgress),
    told: RecoveryProgress,
    structure: Redo,
    /// Roots that were made, and by which record.
    made: Vec<(PageNumber, u64)>,
    /// Roots of dropped tables whose listing ended, and by which record.
    unlisted: Vec<(PageNumber, u64)>,
}

pub(crate) fn recover<D: Domain>(
    domain: &D,
    manager: &Arc<BufferManager<D>>,
    log: &Arc<EngineLog<D>>,
    memory: &PersistentMemory<D>,
    tell: &mut dyn FnMut(RecoveryProgress),
) -> Result<Recovered<D>, EngineError> {
    let log_bytes = log.block_log().end().number() - log.block_log().start().number();
    let mut recovery = Recovery {
        domain,
        manager,
        log,
        memory,
        all_tables: Vec::new(),
        report: RecoveryReport::default(),
        tell,
        told: RecoveryProgress { done_bytes: 0, total_bytes: 2 * log_bytes },
        structure: Redo::default(),
        made: Vec::new(),
        unlisted: Vec::new(),
    };
    let open = |root| Tree::open(Arc::clone(manager), Arc::clone(log), root);
    let catalog = Table::new(CATALOG, "", open(PageNumber::FIRST), Properties::default());
    let only_catalog = BTreeMap::from([(CATALOG, Arc::clone(&catalog))]);
    recovery.replay(&only_catalog, Pass::StructureAndCatalog)?;
    for &(root, lsn) in &recovery.unlisted {
        free_unlisted_root(manager, log, root, lsn)?;
    }
    let largest = log.block_log().largest_payload_bytes();
    let contents = |place| match place {
        Place::Tree(root) => Ok(Contents::Tree(open(root))),
        Place::Index(kind, root) => {
            let (indexes, pool, pieces) = (memory.indexes, memory.pool()?, &memory.pieces);
            IndexTable::open(indexes, pool, kind, root, pieces, largest).map(Contents::Index)
        }
    };
    let (mut tables, mut dropped) = (Vec::new(), Vec::new());
    let (mut loading, mut unwanted) = (Vec::new(), Vec::new());
    let (mut next_table, mut chunks) = (FIRST_TABLE, None);
    let mut entries = Vec::new();
    catalog.contents().visit_all(|key, value| {
        entries.push(value.and_then(|value| CatalogEntry::parse(key, value)));
    })?;
    for entry in entries {
        match entry? {
            CatalogEntry::Next(next) => next_table = next_table.max(next),
            CatalogEntry::Table { name, id, place, properties } => {
                tables.push(Table::new(id, &name, contents(place)?, properties));
            }
            CatalogEntry::Dropped { id, place, long_values } => {
                let properties =
                    Properties { has_long_values: long_values, ..Properties::default() };
                dropped.push(Table::new(id, "", contents(place)?, properties));
            }
            CatalogEntry::Loading { id, root } => {
                let table = Table::new(id, "", open(root), Properties::WITH_LONG_VALUES);
                loading.push((table, root));
            }
            CatalogEntry::Restoring => return Err(EngineError::RestoreCutShort),
            CatalogEntry::Chunks { root } => {
                chunks = Some(Table::new(CHUNKS, "", open(root), Properties::default()));
            }
            CatalogEntry::Unwanted { number } => unwanted.push(number),
        }
    }
    let chunks = chunks.ok_or_else(|| EngineError::Damaged {
        what: "the catalog does not say where the chunks of long values are".to_owned(),
    })?;
    recovery.all_tables = tables.iter().chain(&dropped).cloned().collect();
    let known = recovery.all_tables.iter().chain([&chunks, &catalog]);
    let loaded = loading.iter().map(|(_, root)| Place::Tree(*root));
    let known: Vec<_> = known.map(|table| table.contents().place()).chain(loaded).collect();
    let is_unknown = |(root, _): &&(PageNumber, u64)| !known.contains(&Place::Tree(*root));
    for &(root, lsn) in recovery.made.iter().filter(is_unknown) {
        // Nobody came to note it, so nobody has changed it since.
        free_unlisted_root(manager, log, root, lsn + 1)?;
    }
    // Of a dropped table whose long values are still to be listed no page has gone, and its records say which they are.
    let unlisted = dropped.iter().filter(|table| table.has_long_values());
    let replayed = tables.iter().chain([&chunks]).chain(unlisted);
    let by_id = replayed.map(|table| (table.id(), Arc::clone(table)));
    recovery.replay(&by_id.collect(), Pass::Tables)?;
    let (system, report) = ([catalog, chunks], recovery.report);
    Ok(Recovered { system, tables, dropped, loading, unwanted, next_table, report })
}

/// What a reading of the log is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    StructureAndCatalog,
    Tables,
}

/// A transaction of which not all parts have come.
struct Open {
    first: u64,
    entries: Vec<u8>,
}

impl<D: Domain> Recovery<'_, D> {
    /// Redoes a change to the structure of a tree.
    fn redo_structure(&mut self, payload: &[u8], lsn: u64) -> Result<(), EngineError> {
        self.report.structure_records += 1;
        let made = self.structure.record(self.manager, payload, lsn)?;
        self.made.extend(made.map(|root| (root, lsn)));
        Ok(())
    }

    /// Reads the log once and applies the logical records of these tables, which are not applied before all structure is
    /// there. The log may be cut on the way in the last pass.
    fn replay(
        &mut self,
        tables: &BTreeMap<TableId, Arc<Table<D>>>,
        pass: Pass,
    ) -> Result<(), EngineError> {
        let log = self.log.block_log();
        let mut open: HashMap<u64, Open> = HashMap::new();
        let start = log.start().number();
        let before = self.told.done_bytes;
        let mut reader = log.read_from(log.start())?;
        let (mut collected, mut bytes) = (Collected::default(), 0);
        while let Some(record) = reader.next_record()? {
            let lsn = record.lsn.number();
            self.tell_unless_just_told(before + (lsn - start));
            if pass == Pass::StructureAndCatalog {
                self.report.records += 1;
                self.report.bytes += record.payload.len() as u64;
                if record.kind == kind::STRUCTURE {
                    self.redo_structure(record.payload, lsn)?;
                }
            }
            if ![kind::PART, kind::COMMIT].contains(&record.kind) {
                continue;
            }
            let (token, entries) = record::parse(record.payload)?;
            self.report.last_token = self.report.last_token.max(token);
            if record.kind == kind::PART {
                if self.domain.commits(UNFINISHED_REPLAYED) {
                    self.collect(tables, entries, lsn, &mut collected)?;
                }
                let open = open.entry(token);
                let open = open.or_insert_with(|| Open { first: lsn, entries: Vec::new() });
                open.entries.extend_from_slice(entries.0);
                continue;
            }
            bytes += record.payload.len() as u64;
            if let Some(parts) = open.remove(&token).filter(|_| !self.domain.commits(PARTS_LOST)) {
                bytes += parts.entries.len() as u64;
                self.collect(tables, Entries(&parts.entries), lsn, &mut collected)?;
            }
            self.collect(tables, entries, lsn, &mut collected)?;
            if pass == Pass::StructureAndCatalog {
                continue;
            }
            self.report.transactions += 1;
            self.report.last_transaction = self.report.last_transaction.max(lsn);
            if bytes >= log.capacity_bytes() / COLLECTED_PART {
                self.apply(tables, &mut collected)?;
                bytes = 0;
                let first = open.values().map(|open| open.first).min();
                self.make_room(first.map_or(lsn, |first| first.min(lsn)))?;
            }
        }
        // Before anything is changed that is not redone.
        std::mem::take(&mut self.structure).end()?;
        self.apply(tables, &mut collected)?;
        self.told.done_bytes = match pass {
            Pass::StructureAndCatalog => self.told.total_bytes / 2,
            Pass::Tables => self.told.total_bytes,
        };
        (self.tell)(self.told);
        Ok(())
    }

    fn tell_unless_just_told(&mut self, done_bytes: u64) {
        if done_bytes >= self.told.done_bytes + BYTES_BETWEEN_TELLING {
            self.told.done_bytes = done_bytes.min(self.told.total_bytes);
            (self.tell)(self.told);
        }
    }

    /// Puts writes to these tables with those that are applied next.
    fn collect(
        &mut self,
        tables: &BTreeMap<TableId, Arc<Table<D>>>,
        entries: Entries<'_>,
        lsn: u64,
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        for entry in entries {
            let entry = entry?;
            if !tables.contains_key(&entry.table) {
                continue;
            }
            self.report.writes += 1;
            if entry.table == CATALOG && entry.value.is_none() {
                // The blocks of an index that nobody has are found when room is looked for.
                if let Some((_, Place::Tree(root))) = dropped_of(entry.key) {
                    self.unlisted.push((root, lsn));
                }
            }
            collected.push(entry, lsn);
        }
        Ok(())
    }

    fn apply(
        &self,
        tables: &BTreeMap<TableId, Arc<Table<D>>>,
        collected: &mut Collected,
    ) -> Result<(), EngineError> {
        collected.sort();
        let Collected { bytes, writes } = &*collected;
        // Most of the time one and the next belong to the same leaf.
        let goes_on = |one: &CollectedWrite, next: &CollectedWrite| {
            one.table == next.table && one.span.is_removal() == next.span.is_removal()
        };
        for run in writes.chunk_by(goes_on) {
            let Some(table) = tables.get(&run[0].table) else { continue };
            let entries = run.iter().map(|write| (bytes.get(write.span), write.lsn));
            if table.contents().as_tree().is_some() && !run[0].span.is_removal() {
                let puts = entries.filter_map(|((key, value), lsn)| Some((key, value?, lsn)));
                table.contents().put_all(puts, None)?;
                continue;
            }
            for ((key, value), lsn) in entries {
                let index = table.contents().as_index();
                if index.is_none_or(|index| !index.has(key, value)) {
                    self.write(table, &Entry { table: table.id(), key, value }, lsn)?;
                }
            }
        }
        collected.clear();
        Ok(())
    }

    fn write(&self, table: &Table<D>, entry: &Entry<'_>, lsn: u64) -> Result<(), EngineError> {
        let written = table.contents().write(entry.key, entry.value, lsn, None);
        let Some(pool) = self.memory.pool.as_ref().filter(|pool| pool.needs_reclaim()) else {
            return written;
        };
        if !matches!(written, Err(EngineError::Index(IndexError::Alloc(_)))) {
            return written;
        }
        // It was full when it was cut off: the room is there, among the blocks that are not known to be free.
        let reachable = pool.reachable(|visitor| {
            self.memory.visit_blocks(self.manager, &self.all_tables, visitor);
        });
        // Where zeroes are read, no block is reached.
        self.domain.health()?;
        if let [problem, ..] = reachable.problems() {
            return Err(not_reclaimed(problem));
        }
        pool.reclaim(&reachable);
        table.contents().write(entry.key, entry.value, lsn, None)
    }

    /// Cuts the log at a transaction of which, and of those before it, trees have everything.
    fn make_room(&self, from: u64) -> Result<(), EngineError> {
        let log = self.log.block_log();
        if self.log.free_bytes() >= log.capacity_bytes() / 4 {
            return Ok(());
        }
        self.manager.write_all()?;
        if let Some(space) = self.manager.space() {
            space.write_freed(self.log.flushed_lsn()).map_err(BufferError::from)?;
        }
        let from = from.min(self.manager.oldest_change().unwrap_or(u64::MAX));
        if from > log.start().number() {
            log.truncate_before(Lsn::from_number(from))?;
        }
        Ok(())
    }
}
