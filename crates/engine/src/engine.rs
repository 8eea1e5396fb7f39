//! The engine itself.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability};
use lapis_buffer::{BufferManager, BufferOptions, PageNumber, Placement, RoomFor};
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::host_lock::{self, HostGuard};
use lapis_pmem::{AuditReport, Domain, Pool, ReachableBlocks};
use lapis_tree::{Puts, Tree, TreeStatistics};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::commit::Write;
use crate::contents::{Contents, EngineTree};
use crate::drop::Dropped;
use crate::error::EngineError;
use crate::expiry::{Clock, Expiry, TimeToLive, milliseconds};
use crate::index_table::IndexTable;
use crate::key_range::KeyRange;
use crate::log::EngineLog;
use crate::metrics::Counters;
use crate::mutants;
use crate::order::Order;
use crate::persistent_memory::PersistentMemory;
use crate::recovery::{self, RecoveryReport};
use crate::scan::Scan;
use crate::snapshot::Snapshot;
use crate::storage::{PersistentMemoryOptions, Storage};
use crate::stripes::{Stripes, hash_of};
use crate::tables::{
    CATALOG, CHUNKS, CHUNKS_ROOT_KEY, FIRST_TABLE, NEXT_KEY, Properties, Table, TableId,
    dropped_key, name_key, page_value, table_value,
};
use crate::transaction::Transaction;
use crate::value::{self, MAX_VALUE_BYTES};
use crate::versions::VersionQueue;

/// After so many conflicts a transaction that is begun again takes turns with others like it.
const CONFLICTS_BEFORE_TURNS: u32 = 4;

/// How an engine is to be.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// The pages in DRAM.
    pub buffer: BufferOptions,
    /// Where pages are besides. An engine that has some in persistent memory has them there for good;
    /// whether they come to DRAM whole or by lines may be another at each opening.
    pub placement: Placement,
    /// Persistent memory.
    pub memory: PersistentMemoryOptions,
    /// The log, of an engine that is created.
    pub log: BlockLogOptions,
    /// Locks that commits share the keys among.
    pub stripes: usize,
    /// What time it is for entries that expire.
    pub clock: Clock,
    /// Whether an engine is opened to be read: nothing is written to devices, recovery included, and every write is
    /// refused. Its pool, if it has one, lies in a region that was opened to read ([`lapis_pmem::Access::Read`]).
    pub read_only: bool,
}

impl EngineOptions {
    /// The defaults, with a log of its own identity, which is not 0.
    pub fn new(log_identity: u64) -> Self {
        let log = BlockLogOptions::new(log_identity);
        Self {
            buffer: BufferOptions::default(),
            placement: Placement::Ssd,
            memory: PersistentMemoryOptions::default(),
            log,
            stripes: 1024,
            clock: Clock::default(),
            read_only: false,
        }
    }
}

/// What has happened since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The pages.
    pub buffer: lapis_buffer::Statistics,
    /// The structure of the trees that there are.
    pub trees: TreeStatistics,
    /// The log.
    pub log: lapis_blocks::block_log::BlockLogStatistics,
    /// Times that the log was cut.
    pub checkpoints: u64,
    /// Transactions of which replaced values are kept for readers, now.
    pub kept_versions: usize,
}

/// What all handles of an engine share.
#[derive(Debug)]
pub(crate) struct Shared<D: Domain> {
    pub(crate) domain: D,
    pub(crate) manager: Arc<BufferManager<D>>,
    pub(crate) log: Arc<EngineLog<D>>,
    pub(crate) memory: PersistentMemory<D>,
    pub(crate) order: Order<D>,
    pub(crate) stripes: Stripes<D>,
    pub(crate) versions: VersionQueue<D>,
    pub(crate) catalog: Arc<Table<D>>,
    pub(crate) chunks: Arc<Table<D>>,
    /// Long values that are written and have no record yet.
    pub(crate) undecided: Mutex<HashSet<u64>>,
    /// Long values that are to go when nobody reads an older state than this, in order.
    pub(crate) unwanted: Mutex<VecDeque<(u64, u64)>>,
    pub(crate) tables: RwLock<BTreeMap<String, Arc<Table<D>>>>,
    /// Dropped tables whose pages are still in use.
    pub(crate) dropped: Mutex<VecDeque<Dropped<D>>>,
    next_table: AtomicU64,
    next_token: AtomicU64,
    /// Tables are made and dropped one at a time.
    pub(crate) making: Mutex<()>,
    /// Transactions that conflicted often take turns with each other.
    unlucky: Mutex<()>,
    /// Checkpoints take turns.
    pub(crate) checkpoint: Mutex<()>,
    pub(crate) checkpoints: AtomicU64,
    /// Bytes of the log that are kept for logging again what is left of transactions.
    pub(crate) to_log_again: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) expiry: Expiry,
    recovery: RecoveryReport,
    read_only: bool,
}

/// Transactions over trees on pages. Cheap to clone: all clones are handles of one engine. See the
/// [crate](crate) documentation.
#[derive(Debug)]
pub struct Engine<D: Domain>(Arc<Shared<D>>);

impl<D: Domain> Clone for Engine<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Domain> Engine<D> {
    /// Makes an empty engine, whatever the devices hold. Durable when this returns: it is made when the first
    /// transaction is in the log.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn create(
        domain: D,
        storage: Storage<D>,
        options: &EngineOptions,
    ) -> Result<Self, EngineError> {
        let (log, memory) = storage.create_log(&domain, options)?;
        let log = EngineLog::new(log);
        let manager = storage.create_pages(&domain, Arc::clone(&log) as _, options)?;
        let manager = Arc::new(manager);
        let tree = Tree::create(Arc::clone(&manager), Arc::clone(&log))?;
        debug_assert_eq!(tree.root(), PageNumber::FIRST);
        let report = RecoveryReport::default();
        let catalog = Table::new(CATALOG, "", tree, Properties::default());
        let chunks = Tree::create(Arc::clone(&manager), Arc::clone(&log))?;
        let root = page_value(chunks.root());
        let chunks = Table::new(CHUNKS, "", chunks, Properties::default());
        let parts = (manager, log, memory);
        let engine = Self::over(domain, parts, [catalog, chunks], options, report);
        let table = &engine.shared().catalog;
        let write = Write { table, key: CHUNKS_ROOT_KEY, value: Some(&root) };
        engine.shared().commit(&[write], None, Durability::Immediate)?;
        Ok(engine)
    }

    /// Opens an engine, after a crash or not, and brings it to the state of the end of its log.
    ///
    /// # Errors
    /// [`EngineError::NotCreated`] and others.
    pub fn open(
        domain: D,
        storage: Storage<D>,
        options: &EngineOptions,
    ) -> Result<Self, EngineError> {
        let storage = if options.read_only { storage.overlaid() } else { storage };
        let (device, memory) = storage.find_log()?.ok_or(EngineError::NotCreated)?;
        let log = match BlockLog::open(domain.clone(), device) {
            Err(BlockLogError::NotALog) => return Err(EngineError::NotCreated),
            opened => EngineLog::new(opened?),
        };
        if !log.has_transactions()? {
            return Err(EngineError::NotCreated);
        }
        let manager = storage.open_pages(&domain, Arc::clone(&log) as _, options)?;
        let manager = Arc::new(manager);
        let begun = Instant::now();
        let mut recovered = recovery::recover(&domain, &manager, &log, &memory)?;
        recovered.report.elapsed = begun.elapsed();
        let recovery::Recovered { system, tables, dropped, loading, unwanted, next_table, report } =
            recovered;
        let engine = Self::over(domain, (manager, log, memory), system, options, report);
        let shared = engine.shared();
        shared.next_table.store(u64::from(next_table), Ordering::Relaxed);
        tables.iter().for_each(|table| shared.expiry.note(table));
        let tables = tables.into_iter().map(|table| (table.name().to_owned(), table));
        shared.tables.write().extend(tables);
        let dropped = dropped.into_iter().map(|table| Dropped { table, lsn: 0 });
        shared.dropped.lock().extend(dropped);
        shared.unwanted.lock().extend(unwanted.into_iter().map(|number| (0, number)));
        loading.iter().try_for_each(|(table, root)| shared.drop_loading(table, *root))?;
        Ok(engine)
    }

    fn over(
        domain: D,
        (manager, log, memory): (Arc<BufferManager<D>>, Arc<EngineLog<D>>, PersistentMemory<D>),
        [catalog, chunks]: [Arc<Table<D>>; 2],
        options: &EngineOptions,
        recovery: RecoveryReport,
    ) -> Self {
        // Of what was cut off, the last place.
        let before = log.block_log().start().number().saturating_sub(1);
        let last = recovery.last_transaction.max(before);
        let shared = Shared {
            order: Order::new(domain.clone(), last),
            stripes: Stripes::new(options.stripes),
            versions: VersionQueue::new(),
            catalog,
            chunks,
            undecided: Mutex::default(),
            unwanted: Mutex::default(),
            tables: RwLock::default(),
            dropped: Mutex::default(),
            next_table: AtomicU64::new(u64::from(FIRST_TABLE)),
            // Larger than any that the log may have: each took more than a byte of it.
            to_log_again: AtomicU64::new(0),
            next_token: AtomicU64::new(log.block_log().end().number() + 1),
            making: Mutex::new(()),
            unlucky: Mutex::new(()),
            checkpoint: Mutex::new(()),
            checkpoints: AtomicU64::new(0),
            counters: Counters::new(),
            recovery,
            expiry: Expiry::new(options.clock),
            read_only: options.read_only,
            domain,
            manager,
            log,
            memory,
        };
        Self(Arc::new(shared))
    }

    pub(crate) fn shared(&self) -> &Shared<D> {
        &self.0
    }

    /// The machine.
    pub fn domain(&self) -> &D {
        &self.0.domain
    }

    /// What opening did.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// The persistent memory.
    pub fn pool(&self) -> Option<&Arc<Pool<D>>> {
        self.0.memory.pool.as_ref()
    }

    /// Compares what is allocated in persistent memory with what belongs to the engine, after a crash when
    /// what nobody has is free again. Nobody uses the engine meanwhile.
    pub fn reclaim_and_audit(&self) -> AuditReport {
        let shared = self.shared();
        let Some(pool) = self.pool() else { return AuditReport::default() };
        pool.reclaim_and_audit(&shared.reachable(pool))
    }

    /// The pages.
    pub fn buffer_manager(&self) -> &BufferManager<D> {
        &self.0.manager
    }

    /// The log.
    pub fn log(&self) -> &BlockLog<D> {
        self.0.log.block_log()
    }

    /// What has happened since the engine was opened.
    pub fn statistics(&self) -> Statistics {
        let shared = self.shared();
        let mut trees = TreeStatistics::default();
        for table in self.tables().iter().chain([&shared.catalog, &shared.chunks]) {
            trees += table.contents().as_tree().map(Tree::statistics).unwrap_or_default();
        }
        Statistics {
            buffer: shared.manager.statistics(),
            trees,
            log: shared.log.block_log().statistics(),
            checkpoints: shared.checkpoints.load(Ordering::Relaxed),
            kept_versions: shared.versions.len(&shared.domain),
        }
    }

    /// The table called `name`.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Arc<Table<D>>, EngineError> {
        let tables = host_lock::read(&self.0.domain, &self.0.tables);
        let table = tables.get(name).cloned();
        table.ok_or_else(|| EngineError::NoSuchTable { name: name.to_owned() })
    }

    /// The tables, in order of their names.
    pub fn tables(&self) -> Vec<Arc<Table<D>>> {
        host_lock::read(&self.0.domain, &self.0.tables).values().cloned().collect()
    }

    /// Makes a table. Durable on return.
    ///
    /// # Errors
    /// [`EngineError::TableExists`] and others.
    pub fn create_table(&self, name: &str) -> Result<Arc<Table<D>>, EngineError> {
        self.create_table_with(name, None, None)
    }

    /// Makes a table in an index of this kind, in persistent memory. Durable on return. What is committed to it is
    /// durable at once, whatever `Durability` says: see `index_table.rs`.
    ///
    /// # Errors
    /// [`EngineError::NoPersistentMemory`], [`EngineError::TableExists`] and others.
    pub fn create_index_table(
        &self,
        name: &str,
        kind: IndexKind,
        options: &IndexOptions,
    ) -> Result<Arc<Table<D>>, EngineError> {
        self.create_table_with(name, Some((kind, options)), None)
    }

    /// Makes a table in a tree or in an index, whose entries live so long if they are not given another time. Durable on
    /// return.
    ///
    /// # Errors
    /// As for [`Engine::create_index_table`].
    pub fn create_table_with(
        &self,
        name: &str,
        index: Option<(IndexKind, &IndexOptions)>,
        time_to_live: Option<Duration>,
    ) -> Result<Arc<Table<D>>, EngineError> {
        let shared = self.shared();
        let properties = Properties {
            has_expiring: time_to_live.is_some(),
            time_to_live_ms: time_to_live.map(milliseconds),
            ..Properties::default()
        };
        let _making = host_lock::lock(&shared.domain, &shared.making);
        self.check_name_is_free(name)?;
        // X4, until the catalog leads to it.
        let room = index.map(|(_, options)| options.expected_entries.saturating_mul(64));
        let _change = room.map(|bytes| shared.change_indexes(bytes)).transpose()?;
        let create = || match index {
            None => shared.create_tree().map(Contents::Tree),
            Some((kind, options)) => shared.create_index(kind, options),
        };
        let entry = |id, contents: &Contents<D>| {
            (name_key(name), table_value(id, contents.place(), properties))
        };
        let (id, contents) = shared.make(create, entry, |contents| {
            if let (Some(index), Ok(())) = (contents.as_index(), shared.order.check_running()) {
                index.retire_all(&index.reachable());
            }
        })?;
        let table = Table::new(id, name, contents, properties);
        shared.expiry.note(&table);
        let mut tables = host_lock::write(&shared.domain, &shared.tables);
        tables.insert(name.to_owned(), Arc::clone(&table));
        Ok(table)
    }

    pub(crate) fn check_name_is_free(&self, name: &str) -> Result<(), EngineError> {
        match self.table(name) {
            Ok(_) => Err(EngineError::TableExists { name: name.to_owned() }),
            Err(_) => self.0.check_write(&self.0.catalog, &name_key(name), None),
        }
    }

    /// Drops a table and everything in it. Durable on return; its pages are freed by
    /// [`Engine::maintain`]. Handles of it refuse from then on, those of snapshots and transactions too.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTable`] and others.
    pub fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let shared = self.shared();
        shared.check_writable()?;
        let _making = host_lock::lock(&shared.domain, &shared.making);
        let dropped = self.table(name)?;
        // X4: it is in one list or the other.
        let _held = shared.hold_indexes();
        // Who commits later finds it so in its turn; who had its turn before is in the log before.
        dropped.set_dropped(true);
        let (name_key, dropped_key) =
            (name_key(name), dropped_key(dropped.id(), dropped.contents().place()));
        let long_values = [u8::from(dropped.has_long_values())];
        let table = &shared.catalog;
        let writes = [
            Write { table, key: &name_key, value: None },
            Write { table, key: &dropped_key, value: Some(&long_values) },
        ];
        let lsn = shared
            .commit(&writes, None, Durability::Immediate)
            .inspect_err(|_| dropped.set_dropped(false))?;
        host_lock::write(&shared.domain, &shared.tables).remove(name);
        host_lock::lock(&shared.domain, &shared.dropped).push_back(Dropped { table: dropped, lsn });
        Ok(())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn begin(&self) -> Result<Transaction<D>, EngineError> {
        Transaction::begin(self)
    }

    /// One durable state to read from.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub fn snapshot(&self) -> Result<Snapshot<D>, EngineError> {
        Snapshot::new(self)
    }

    /// Finds what a crash has leaked of persistent memory, before it is needed: who changes tables in indexes waits
    /// meanwhile. Nothing if there is nothing to find.
    pub fn find_leaked_memory(&self) {
        self.0.find_leaked();
    }

    /// The newest value of a key, durable.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get(&self, table: &Arc<Table<D>>, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// Makes `value` the newest value of a key, durable. False if there is none; `value` then has nothing to say.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get_into(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        let _pinned = table.contents().pin();
        table.check_not_dropped()?;
        self.0.counters.leaf_accesses.add(1);
        let found = self.0.guarded(|| table.contents().get(key, value))?;
        if found && value::is_long(value) {
            // Its chunks stay as long as somebody reads this state.
            let read = self.snapshot()?.get(table, key)?;
            let found = read.is_some();
            *value = read.unwrap_or_default();
            return Ok(found);
        }
        // E4. Whoever wrote what was found has noted itself before.
        let shared = self.shared();
        let last = shared.stripes.last_of(&shared.domain, hash_of(table.id(), key));
        if !shared.domain.commits(mutants::ACKNOWLEDGED_BEFORE_SYNC) {
            shared.log.wait_for(last)?;
        }
        if !found || value::expiry_of(value).is_some_and(|at| shared.expiry.is_past(at)) {
            return Ok(false);
        }
        shared.resolve(table, key, value)?;
        Ok(true)
    }

    /// The entries of a range at one durable state, from both ends.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        table: &Arc<Table<D>>,
        range: impl RangeBounds<K>,
    ) -> Result<Scan<'static, D>, EngineError> {
        self.snapshot()?.scan(table, KeyRange::new(&range))
    }

    /// Adds or replaces a key, in a transaction of its own. Returns its place in the log.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn put(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<u64, EngineError> {
        self.put_with(table, key, value, TimeToLive::OfTable, durability)
    }

    /// The same, with a time to live.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn put_with(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
        durability: Durability,
    ) -> Result<u64, EngineError> {
        let shared = self.shared();
        shared.check_write(table, key, Some(value))?;
        let expires = shared.expiry.of(time_to_live, table);
        if !shared.is_short(table, key, value, expires) {
            let mut transaction = self.begin()?;
            transaction.put_until(table, key, value, expires)?;
            return transaction.commit(durability);
        }
        if expires.is_some() {
            self.note_expiring(table)?;
        }
        let record = value::short_record(value, expires);
        shared.commit(&[Write { table, key, value: Some(&record) }], None, durability)
    }

    /// Removes a key, in a transaction of its own; whether it was there.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn remove(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        durability: Durability,
    ) -> Result<bool, EngineError> {
        self.retry(|transaction| transaction.remove(table, key), durability)
    }

    /// Runs a transaction, and again if another one changed what it has read, until it is committed.
    ///
    /// # Errors
    /// What `body` returns but for [`EngineError::Conflict`], or what committing does.
    pub fn retry<T>(
        &self,
        mut body: impl FnMut(&mut Transaction<D>) -> Result<T, EngineError>,
        durability: Durability,
    ) -> Result<T, EngineError> {
        let mut retries = self.retries();
        loop {
            let mut transaction = self.begin()?;
            let done = body(&mut transaction);
            let done = done.and_then(|done| transaction.commit(durability).map(|_| done));
            match done {
                Err(EngineError::Conflict) => retries.conflicted(),
                done => return done,
            }
        }
    }

    /// For who begins a transaction again after conflicts, as [`Engine::retry`] does.
    pub fn retries(&self) -> Retries<'_, D> {
        Retries { shared: &self.0, conflicts: 0, alone: None }
    }

    /// Whether the transaction at this place in the log is durable; 0 is one that wrote nothing.
    pub fn is_durable(&self, lsn: u64) -> bool {
        lsn == 0 || self.0.log.is_durable(lsn)
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// [`EngineError::Log`].
    pub fn wait_until_durable(&self, lsn: u64) -> Result<(), EngineError> {
        Ok(self.0.log.wait_for(lsn)?)
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// [`EngineError::Log`].
    pub fn sync(&self) -> Result<(), EngineError> {
        Ok(self.0.log.block_log().sync()?)
    }
}

/// The conflicts of somebody who begins a transaction again and again. See [`Engine::retries`].
#[derive(Debug)]
pub struct Retries<'e, D: Domain> {
    shared: &'e Shared<D>,
    conflicts: u32,
    alone: Option<HostGuard<'e, D, MutexGuard<'e, ()>>>,
}

impl<D: Domain> Retries<'_, D> {
    /// There was one more. After some, waits for the turn among all who had as many.
    pub fn conflicted(&mut self) {
        self.conflicts += 1;
        if self.conflicts == CONFLICTS_BEFORE_TURNS {
            self.alone = Some(host_lock::lock(&self.shared.domain, &self.shared.unlucky));
        }
        self.shared.domain.pause();
    }
}

impl<D: Domain> Shared<D> {
    /// Makes what the records of a table are in, with an entry of the catalog that says so; without the entry, `give_back` has
    /// it back. Who does has the turn to make tables. Durable on return.
    pub(crate) fn make<C>(
        &self,
        create: impl FnOnce() -> Result<C, EngineError>,
        entry: impl FnOnce(TableId, &C) -> (Vec<u8>, Vec<u8>),
        give_back: impl FnOnce(&C),
    ) -> Result<(TableId, C), EngineError> {
        self.order.check_running()?;
        let id = self.next_table.load(Ordering::Relaxed) as TableId;
        self.make_room(0)?;
        let root = Puts { trees: 1, records: 1, bytes: 0 };
        let _room = self.promise_room(root, RoomFor::Growth)?;
        // If the catalog does not come to know the root of a tree, recovery frees it: by the record that made it.
        let kept = self.order.keep_log();
        let contents = create().inspect_err(|_| self.order.let_go_of_log(kept))?;
        let (next, (key, value)) = ((id + 1).to_le_bytes(), entry(id, &contents));
        let table = &self.catalog;
        let writes = [
            Write { table, key: NEXT_KEY, value: Some(&next) },
            Write { table, key: &key, value: Some(&value) },
        ];
        let committed = self.commit(&writes, None, Durability::Immediate);
        self.order.let_go_of_log(kept);
        committed.inspect_err(|_| give_back(&contents))?;
        self.next_table.store(u64::from(id + 1), Ordering::Relaxed);
        Ok((id, contents))
    }

    pub(crate) fn create_tree(&self) -> Result<EngineTree<D>, EngineError> {
        Ok(Tree::create(Arc::clone(&self.manager), Arc::clone(&self.log))?)
    }

    fn create_index(
        &self,
        kind: IndexKind,
        options: &IndexOptions,
    ) -> Result<Contents<D>, EngineError> {
        let largest = self.log.block_log().largest_payload_bytes();
        let index = IndexTable::create(self.memory.pool()?, kind, options, largest)?;
        Ok(Contents::Index(index))
    }

    /// The blocks of the pool that are the engine's. Nobody changes indexes.
    pub(crate) fn reachable(&self, pool: &Pool<D>) -> ReachableBlocks {
        let tables = host_lock::read(&self.domain, &self.tables);
        let mut tables: Vec<_> = tables.values().cloned().collect();
        let dropped = host_lock::lock(&self.domain, &self.dropped);
        tables.extend(dropped.iter().map(|dropped| Arc::clone(&dropped.table)));
        drop(dropped);
        pool.reachable(|visitor| self.memory.visit_blocks(&self.manager, &tables, visitor))
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// The most bytes that the writes of a transaction may have.
    pub(crate) fn most_transaction_bytes(&self) -> u64 {
        self.log.block_log().most_capacity_bytes() / 4
    }

    /// Room in the log, as long as it is, that commits leave for what trees log.
    pub(crate) fn room_for_structure(&self) -> u64 {
        self.log.block_log().capacity_bytes() / 4
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        if self.read_only { Err(EngineError::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn check_write(
        &self,
        table: &Table<D>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), EngineError> {
        self.check_writable()?;
        table.check_not_dropped()?;
        if key.is_empty() && table.index_kind().is_some() {
            return Err(EngineError::EmptyKey);
        }
        let most = table.largest_key_bytes();
        if key.len() > most {
            return Err(EngineError::KeyTooLong { bytes: key.len(), most });
        }
        let (bytes, most) = (value.map_or(0, <[u8]>::len), MAX_VALUE_BYTES);
        if bytes > most {
            return Err(EngineError::ValueTooLong { bytes, most });
        }
        Ok(())
    }

    /// Whether a record of the table has room for the value.
    pub(crate) fn is_short(
        &self,
        table: &Table<D>,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
    ) -> bool {
        value.len() + value::overhead_bytes(expires) <= table.largest_record_bytes(key)
    }
}
