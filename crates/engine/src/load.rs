//! Loading: a table is made from entries in order.
//!
//! Its tree is built leaf by leaf (`lapis_tree`'s bulk load), so entries are in the log once, in the leaves as they are hung
//! in, and there is no logical record of them.
//!
//! # Order
//!
//! * The tree, listed as one that is being loaded; leaves, and the chunks of long values, listed too (V2); the ends of
//!   these listings; then, in one transaction, the table's entry and the end of the tree's listing, durable.
//!
//! So the table is there whole or not at all. A tree that is still listed when the engine is opened, or whose load failed,
//! is dropped like any table with long values: those that it has records of go with it, the others are still listed.

use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_buffer::{PageNumber, Promise, RoomFor};
use lapis_pmem::{Domain, host_lock};
use lapis_tree::{BulkLoad, LeafLayout, Puts};

use crate::commit::Write;
use crate::contents::EngineTree;
use crate::drop::Dropped;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::log::EngineLog;
use crate::mutants::LOAD_UNLISTED_EARLY;
use crate::tables::{
    Properties, Table, chunks_key, dropped_key, loading_key, name_key, table_value,
};
use crate::value::short_record;

/// How full leaves are made, in percent: a leaf that is full splits at the first put.
const FILL_FACTOR: u8 = 90;
/// Leaves that room is made for at a time.
const LEAVES_AHEAD: u64 = 64;
/// Listings of chunks that end together.
const LISTINGS_TOGETHER: usize = 64;

type Records<D> = BulkLoad<D, Arc<EngineLog<D>>>;

/// A table in the making. Nobody sees it before [`TableLoad::finish`]; there is none if that is never called, or fails, and
/// after a crash.
#[derive(Debug)]
pub struct TableLoad<'e, D: Domain> {
    engine: &'e Engine<D>,
    table: Arc<Table<D>>,
    root: PageNumber,
    /// Taken when it is finished, or an entry was refused.
    records: Option<Records<D>>,
    /// Long values that are listed.
    long_values: Vec<u64>,
    /// Bytes since the log could last be cut.
    bytes: u64,
    /// Pages for the records to come, and how many bytes of these there may still be.
    room: Option<Promise<'e, D>>,
    bytes_with_room: u64,
    is_entered: bool,
}

impl<D: Domain> Engine<D> {
    /// Makes a table of entries whose keys ascend, much faster than puts would. Durable on return; nobody sees the table
    /// before, and after a crash or an error there is none. It is in no snapshot's past: who reads an older state
    /// sees it as it is.
    ///
    /// # Errors
    /// [`EngineError::TableExists`]; [`EngineError::Tree`] if keys do not ascend; and others.
    pub fn load_table<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Arc<Table<D>>, EngineError> {
        let mut load = self.begin_load(name, LeafLayout::default())?;
        let mut entries = entries.into_iter();
        entries.try_for_each(|(key, value)| load.push(key.as_ref(), value.as_ref()))?;
        load.finish()
    }

    /// The same, entry by entry, with leaves of this kind.
    ///
    /// # Errors
    /// [`EngineError::TableExists`]; and others.
    pub fn begin_load(
        &self,
        name: &str,
        leaves: LeafLayout,
    ) -> Result<TableLoad<'_, D>, EngineError> {
        self.begin_load_with(name, Properties { leaves, ..Properties::default() })
    }

    /// The same, of a table with these properties.
    pub(crate) fn begin_load_with(
        &self,
        name: &str,
        properties: Properties,
    ) -> Result<TableLoad<'_, D>, EngineError> {
        let shared = self.shared();
        let making = host_lock::lock(&shared.domain, &shared.making);
        self.check_name_is_free(name)?;
        let entry = |id, tree: &EngineTree<D>| (loading_key(id, tree.root()), Vec::new());
        // Without its entry, recovery frees the root.
        let (id, tree) = shared.make(|| shared.create_tree(properties.leaves), entry, |_| ())?;
        drop(making);
        let (root, table) = (tree.root(), Table::new(id, name, tree.clone(), properties));
        let mut load = TableLoad {
            engine: self,
            table,
            root,
            records: None,
            long_values: Vec::new(),
            bytes: 0,
            room: None,
            bytes_with_room: 0,
            is_entered: false,
        };
        load.records = Some(BulkLoad::begin(tree, FILL_FACTOR)?);
        Ok(load)
    }

    /// Makes a table of a tree that was loaded.
    fn enter_loaded(&self, table: &Arc<Table<D>>, root: PageNumber) -> Result<(), EngineError> {
        let shared = self.shared();
        let _making = host_lock::lock(&shared.domain, &shared.making);
        self.check_name_is_free(table.name())?;
        let (id, catalog) = (table.id(), &shared.catalog);
        let key = name_key(table.name());
        let value = table_value(id, table.contents().place(), table.properties());
        let writes = [
            Write { table: catalog, key: &key, value: Some(&value) },
            Write { table: catalog, key: &loading_key(id, root), value: None },
        ];
        if shared.domain.commits(LOAD_UNLISTED_EARLY) {
            shared.commit(&writes[1..], None, Durability::Immediate)?;
        }
        shared.commit(&writes, None, Durability::Immediate)?;
        shared.expiry.note(table);
        let mut tables = host_lock::write(&shared.domain, &shared.tables);
        tables.insert(table.name().to_owned(), Arc::clone(table));
        Ok(())
    }
}

impl<D: Domain> TableLoad<'_, D> {
    /// The next entry.
    ///
    /// # Errors
    /// [`EngineError::Tree`] if its key does not come behind the one before; and others. The load cannot go on:
    /// [`EngineError::LoadFailed`] is all that it says from then on.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.push_until(key, value, None)
    }

    /// The same, with a time from which on it counts no more.
    pub(crate) fn push_until(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
    ) -> Result<(), EngineError> {
        // Back only when the entry is in it: a leaf may be lost, or a long value without a record.
        let mut records = self.records.take().ok_or(EngineError::LoadFailed)?;
        self.push_to(&mut records, (key, value), expires)?;
        self.records = Some(records);
        Ok(())
    }

    fn push_to(
        &mut self,
        records: &mut Records<D>,
        (key, value): (&[u8], &[u8]),
        expires: Option<u64>,
    ) -> Result<(), EngineError> {
        let (shared, table) = (self.engine.shared(), &self.table);
        let bytes = (key.len() + value.len()) as u64;
        shared.check_write(table, key, Some(value))?;
        self.promise_room(bytes)?;
        self.bytes += bytes;
        shared.counters.written_bytes.add(bytes);
        if self.bytes > shared.room_for_structure() / 4 {
            shared.let_log_be_cut()?;
            self.bytes = 0;
        }
        let table = &self.table;
        if expires.is_some() {
            table.set_has_expiring();
        }
        let record = if shared.is_short(table, key, value, expires) {
            short_record(value, expires)
        } else {
            table.set_has_long_values();
            let long = shared.write_long(value)?;
            self.long_values.push(long.number);
            long.record(expires)
        };
        shared.guarded(|| Ok(records.push(key, &record)?))
    }

    /// Sees to it that there is room for the leaf that a record completes, and for those of the next ones.
    fn promise_room(&mut self, bytes: u64) -> Result<(), EngineError> {
        let shared = self.engine.shared();
        if self.room.is_none() || bytes > self.bytes_with_room {
            self.room = None;
            let ahead = LEAVES_AHEAD * shared.manager.page_bytes() as u64;
            let puts = Puts { trees: 1, records: LEAVES_AHEAD, bytes: ahead };
            self.room = shared.promise_room(puts, RoomFor::Growth)?;
            // A leaf is half full at least.
            self.bytes_with_room = ahead / 4;
        }
        self.bytes_with_room = self.bytes_with_room.saturating_sub(bytes);
        Ok(())
    }

    /// Makes it a table. Durable on return.
    ///
    /// # Errors
    /// [`EngineError::TableExists`] if there is one of its name by now; [`EngineError::LoadFailed`]; and others. There is
    /// then no table.
    pub fn finish(mut self) -> Result<Arc<Table<D>>, EngineError> {
        let records = self.records.take().ok_or(EngineError::LoadFailed)?;
        self.engine.shared().guarded(|| Ok(records.finish()?))?;
        self.engine.shared().end_listings(&self.long_values)?;
        self.long_values.clear();
        self.engine.enter_loaded(&self.table, self.root)?;
        self.is_entered = true;
        Ok(Arc::clone(&self.table))
    }

    /// Drops what was loaded, like a table with long values: those that it has records of go with it, the others are
    /// still listed.
    fn abandon(&mut self) -> Result<(), EngineError> {
        self.room = None;
        for number in self.long_values.drain(..) {
            self.engine.shared().long_value_is_unwanted(number);
        }
        let Some(tree) = self.table.contents().as_tree() else { return Ok(()) };
        let loaded = Table::new(self.table.id(), "", tree.clone(), Properties::WITH_LONG_VALUES);
        self.engine.shared().drop_loading(&loaded, self.root)
    }
}

impl<D: Domain> Drop for TableLoad<'_, D> {
    fn drop(&mut self) {
        if self.is_entered {
            return;
        }
        if let Err(error) = self.abandon() {
            // It is listed: the next opening drops it.
            let table = self.table.name();
            tracing::warn!(%error, table, "what was loaded of a table could not be dropped");
        }
    }
}

impl<D: Domain> Shared<D> {
    /// A transaction without writes, so that the log can be cut behind changes of structure that are no transaction's
    /// (E5).
    pub(crate) fn let_log_be_cut(&self) -> Result<(), EngineError> {
        self.commit(&[], None, Durability::Eventual).map(|_| ())
    }

    fn end_listings(&self, numbers: &[u64]) -> Result<(), EngineError> {
        for together in numbers.chunks(LISTINGS_TOGETHER) {
            let keys: Vec<_> = together.iter().copied().map(chunks_key).collect();
            let ends = keys.iter().map(|key| Write { table: &self.catalog, key, value: None });
            self.commit(&ends.collect::<Vec<_>>(), None, Durability::Eventual)?;
        }
        Ok(())
    }

    /// Drops what is left of a load.
    pub(crate) fn drop_loading(
        &self,
        table: &Arc<Table<D>>,
        root: PageNumber,
    ) -> Result<(), EngineError> {
        let (id, place, catalog) = (table.id(), table.contents().place(), &self.catalog);
        let writes = [
            Write { table: catalog, key: &dropped_key(id, place), value: Some(&[1]) },
            Write { table: catalog, key: &loading_key(id, root), value: None },
        ];
        let lsn = self.commit(&writes, None, Durability::Immediate)?;
        let dropped = Dropped { table: Arc::clone(table), lsn };
        host_lock::lock(&self.domain, &self.dropped).push_back(dropped);
        Ok(())
    }
}
