//! Handles of tables.

use std::ops::RangeBounds;
use std::sync::Arc;

use lapis_index::{Direction, IndexKind, Statistics};
use lapis_pmem::{Domain, Hardware};

use crate::engine::Engine;
use crate::entries::{Entries, KeyRange};
use crate::error::Error;
use crate::table_state::TableState;
use crate::transaction::{Transaction, turn_to_look, validate};
use crate::value::Value;

/// A table of a store. Cheap to clone; keeps the store open.
pub struct Table<D: Domain = Hardware> {
    engine: Arc<Engine<D>>,
    state: Arc<TableState<D>>,
}

impl<D: Domain> Clone for Table<D> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), state: Arc::clone(&self.state) }
    }
}

impl<D: Domain> std::fmt::Debug for Table<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?}, {})", self.state.name, self.index_kind())
    }
}

impl<D: Domain> Table<D> {
    pub(crate) fn new(engine: &Arc<Engine<D>>, state: Arc<TableState<D>>) -> Self {
        Self { engine: Arc::clone(engine), state }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine<D>> {
        &self.engine
    }

    pub(crate) fn state(&self) -> Result<&Arc<TableState<D>>, Error> {
        self.state.check_not_dropped()?;
        Ok(&self.state)
    }

    pub(crate) fn require_order(&self) -> Result<(), Error> {
        if self.is_ordered() {
            return Ok(());
        }
        Err(Error::Unordered { name: self.state.name.clone(), kind: self.index_kind() })
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The structure that holds it.
    pub fn index_kind(&self) -> IndexKind {
        self.state.kind()
    }

    /// Whether it has ranges.
    pub fn is_ordered(&self) -> bool {
        self.state.is_ordered()
    }

    /// The value of `key`, or none.
    ///
    /// Reads the latest committed state; never waits for a writer except while one transaction is
    /// being applied.
    ///
    /// # Errors
    /// [`Error::EmptyKey`], [`Error::KeyTooLong`], [`Error::Dropped`], [`Error::Damaged`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory(1 << 20)?;
    /// let table = store.create_table("t", &Default::default())?;
    /// table.put(b"key", b"value")?;
    /// assert_eq!(table.get(b"key")?.unwrap(), b"value");
    /// assert!(table.get(b"other")?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        validate(key, &[])?;
        let state = self.state()?;
        self.engine.read(|| self.engine.get(state, key))
    }

    /// Adds or replaces `key`, in a transaction of its own. Durable on return.
    ///
    /// # Errors
    /// [`Error`]; see [`Transaction::commit`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let mut transaction = Transaction::begin(&self.engine)?;
        transaction.put(self, key, value)?;
        transaction.commit()
    }

    /// Removes `key`, in a transaction of its own; returns whether it was there. Durable on return.
    ///
    /// # Errors
    /// [`Error`]; see [`Transaction::commit`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        let mut transaction = Transaction::begin(&self.engine)?;
        let present = transaction.delete(self, key)?;
        transaction.commit()?;
        Ok(present)
    }

    /// The entries whose keys lie in `range`, in ascending order; [`Entries::backward`] turns it
    /// round.
    ///
    /// # Errors
    /// [`Error::Unordered`] for a hash table, [`Error::Dropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory(1 << 20)?;
    /// let table = store.create_table("t", &Default::default())?;
    /// for key in ["a", "b", "c"] {
    ///     table.put(key.as_bytes(), b"")?;
    /// }
    /// let keys: Vec<_> = table
    ///     .range(b"b".to_vec()..)?
    ///     .backward()
    ///     .map(|entry| entry.map(|(key, _)| key))
    ///     .collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [b"c", b"b"]);
    /// # Ok(()) }
    /// ```
    pub fn range<R: RangeBounds<Vec<u8>>>(&self, range: R) -> Result<Entries<D>, Error> {
        self.require_order()?;
        self.entries(KeyRange::of(&range))
    }

    /// The entries whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As for [`Table::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Entries<D>, Error> {
        self.require_order()?;
        self.entries(KeyRange::prefix(prefix))
    }

    /// All entries; in ascending order if the table is ordered.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    pub fn iter(&self) -> Result<Entries<D>, Error> {
        self.entries(KeyRange::all())
    }

    fn entries(&self, range: KeyRange) -> Result<Entries<D>, Error> {
        let state = Arc::clone(self.state()?);
        Ok(Entries::new(Arc::clone(&self.engine), state, range, Direction::Forward))
    }

    /// Number of keys. Visits every one, with writers kept out.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.statistics()?.entries)
    }

    /// Whether there are no keys.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.iter()?.next().transpose()?.is_none())
    }

    /// Sizes of the index. Visits everything, with writers kept out.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    pub fn statistics(&self) -> Result<Statistics, Error> {
        let _turn = turn_to_look(&self.engine);
        Ok(self.state()?.index.statistics())
    }
}
