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

use std::cell::RefCell;
use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_buffer::{PageNumber, Promise, RoomFor};
use lapis_pmem::{Domain, host_lock};
use lapis_tree::{LeafLayout, Puts};

use crate::commit::Write;
use crate::contents::EngineTree;
use crate::drop::Dropped;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
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

/// A load under way.
struct Loading<'s, D: Domain, E> {
    /// Long values that are listed.
    long_values: Vec<u64>,
    /// Bytes since the log could last be cut.
    bytes: u64,
    /// Pages for the records to come, and how many bytes of these there may still be.
    room: Option<Promise<'s, D>>,
    bytes_with_room: u64,
    /// Why no more records come.
    failed: Option<E>,
}

impl<D: Domain, E> Default for Loading<'_, D, E> {
    fn default() -> Self {
        let long_values = Vec::new();
        Self { long_values, bytes: 0, room: None, bytes_with_room: 0, failed: None }
    }
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
        let entries = entries.into_iter().map(Ok::<_, EngineError>);
        self.try_load_table(name, LeafLayout::default(), entries)
    }

    /// The same, with leaves of this kind, and of entries that may fail to come: with the first one that does, the load ends,
    /// and there is no table.
    ///
    /// # Errors
    /// That of the entry; all others of [`Engine::load_table`].
    pub fn try_load_table<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<EngineError>>(
        &self,
        name: &str,
        leaves: LeafLayout,
        entries: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<Arc<Table<D>>, E> {
        let entries = entries.into_iter().map(|entry| entry.map(|(key, value)| (key, value, None)));
        self.load_with(name, Properties { leaves, ..Properties::default() }, entries)
    }

    /// The same, of entries of which each may say since when it counts no more.
    pub(crate) fn load_with<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<EngineError>>(
        &self,
        name: &str,
        properties: Properties,
        entries: impl Iterator<Item = Result<(K, V, Option<u64>), E>>,
    ) -> Result<Arc<Table<D>>, E> {
        let shared = self.shared();
        let making = host_lock::lock(&shared.domain, &shared.making);
        self.check_name_is_free(name)?;
        let entry = |id, tree: &EngineTree<D>| (loading_key(id, tree.root()), Vec::new());
        // Without its entry, recovery frees the root.
        let (id, tree) = shared.make(|| shared.create_tree(properties.leaves), entry, |_| ())?;
        drop(making);
        let (root, table) = (tree.root(), Table::new(id, name, tree.clone(), properties));
        let loaded = shared.fill(&table, &tree, entries);
        let loaded = loaded.and_then(|()| Ok(self.enter_loaded(&table, root)?));
        if loaded.is_err() {
            shared.drop_loading(&Table::new(id, "", tree, Properties::WITH_LONG_VALUES), root)?;
        }
        loaded.map(|()| table)
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

impl<D: Domain> Shared<D> {
    /// Loads a tree that nobody knows of. Afterwards no long value of it is listed.
    fn fill<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<EngineError>>(
        &self,
        table: &Arc<Table<D>>,
        tree: &EngineTree<D>,
        mut entries: impl Iterator<Item = Result<(K, V, Option<u64>), E>>,
    ) -> Result<(), E> {
        let loading = RefCell::new(Loading::default());
        // Nothing is latched while the tree asks for the next one.
        let records = std::iter::from_fn(|| {
            let entry = entries.next()?;
            let mut loading = loading.borrow_mut();
            let record = entry.and_then(|(key, value, expires)| {
                let (of, value) = (key.as_ref(), value.as_ref());
                let record = self.record_of(table, of, value, expires, &mut loading)?;
                Ok((key, record))
            });
            record.map_err(|error| loading.failed = Some(error)).ok()
        });
        let loaded = tree.bulk_load(records, FILL_FACTOR);
        let Loading { long_values, failed, .. } = loading.into_inner();
        let loaded = loaded.map(|_| ()).map_err(|error| EngineError::from(error).into());
        let loaded = failed.map_or(loaded, Err);
        let ended = loaded.and_then(|()| Ok(self.end_listings(&long_values)?));
        for number in long_values {
            self.long_value_is_decided(number, ended.is_ok());
        }
        ended
    }

    /// The record of an entry that is loaded.
    fn record_of<'s, E>(
        &'s self,
        table: &Arc<Table<D>>,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
        loading: &mut Loading<'s, D, E>,
    ) -> Result<Vec<u8>, EngineError> {
        self.check_write(table, key, Some(value))?;
        self.promise_room_to_load(key.len() + value.len(), loading)?;
        loading.bytes += (key.len() + value.len()) as u64;
        self.counters.written_bytes.add((key.len() + value.len()) as u64);
        if loading.bytes > self.room_for_structure() / 4 {
            self.let_log_be_cut()?;
            loading.bytes = 0;
        }
        if expires.is_some() {
            table.set_has_expiring();
        }
        if self.is_short(table, key, value, expires) {
            return Ok(short_record(value, expires).into_vec());
        }
        table.set_has_long_values();
        let long = self.write_long(value)?;
        loading.long_values.push(long.number);
        Ok(long.record(expires).into_vec())
    }

    /// Sees to it that there is room for the leaf that a record completes, and for those of the next ones.
    fn promise_room_to_load<'s, E>(
        &'s self,
        bytes: usize,
        loading: &mut Loading<'s, D, E>,
    ) -> Result<(), EngineError> {
        let bytes = bytes as u64;
        if loading.room.is_none() || bytes > loading.bytes_with_room {
            loading.room = None;
            let ahead = LEAVES_AHEAD * self.manager.page_bytes() as u64;
            let puts = Puts { trees: 1, records: LEAVES_AHEAD, bytes: ahead };
            loading.room = self.promise_room(puts, RoomFor::Growth)?;
            // A leaf is half full at least.
            loading.bytes_with_room = ahead / 4;
        }
        loading.bytes_with_room = loading.bytes_with_room.saturating_sub(bytes);
        Ok(())
    }

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
