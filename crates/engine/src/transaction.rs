//! Transactions.

use std::cell::RefCell;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapis_blocks::block_log::Durability;
use lapis_pmem::Domain;

use crate::commit::{Write, writes_of};
use crate::end_to_end::{NewValue, bytes_of, whole};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::expiry::TimeToLive;
use crate::key_range::KeyRange;
use crate::mutants::{READ_ONLY_BEFORE_DURABLE, TAKEN_BACK_VALUE_FORGOTTEN};
use crate::reads::ReadSet;
use crate::record::entry_bytes;
use crate::scan::Scan;
use crate::snapshot::Reader;
use crate::stripes::hash_of;
use crate::tables::{Table, TableId, chunks_key};
use crate::value::{self, LongValue, Stored, Tail};
use crate::write_set::WriteSet;

/// A serializable transaction over any tables of one engine.
///
/// It reads the state of its beginning, and its own writes. Nobody sees those before they are committed; dropping
/// it leaves no trace. What it read counts when it is committed, even if it has written nothing: until then
/// the last writes that it sees may not be durable (a [`crate::Snapshot`] sees durable ones only).
#[derive(Debug)]
pub struct Transaction<D: Domain> {
    reader: Arc<Reader<D>>,
    reads: RefCell<ReadSet>,
    writes: WriteSet<D>,
    /// Long values that it has written, and that have no record yet.
    long_values: Vec<u64>,
}

/// A state of a transaction that it can be taken back to.
#[derive(Debug)]
pub struct Savepoint(u64);

/// No two savepoints are one.
static SAVEPOINTS: AtomicU64 = AtomicU64::new(0);

/// What a scan needs of its transaction.
#[derive(Debug)]
pub(crate) struct Reading<'t, D: Domain> {
    reads: &'t RefCell<ReadSet>,
    pub(crate) writes: &'t WriteSet<D>,
}

impl<D: Domain> Reading<'_, D> {
    /// Notes that a range was read, in place of what was noted at `place` before.
    pub(crate) fn note_range(&self, table: TableId, place: &mut Option<usize>, range: KeyRange) {
        let mut reads = self.reads.borrow_mut();
        match *place {
            Some(at) => reads.set_range(at, range),
            None => *place = Some(reads.add_range(table, range)),
        }
    }
}

impl<D: Domain> Transaction<D> {
    pub(crate) fn begin(engine: &Engine<D>) -> Result<Self, EngineError> {
        let reader = Arc::new(Reader::new(engine, true)?);
        Ok(Self {
            reader,
            reads: RefCell::default(),
            writes: WriteSet::default(),
            long_values: Vec::new(),
        })
    }

    fn engine(&self) -> &Engine<D> {
        self.reader.engine()
    }

    /// The value of a key, as this transaction sees it.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get(&self, table: &Arc<Table<D>>, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        table.check_not_dropped()?;
        let record = self.get_record(table, key)?;
        record.map_or(Ok(None), |record| self.reader.value_of(table, key, record))
    }

    /// The record of a key as this transaction sees it, expired or not.
    pub(crate) fn get_record(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(mine) = self.writes.get(table.id(), key) {
            return Ok(mine.map(<[u8]>::to_vec));
        }
        self.reads.borrow_mut().add_key(hash_of(table.id(), key));
        self.reader.get_record(table, key)
    }

    /// What time it is for it.
    pub(crate) fn now_ms(&self) -> u64 {
        self.reader.now_ms()
    }

    /// Adds or replaces a key. It reads nothing, so it conflicts with nobody.
    ///
    /// # Errors
    /// [`EngineError`]; the transaction goes on as it was.
    pub fn put(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), EngineError> {
        self.put_with(table, key, value, TimeToLive::OfTable)
    }

    /// The same, with a time to live, which begins now.
    ///
    /// # Errors
    /// [`EngineError`]; the transaction goes on as it was.
    pub fn put_with(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
        time_to_live: TimeToLive,
    ) -> Result<(), EngineError> {
        let expires = self.engine().shared().expiry.of(time_to_live, table);
        self.put_until(table, key, value, expires)
    }

    /// The same, with the moment since when it counts no more.
    pub(crate) fn put_until(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
    ) -> Result<(), EngineError> {
        let shared = self.engine().shared();
        shared.check_write(table, key, Some(value))?;
        if expires.is_some() {
            self.engine().note_expiring(table)?;
        }
        if shared.is_short(table, key, value, expires) {
            let tail = Tail::of_short(expires);
            return self.write(table, key, Some([value, tail.bytes()]));
        }
        self.engine().note_long_values(table)?;
        let long = shared.write_long(value)?;
        self.put_long(table, key, long, expires)
    }

    /// Gives a key a long value whose chunks are there and listed.
    pub(crate) fn put_long(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        long: LongValue,
        expires: Option<u64>,
    ) -> Result<(), EngineError> {
        self.long_values.push(long.number);
        if expires.is_some() {
            self.engine().note_expiring(table)?;
        }
        self.write(table, key, Some(whole(&long.record(expires))))?;
        let catalog = Arc::clone(&self.engine().shared().catalog);
        self.writes.write(&catalog, &chunks_key(long.number), None);
        Ok(())
    }

    /// Removes a key if its entry has expired; whether it had.
    pub(crate) fn remove_if_expired(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
    ) -> Result<bool, EngineError> {
        let record = self.get_record(table, key)?;
        let expires = record.as_deref().and_then(value::expiry_of);
        let has_expired = expires.is_some_and(|at| at <= self.now_ms());
        if has_expired {
            self.write(table, key, None)?;
        }
        Ok(has_expired)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// [`EngineError`]; the transaction goes on as it was.
    pub fn remove(&mut self, table: &Arc<Table<D>>, key: &[u8]) -> Result<bool, EngineError> {
        self.reader.engine().shared().check_write(table, key, None)?;
        let present = self.get(table, key)?.is_some();
        self.write(table, key, None)?;
        Ok(present)
    }

    pub(crate) fn write(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: NewValue<'_>,
    ) -> Result<(), EngineError> {
        let shared = self.reader.engine().shared();
        let most = shared.most_transaction_bytes();
        let value_bytes = value.map(bytes_of);
        let mut bytes = self.writes.bytes() + entry_bytes(key, value_bytes);
        if bytes > most {
            let replaced = self.writes.get(table.id(), key);
            bytes -= replaced.map_or(0, |value| entry_bytes(key, value.map(<[u8]>::len)));
            if bytes > most {
                return Err(EngineError::TransactionTooLong { bytes, most });
            }
        }
        let replaced = match table.has_long_values() {
            true => self.writes.get(table.id(), key).flatten(),
            false => None,
        };
        let replaced = replaced.filter(|record| value::is_long(record)).and_then(value::parse);
        if let Some(Stored::Long(long)) = replaced {
            // Its listing stays (V2).
            self.writes.cancel(&shared.catalog, &chunks_key(long.number));
        }
        self.writes.write(table, key, value);
        Ok(())
    }

    /// Notes the state of its writes, to come back to it later. From here on each write takes memory of its own, until the
    /// transaction ends.
    pub fn savepoint(&mut self) -> Savepoint {
        let number = SAVEPOINTS.fetch_add(1, Ordering::Relaxed);
        self.writes.note_savepoint(number);
        Savepoint(number)
    }

    /// Takes back what was written since a savepoint; to that it can come back again, to later ones no more.
    /// What was read stays read.
    ///
    /// # Errors
    /// [`EngineError::NoSuchSavepoint`].
    pub fn roll_back_to(&mut self, savepoint: &Savepoint) -> Result<(), EngineError> {
        match self.writes.roll_back_to(savepoint.0) {
            true => Ok(()),
            false => Err(EngineError::NoSuchSavepoint),
        }
    }

    /// The entries of a range, as this transaction sees them, from both ends.
    ///
    /// # Errors
    /// [`EngineError::Dropped`], [`EngineError::Unordered`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        table: &Arc<Table<D>>,
        range: impl RangeBounds<K>,
    ) -> Result<Scan<'_, D>, EngineError> {
        self.scan(table, KeyRange::new(&range))
    }

    /// The entries of a range, as this transaction sees them, from both ends.
    ///
    /// # Errors
    /// [`EngineError::Dropped`], [`EngineError::Unordered`].
    pub fn scan(&self, table: &Arc<Table<D>>, range: KeyRange) -> Result<Scan<'_, D>, EngineError> {
        table.check_not_dropped()?;
        table.check_ordered()?;
        let reading = Reading { reads: &self.reads, writes: &self.writes };
        Ok(Scan::new(Arc::clone(&self.reader), Arc::clone(table), Some(reading), range))
    }

    /// Keys that it writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Makes its writes visible, all at once, and as durable as `durability` says, or nothing. Returns its
    /// place in the log: 0 if it wrote nothing. With [`Durability::Eventual`] only transactions and snapshots see them at
    /// once: see [`Engine::get`].
    ///
    /// # Errors
    /// [`EngineError::Conflict`]: nothing was written. [`EngineError::Stopped`], [`EngineError::Log`].
    pub fn commit(mut self, durability: Durability) -> Result<u64, EngineError> {
        if self.writes.is_empty() {
            // E4.
            let shared = self.engine().shared();
            let waits = !shared.domain.commits(READ_ONLY_BEFORE_DURABLE);
            if durability == Durability::Immediate && waits {
                shared.log.wait_for(self.reader.since())?;
            }
            return Ok(0);
        }
        let writes: Vec<Write<'_, D>> = writes_of(&self.writes);
        let reads = self.reads.borrow();
        let shared = self.reader.engine().shared();
        let committed = shared.commit(&writes, Some((&reads, self.reader.since())), durability);
        drop((writes, reads));
        // Who replaced one, or took it back, has not ended its listing.
        let has_record = |number| {
            let ended = self.writes.get(shared.catalog.id(), &chunks_key(number));
            committed.is_ok() && ended.is_some()
        };
        let forgets = shared.domain.commits(TAKEN_BACK_VALUE_FORGOTTEN);
        for number in self.long_values.drain(..).filter(|&number| !has_record(number) && !forgets) {
            shared.long_value_is_unwanted(number);
        }
        committed
    }
}

impl<D: Domain> Drop for Transaction<D> {
    fn drop(&mut self) {
        for number in self.long_values.drain(..) {
            self.reader.engine().shared().long_value_is_unwanted(number);
        }
    }
}
