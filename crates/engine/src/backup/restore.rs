//! Reading a backup into a new engine.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use lapis_blocks::block_log::Durability;
use lapis_index::IndexOptions;
use lapis_pmem::Domain;
use lapis_tree::LeafLayout;

use super::{BackupError, BackupReport, HeldBy, Record, Records};
use crate::catalog::TableStructure;
use crate::commit::Write;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::mutants::RESTORE_NOT_MARKED;
use crate::tables::{Properties, RESTORING_KEY, Table};

/// Bytes that are put together into an index.
const TOGETHER_BYTES: usize = 64 << 10;

impl<D: Domain> Engine<D> {
    /// Reads a backup into this engine, which is new and has no tables, and which nobody uses meanwhile. Durable on
    /// return. A restore that fails, or is cut short, leaves an engine that cannot be opened again (K3).
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`]: nothing has changed. All others of [`BackupError`].
    pub fn restore(&self, from: impl Read) -> Result<BackupReport, BackupError> {
        if !self.tables().is_empty() {
            return Err(BackupError::NotEmpty);
        }
        let mut records = Records::begin(from)?;
        if !self.shared().domain.commits(RESTORE_NOT_MARKED) {
            self.shared().mark_restore(Some(&[]))?;
        }
        let mut next = records.next_record()?;
        while let Some(record) = next {
            let Record::Table { name, held_by, time_to_live_ms } = record else {
                return Err(records.blocks.damaged("has entries before a table"));
            };
            let leaves = match held_by {
                HeldBy::Index(kind) if self.shared().memory.pool.is_some() => {
                    let time_to_live = time_to_live_ms.map(Duration::from_millis);
                    let index = TableStructure::Index(kind, &IndexOptions::DEFAULT);
                    let table = self.create_table_with(&name, index, time_to_live)?;
                    next = self.put_all(&table, &mut records)?;
                    continue;
                }
                // It becomes a tree where there is no persistent memory.
                HeldBy::Index(_) => LeafLayout::default(),
                HeldBy::Tree(leaves) => leaves,
            };
            let (has_long_values, has_expiring) = (false, time_to_live_ms.is_some());
            let properties = Properties { has_long_values, has_expiring, leaves, time_to_live_ms };
            let mut load = self.begin_load_with(&name, properties)?;
            next = records.next_record()?;
            while let Some(Record::Entry(key, value, expires)) = &next {
                load.push_until(key, value, *expires)?;
                next = records.next_record()?;
            }
            load.finish()?;
        }
        self.shared().mark_restore(None)?;
        Ok(records.report)
    }

    /// Puts the entries that come into a table; returns the record behind them.
    fn put_all(
        &self,
        table: &Arc<Table<D>>,
        records: &mut Records<impl Read>,
    ) -> Result<Option<Record>, BackupError> {
        let (mut transaction, mut bytes) = (self.begin()?, 0);
        let mut next = records.next_record()?;
        while let Some(Record::Entry(key, value, expires)) = &next {
            transaction.put_until(table, key, value, *expires)?;
            bytes += key.len() + value.len();
            if bytes >= TOGETHER_BYTES {
                let whole = std::mem::replace(&mut transaction, self.begin()?);
                whole.commit(Durability::Eventual)?;
                bytes = 0;
            }
            next = records.next_record()?;
        }
        transaction.commit(Durability::Eventual)?;
        Ok(next)
    }
}

impl<D: Domain> Shared<D> {
    fn mark_restore(&self, value: Option<&[u8]>) -> Result<(), EngineError> {
        let mark = Write { table: &self.catalog, key: RESTORING_KEY, value };
        self.commit(&[mark], None, Durability::Immediate).map(|_| ())
    }
}
