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
    pub(crate) keys: Keys,
}

/// Keys and their new values, in order. As long as keys come in order they are at one end after the other; from the
/// first one on that does not, all are in a map. One of the two is empty.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    ascending: Vec<(Box<[u8]>, NewValue)>,
    any: BTreeMap<Box<[u8]>, NewValue>,
}

impl Keys {
    fn comes_last(&self, key: &[u8]) -> bool {
        self.ascending.last().is_none_or(|(last, _)| **last < *key)
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        if self.comes_last(key) {
            return Err(self.ascending.len());
        }
        self.ascending.binary_search_by(|(known, _)| (**known).cmp(key))
    }

    fn get(&self, key: &[u8]) -> Option<&NewValue> {
        match self.find(key) {
            Ok(at) => Some(&self.ascending[at].1),
            Err(_) => self.any.get(key),
        }
    }

    /// Returns the new value that the key had, if it had one.
    fn insert(&mut self, key: &[u8], value: NewValue) -> Option<NewValue> {
        if self.any.is_empty() {
            if self.comes_last(key) {
                self.ascending.push((key.into(), value));
                return None;
            }
            if let Ok(at) = self.find(key) {
                return Some(std::mem::replace(&mut self.ascending[at].1, value));
            }
            self.any = std::mem::take(&mut self.ascending).into_iter().collect();
        }
        self.any.insert(key.into(), value)
    }

    fn remove(&mut self, key: &[u8]) -> Option<NewValue> {
        match self.find(key) {
            Ok(at) => Some(self.ascending.remove(at).1),
            Err(_) => self.any.remove(key),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ascending.len() + self.any.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.range(Bound::Unbounded, Bound::Unbounded)
    }

    fn range(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> {
        let is_before_lower = |key: &[u8]| match lower {
            Bound::Included(lower) => key < lower,
            Bound::Excluded(lower) => key <= lower,
            Bound::Unbounded => false,
        };
        let is_before_end = |key: &[u8]| match upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        };
        let from = self.ascending.partition_point(|(key, _)| is_before_lower(key));
        let until = self.ascending.partition_point(|(key, _)| is_before_end(key));
        let ascending = self.ascending.get(from..until).unwrap_or_default();
        let ascending = ascending.iter().map(|(key, value)| (key, value));
        let found = ascending.chain(self.any.range::<[u8], _>((lower, upper)));
        found.map(|(key, value)| (&**key, value.as_deref()))
    }
}

/// What was to be written to a key before it was to be something else.
#[derive(Debug)]
struct Before<D: Domain> {
    table: Arc<Table<D>>,
    key: Box<[u8]>,
    /// Outer none: nothing.
    value: Option<NewValue>,
}

/// The writes of a transaction, by table and key.
#[derive(Debug)]
pub(crate) struct WriteSet<D: Domain> {
    tables: BTreeMap<TableId, TableWrites<D>>,
    /// Of the record that commits them.
    bytes: u64,
    /// What has changed since the first savepoint, in order; nothing before there is one.
    undo: Vec<Before<D>>,
    /// Savepoints, and how much had changed by then.
    savepoints: Vec<(u64, usize)>,
}

impl<D: Domain> Default for WriteSet<D> {
    fn default() -> Self {
        Self { tables: BTreeMap::new(), bytes: 0, undo: Vec::new(), savepoints: Vec::new() }
    }
}

impl<D: Domain> WriteSet<D> {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.values().all(|table| table.keys.len() == 0)
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

    /// Writes to the key.
    pub(crate) fn write(&mut self, table: &Arc<Table<D>>, key: &[u8], value: NewValue) {
        self.change(table, key, Some(value));
    }

    /// Writes nothing to the key after all.
    pub(crate) fn cancel(&mut self, table: &Arc<Table<D>>, key: &[u8]) {
        self.change(table, key, None);
    }

    fn change(&mut self, table: &Arc<Table<D>>, key: &[u8], value: Option<NewValue>) {
        let before = self.set(table, key, value);
        if !self.savepoints.is_empty() {
            self.undo.push(Before { table: Arc::clone(table), key: key.into(), value: before });
        }
    }

    /// Returns what was to be written to the key before.
    fn set(
        &mut self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: Option<NewValue>,
    ) -> Option<NewValue> {
        let writes = self.tables.entry(table.id());
        let writes = writes
            .or_insert_with(|| TableWrites { table: Arc::clone(table), keys: Keys::default() });
        let before = match value {
            Some(value) => {
                self.bytes += record::entry_bytes(key, value.as_deref());
                writes.keys.insert(key, value)
            }
            None => writes.keys.remove(key),
        };
        let replaced = before.as_ref();
        self.bytes -= replaced.map_or(0, |before| record::entry_bytes(key, before.as_deref()));
        before
    }

    /// Notes that all may become again what it is now; `number` is no other savepoint's.
    pub(crate) fn note_savepoint(&mut self, number: u64) {
        self.savepoints.push((number, self.undo.len()));
    }

    /// Everything becomes what it was at a savepoint, which stays; later ones go. False if there is none of this number.
    pub(crate) fn roll_back_to(&mut self, number: u64) -> bool {
        let Some(at) = self.savepoints.iter().position(|(known, _)| *known == number) else {
            return false;
        };
        self.savepoints.truncate(at + 1);
        for Before { table, key, value } in
            self.undo.split_off(self.savepoints[at].1).into_iter().rev()
        {
            self.set(&table, &key, value);
        }
        true
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
        keys.into_iter().flat_map(move |keys| keys.range(lower, upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_kept_in_order_in_whatever_order_they_come(
            ascending in 0..20u8,
            steps in proptest::collection::vec((0..40u8, any::<Option<u8>>(), any::<bool>()), 0..40),
            bounds in (0..40u8, 0..40u8),
        ) {
            let (mut keys, mut model) = (Keys::default(), BTreeMap::new());
            let boxed = |byte: u8| Box::from([byte]);
            let first = (0..ascending).map(|key| (key * 2, Some(key), true));
            for (key, value, inserts) in first.chain(steps) {
                let value: NewValue = value.map(boxed);
                let (found, expected) = match inserts {
                    true => (keys.insert(&[key], value.clone()), model.insert([key], value)),
                    false => (keys.remove(&[key]), model.remove(&[key])),
                };
                prop_assert_eq!(found, expected);
                prop_assert_eq!(keys.get(&[key]), model.get(&[key]));
                prop_assert!(keys.ascending.is_empty() || keys.any.is_empty());
            }
            let all = |model: &BTreeMap<[u8; 1], NewValue>, from: u8, until: u8| -> Vec<_> {
                let range = model.range([from]..[until]);
                range.map(|(key, value)| (key.to_vec(), value.clone())).collect()
            };
            let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(Box::from));
            prop_assert_eq!(keys.iter().map(owned).collect::<Vec<_>>(), all(&model, 0, u8::MAX));
            prop_assert_eq!(keys.len(), model.len());
            let (from, until) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
            let (lower, upper) = ([from], [until]);
            let found = keys.range(Bound::Included(&lower), Bound::Excluded(&upper));
            prop_assert_eq!(found.map(owned).collect::<Vec<_>>(), all(&model, from, until));
        }
    }
}
