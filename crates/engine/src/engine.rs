//! The engine itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lapis_blocks::block_log::{BlockLog, BlockLogError, BlockLogOptions, Durability};
use lapis_buffer::{BufferManager, BufferOptions, PageNumber, Placement};
use lapis_pmem::{AuditReport, Domain, Pool};
use lapis_tree::{Tree, TreeStatistics};
use parking_lot::{Mutex, RwLock};

use crate::commit::Write;
use crate::drop::Dropped;
use crate::error::EngineError;
use crate::expiry::{Clock, Expiry};
use crate::log::EngineLog;
use crate::metrics::Counters;
use crate::order::Order;
use crate::persistent_memory::{PersistentMemory, unless_memory_fails};
use crate::recovery::{self, RecoveryProgress, RecoveryReport};
use crate::redo_time::RedoLimit;
use crate::storage::{PersistentMemoryOptions, Storage};
use crate::stripes::Stripes;
use crate::tables::{CATALOG, CHUNKS, CHUNKS_ROOT_KEY, FIRST_TABLE, Properties, Table, page_value};
use crate::versions::VersionQueue;

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
    /// How long an opening after a crash may have to do the log again, as it is estimated: a checkpoint is made before it would
    /// be longer. None (the default): as long as there is room for in the log.
    pub most_time_to_redo: Option<Duration>,
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
            most_time_to_redo: None,
            read_only: false,
        }
    }

    /// Small pages, few frames, a short log: for tests.
    #[cfg(test)]
    pub(crate) fn small() -> Self {
        let mut options = Self::new(7);
        let space = lapis_buffer::SpaceOptions { page_bytes: 4096, batch_pages: 8 };
        options.buffer =
            BufferOptions { frames: 64, most_changed_frames: 32, space, ..options.buffer };
        (options.log.segment_bytes, options.log.batch_bytes) = (64 << 10, 64 << 10);
        options
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
    /// Long values that are to go when nobody reads an older state than this, in order.
    pub(crate) unwanted: Mutex<VecDeque<(u64, u64)>>,
    pub(crate) tables: RwLock<BTreeMap<String, Arc<Table<D>>>>,
    /// Dropped tables whose pages are still in use.
    pub(crate) dropped: Mutex<VecDeque<Dropped<D>>>,
    pub(crate) next_table: AtomicU64,
    /// For parts of transactions, and for long values ([`Shared::next_token`]).
    pub(crate) next_token: AtomicU64,
    /// Tables are made and dropped one at a time.
    pub(crate) making: Mutex<()>,
    /// Transactions that conflicted often take turns with each other.
    pub(crate) unlucky: Mutex<()>,
    /// Checkpoints take turns.
    pub(crate) checkpoint: Mutex<()>,
    pub(crate) checkpoints: AtomicU64,
    /// Bytes of the log that are kept for logging again what is left of transactions.
    pub(crate) to_log_again: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) expiry: Expiry,
    pub(crate) redo_limit: RedoLimit,
    pub(crate) recovery: RecoveryReport,
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
        Self::open_telling(domain, storage, options, &mut |_| ())
    }

    /// The same, and tells how far recovery has come, from time to time and at its end.
    ///
    /// # Errors
    /// [`EngineError::NotCreated`] and others.
    pub fn open_telling(
        domain: D,
        storage: Storage<D>,
        options: &EngineOptions,
        tell: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<Self, EngineError> {
        let open = || Self::recover(domain.clone(), storage, options, tell);
        unless_memory_fails(&domain, open)
    }

    fn recover(
        domain: D,
        storage: Storage<D>,
        options: &EngineOptions,
        tell: &mut dyn FnMut(RecoveryProgress),
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
        let mut recovered = recovery::recover(&domain, &manager, &log, &memory, tell)?;
        recovered.report.elapsed = begun.elapsed();
        recovered.report.reading = manager.time_of_reads().1;
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
            unwanted: Mutex::default(),
            tables: RwLock::default(),
            dropped: Mutex::default(),
            next_table: AtomicU64::new(u64::from(FIRST_TABLE)),
            to_log_again: AtomicU64::new(0),
            next_token: AtomicU64::new(recovery.last_token.max(log.block_log().end().number()) + 1),
            making: Mutex::new(()),
            unlucky: Mutex::new(()),
            checkpoint: Mutex::new(()),
            checkpoints: AtomicU64::new(0),
            counters: Counters::new(),
            redo_limit: RedoLimit::new(options.most_time_to_redo),
            recovery,
            expiry: Expiry::new(options.clock),
            read_only: options.read_only,
            domain,
            manager,
            log,
            memory,
        };
        shared.look_at_redo();
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

    /// Finds what a crash has leaked of persistent memory, before it is needed: who changes tables in indexes waits
    /// meanwhile. Nothing if there is nothing to find.
    ///
    /// # Errors
    /// [`EngineError::Memory`] if some of it cannot be read; then nothing is taken for leaked.
    pub fn find_leaked_memory(&self) -> Result<(), EngineError> {
        self.0.find_leaked()
    }
}

impl<D: Domain> Shared<D> {
    /// A number that none had since the engine was opened, nor has of the transactions in the log.
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
}
