//! Reading one state.

use std::ops::RangeBounds;
use std::sync::Arc;

use lapis_engine::KeyRange;
use lapis_pmem::Hardware;

use crate::entries::Entries;
use crate::error::Error;
use crate::kept::Kept;
use crate::store::Inner;
use crate::table::{Table, check_key};
use crate::value_stream::ValueReader;

/// One committed and durable state of the store. It keeps nobody waiting; while it lives, what is
/// replaced is kept in DRAM beside it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    snapshot: Kept<lapis_engine::Snapshot<Hardware>>,
    inner: Arc<Inner>,
}

impl Snapshot {
    pub(crate) fn new(inner: &Arc<Inner>) -> Result<Self, Error> {
        Ok(Self { snapshot: Kept::new(inner.engine.snapshot()?), inner: Arc::clone(inner) })
    }

    /// The value of a key in this state.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        check_key(key)?;
        Ok(self.snapshot.get(table.of(&self.inner)?, key)?)
    }

    /// Reads the value of a key in this state, or none, without having all of it in memory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reader(&self, table: &Table, key: &[u8]) -> Result<Option<ValueReader>, Error> {
        check_key(key)?;
        let reader = self.snapshot.value_reader(table.of(&self.inner)?, key)?;
        Ok(reader.map(|reader| ValueReader::new(&self.inner, reader)))
    }

    /// The entries whose keys lie in `range`, in this state.
    ///
    /// # Errors
    /// [`Error::Dropped`], [`Error::ForeignTable`].
    pub fn range<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        range: impl RangeBounds<K>,
    ) -> Result<Entries<'static>, Error> {
        self.scan(table, KeyRange::new(&range))
    }

    /// The entries whose keys begin with `prefix`, in this state.
    ///
    /// # Errors
    /// As for [`Snapshot::range`].
    pub fn prefix(&self, table: &Table, prefix: &[u8]) -> Result<Entries<'static>, Error> {
        self.scan(table, KeyRange::prefix(prefix))
    }

    /// All entries, in this state.
    ///
    /// # Errors
    /// As for [`Snapshot::range`].
    pub fn iter(&self, table: &Table) -> Result<Entries<'static>, Error> {
        self.scan(table, KeyRange::all())
    }

    fn scan(&self, table: &Table, range: KeyRange) -> Result<Entries<'static>, Error> {
        Ok(Entries::new(self.snapshot.scan(table.of(&self.inner)?, range)?))
    }
}
