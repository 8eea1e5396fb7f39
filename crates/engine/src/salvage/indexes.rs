//! Tables in indexes, of which persistent memory is left.
//!
//! An index has all that the log says was done to it, and maybe not the last of that (X1). So the log is laid over it,
//! where the log is whole; where its end is missing, what the index has is newer.
//!
//! A damaged index gives wrong links, whose records have wrong checksums (X2) and are listed, or ends in a panic,
//! which is caught: what it gave until then is told.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use lapis_index::IndexKind;
use lapis_pmem::Domain;

use super::{Lost, Salvage, SalvagedTable, Tree};
use crate::error::EngineError;
use crate::index_table::IndexTable;
use crate::key_range::KeyRange;
use crate::scan::Direction;
use crate::storage::Storage;
use crate::tables::TableId;

impl<D: Domain> Salvage<'_, D> {
    /// Tells the entries of a table in an index.
    pub(super) fn tell_index(
        &mut self,
        table: &SalvagedTable,
        id: TableId,
        (kind, root): (IndexKind, u64),
        chunks: &Tree,
    ) -> ControlFlow<()> {
        let all = KeyRange::all();
        let logged = self.logged.of(Some(id), &all);
        let logged = logged.map(|(key, _, record)| (key.to_vec(), record.map(<[u8]>::to_vec)));
        let mut logged = logged.collect::<Vec<_>>().into_iter().peekable();
        let (is_whole, mut going_on) = (self.logged.is_whole, ControlFlow::Continue(()));
        let read = panic::catch_unwind(AssertUnwindSafe(|| -> Result<(), EngineError> {
            let index = self.open_index(kind, root)?;
            let mut each = |key: &[u8], record: &[u8]| {
                while let Some((key, record)) = logged.next_if(|(next, _)| **next < *key) {
                    if let Some(record) = record {
                        going_on = self.tell_record(table, &key, &record, chunks, going_on);
                    }
                }
                let newer = logged.next_if(|(next, _)| **next == *key).filter(|_| is_whole);
                match newer {
                    None => going_on = self.tell_record(table, key, record, chunks, going_on),
                    Some((_, None)) => {}
                    Some((_, Some(record))) => {
                        going_on = self.tell_record(table, key, &record, chunks, going_on);
                    }
                }
                going_on
            };
            if kind.is_ordered() {
                index.visit(&all, Direction::Forward, each);
                return Ok(());
            }
            let mut records = BTreeMap::new();
            index.visit_all(|key, record| {
                records.insert(key.to_vec(), record.unwrap_or_default().to_vec());
            });
            let _ = records.iter().try_for_each(|(key, record)| each(key, record));
            Ok(())
        }));
        let why = match read {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("the {kind} index makes no sense any more")),
        };
        self.report.lost.extend(why.map(|why| Lost {
            table: Some(table.clone()),
            keys: Some(KeyRange::all()),
            page: None,
            why: format!("{why}; of the rest, the log alone is read"),
        }));
        for (key, record) in logged {
            if let Some(record) = record {
                going_on = self.tell_record(table, &key, &record, chunks, going_on);
            }
        }
        going_on
    }

    fn open_index(&self, kind: IndexKind, root: u64) -> Result<IndexTable<D>, EngineError> {
        let Storage { pool, indexes, .. } = self.memory;
        let pool = pool.as_ref().ok_or(EngineError::NoPersistentMemory)?;
        // Nothing is put into it.
        IndexTable::open(indexes, pool, kind, root, &Arc::default(), 0)
    }
}
