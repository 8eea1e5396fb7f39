//! Making tables, finding them and dropping them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lapis_blocks::block_log::Durability;
use lapis_buffer::RoomFor;
use lapis_index::{IndexKind, IndexOptions};
use lapis_pmem::{Domain, Pool, ReachableBlocks, host_lock};
use lapis_tree::{LeafLayout, Puts, Tree};

use crate::commit::Write;
use crate::contents::{Contents, EngineTree};
use crate::drop::Dropped;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::expiry::milliseconds;
use crate::index_table::{IndexTable, room_for_index};
use crate::tables::{
    NEXT_KEY, Properties, Table, TableId, dropped_key, is_name, name_key, table_value,
};

/// What the records of a table that is made are to be in.
#[derive(Clone, Copy, Debug)]
pub enum TableStructure<'o> {
    /// A tree on pages.
    Tree(LeafLayout),
    /// An index in persistent memory.
    Index(IndexKind, &'o IndexOptions),
}

impl Default for TableStructure<'_> {
    fn default() -> Self {
        Self::Tree(LeafLayout::default())
    }
}

impl<D: Domain> Engine<D> {
    /// The table called `name`.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTable`].
    pub fn table(&self, name: &str) -> Result<Arc<Table<D>>, EngineError> {
        let tables = host_lock::read(&self.shared().domain, &self.shared().tables);
        let table = tables.get(name).cloned();
        table.ok_or_else(|| EngineError::NoSuchTable { name: name.to_owned() })
    }

    /// The tables, in order of their names.
    pub fn tables(&self) -> Vec<Arc<Table<D>>> {
        host_lock::read(&self.shared().domain, &self.shared().tables).values().cloned().collect()
    }

    /// Makes a table. Durable on return.
    ///
    /// # Errors
    /// [`EngineError::TableExists`] and others.
    pub fn create_table(&self, name: &str) -> Result<Arc<Table<D>>, EngineError> {
        self.create_table_with(name, TableStructure::default(), None)
    }

    /// Makes a table in an index of this kind, in persistent memory. Durable on return. What is committed to it is
    /// durable at once, whatever `Durability` says: see `index_table.rs`.
    ///
    /// # Errors
    /// [`EngineError::NoPersistentMemory`], [`EngineError::TableExists`] and others.
    pub fn create_index_table(
        &self,
        name: &str,
        kind: IndexKind,
        options: &IndexOptions,
    ) -> Result<Arc<Table<D>>, EngineError> {
        self.create_table_with(name, TableStructure::Index(kind, options), None)
    }

    /// Makes a table in a tree or in an index, whose entries live so long if they are not given another time. Durable on
    /// return.
    ///
    /// # Errors
    /// As for [`Engine::create_index_table`].
    pub fn create_table_with(
        &self,
        name: &str,
        structure: TableStructure<'_>,
        time_to_live: Option<Duration>,
    ) -> Result<Arc<Table<D>>, EngineError> {
        let shared = self.shared();
        let leaves = match structure {
            TableStructure::Tree(leaves) => leaves,
            TableStructure::Index(..) => LeafLayout::default(),
        };
        let properties = Properties {
            has_long_values: false,
            has_expiring: time_to_live.is_some(),
            leaves,
            time_to_live_ms: time_to_live.map(milliseconds),
        };
        let _making = host_lock::lock(&shared.domain, &shared.making);
        self.check_name_is_free(name)?;
        // X4, until the catalog leads to it.
        let room = match structure {
            TableStructure::Tree(_) => None,
            TableStructure::Index(_, options) => Some(room_for_index(options.expected_entries)),
        };
        let _change = room.map(|bytes| shared.change_indexes(bytes)).transpose()?;
        let create = || match structure {
            TableStructure::Tree(leaves) => shared.create_tree(leaves).map(Contents::Tree),
            TableStructure::Index(kind, options) => shared.create_index(kind, options),
        };
        let entry = |id, contents: &Contents<D>| {
            (name_key(name), table_value(id, contents.place(), properties))
        };
        let (id, contents) = shared.make(create, entry, |contents| {
            if let (Some(index), Ok(())) = (contents.as_index(), shared.order.check_running()) {
                index.retire_all(&index.reachable());
            }
        })?;
        let table = Table::new(id, name, contents, properties);
        shared.expiry.note(&table);
        let mut tables = host_lock::write(&shared.domain, &shared.tables);
        tables.insert(name.to_owned(), Arc::clone(&table));
        Ok(table)
    }

    pub(crate) fn check_name_is_free(&self, name: &str) -> Result<(), EngineError> {
        if !is_name(name) {
            return Err(EngineError::BadTableName);
        }
        match self.table(name) {
            Ok(_) => Err(EngineError::TableExists { name: name.to_owned() }),
            Err(_) => self.shared().check_write(&self.shared().catalog, &name_key(name), None),
        }
    }

    /// Drops a table and everything in it. Durable on return; its pages are freed by
    /// [`Engine::maintain`]. Handles of it refuse from then on, those of snapshots and transactions too.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTable`] and others.
    pub fn drop_table(&self, name: &str) -> Result<(), EngineError> {
        let shared = self.shared();
        shared.check_writable()?;
        let _making = host_lock::lock(&shared.domain, &shared.making);
        let dropped = self.table(name)?;
        // X4: it is in one list or the other.
        let _held = shared.hold_indexes();
        // Who commits later finds it so in its turn; who had its turn before is in the log before.
        dropped.set_dropped(true);
        let (name_key, dropped_key) =
            (name_key(name), dropped_key(dropped.id(), dropped.contents().place()));
        let long_values = [u8::from(dropped.has_long_values())];
        let table = &shared.catalog;
        let writes = [
            Write { table, key: &name_key, value: None },
            Write { table, key: &dropped_key, value: Some(&long_values) },
        ];
        let lsn = shared
            .commit(&writes, None, Durability::Immediate)
            .inspect_err(|_| dropped.set_dropped(false))?;
        host_lock::write(&shared.domain, &shared.tables).remove(name);
        host_lock::lock(&shared.domain, &shared.dropped).push_back(Dropped { table: dropped, lsn });
        Ok(())
    }
}

impl<D: Domain> Shared<D> {
    /// Makes what the records of a table are in, with an entry of the catalog that says so; without the entry, `give_back` has
    /// it back. Who does has the turn to make tables. Durable on return.
    pub(crate) fn make<C>(
        &self,
        create: impl FnOnce() -> Result<C, EngineError>,
        entry: impl FnOnce(TableId, &C) -> (Vec<u8>, Vec<u8>),
        give_back: impl FnOnce(&C),
    ) -> Result<(TableId, C), EngineError> {
        self.order.check_running()?;
        let id = self.next_table.load(Ordering::Relaxed) as TableId;
        self.make_room(0, None)?;
        let root = Puts { trees: 1, records: 1, bytes: 0 };
        let _room = self.promise_room(root, RoomFor::Growth)?;
        // If the catalog does not come to know the root of a tree, recovery frees it: by the record that made it.
        let kept = self.order.keep_log();
        let contents = self.guarded(create).inspect_err(|_| self.order.let_go_of_log(kept))?;
        let (next, (key, value)) = ((id + 1).to_le_bytes(), entry(id, &contents));
        let table = &self.catalog;
        let writes = [
            Write { table, key: NEXT_KEY, value: Some(&next) },
            Write { table, key: &key, value: Some(&value) },
        ];
        let committed = self.commit_with_log_kept(Some(kept), &writes, None, Durability::Immediate);
        self.order.let_go_of_log(kept);
        committed.inspect_err(|_| give_back(&contents))?;
        self.next_table.store(u64::from(id + 1), Ordering::Relaxed);
        Ok((id, contents))
    }

    pub(crate) fn create_tree(&self, leaves: LeafLayout) -> Result<EngineTree<D>, EngineError> {
        Ok(Tree::create_with(Arc::clone(&self.manager), Arc::clone(&self.log), leaves)?)
    }

    fn create_index(
        &self,
        kind: IndexKind,
        options: &IndexOptions,
    ) -> Result<Contents<D>, EngineError> {
        let largest = self.log.block_log().largest_payload_bytes();
        let (indexes, pool, identity) =
            (self.memory.indexes, self.memory.pool()?, self.log.identity());
        let pieces = &self.memory.pieces;
        let index = IndexTable::create(indexes, pool, kind, options, pieces, largest, identity)?;
        Ok(Contents::Index(index))
    }

    /// The blocks of the pool that are the engine's. Nobody changes indexes.
    pub(crate) fn reachable(&self, pool: &Pool<D>) -> ReachableBlocks {
        let tables = host_lock::read(&self.domain, &self.tables);
        let mut tables: Vec<_> = tables.values().cloned().collect();
        let dropped = host_lock::lock(&self.domain, &self.dropped);
        tables.extend(dropped.iter().map(|dropped| Arc::clone(&dropped.table)));
        drop(dropped);
        pool.reachable(|visitor| self.memory.visit_blocks(&self.manager, &tables, visitor))
    }
}
