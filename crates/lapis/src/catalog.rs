//! The root of a store and the list of its tables.
//!
//! ```text
//!  StoreRoot (pool root "store")             TableRecord
//!  offset  bytes  field                      offset  bytes  field
//!       0      8  format_version  1               0      8  next       the next table, or null
//!       8      8  log             PopLogRoot      8      8  index      IndexRoot
//!      16      8  tables          first table    16      8  id         unique in the store's life
//!      24      8  next_table_id                  24      8  name_bytes
//!      32     32  reserved, zero                 32      n  name
//! ```
//!
//! * C1. A table in the list is complete: record, name and empty index are durable before the
//!   record is published at the head of the list by one 8-byte store.
//! * C2. A table is dropped by redirecting the link that leads to it, durably, before any of its
//!   blocks is retired.
//! * C3. An id is never used twice: `next_table_id` is stored beyond an id before the table with that
//!   id is published, and lies in the same line as `tables`, so that it persists no later (rule R2).
//!   So a log record names one table or none.
//! * C4. Nothing but list and id changes here after creation; changes take turns with writers.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lapis_blocks::pop_log::{PopLog, PopLogOptions, PopLogRoot};
use lapis_index::{AnyIndex, IndexOptions, IndexRoot};
use lapis_pmem::{BlockVisitor, Domain, Link, PCell, Pool, Slot, persistent};

use crate::MAX_TABLE_NAME_BYTES;
use crate::config::{StoreOptions, TableOptions};
use crate::error::Error;
use crate::table_state::TableState;

/// The name of the pool root.
pub(crate) const ROOT_NAME: &str = "store";
/// "STORE" as the kind of the pool root.
const ROOT_KIND: u64 = u64::from_le_bytes(*b"STORE\0\0\0");
/// The format this code writes and the newest it reads.
pub(crate) const FORMAT_VERSION: u64 = 1;

persistent! {
    pub(crate) struct StoreRoot: 64 {
        format_version: PCell<u64>,
        log: Slot<PopLogRoot>,
        tables: Slot<TableRecord>,
        next_table_id: PCell<u64>,
        reserved: [PCell<u64>; 4],
    }
}

persistent! {
    pub(crate) struct TableRecord: 32 {
        next: Slot<TableRecord>,
        index: Slot<IndexRoot>,
        id: PCell<u64>,
        name_bytes: PCell<u64>,
    }
}

/// Writes an empty store into `pool` and publishes its root.
pub(crate) fn create<D: Domain>(pool: &Pool<D>, options: &StoreOptions) -> Result<(), Error> {
    let log_options =
        PopLogOptions { segment_bytes: options.log_segment_bytes, ..PopLogOptions::default() };
    let log = PopLog::create(pool, log_options)?;
    let mut root = pool.allocate::<StoreRoot>()?;
    root.zero();
    root.format_version.store(pool.domain(), FORMAT_VERSION);
    root.next_table_id.store(pool.domain(), 1);
    root.link_child(|root| &root.log, log);
    let root = pool.fence(root.flush());
    let published = pool.publish_root(ROOT_NAME, ROOT_KIND, root);
    let visible = published.map_err(|error| Error::Damaged { what: error.to_string() })?;
    // Opening, which is how creation goes on, fences for this too.
    let _covered = visible.flush();
    Ok(())
}

/// The catalogue of an open store.
#[derive(Debug)]
pub(crate) struct Catalog {
    root: Link<StoreRoot>,
}

impl Catalog {
    /// Finds the store in `pool`; none if creation did not get that far.
    pub(crate) fn open<D: Domain>(pool: &Pool<D>) -> Result<Option<Self>, Error> {
        let Some(root) = pool.root::<StoreRoot>(ROOT_NAME) else {
            return if pool.roots().is_empty() { Ok(None) } else { Err(Error::NotAStore) };
        };
        let block = pool.try_at(root).ok_or(Error::NotAStore)?;
        let found = block.format_version.load(pool.domain());
        if found == 0 || found > FORMAT_VERSION {
            return Err(Error::NewerVersion { found, supported: FORMAT_VERSION });
        }
        Ok(Some(Self { root }))
    }

    pub(crate) fn log<D: Domain>(&self, pool: &Pool<D>) -> Link<PopLogRoot> {
        pool.at(self.root).log.load(pool.domain())
    }

    /// Opens every table.
    pub(crate) fn tables<D: Domain>(
        &self,
        pool: &Arc<Pool<D>>,
    ) -> Result<Vec<Arc<TableState<D>>>, Error> {
        let damaged = |what: &str| Error::Damaged { what: what.to_owned() };
        let domain = pool.domain();
        let root = pool.at(self.root);
        let mut tables = Vec::new();
        let mut seen = HashSet::new();
        let mut next = root.tables.load(domain);
        while !next.is_null() {
            if !seen.insert(next.offset()) {
                return Err(damaged("its list of tables leads back into itself"));
            }
            let record = pool
                .try_at(next)
                .ok_or_else(|| damaged("its list of tables leads outside the pool"))?;
            let name_bytes = record.name_bytes.load(domain) as usize;
            if name_bytes == 0 || name_bytes > MAX_TABLE_NAME_BYTES {
                return Err(damaged("its list of tables cannot be read"));
            }
            let name = pool
                .try_tail(next, name_bytes)
                .and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
                .ok_or_else(|| damaged("the name of a table cannot be read"))?;
            tables.push(Arc::new(TableState {
                id: record.id.load(domain),
                name,
                index: AnyIndex::open(Arc::clone(pool), record.index.load(domain))?,
                dropped: AtomicBool::new(false),
            }));
            next = record.next.load(domain);
        }
        Ok(tables)
    }

    /// Adds a table: 2 fences beyond those of creating its index.
    pub(crate) fn add<D: Domain>(
        &self,
        pool: &Arc<Pool<D>>,
        name: &str,
        options: &TableOptions,
    ) -> Result<Arc<TableState<D>>, Error> {
        let domain = pool.domain();
        let root = pool.at(self.root);
        let id = root.next_table_id.load(domain);
        let index_options =
            IndexOptions { expected_entries: options.expected_entries, ..Default::default() };
        let index = AnyIndex::<D, [u8]>::create(options.index, pool, &index_options)?;
        let index_link = index.link();
        let mut record = pool.allocate_with_tail::<TableRecord>(name.len())?;
        record.id.store(domain, id);
        record.name_bytes.store(domain, name.len() as u64);
        record.write_tail(0, name.as_bytes());
        record.set_link(|record| &record.next, root.tables.load(domain));
        record.link_child(|record| &record.index, index);
        let record = pool.fence(record.flush());
        // C3: before the record is published, in the same line.
        root.next_table_id.store_ordered(domain, id + 1);
        // C1: everything that hangs from the record is durable.
        let _committed = root.tables.publish_exclusive(record).persist();
        Ok(Arc::new(TableState {
            id,
            name: name.to_owned(),
            index: AnyIndex::open(Arc::clone(pool), index_link)?,
            dropped: AtomicBool::new(false),
        }))
    }

    /// Takes a table out of the list and retires its blocks. 1 fence.
    pub(crate) fn remove<D: Domain>(&self, pool: &Pool<D>, table: &TableState<D>) {
        let domain = pool.domain();
        let mut slot = &pool.at(self.root).tables;
        loop {
            let link = slot.load(domain);
            if link.is_null() {
                return;
            }
            let record = pool.at(link);
            if record.id.load(domain) == table.id {
                let reachable = pool.reachable(|visitor| visit_table(visitor, link, table));
                let guard = pool.pin();
                // C2.
                let unlinked = slot.redirect(domain, record.next.load(domain)).persist();
                pool.retire_reachable(&reachable, unlinked, &guard);
                return;
            }
            slot = &record.next;
        }
    }

    /// What is wrong with the list of tables (C3).
    pub(crate) fn check<D: Domain>(
        &self,
        pool: &Pool<D>,
        tables: &[Arc<TableState<D>>],
    ) -> Vec<String> {
        let next = pool.at(self.root).next_table_id.load(pool.domain());
        let mut problems = Vec::new();
        for (position, table) in tables.iter().enumerate() {
            if table.id >= next || tables[..position].iter().any(|other| other.id == table.id) {
                problems.push(format!(
                    "table {:?} has number {}, which is not its own",
                    table.name, table.id
                ));
            }
        }
        problems
    }

    /// Visits the root and every table's record, index and values.
    pub(crate) fn visit_blocks<D: Domain>(
        &self,
        visitor: &mut BlockVisitor<'_, D>,
        tables: &[Arc<TableState<D>>],
    ) {
        let pool = visitor.pool();
        if !visitor.visit(self.root, size_of::<StoreRoot>()) {
            return;
        }
        let mut next = pool.at(self.root).tables.load(pool.domain());
        while let Some(record) = pool.try_at(next) {
            let id = record.id.load(pool.domain());
            match tables.iter().find(|table| table.id == id) {
                Some(table) => visit_table(visitor, next, table),
                None => visitor.problem(format!("table number {id} is in the list but not open")),
            }
            next = record.next.load(pool.domain());
        }
    }
}

fn visit_table<D: Domain>(
    visitor: &mut BlockVisitor<'_, D>,
    link: Link<TableRecord>,
    table: &TableState<D>,
) {
    let bytes = size_of::<TableRecord>() + table.name.len();
    if visitor.visit(link, bytes) {
        table.index.visit_blocks(visitor, &mut crate::value::visit_blocks);
    }
}
