//! What an engine does by itself: single reads and writes, and transactions begun again.

use std::ops::RangeBounds;
use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_pmem::Domain;
use lapis_pmem::host_lock::{self, HostGuard};
use parking_lot::MutexGuard;

use crate::commit::Write;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::expiry::TimeToLive;
use crate::key_range::KeyRange;
use crate::mutants;
use crate::scan::Scan;
use crate::snapshot::Snapshot;
use crate::stripes::hash_of;
use crate::tables::Table;
use crate::transaction::Transaction;
use crate::value::{self, MAX_VALUE_BYTES};

/// After so many conflicts a transaction that is begun again takes turns with others like it.
const CONFLICTS_BEFORE_TURNS: u32 = 4;

impl<D: Domain> Engine<D> {
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

    /// The newest value of a key, durable but for what was committed with [`Durability::Eventual`].
    ///
    /// Who has read a key that a transaction wrote finds its other keys as it left them, or as later ones did. One with
    /// [`Durability::Eventual`] may be seen key by key: who needs several keys of one state reads them in a
    /// transaction or of a snapshot.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get(&self, table: &Arc<Table<D>>, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// Makes `value` the newest value of a key, as [`Engine::get`]. False if there is none; `value` then has nothing to say.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get_into(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        let pinned = table.contents().pin();
        table.check_not_dropped()?;
        self.shared().counters.leaf_accesses.add(1);
        let found = self.shared().guarded(|| table.contents().get(key, value));
        // Pages of a tree that is dropped meanwhile may be another's: who frees them has said before that it is.
        table.check_not_dropped()?;
        // What comes next waits for others, who may wait for blocks that are kept for readers.
        drop(pinned);
        let found = found?;
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
        shared.order.wait_until_applied(last)?;
        if !shared.domain.commits(mutants::READ_BEFORE_DURABLE) {
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
        Retries { shared: self.shared(), conflicts: 0, alone: None }
    }

    /// Whether the transaction at this place in the log is durable; 0 is one that wrote nothing.
    pub fn is_durable(&self, lsn: u64) -> bool {
        lsn == 0 || self.shared().log.is_durable(lsn)
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// [`EngineError::Log`].
    pub fn wait_until_durable(&self, lsn: u64) -> Result<(), EngineError> {
        Ok(self.shared().log.wait_for(lsn)?)
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// [`EngineError::Log`].
    pub fn sync(&self) -> Result<(), EngineError> {
        Ok(self.shared().log.block_log().sync()?)
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
    /// There was one more. After some, takes the turn among all who had as many, if it can be had. Nobody waits for it: who
    /// has it may be the caller, of whose transaction this one is a part; and each conflict is one that another has committed.
    pub fn conflicted(&mut self) {
        self.conflicts += 1;
        if self.alone.is_none() && self.conflicts >= CONFLICTS_BEFORE_TURNS {
            self.alone = host_lock::try_lock(&self.shared.domain, &self.shared.unlucky);
        }
        self.shared.domain.pause();
    }
}

impl<D: Domain> Shared<D> {
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
