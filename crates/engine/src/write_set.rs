//! What a transaction writes, before anybody else sees it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lapis_pmem::Domain;

use crate::end_to_end::{EndToEnd, NewValue, Span, bytes_of, whole};
use crate::record;
use crate::tables::{Table, TableId};

/// A new value in memory of its own, or none for a removal.
type Kept = Option<Box<[u8]>>;

/// What a thread keeps of the memory of a transaction that has ended, for its next one.
const SPARE_BYTES: usize = 1 << 20;

thread_local! {
    static SPARE: Cell<Ascending> = Cell::default();
}

#[derive(Debug)]
pub(crate) struct TableWrites<D: Domain> {
    pub(crate) table: Arc<Table<D>>,
    pub(crate) keys: Keys,
}

/// Keys and their new values, which came in order.
#[derive(Debug, Default)]
struct Ascending {
    bytes: EndToEnd,
    spans: Vec<Span>,
}

impl Ascending {
    fn get(&self, at: usize) -> (&[u8], Option<&[u8]>) {
        self.bytes.get(self.spans[at])
    }

    /// Where the key is; or where it would have to come.
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        match self.spans.last() {
            Some(last) if self.bytes.get(*last).0 >= key => {
                self.spans.binary_search_by(|span| self.bytes.get(*span).0.cmp(key))
            }
            _ => Err(self.spans.len()),
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Bytes of memory that it has.
    fn capacity_bytes(&self) -> usize {
        self.bytes.capacity_bytes() + self.spans.capacity() * size_of::<Span>()
    }
}

/// Keys and their new values, in order. As long as keys come in order, and stay as long as they are, they are at one
/// end after the other; from the first one on that does not, all are in a map. One of the two is empty.
#[derive(Debug)]
pub(crate) struct Keys {
    ascending: Ascending,
    any: BTreeMap<Box<[u8]>, Kept>,
}

impl Keys {
    fn new() -> Self {
        // A thread that ends has none any more.
        let ascending = SPARE.try_with(Cell::take).unwrap_or_default();
        Self { ascending, any: BTreeMap::new() }
    }

    fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.ascending.find(key) {
            Ok(at) => Some(self.ascending.get(at).1),
            Err(_) => self.any.get(key).map(Option::as_deref),
        }
    }

    /// Returns the new value that the key had, if it had one.
    fn insert(&mut self, key: &[u8], value: NewValue<'_>) -> Option<Kept> {
        if self.any.is_empty() {
            match self.ascending.find(key) {
                Err(at) if at == self.ascending.spans.len() => {
                    let span = self.ascending.bytes.push(key, value);
                    self.ascending.spans.push(span);
                    return None;
                }
                Err(_) => {}
                Ok(at) => {
                    let span = self.ascending.spans[at];
                    if let Some(replaced) = self.ascending.bytes.replace(span, value) {
                        return Some(Some(replaced));
                    }
                }
            }
            self.make_map();
        }
        self.any.insert(key.into(), value.map(|parts| parts.concat().into()))
    }

    fn remove(&mut self, key: &[u8]) -> Option<Kept> {
        if self.ascending.find(key).is_ok() {
            self.make_map();
        }
        self.any.remove(key)
    }

    fn make_map(&mut self) {
        let ascending = (0..self.ascending.spans.len()).map(|at| self.ascending.get(at));
        let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.into(), value.map(Box::from));
        self.any = ascending.map(owned).collect();
        self.ascending.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.ascending.spans.len() + self.any.len()
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
        let Ascending { bytes, spans } = &self.ascending;
        let from = spans.partition_point(|span| is_before_lower(bytes.get(*span).0));
        let until = spans.partition_point(|span| is_before_end(bytes.get(*span).0));
        let ascending = spans.get(from..until).unwrap_or_default();
        let ascending = ascending.iter().map(|span| bytes.get(*span));
        let any = self.any.range::<[u8], _>((lower, upper));
        ascending.chain(any.map(|(key, value)| (&**key, value.as_deref())))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.ascending.capacity_bytes() <= SPARE_BYTES {
            self.ascending.clear();
            _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.ascending)));
        }
    }
}

/// What was to be written to a key before it was to be something else.
#[derive(Debug)]
struct Before<D: Domain> {
    table: Arc<Table<D>>,
    key: Box<[u8]>,
    /// Outer none: nothing.
    value: Option<Kept>,
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
        self.tables.get(&table)?.keys.get(key)
    }

    /// Writes to the key.
    pub(crate) fn write(&mut self, table: &Arc<Table<D>>, key: &[u8], value: NewValue<'_>) {
        self.change(table, key, Some(value));
    }

    /// Writes nothing to the key after all.
    pub(crate) fn cancel(&mut self, table: &Arc<Table<D>>, key: &[u8]) {
        self.change(table, key, None);
    }

    fn change(&mut self, table: &Arc<Table<D>>, key: &[u8], value: Option<NewValue<'_>>) {
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
        value: Option<NewValue<'_>>,
    ) -> Option<Kept> {
        let writes = self.tables.entry(table.id());
        let writes =
            writes.or_insert_with(|| TableWrites { table: Arc::clone(table), keys: Keys::new() });
        let before = match value {
            Some(value) => {
                self.bytes += record::entry_bytes(key, value.map(bytes_of));
                writes.keys.insert(key, value)
            }
            None => writes.keys.remove(key),
        };
        let bytes = |before: &Kept| record::entry_bytes(key, before.as_deref().map(<[u8]>::len));
        self.bytes -= before.as_ref().map_or(0, bytes);
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
            let value = value.as_ref().map(|value| value.as_deref().map(whole));
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
            let (mut keys, mut model) = (Keys::new(), BTreeMap::new());
            let first = (0..ascending).map(|key| (key * 2, Some(key), true));
            for (key, value, inserts) in first.chain(steps) {
                // Of one length or another.
                let value = value.map(|byte| vec![byte; 2 + usize::from(byte % 4 == 0)]);
                let parts: NewValue<'_> = value.as_deref().map(|value| value.split_at(1).into());
                let value: Kept = value.as_deref().map(Box::from);
                let (found, expected) = match inserts {
                    true => (keys.insert(&[key], parts), model.insert([key], value)),
                    false => (keys.remove(&[key]), model.remove(&[key])),
                };
                prop_assert_eq!(found, expected);
                prop_assert_eq!(keys.get(&[key]), model.get(&[key]).map(Option::as_deref));
                prop_assert!(keys.ascending.spans.is_empty() || keys.any.is_empty());
            }
            let all = |model: &BTreeMap<[u8; 1], Kept>, from: u8, until: u8| -> Vec<_> {
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
