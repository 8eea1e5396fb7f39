//! Reading one state.

use std::ops::RangeBounds;
use std::sync::{Arc, OnceLock};

use lapis_pmem::Domain;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::mutants::SNAPSHOT_BEFORE_DURABLE;
use crate::scan::Scan;
use crate::tables::Table;
use crate::value;

/// Somebody who reads the state at an LSN. While it lives, what is replaced is kept.
#[derive(Debug)]
pub(crate) struct Reader<D: Domain> {
    engine: Engine<D>,
    since: u64,
    /// Whether it is a transaction's.
    is_validated: bool,
    /// What time it is for it (T1).
    now_ms: OnceLock<u64>,
}

impl<D: Domain> Reader<D> {
    /// For a transaction, which `is_validated`, or for who only reads.
    pub(crate) fn new(engine: &Engine<D>, is_validated: bool) -> Result<Self, EngineError> {
        let since = engine.shared().order.enter(is_validated)?;
        Ok(Self { engine: engine.clone(), since, is_validated, now_ms: OnceLock::new() })
    }

    pub(crate) fn engine(&self) -> &Engine<D> {
        &self.engine
    }

    pub(crate) fn domain(&self) -> &D {
        &self.engine.shared().domain
    }

    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// What time it is for it, which does not change.
    pub(crate) fn now_ms(&self) -> u64 {
        *self.now_ms.get_or_init(|| self.engine.shared().expiry.now_ms())
    }

    /// Whether it sees a record of its state.
    #[inline]
    pub(crate) fn sees(&self, record: &[u8]) -> bool {
        value::expiry_of(record).is_none_or(|at| at > self.now_ms())
    }

    /// The value of a key.
    pub(crate) fn get(&self, table: &Table<D>, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let record = self.get_record(table, key)?;
        record.map_or(Ok(None), |record| self.value_of(table, key, record))
    }

    /// The value of a record, if it has not expired.
    pub(crate) fn value_of(
        &self,
        table: &Table<D>,
        key: &[u8],
        mut record: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if !self.sees(&record) {
            return Ok(None);
        }
        self.engine.shared().resolve(table, key, &mut record)?;
        Ok(Some(record))
    }

    /// The record of a key, expired or not.
    pub(crate) fn get_record(
        &self,
        table: &Table<D>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut record = Vec::new();
        let shared = self.engine.shared();
        let found = shared.guarded(|| self.find_record(table, key, &mut record))?;
        Ok(found.then_some(record))
    }

    /// The record of a key, into `value`; whether there is one.
    fn find_record(
        &self,
        table: &Table<D>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, EngineError> {
        value.clear();
        self.engine.shared().counters.leaf_accesses.add(1);
        let mut found = table.contents().get(key, value)?;
        // Only now: what is in the tree may be newer, and then what it replaced is here (E3).
        let replaced = table.versions().find(self.domain(), key, self.since, |old| {
            value.clear();
            value.extend_from_slice(old);
        });
        if let Some(replaced) = replaced {
            found = replaced.is_some();
        }
        Ok(found)
    }
}

impl<D: Domain> Drop for Reader<D> {
    fn drop(&mut self) {
        let shared = self.engine.shared();
        let oldest = shared.order.leave(self.since, self.is_validated);
        shared.versions.drop_until(&shared.domain, oldest);
    }
}

/// One committed and durable state of all tables. It keeps nobody waiting. Cheap to clone.
#[derive(Debug)]
pub struct Snapshot<D: Domain> {
    reader: Arc<Reader<D>>,
}

impl<D: Domain> Clone for Snapshot<D> {
    fn clone(&self) -> Self {
        Self { reader: Arc::clone(&self.reader) }
    }
}

impl<D: Domain> Snapshot<D> {
    pub(crate) fn new(engine: &Engine<D>) -> Result<Self, EngineError> {
        let reader = Arc::new(Reader::new(engine, false)?);
        // E4.
        let shared = engine.shared();
        if !shared.domain.commits(SNAPSHOT_BEFORE_DURABLE) {
            shared.log.wait_for(reader.since())?;
        }
        Ok(Self { reader })
    }

    pub(crate) fn reader(&self) -> &Arc<Reader<D>> {
        &self.reader
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn get(&self, table: &Arc<Table<D>>, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        table.check_not_dropped()?;
        self.reader.get(table, key)
    }

    /// The entries of a range, from both ends.
    ///
    /// # Errors
    /// [`EngineError::Dropped`], [`EngineError::Unordered`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        table: &Arc<Table<D>>,
        range: impl RangeBounds<K>,
    ) -> Result<Scan<'static, D>, EngineError> {
        self.scan(table, KeyRange::new(&range))
    }

    /// The entries of a range, from both ends.
    ///
    /// # Errors
    /// [`EngineError::Dropped`], [`EngineError::Unordered`].
    pub fn scan(
        &self,
        table: &Arc<Table<D>>,
        range: KeyRange,
    ) -> Result<Scan<'static, D>, EngineError> {
        table.check_not_dropped()?;
        table.check_ordered()?;
        Ok(Scan::new(Arc::clone(&self.reader), Arc::clone(table), None, range))
    }
}
