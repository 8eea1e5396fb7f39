//! Handles of tables.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use lapis_engine::{IndexKind, KeyRange, LeafLayout, TimeToLive};
use lapis_pmem::Hardware;

use crate::entries::Entries;
use crate::error::Error;
use crate::kept::Kept;
use crate::store::{Inner, retry};
use crate::typed::{Encoding, Key, TypedTable};
use crate::value_stream::{ValueReader, ValueWriter};

type EngineTable = Arc<lapis_engine::Table<Hardware>>;

/// A table of a store. Cheap to clone; keeps the store open.
#[derive(Clone, Debug)]
pub struct Table {
    inner: Arc<Inner>,
    table: Kept<EngineTable>,
}

/// What becomes of a key.
pub(crate) enum Change {
    /// Nothing is written, so that the entry keeps its time, too.
    Keep,
    Put(Vec<u8>),
    Remove,
}

impl From<Option<Vec<u8>>> for Change {
    fn from(new: Option<Vec<u8>>) -> Self {
        new.map_or(Self::Remove, Self::Put)
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

impl Table {
    pub(crate) fn new(inner: &Arc<Inner>, table: EngineTable) -> Self {
        Self { inner: Arc::clone(inner), table: Kept::new(table) }
    }

    /// The engine's table, if it is one of that store.
    pub(crate) fn of(&self, inner: &Arc<Inner>) -> Result<&EngineTable, Error> {
        if Arc::ptr_eq(&self.inner, inner) {
            return Ok(&self.table);
        }
        Err(Error::ForeignTable { name: self.name().to_owned() })
    }

    /// The table, seen as one of typed keys and values.
    pub fn typed<K: Key, V: Encoding>(&self) -> TypedTable<K, V> {
        TypedTable::new(self.clone())
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.table.name()
    }

    /// The persistent index that holds it; none for a B+-tree on pages.
    pub fn index_kind(&self) -> Option<IndexKind> {
        self.table.index_kind()
    }

    /// How the leaves of its B+-tree find a record; none if it is in an index.
    pub fn leaves(&self) -> Option<LeafLayout> {
        self.table.leaves()
    }

    /// Whether it has ranges: all but hash tables have.
    pub fn is_ordered(&self) -> bool {
        self.table.is_ordered()
    }

    /// How long an entry lives that is not given a time; none: for ever.
    pub fn time_to_live(&self) -> Option<Duration> {
        self.table.time_to_live()
    }

    /// The longest key.
    pub fn largest_key_bytes(&self) -> usize {
        self.table.largest_key_bytes()
    }

    /// The newest value of `key`, or none. Waits for the log only where that value is not durable yet: it is when this
    /// returns, but for what was committed with [`Eventual`](crate::Durability::Eventual).
    ///
    /// Who has read one key of a transaction finds its others too, unless it was committed so. Who needs several keys of one
    /// state reads them in a [transaction](crate::Store::transaction) or of a [snapshot](crate::Store::snapshot).
    ///
    /// # Errors
    /// [`Error::EmptyKey`], [`Error::Dropped`], [`Error::Damaged`], [`Error::Medium`], [`Error::Stopped`] if a transaction whose
    /// value this is waits for the log, and that has failed.
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory()?;
    /// let table = store.create_table("t")?;
    /// table.put(b"key", b"value")?;
    /// assert_eq!(table.get(b"key")?.unwrap(), b"value");
    /// assert!(table.get(b"other")?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        check_key(key)?;
        Ok(self.inner.engine.get(&self.table, key)?)
    }

    /// Makes `value` the value of `key`, without allocating if it has the room; whether there is one. If not, `value` has
    /// nothing to say.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        check_key(key)?;
        Ok(self.inner.engine.get_into(&self.table, key, value)?)
    }

    /// Adds or replaces `key`, in a transaction of its own, as durable as the store's configuration says.
    ///
    /// # Errors
    /// [`Error`]; see [`crate::Transaction::commit`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_with(key, value, TimeToLive::OfTable)
    }

    /// The same, with a time after which the entry is gone: it is not read, not scanned, not counted, and its room comes
    /// back some time later. It costs 8 bytes for each such entry. A put without a time, [`Table::update`], whatever the
    /// value, and a [`Table::compare_and_swap`] that swaps give an entry the time of its table
    /// ([`TableOptions::time_to_live`](crate::TableOptions)), which is none by default.
    ///
    /// The time is that of the wall clock. Where that is set back, what had expired and was not taken away yet is there
    /// again until it expires again; where it is set forward, entries go too early. A transaction and a snapshot
    /// have one time: what they have seen does not expire for them. `lapis export` writes no times; a backup keeps them.
    ///
    /// # Errors
    /// As [`Table::put`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// use std::time::Duration;
    /// use lapis::TimeToLive;
    ///
    /// let sessions = lapis::Store::in_memory()?.create_table("sessions")?;
    /// sessions.put_with(b"ada", b"token", TimeToLive::For(Duration::from_secs(3600)))?;
    /// sessions.put_with(b"bob", b"token", TimeToLive::For(Duration::ZERO))?;
    /// assert!(sessions.get(b"ada")?.is_some() && sessions.get(b"bob")?.is_none());
    /// assert_eq!(sessions.len()?, 1);
    /// # Ok(()) }
    /// ```
    pub fn put_with(
        &self,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
    ) -> Result<(), Error> {
        check_key(key)?;
        let durability = self.inner.durability;
        self.inner.engine.put_with(&self.table, key, value, time_to_live, durability)?;
        self.inner.has_committed(durability);
        Ok(())
    }

    /// Reads the value of `key`, or none, without having all of it in memory.
    ///
    /// # Errors
    /// As [`Table::get`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::{Read, Seek, SeekFrom};
    ///
    /// let files = lapis::Store::in_memory()?.create_table("files")?;
    /// let mut writer = files.writer(b"zeroes")?;
    /// std::io::copy(&mut std::io::repeat(0).take(1 << 20), &mut writer)?;
    /// writer.finish()?;
    ///
    /// let mut reader = files.reader(b"zeroes")?.unwrap();
    /// assert_eq!(reader.len(), 1 << 20);
    /// reader.seek(SeekFrom::End(-100))?;
    /// assert_eq!(std::io::copy(&mut reader, &mut std::io::sink())?, 100);
    /// # Ok(()) }
    /// ```
    pub fn reader(&self, key: &[u8]) -> Result<Option<ValueReader>, Error> {
        check_key(key)?;
        let reader = self.inner.engine.value_reader(&self.table, key)?;
        Ok(reader.map(|reader| ValueReader::new(&self.inner, reader)))
    }

    /// Begins a value of `key`, which is written piece by piece and there when it is finished. What is longer than an
    /// eighth of a page or so goes to its pages by the way, in transactions of their own, so that it counts little
    /// in the log; a crash before the end leaves nothing of it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn writer(&self, key: &[u8]) -> Result<ValueWriter, Error> {
        self.writer_with(key, TimeToLive::OfTable)
    }

    /// The same, with a time to live, which begins when it is finished ([`Table::put_with`]).
    ///
    /// # Errors
    /// [`Error`].
    pub fn writer_with(&self, key: &[u8], time_to_live: TimeToLive) -> Result<ValueWriter, Error> {
        check_key(key)?;
        let writer = self.inner.engine.value_writer(&self.table, key, time_to_live)?;
        Ok(ValueWriter::new(&self.inner, writer))
    }

    /// Removes `key`, in a transaction of its own; returns whether it was there.
    ///
    /// # Errors
    /// [`Error`]; see [`crate::Transaction::commit`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        check_key(key)?;
        let durability = self.inner.durability;
        let present = self.inner.engine.remove(&self.table, key, durability)?;
        self.inner.has_committed(durability);
        Ok(present)
    }

    /// Gives `key` the value that `change` makes of the present one (none: removes it), in a
    /// transaction of its own. `change` is called again if another transaction came between.
    ///
    /// # Errors
    /// [`Error`]; see [`crate::Transaction::commit`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let counters = lapis::Store::in_memory()?.create_table("counters")?;
    /// let more = |old: Option<&[u8]>| Some(vec![old.map_or(0, |old| old[0]) + 1]);
    /// counters.update(b"visits", more)?;
    /// counters.update(b"visits", more)?;
    /// assert_eq!(counters.get(b"visits")?.unwrap(), [2]);
    /// # Ok(()) }
    /// ```
    pub fn update(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        self.change(key, |old| (change(old).into(), ()))
    }

    /// Does with `key` what `change` makes of its value, and returns what that says besides.
    pub(crate) fn change<T>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Change, T),
    ) -> Result<T, Error> {
        retry(&self.inner, &mut |transaction| {
            let old = transaction.get(self, key)?;
            let (change, said) = change(old.as_deref());
            match change {
                Change::Put(new) => transaction.put(self, key, &new)?,
                Change::Remove if old.is_some() => _ = transaction.delete(self, key)?,
                Change::Keep | Change::Remove => {}
            }
            Ok(said)
        })
    }

    /// Gives `key` the value `new` (none: removes it) if it has the value `expected` (none: if it is not there).
    /// Returns whether it had. If not, nothing is written: the entry keeps its value and its time to live.
    ///
    /// # Errors
    /// [`Error`]; see [`crate::Transaction::commit`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool, Error> {
        self.change(key, |old| {
            if old == expected {
                (new.map(<[u8]>::to_vec).into(), true)
            } else {
                (Change::Keep, false)
            }
        })
    }

    /// The entries whose keys lie in `range`, at the state of this moment, in ascending order; `rev()` turns it round.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory()?;
    /// let table = store.create_table("t")?;
    /// for key in ["a", "b", "c"] {
    ///     table.put(key.as_bytes(), b"")?;
    /// }
    /// let backward: Result<Vec<_>, _> = table.range("b"..)?.rev().collect();
    /// let keys: Vec<_> = backward?.into_iter().map(|(key, _)| key).collect();
    /// assert_eq!(keys, [b"c", b"b"]);
    /// # Ok(()) }
    /// ```
    pub fn range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
    ) -> Result<Entries<'static>, Error> {
        self.scan(KeyRange::new(&range))
    }

    /// The entries whose keys begin with `prefix`, at the state of this moment.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Entries<'static>, Error> {
        self.scan(KeyRange::prefix(prefix))
    }

    /// All entries, at the state of this moment, in ascending order.
    ///
    /// # Errors
    /// [`Error::Dropped`].
    pub fn iter(&self) -> Result<Entries<'static>, Error> {
        self.scan(KeyRange::all())
    }

    fn scan(&self, range: KeyRange) -> Result<Entries<'static>, Error> {
        Ok(Entries::new(self.inner.engine.snapshot()?.scan(&self.table, range)?))
    }

    /// Number of keys. Visits every one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn len(&self) -> Result<u64, Error> {
        self.iter()?.try_fold(0, |count, entry| entry.map(|_| count + 1))
    }

    /// Whether there are no keys.
    ///
    /// # Errors
    /// [`Error`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.iter()?.next().transpose()?.is_none())
    }
}
