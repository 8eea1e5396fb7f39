//! The store.

use std::sync::Arc;
use std::time::Duration;

use lapis_engine::{
    Durability, Engine, EngineError, IndexOptions, Metrics, RecoveryReport, TableStructure,
};
use lapis_pmem::Hardware;

use crate::background::Background;
use crate::config::{Config, TableOptions};
use crate::directory::{self, Files};
use crate::error::Error;
use crate::info::{self, CheckReport, Info};
use crate::kept::Kept;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::transaction::Transaction;

/// Pages in DRAM of a store in memory, whose pages are in memory besides.
const CACHE_BYTES_IN_MEMORY: usize = 64 << 20;
/// The log of a store in memory.
const LOG_BYTES_IN_MEMORY: u64 = 16 << 20;

/// What all handles of a store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Kept<Engine<Hardware>>,
    pub(crate) files: Kept<Files>,
    pub(crate) durability: Durability,
    pub(crate) cache_bytes: usize,
    pub(crate) longest_redo: Duration,
    background: Option<Background>,
}

impl Inner {
    pub(crate) fn over((files, engine): (Files, Engine<Hardware>), config: &Config) -> Arc<Self> {
        Arc::new(Self {
            // Who reads only has nothing to be done later.
            background: (!config.read_only).then(|| Background::start(engine.clone())),
            engine: Kept::new(engine),
            files: Kept::new(files),
            durability: config.durability,
            cache_bytes: config.cache(),
            longest_redo: config.longest_redo(),
        })
    }

    /// A commit does not wait and wants to be durable soon all the same; or there are so many that somebody would soon have to
    /// wait until there is room for more.
    pub(crate) fn has_committed(&self, durability: Durability) {
        let is_due = match durability {
            Durability::Immediate => false,
            Durability::Group => true,
            Durability::Eventual => self.engine.log().take_half_full(),
        };
        if is_due && let Some(background) = &self.background {
            background.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(mut background) = self.background.take() {
            background.end();
        }
        match self.engine.close() {
            Ok(()) | Err(EngineError::Stopped { .. }) => {}
            Err(error) => tracing::warn!(%error, "the store was not closed in order"),
        }
    }
}

/// An ordered, transactional key-value store. Cheap to clone: all clones are handles of one store,
/// which closes when the last of them, and of its tables, transactions and snapshots, is dropped.
///
/// ```
/// # fn main() -> Result<(), lapis::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// use lapis::{Config, Store};
///
/// let store = Store::open(Config::new(directory.path()))?;
/// let people = store.table_or_create("people")?;
/// let emails = store.table_or_create("emails")?;
///
/// // Both or neither, whatever happens.
/// let mut transaction = store.transaction()?;
/// transaction.put(&people, b"ada", b"Ada Lovelace")?;
/// transaction.put(&emails, b"ada@example.org", b"ada")?;
/// transaction.commit()?;
///
/// assert_eq!(people.get(b"ada")?.unwrap(), b"Ada Lovelace");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

impl Store {
    /// Opens the store that `config` describes, creating it if that was allowed. A store whose last
    /// user crashed is recovered: the log since its last checkpoint is done again.
    ///
    /// # Errors
    /// [`Error`]; what was in the directory is as it was.
    pub fn open(config: Config) -> Result<Self, Error> {
        Ok(Self { inner: Inner::over(directory::open(&config)?, &config) })
    }

    /// A store in memory, for tests and measurements: it ends with the process.
    ///
    /// # Errors
    /// [`Error::File`] if the memory cannot be had.
    pub fn in_memory() -> Result<Self, Error> {
        let config =
            Config::new("").cache_bytes(CACHE_BYTES_IN_MEMORY).log_bytes(LOG_BYTES_IN_MEMORY);
        Ok(Self { inner: Inner::over(directory::in_memory(&config)?, &config) })
    }

    /// Makes a table. Durable on return.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], [`Error::Full`] and others.
    pub fn create_table(&self, name: &str) -> Result<Table, Error> {
        self.create_table_with(name, &TableOptions::default())
    }

    /// Makes a table as `options` say. Durable on return.
    ///
    /// # Errors
    /// As for [`Store::create_table`]; [`Error::NoPersistentMemory`].
    pub fn create_table_with(&self, name: &str, options: &TableOptions) -> Result<Table, Error> {
        let engine = &self.inner.engine;
        let expected_entries = options.expected_entries;
        let of_index = IndexOptions { expected_entries, ..IndexOptions::default() };
        let in_tree = TableStructure::Tree(options.leaves);
        let structure =
            options.index.map_or(in_tree, |kind| TableStructure::Index(kind, &of_index));
        let table = engine.create_table_with(name, structure, options.time_to_live)?;
        Ok(Table::new(&self.inner, table))
    }

    /// A handle of the table called `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(Table::new(&self.inner, self.inner.engine.table(name)?))
    }

    /// A handle of the table called `name`, which is made if it is not there.
    ///
    /// # Errors
    /// As for [`Store::create_table`].
    pub fn table_or_create(&self, name: &str) -> Result<Table, Error> {
        match self.table(name) {
            Err(Error::NoSuchTable { .. }) => match self.create_table(name) {
                // Another thread was faster.
                Err(Error::TableExists { .. }) => self.table(name),
                created => created,
            },
            found => found,
        }
    }

    /// The same, of a table that is as `options` say.
    ///
    /// # Errors
    /// [`Error::OtherTable`] if it is there and has another index, other leaves or another time to live; and others.
    pub fn table_or_create_with(&self, name: &str, options: &TableOptions) -> Result<Table, Error> {
        let table = match self.create_table_with(name, options) {
            Err(Error::TableExists { .. }) => self.table(name)?,
            created => return created,
        };
        let leaves = options.index.is_none().then_some(options.leaves);
        let is_so = table.index_kind() == options.index
            && table.leaves() == leaves
            && table.time_to_live() == options.time_to_live_as_kept();
        if is_so { Ok(table) } else { Err(Error::OtherTable { name: name.to_owned() }) }
    }

    /// Removes a table and everything in it. Durable on return; its pages are freed in the background. Handles
    /// of it refuse from then on, those of snapshots and transactions too.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] and others.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        self.inner.engine.drop_table(name)?;
        self.inner.has_committed(Durability::Group);
        Ok(())
    }

    /// The tables, in order of their names.
    pub fn tables(&self) -> Vec<Table> {
        let tables = self.inner.engine.tables().into_iter();
        tables.map(|table| Table::new(&self.inner, table)).collect()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn transaction(&self) -> Result<Transaction, Error> {
        Transaction::begin(&self.inner)
    }

    /// Runs a transaction, and again if another one changed what it has read, until it is committed, as durably
    /// as the store's configuration says.
    ///
    /// # Errors
    /// What `body` returns but for [`Error::Conflict`], or what committing does.
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory()?;
    /// let accounts = store.create_table("accounts")?;
    /// accounts.put(b"a", &[10])?;
    /// store.retry(|transaction| {
    ///     let balance = transaction.get(&accounts, b"a")?.unwrap()[0];
    ///     transaction.put(&accounts, b"a", &[balance - 3])?;
    ///     transaction.put(&accounts, b"b", &[3])
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn retry<T>(
        &self,
        mut body: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        retry(&self.inner, &mut body)
    }

    /// One committed, durable state to read from.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::Medium`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::new(&self.inner)
    }

    /// Takes away every entry that has expired, which happens some time by itself, and returns how many there were. Visits
    /// all entries of tables that have such.
    ///
    /// # Errors
    /// [`Error`].
    pub fn remove_expired(&self) -> Result<u64, Error> {
        Ok(self.inner.engine.remove_expired()?)
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// [`Error::Medium`].
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.inner.engine.sync()?)
    }

    /// Makes everything durable and ends an orderly use, as dropping the last handle does, and says if that failed.
    /// Other handles go on.
    ///
    /// # Errors
    /// [`Error::Medium`], [`Error::Stopped`], [`Error::Full`].
    pub fn close(self) -> Result<(), Error> {
        Ok(self.inner.engine.close()?)
    }

    /// What the store is, where it is, and what it promises. With `count`, the entries of every table are
    /// counted, which visits them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn info(&self, count: bool) -> Result<Info, Error> {
        info::info(&self.inner, count)
    }

    /// Hit ratios and bytes by tier, the log's rate, how long commits take, write amplification, since the store was
    /// opened or between two moments ([`Metrics::since`]).
    pub fn metrics(&self) -> Metrics {
        self.inner.engine.metrics()
    }

    /// What opening did.
    pub fn recovery(&self) -> &RecoveryReport {
        self.inner.engine.recovery()
    }

    /// Walks over every page, tree and value and reports what is wrong. Nobody may write meanwhile: what is
    /// changed under it may be reported as wrong. It never fails itself.
    pub fn check(&self) -> CheckReport {
        let engine = &self.inner.engine;
        let _alone = self.inner.background.as_ref().map(Background::pause);
        CheckReport::of(engine.tables().len(), engine.check())
    }
}

/// The engine's retrying, over our transactions.
pub(crate) fn retry<T>(
    inner: &Arc<Inner>,
    body: &mut dyn FnMut(&mut Transaction) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut turns = inner.engine.retries();
    loop {
        let mut transaction = Transaction::begin(inner)?;
        let done = body(&mut transaction);
        match done.and_then(|done| transaction.commit().map(|()| done)) {
            Err(Error::Conflict) => turns.conflicted(),
            done => return done,
        }
    }
}
