//! Lapis, as its users have it.

use std::path::Path;

use lapis::{Caches, Config, Durability, Store, Table};

use super::peer::{OnEntry, OpenOptions, Peer, PeerError, Reads, Record};

/// Persistent memory besides as much as there is for pages in DRAM: four times the longest log, of which the log takes one.
const MEMORY_BYTES: u64 = 256 << 20;

struct Lapis {
    store: Store,
    table: Table,
}

/// With a directory for persistent memory, whatever lies there is written back and fenced as if it were some.
pub(super) fn open(
    options: &OpenOptions<'_>,
    memory: Option<&Path>,
) -> Result<Box<dyn Peer>, PeerError> {
    let OpenOptions { directory, cache_bytes, durable, .. } = *options;
    let durability = if durable { Durability::Immediate } else { Durability::Eventual };
    let mut config =
        Config::new(directory).cache_bytes(cache_bytes as usize).durability(durability);
    if let Some(memory) = memory {
        let bytes = (cache_bytes + MEMORY_BYTES) as usize;
        config = config.persistent_memory(memory, bytes).caches(Caches::Volatile);
    }
    let store = Store::open(config)?;
    let table = store.table_or_create("t")?;
    Ok(Box::new(Lapis { store, table }))
}

impl Peer for Lapis {
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        with(&mut &*self)
    }

    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
        let Some((key, value)) = records.next() else { return Ok(()) };
        let Some(second) = records.next() else { return Ok(self.table.put(key, value)?) };
        let mut transaction = self.store.transaction()?;
        for (key, value) in [(key, value), second].into_iter().chain(records) {
            transaction.put(&self.table, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn sync(&self) -> Result<(), PeerError> {
        Ok(self.store.sync()?)
    }

    fn close(self: Box<Self>) -> Result<(), PeerError> {
        drop(self.table);
        Ok(self.store.close()?)
    }
}

impl Reads for &Lapis {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
        Ok(self.table.get_into(key, value)?)
    }

    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
        let mut entries = self.table.range(from..)?;
        for _ in 0..count {
            let Some((key, value)) = entries.next_entry()? else { break };
            show(key, value);
        }
        Ok(())
    }
}
