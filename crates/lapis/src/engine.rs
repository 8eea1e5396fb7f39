//! The engine of a store: commit, apply, recover.
//!
//! # The life of a put
//!
//! 1. The transaction collects its writes in DRAM. It has the writer's turn (`writer`).
//! 2. Commit makes sure that what it will allocate can be had, writes long values into blocks of
//!    their own (flushed; one fence if there are any), and encodes one redo record.
//! 3. It appends the record to the PopLog: one fence. From here on the transaction is durable.
//! 4. It applies the writes to the indexes while `apply` excludes readers that want several keys of
//!    one state: each value block is flushed, then the index entry is published and persisted.
//! 5. Replaced values are retired.
//!
//! # Invariants, at every instant a crash may come
//!
//! * S1. A transaction is acknowledged only after its record is durable and the medium has reported
//!   no fault.
//! * S2. At most the *last* record of the log may be not, or partly, applied: a record is appended
//!   only after the one before has been applied, durably. So recovery redoes one record, and blocks
//!   that older records refer to may be gone.
//! * S3. Redoing the last record is idempotent: a put of a value in line writes a new block and
//!   replaces whatever the key has; a put by link finds the link there or puts it there; a delete
//!   of an absent key changes nothing. The linked block is not freed before the next record's
//!   application, and therefore alive.
//! * S4. An index entry refers to a durable value block (V1 in `value.rs`).
//! * S5. After recovery has redone the record it truncates the log, so that a table that is dropped
//!   or a block that is freed later is never met by a redo; dropping a table truncates first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_blocks::log::{LARGEST_ENTRY_BYTES, Position};
use lapis_blocks::pop_log::PopLog;
use lapis_index::IndexError;
use lapis_pmem::{
    AuditReport, BlockVisitor, Domain, Link, Pool, ReachableBlocks, ReclaimReport, host_lock,
};
use parking_lot::{Mutex, RwLock};

use crate::catalog::{self, Catalog};
use crate::config::{StoreOptions, TableOptions};
use crate::error::Error;
use crate::mutants;
use crate::record::{self, Change, INLINE_LIMIT, WriteSet};
use crate::table_state::TableState;
use crate::transaction::{holds_snapshot, turn_to_change};
use crate::value::{self, ValueBlock};

/// What only the writer whose turn it is touches.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    record: Vec<u8>,
    /// Bytes appended since the log was last truncated.
    log_bytes: usize,
}

pub(crate) struct Engine<D: Domain> {
    /// Names to tables. Changes only under `writer`.
    tables: RwLock<BTreeMap<String, Arc<TableState<D>>>>,
    catalog: Catalog,
    log: PopLog<D>,
    pub(crate) writer: Arc<Mutex<Writer>>,
    /// Held for writing while a transaction is applied; for reading by who must see one state.
    pub(crate) apply: Arc<RwLock<()>>,
    /// Odd while a transaction is being applied: lets single reads go without the lock.
    applying: AtomicU64,
    /// Set when a durable transaction could not be applied: only reopening helps.
    stopped: Mutex<Option<String>>,
    truncate_after_bytes: usize,
    pub(crate) pool: Arc<Pool<D>>,
}

impl<D: Domain> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.pool)
    }
}

impl<D: Domain> Engine<D> {
    /// Makes an empty store in `pool`.
    pub(crate) fn create(pool: Pool<D>, options: &StoreOptions) -> Result<Self, Error> {
        catalog::create(&pool, options)?;
        Self::open(pool)
    }

    /// Opens the store in `pool` and redoes the last transaction if it may not have been applied.
    pub(crate) fn open(pool: Pool<D>) -> Result<Self, Error> {
        let pool = Arc::new(pool);
        let catalog = Catalog::open(&pool)?.ok_or(Error::NotAStore)?;
        let log = PopLog::open(Arc::clone(&pool), catalog.log(&pool))?;
        let tables = catalog.tables(&pool)?;
        let statistics = log.statistics();
        let truncate_after_bytes =
            statistics.segment_bytes as usize / (statistics.segments + statistics.spare_segments);
        let engine = Self {
            tables: RwLock::new(
                tables.into_iter().map(|table| (table.name.clone(), table)).collect(),
            ),
            catalog,
            log,
            writer: Arc::default(),
            apply: Arc::default(),
            applying: AtomicU64::new(0),
            stopped: Mutex::default(),
            truncate_after_bytes,
            pool,
        };
        engine.recover()?;
        Ok(engine)
    }

    /// S2, S3, S5.
    fn recover(&self) -> Result<(), Error> {
        let mut last: Option<(Position, Vec<u8>)> = None;
        for entry in self.log.iter() {
            let (position, payload) = entry?;
            last = Some((position, payload));
        }
        let Some((position, payload)) = last else { return Ok(()) };
        let operations = record::parse(&payload)?;
        match self.redo(&operations) {
            Err(Error::Full(_)) if self.pool.needs_reclaim() => {
                // The store was full when its user crashed: the room that the record needs is
                // there, among the blocks that are not known to be free yet. Redoing begins anew
                // (S3).
                let reachable = self.pool.reachable(|visitor| {
                    self.visit_all(visitor);
                    for (_, _, change) in &operations {
                        // What is linked already is visited twice, which does no harm here.
                        if let Change::PutLink(link) = change {
                            value::visit_blocks(visitor, *link);
                        }
                    }
                });
                self.pool.reclaim(&reachable);
                self.redo(&operations)?;
            }
            other => other?,
        }
        tracing::debug!(operations = operations.len(), "redid the last transaction");
        self.log.truncate(position.next())?;
        Ok(())
    }

    fn redo(&self, operations: &[record::Operation<'_>]) -> Result<(), Error> {
        let tables = self.tables();
        for &(table, key, change) in operations {
            let Some(table) = tables.iter().find(|candidate| candidate.id == table) else {
                return Err(Error::Damaged {
                    what: format!("its last log record names table number {table}"),
                });
            };
            match change {
                Change::Delete => self.apply_delete(table, key)?,
                Change::PutInline(value) => self.apply_value(table, key, value)?,
                Change::PutLink(link) => self.apply_link(table, key, link)?,
            }
        }
        Ok(())
    }

    fn apply_delete(&self, table: &TableState<D>, key: &[u8]) -> Result<(), IndexError> {
        let guard = self.pool.pin();
        let outcome = table.index.remove(key)?;
        if let Some(old) = outcome.previous {
            self.retire_value(old, outcome.committed, &guard);
        }
        Ok(())
    }

    fn apply_value(
        &self,
        table: &TableState<D>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), IndexError> {
        let block = value::write(&self.pool, value)?;
        let link = block.link().bits();
        if table.index.kind().1.orders_prior_flushes {
            self.put_link(table, key, link)?;
            // To an index the link is a number: it has stored it, and fenced before that.
            let _ = block.release();
        } else {
            // S4: this index may publish before it fences.
            let block = self.pool.fence(block);
            self.put_link(table, key, link)?;
            // As above, but for the fence.
            let _ = block.release();
        }
        Ok(())
    }

    fn apply_link(&self, table: &TableState<D>, key: &[u8], link: u64) -> Result<(), IndexError> {
        self.put_link(table, key, link)
    }

    fn put_link(&self, table: &TableState<D>, key: &[u8], link: u64) -> Result<(), IndexError> {
        let guard = self.pool.pin();
        let outcome = table.index.put(key, link)?;
        // S3: a redo may find that the link is there already.
        if let Some(old) = outcome.previous.filter(|&old| old != link) {
            self.retire_value(old, outcome.committed, &guard);
        }
        Ok(())
    }

    fn retire_value(
        &self,
        link: u64,
        unlinked: lapis_pmem::Committed,
        guard: &lapis_pmem::Guard<'_, D>,
    ) {
        if let Some(bytes) = value::block_bytes(&self.pool, link) {
            self.pool.retire(Link::<ValueBlock>::from_bits(link), bytes, unlinked, guard);
        }
    }

    /// Commits a write set. The caller has the writer's turn.
    pub(crate) fn commit(&self, writer: &mut Writer, writes: &WriteSet) -> Result<(), Error> {
        if writes.is_empty() {
            return Ok(());
        }
        self.check_running()?;
        let record_bytes = record::bytes_of(writes);
        if record_bytes > LARGEST_ENTRY_BYTES {
            return Err(Error::TransactionTooLong {
                bytes: record_bytes,
                limit: LARGEST_ENTRY_BYTES,
            });
        }
        let tables = self.tables();
        let table_of = |id: u64| tables.iter().find(|table| table.id == id);
        self.reserve(writes)?;

        // Long values go into their blocks before the record that refers to them.
        let mut blocks = BTreeMap::new();
        for (key, value) in writes {
            if let Some(value) = value.as_ref().filter(|value| value.len() > INLINE_LIMIT) {
                blocks.insert(key, value::write(&self.pool, value)?);
            }
        }
        let blocks: BTreeMap<_, _> = if blocks.is_empty() {
            BTreeMap::new()
        } else {
            let (keys, in_flight): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
            keys.into_iter().zip(self.pool.fence(in_flight)).collect()
        };

        record::begin(&mut writer.record, writes.len());
        for (key, value) in writes {
            let change = match (value, blocks.get(key)) {
                (None, _) => Change::Delete,
                (Some(_), Some(block)) => Change::PutLink(block.link().bits()),
                (Some(value), None) => Change::PutInline(value),
            };
            record::push(&mut writer.record, key.0, &key.1, change);
        }
        debug_assert_eq!(writer.record.len(), record_bytes);
        let domain = self.pool.domain();
        let _mutant = domain.omitting(mutants::ACKNOWLEDGED_BEFORE_BARRIER);
        let position = {
            let _mutant = domain.omitting(mutants::APPLY_BEFORE_LOG);
            self.log.append(&writer.record)?
        };
        writer.log_bytes += writer.record.len();
        // From here on the record's blocks belong to the log, in whose bytes their links are, and
        // then to the indexes.
        let links: BTreeMap<_, u64> =
            blocks.into_iter().map(|(key, block)| (key, block.release().bits())).collect();
        // S1.
        domain.health()?;
        let applied = {
            let _mutant = domain.omitting(mutants::RECYCLE_BEFORE_APPLY);
            let _exclusive = host_lock::write(domain, &self.apply);
            self.applying.fetch_add(1, Ordering::AcqRel);
            let applied = writes.iter().try_for_each(|(key, value)| {
                let Some(table) = table_of(key.0) else { return Ok(()) };
                match (value, links.get(key)) {
                    (None, _) => self.apply_delete(table, &key.1),
                    (Some(_), Some(&link)) => self.apply_link(table, &key.1, link),
                    (Some(value), None) => self.apply_value(table, &key.1, value),
                }
            });
            domain.synchronize();
            self.applying.fetch_add(1, Ordering::AcqRel);
            applied
        };
        if let Err(error) = applied {
            let why = error.to_string();
            *self.stopped.lock() = Some(why.clone());
            return Err(Error::Stopped { why });
        }
        if writer.log_bytes > self.truncate_after_bytes {
            // S2: everything up to here is applied.
            self.log.truncate(position.next())?;
            writer.log_bytes = 0;
        }
        Ok(())
    }

    /// Makes sure that a durable transaction can be applied: room for its values twice (in the log
    /// and in blocks), and for index nodes, new slabs and the next segment of the log. The last of
    /// these is also what deletes live on in a full store.
    fn reserve(&self, writes: &WriteSet) -> Result<(), Error> {
        const SLABS: usize = 12 * lapis_pmem::EXTENT_BYTES;
        const NODES_PER_WRITE: usize = 1536;
        let mut bytes = 0usize;
        for ((_, key), value) in writes {
            let Some(value) = value else { continue };
            bytes += NODES_PER_WRITE + 4 * key.len() + 3 * value.len();
        }
        if bytes == 0 {
            // Deletes must go through when the store is full: they are what makes room. After a
            // crash the room that earlier puts left for the log is there, but not known to be free.
            let needed = SLABS + self.truncate_after_bytes;
            if self.pool.needs_reclaim() && self.pool.ensure_headroom(needed).is_err() {
                self.reclaim();
            }
            return Ok(());
        }
        bytes += SLABS + self.truncate_after_bytes;
        match self.pool.ensure_headroom(bytes) {
            Ok(()) => Ok(()),
            Err(_) if self.pool.needs_reclaim() => {
                self.reclaim();
                Ok(self.pool.ensure_headroom(bytes)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn check_running(&self) -> Result<(), Error> {
        self.pool.domain().health()?;
        match &*self.stopped.lock() {
            Some(why) => Err(Error::Stopped { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Runs `read` on one committed state: without a lock if no transaction is applied meanwhile.
    #[inline]
    pub(crate) fn read<R>(&self, read: impl Fn() -> R) -> R {
        for _ in 0..3 {
            let before = self.applying.load(Ordering::Acquire);
            if before & 1 == 1 {
                break;
            }
            let result = read();
            std::sync::atomic::fence(Ordering::Acquire);
            if self.applying.load(Ordering::Relaxed) == before {
                return result;
            }
        }
        if holds_snapshot(self) {
            return read();
        }
        let _shared = host_lock::read(self.pool.domain(), &self.apply);
        read()
    }

    /// The value of a key in one table, from whatever state there is now.
    pub(crate) fn get(
        &self,
        table: &TableState<D>,
        key: &[u8],
    ) -> Result<Option<value::Value>, Error> {
        let _guard = self.pool.pin();
        // Under the guard: the blocks of a table that is dropped from here on stay readable.
        table.check_not_dropped()?;
        match table.index.get(key) {
            Some(link) => value::read(&self.pool, link).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn tables(&self) -> Vec<Arc<TableState<D>>> {
        self.tables.read().values().cloned().collect()
    }

    pub(crate) fn table(&self, name: &str) -> Option<Arc<TableState<D>>> {
        self.tables.read().get(name).cloned()
    }

    pub(crate) fn create_table(
        &self,
        name: &str,
        options: &TableOptions,
    ) -> Result<Arc<TableState<D>>, Error> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > crate::MAX_TABLE_NAME_BYTES || bytes.contains(&0) {
            return Err(Error::BadTableName);
        }
        let _turn = turn_to_change(self)?;
        self.check_running()?;
        if self.table(name).is_some() {
            return Err(Error::TableExists { name: name.to_owned() });
        }
        let table = self.catalog.add(&self.pool, name, options)?;
        self.pool.domain().health()?;
        self.tables.write().insert(name.to_owned(), Arc::clone(&table));
        Ok(table)
    }

    pub(crate) fn drop_table(&self, name: &str) -> Result<(), Error> {
        let mut writer = turn_to_change(self)?;
        self.check_running()?;
        let table = self.table(name).ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        // S5: no record may name the table once it is gone.
        self.log.truncate(self.log.end())?;
        writer.log_bytes = 0;
        let _exclusive = host_lock::write(self.pool.domain(), &self.apply);
        table.dropped.store(true, Ordering::Release);
        self.tables.write().remove(name);
        self.catalog.remove(&self.pool, &table);
        Ok(self.pool.domain().health()?)
    }

    pub(crate) fn reachable(&self) -> ReachableBlocks {
        self.pool.reachable(|visitor| self.visit_all(visitor))
    }

    fn visit_all(&self, visitor: &mut BlockVisitor<'_, D>) {
        self.catalog.visit_blocks(visitor, &self.tables());
        self.log.visit_blocks(visitor);
    }

    /// Finds free space again after a crash. The caller has the writer's turn.
    pub(crate) fn reclaim(&self) -> ReclaimReport {
        self.pool.reclaim(&self.reachable())
    }

    /// Compares allocated with reachable. The caller has the writer's turn.
    pub(crate) fn audit(&self) -> AuditReport {
        self.pool.audit(&self.reachable())
    }

    pub(crate) fn catalog_problems(&self) -> Vec<String> {
        self.catalog.check(&self.pool, &self.tables())
    }

    pub(crate) fn log(&self) -> &PopLog<D> {
        &self.log
    }
}
