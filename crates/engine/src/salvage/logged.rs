//! What the log of a damaged store has: the last write of each key, as far as the log can be read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lapis_blocks::block_log::Recovery;
use lapis_buffer::BufferManager;
use lapis_pmem::{BlockDevice, Domain};
use lapis_tree::redo_damaged;

use super::Lost;
use crate::key_range::KeyRange;
use crate::log::kind;
use crate::record::{self, Entries};
use crate::tables::TableId;

/// Where the last write of a key is in the log, and what it wrote.
type Write = (u64, Option<Vec<u8>>);

/// See the [module](self).
#[derive(Default)]
pub(super) struct Logged {
    tables: BTreeMap<TableId, BTreeMap<Vec<u8>, Write>>,
    /// Whether it could be read to its end.
    pub(super) is_whole: bool,
}

/// Reads the log, and redoes what it has of the structure of trees.
pub(super) fn read<D: Domain>(
    domain: &D,
    device: Option<Arc<dyn BlockDevice>>,
    manager: Option<&BufferManager<D>>,
    lost: &mut Vec<Lost>,
) -> Logged {
    let (mut logged, mut open) = (Logged::default(), HashMap::<u64, Vec<u8>>::new());
    let Some(device) = device else {
        lost.push(Lost::of_store("there is no log; values may be older"));
        return logged;
    };
    let mut recovery = match Recovery::begin(domain.clone(), device) {
        Ok(recovery) => recovery,
        Err(error) => {
            lost.push(Lost::of_store(format!(
                "the log cannot be read: {error}; values may be older"
            )));
            return logged;
        }
    };
    loop {
        let record = match recovery.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => {
                logged.is_whole = true;
                break;
            }
            Err(error) => {
                lost.push(Lost::of_store(format!(
                    "the end of the log is lost: {error}; values may be older"
                )));
                break;
            }
        };
        let lsn = record.lsn.number();
        match (record.kind, manager) {
            (kind::STRUCTURE, Some(manager)) => redo_damaged(manager, record.payload, lsn),
            (kind::PART | kind::COMMIT, _) => {
                let Ok((token, entries)) = record::parse(record.payload) else { continue };
                if record.kind == kind::PART {
                    open.entry(token).or_default().extend_from_slice(entries.0);
                    continue;
                }
                if let Some(parts) = open.remove(&token) {
                    logged.note(Entries(&parts), lsn);
                }
                logged.note(entries, lsn);
            }
            _ => {}
        }
    }
    logged
}

impl Logged {
    fn note(&mut self, entries: Entries<'_>, lsn: u64) {
        for entry in entries.filter_map(Result::ok) {
            let table = self.tables.entry(entry.table).or_default();
            table.insert(entry.key.to_vec(), (lsn, entry.value.map(<[u8]>::to_vec)));
        }
    }

    /// The tables that it has writes of.
    pub(super) fn tables(&self) -> impl Iterator<Item = TableId> + use<> {
        self.tables.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// The writes to keys of a range of a table, in their order.
    pub(super) fn of(
        &self,
        id: Option<TableId>,
        range: &KeyRange,
    ) -> impl Iterator<Item = (&[u8], u64, Option<&[u8]>)> {
        let table = id.and_then(|id| self.tables.get(&id)).filter(|_| !range.is_empty());
        let writes = table.map(|table| table.range::<[u8], _>((range.lower(), range.upper())));
        let writes = writes.into_iter().flatten();
        writes.map(|(key, (lsn, value))| (&key[..], *lsn, value.as_deref()))
    }
}
