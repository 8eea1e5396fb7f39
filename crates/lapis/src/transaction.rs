//! Transactions.

use std::ops::RangeBounds;
use std::sync::Arc;

use lapis_engine::{Durability, KeyRange, Savepoint, TimeToLive};
use lapis_pmem::Hardware;

use crate::entries::Entries;
use crate::error::Error;
use crate::kept::Kept;
use crate::store::Inner;
use crate::table::{Table, check_key};

/// A serializable transaction over any tables of one store.
///
/// It reads the state of its beginning, and its own writes; nobody else sees those before
/// [`Transaction::commit`], which makes all of them visible at once. (Where it commits with [`Durability::Eventual`], a
/// [`Table::get`] on its own may see one key of it and the next one not yet.) Dropping it leaves no trace.
/// Transactions never wait for each other while they run. One that has read what another has
/// written since fails when it is committed ([`Error::Conflict`]); [`crate::Store::retry`] begins it again.
#[derive(Debug)]
pub struct Transaction {
    transaction: Kept<lapis_engine::Transaction<Hardware>>,
    inner: Arc<Inner>,
}

/// A commit that may not be durable yet.
#[derive(Clone, Debug)]
pub struct Commit {
    inner: Arc<Inner>,
    lsn: u64,
}

impl Commit {
    /// Whether it survives what the medium survives.
    pub fn is_durable(&self) -> bool {
        self.inner.engine.is_durable(self.lsn)
    }

    /// Waits until it does.
    ///
    /// # Errors
    /// [`Error::Medium`].
    pub fn wait(&self) -> Result<(), Error> {
        Ok(self.inner.engine.wait_until_durable(self.lsn)?)
    }
}

impl Transaction {
    pub(crate) fn begin(inner: &Arc<Inner>) -> Result<Self, Error> {
        Ok(Self { transaction: Kept::new(inner.engine.begin()?), inner: Arc::clone(inner) })
    }

    /// The value of a key as this transaction sees it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        check_key(key)?;
        Ok(self.transaction.get(table.of(&self.inner)?, key)?)
    }

    /// Adds or replaces a key. It reads nothing, so it conflicts with nobody.
    ///
    /// # Errors
    /// [`Error`]; the transaction goes on as it was.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        Ok(self.transaction.put(table.of(&self.inner)?, key, value)?)
    }

    /// The same, with a time after which the entry is gone, from now on ([`Table::put_with`]).
    ///
    /// # Errors
    /// [`Error`]; the transaction goes on as it was.
    pub fn put_with(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
    ) -> Result<(), Error> {
        check_key(key)?;
        Ok(self.transaction.put_with(table.of(&self.inner)?, key, value, time_to_live)?)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// [`Error`]; the transaction goes on as it was.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool, Error> {
        check_key(key)?;
        Ok(self.transaction.remove(table.of(&self.inner)?, key)?)
    }

    /// Notes the state of its writes, to come back to it later.
    ///
    /// ```
    /// # fn main() -> Result<(), lapis::Error> {
    /// let store = lapis::Store::in_memory()?;
    /// let table = store.create_table("t")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put(&table, b"kept", b"1")?;
    /// let savepoint = transaction.savepoint();
    /// transaction.put(&table, b"tried", b"2")?;
    /// transaction.roll_back_to(&savepoint)?;
    /// transaction.commit()?;
    /// assert_eq!(table.len()?, 1);
    /// # Ok(()) }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.transaction.savepoint()
    }

    /// Takes back what was written since a savepoint; to that it can come back again, to later ones no more.
    /// What was read stays read.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn roll_back_to(&mut self, savepoint: &Savepoint) -> Result<(), Error> {
        Ok(self.transaction.roll_back_to(savepoint)?)
    }

    /// The entries whose keys lie in `range`, as this transaction sees them.
    ///
    /// # Errors
    /// [`Error::Dropped`], [`Error::ForeignTable`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        range: impl RangeBounds<K>,
    ) -> Result<Entries<'_>, Error> {
        self.scan(table, KeyRange::new(&range))
    }

    /// The entries whose keys begin with `prefix`, as this transaction sees them.
    ///
    /// # Errors
    /// As for [`Transaction::range`].
    pub fn prefix(&self, table: &Table, prefix: &[u8]) -> Result<Entries<'_>, Error> {
        self.scan(table, KeyRange::prefix(prefix))
    }

    /// All entries, as this transaction sees them.
    ///
    /// # Errors
    /// As for [`Transaction::range`].
    pub fn iter(&self, table: &Table) -> Result<Entries<'_>, Error> {
        self.scan(table, KeyRange::all())
    }

    fn scan(&self, table: &Table, range: KeyRange) -> Result<Entries<'_>, Error> {
        Ok(Entries::new(self.transaction.scan(table.of(&self.inner)?, range)?))
    }

    /// Number of keys that it writes.
    pub fn len(&self) -> usize {
        self.transaction.len()
    }

    /// Whether it has written nothing.
    pub fn is_empty(&self) -> bool {
        self.transaction.is_empty()
    }

    /// Makes all writes visible, or none, and as durable as the store's configuration says: survivors of
    /// a power cut by default, when this returns. Costs a sync of the log, which commits of other threads share.
    ///
    /// # Errors
    /// [`Error::Conflict`]: nothing was written. [`Error::Medium`], [`Error::Stopped`]: see there.
    pub fn commit(self) -> Result<(), Error> {
        let durability = self.inner.durability;
        self.commit_with(durability).map(|_| ())
    }

    /// Makes all writes visible, or none. What is durable when this returns, `durability` says;
    /// the result tells when the rest is.
    ///
    /// # Errors
    /// As for [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<Commit, Error> {
        let Self { transaction, inner } = self;
        let lsn = transaction.into_inner().commit(durability)?;
        inner.has_committed(durability);
        Ok(Commit { inner, lsn })
    }
}
