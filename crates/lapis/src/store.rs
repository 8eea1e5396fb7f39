//! The store.

use std::sync::Arc;

use lapis_pmem::{
    Domain, Hardware, Pool, PoolError, ReclaimReport, Region, RegionError, RegionOptions,
};

use crate::config::{Config, StoreOptions, TableOptions};
use crate::engine::Engine;
use crate::error::Error;
use crate::info::{self, CheckReport, Info, TableInfo};
use crate::table::Table;
use crate::transaction::{Snapshot, Transaction, check_no_snapshot, turn_to_look};

/// An ordered, transactional key-value store. Cheap to clone: all clones are handles of one store,
/// which closes when the last of them, and of its tables, is dropped.
///
/// ```
/// # fn main() -> Result<(), lapis::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// use lapis::{Config, Store, TableOptions};
///
/// let store = Store::open(Config::new(directory.path()))?;
/// let people = store.table_or_create("people", &TableOptions::default())?;
/// let emails = store.table_or_create("emails", &TableOptions::default())?;
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
pub struct Store<D: Domain = Hardware> {
    engine: Arc<Engine<D>>,
}

impl<D: Domain> Clone for Store<D> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine) }
    }
}

impl<D: Domain> std::fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.engine.pool)
    }
}

impl Store<Hardware> {
    /// Opens the store that `config` describes, creating it if that was allowed. A store whose last
    /// user crashed is recovered: at most one transaction is redone, and the time that takes does
    /// not depend on how much the store holds.
    ///
    /// # Errors
    /// [`Error`]; what was in the directory is as it was.
    pub fn open(config: Config) -> Result<Self, Error> {
        match Self::find(&config)? {
            Found::Store(store) => return Ok(store),
            Found::Nothing | Found::Remains if !config.create => {
                return Err(Error::NoStore { path: config.directory });
            }
            Found::Nothing | Found::Remains => {}
        }
        let directory = |source| Error::Directory { path: config.directory.clone(), source };
        std::fs::create_dir_all(&config.directory).map_err(directory)?;
        // One creator at a time: what looks like the remains of a creation may be one under way,
        // and removing its file would take the ground from under a store that is about to be used.
        let turn = std::fs::File::open(&config.directory).map_err(directory)?;
        turn.lock().map_err(directory)?;
        match Self::find(&config)? {
            Found::Store(store) => Ok(store),
            Found::Nothing => Self::create(&config),
            Found::Remains => {
                std::fs::remove_file(config.pool_path()).map_err(directory)?;
                Self::create(&config)
            }
        }
    }

    /// Opens what is in the directory. Creates nothing.
    fn find(config: &Config) -> Result<Found, Error> {
        let path = config.pool_path();
        match Pool::open_file(&path, &config.region) {
            // Creation got as far as the pool and not to the store: nothing was acknowledged.
            Ok(pool) if pool.roots().is_empty() => Ok(Found::Remains),
            Ok(pool) => Ok(Found::Store(Self { engine: Arc::new(Engine::open(pool)?) })),
            Err(PoolError::Region(RegionError::NotFound)) => Ok(Found::Nothing),
            Err(PoolError::InterruptedCreation) => Ok(Found::Remains),
            Err(source) => Err(Error::File { path, source }),
        }
    }

    fn create(config: &Config) -> Result<Self, Error> {
        let path = config.pool_path();
        let pool = Pool::create_file(&path, config.initial_bytes, &config.region)
            .map_err(|source| Error::File { path: path.clone(), source })?;
        let engine = Engine::create(pool, &config.options).inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })?;
        Ok(Self { engine: Arc::new(engine) })
    }

    /// A store in anonymous memory, for tests and measurements: it uses this machine's flush
    /// instructions and ends with the process.
    ///
    /// # Errors
    /// [`Error::File`] if the memory cannot be had.
    pub fn in_memory(bytes: usize) -> Result<Self, Error> {
        let reserve = RegionOptions::default().reserve_bytes.max(bytes);
        let pool = Region::anonymous(bytes, reserve)
            .map_err(PoolError::from)
            .and_then(|region| Pool::create(region, Hardware::detect()))
            .map_err(|source| Error::File { path: "anonymous memory".into(), source })?;
        Self::create_on(pool, &StoreOptions::default())
    }

    /// What the store is, where it is, and what it promises. With `statistics`, every table is
    /// visited for its sizes, with writers kept out.
    pub fn info(&self, statistics: bool) -> Info {
        let flush = self.engine.pool.domain().method().to_string();
        info::info(&self.engine, flush, statistics)
    }
}

/// What is in a store's directory.
enum Found {
    Store(Store<Hardware>),
    Nothing,
    /// What a creation leaves behind that was cut short.
    Remains,
}

impl<D: Domain> Store<D> {
    /// Makes an empty store in a pool, on whatever machine that is.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create_on(pool: Pool<D>, options: &StoreOptions) -> Result<Self, Error> {
        Ok(Self { engine: Arc::new(Engine::create(pool, options)?) })
    }

    /// Opens the store in a pool, on whatever machine that is, and recovers it.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NotAStore`] if the pool has none.
    pub fn open_on(pool: Pool<D>) -> Result<Self, Error> {
        Ok(Self { engine: Arc::new(Engine::open(pool)?) })
    }

    /// Makes a table. Durable on return.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], [`Error::Full`] and others.
    pub fn create_table(&self, name: &str, options: &TableOptions) -> Result<Table<D>, Error> {
        let state = self.engine.create_table(name, options)?;
        Ok(Table::new(&self.engine, state))
    }

    /// A handle of the table called `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Table<D>, Error> {
        let state =
            self.engine.table(name).ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        Ok(Table::new(&self.engine, state))
    }

    /// A handle of the table called `name`, which is made if it is not there.
    ///
    /// # Errors
    /// As for [`Store::create_table`].
    pub fn table_or_create(&self, name: &str, options: &TableOptions) -> Result<Table<D>, Error> {
        match self.create_table(name, options) {
            Err(Error::TableExists { .. }) => self.table(name),
            other => other,
        }
    }

    /// Removes a table and everything in it. Durable on return; handles of it refuse from then on.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::SnapshotHeld`] and others.
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        check_no_snapshot(&self.engine)?;
        self.engine.drop_table(name)
    }

    /// The tables, in order of their names.
    pub fn tables(&self) -> Vec<TableInfo> {
        let tables = self.engine.tables();
        let info = |table: &std::sync::Arc<crate::table_state::TableState<D>>| TableInfo {
            name: table.name.clone(),
            index: table.kind(),
            statistics: None,
        };
        tables.iter().map(info).collect()
    }

    /// Begins a write transaction; waits for its turn.
    ///
    /// # Errors
    /// [`Error::TransactionHeld`] if this thread has one already, and would wait for itself.
    pub fn transaction(&self) -> Result<Transaction<D>, Error> {
        Transaction::begin(&self.engine)
    }

    /// One committed state to read from.
    pub fn snapshot(&self) -> Snapshot<D> {
        Snapshot::new(&self.engine)
    }

    /// Walks everything and reports what is wrong, without changing it. Writers wait.
    pub fn check(&self) -> CheckReport {
        info::check(&self.engine)
    }

    /// After a crash, finds the space that was free again, by walking everything; writers wait. The
    /// store does this by itself when it would otherwise have to grow or refuse.
    pub fn reclaim(&self) -> ReclaimReport {
        let _turn = turn_to_look(&self.engine);
        if self.engine.check_running().is_err() {
            // The log may have a record that is not applied; the blocks it names are in use.
            return ReclaimReport::default();
        }
        self.engine.reclaim()
    }

    /// Compares what is allocated with what is reachable. Writers wait.
    pub fn audit(&self) -> lapis_pmem::AuditReport {
        let _turn = turn_to_look(&self.engine);
        self.engine.audit()
    }

    /// The pool beneath.
    pub fn pool(&self) -> &Pool<D> {
        &self.engine.pool
    }
}
