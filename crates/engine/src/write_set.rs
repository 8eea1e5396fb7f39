//! What a transaction writes, before anybody else sees it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::Domain;

use crate::record;
use crate::tables::{Table, TableId};

/// The new value of a key, or none for a removal.
pub(crate) type NewValue = Option<Box<[u8]>>;

#[derive(Debug)]
pub(crate) struct TableWrites<D: Domain> {
    pub(crate) table: Arc<Table<D>>,
    pub(crate) keys: BTreeMap<Box<[u8]>, NewValue>,
}

/// The writes of a transaction, by table and key.
#[derive(Debug)]
pub(crate) struct WriteSet<D: Domain> {
    tables: BTreeMap<TableId, TableWrites<D>>,
    /// Of the record that commits them.
    bytes: u64,
}

impl<D: Domain> Default for WriteSet<D> {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), bytes: 0 }
    }
}

impl<D: Domain> WriteSet<D> {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.values().map(|table| table.keys.len()).sum()
    }

    /// Bytes of the record that commits them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is written to the key: a new value, or none for a removal. Outer none if nothing is.
    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Option<Option<&[u8]>> {
        Some(self.tables.get(&table)?.keys.get(key)?.as_deref())
    }

    /// Returns what was to be written to the key before, if anything was.
    pub(crate) fn write(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: NewValue,
    ) -> Option<NewValue> {
        let writes = self.tables.entry(table.id());
        let writes = writes
            .or_insert_with(|| TableWrites { table: Arc::clone(table), keys: BTreeMap::new() });
        self.bytes += record::entry_bytes(key, value.as_deref());
        let before = writes.keys.insert(key.into(), value)?;
        self.bytes -= record::entry_bytes(key, before.as_deref());
        Some(before)
    }

    /// Writes nothing to the key after all.
    pub(crate) fn cancel(&mut self, table: TableId, key: &[u8]) {
        let Some(writes) = self.tables.get_mut(&table) else { return };
        if let Some(value) = writes.keys.remove(key) {
            self.bytes -= record::entry_bytes(key, value.as_deref());
        }
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableWrites<D>> {
        self.tables.values()
    }

    /// The writes to a table in a range, in the order of their keys.
    pub(crate) fn range<'w>(
        &'w self,
        table: TableId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'w [u8], Option<&'w [u8]>)> {
        let keys = self.tables.get(&table).map(|writes| &writes.keys);
        let found = keys.into_iter().flat_map(move |keys| keys.range::<[u8], _>((lower, upper)));
        found.map(|(key, value)| (&**key, value.as_deref()))
    }
}
