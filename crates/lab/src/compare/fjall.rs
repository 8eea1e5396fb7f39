//! fjall.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::peer::{OnEntry, OpenOptions, Peer, PeerError, Reads, Record};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    durable: bool,
}

pub(super) fn open(options: &OpenOptions<'_>) -> Result<Box<dyn Peer>, PeerError> {
    let database = Database::builder(options.directory).cache_size(options.cache_bytes).open()?;
    let keyspace = database.keyspace("t", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { database, keyspace, durable: options.durable }))
}

impl Peer for Fjall {
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        with(&mut &*self)
    }

    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
        let mut batch = self.database.batch();
        for (key, value) in records {
            batch.insert(&self.keyspace, key, value);
        }
        Ok(batch.durability(self.durable.then_some(PersistMode::SyncData)).commit()?)
    }

    fn sync(&self) -> Result<(), PeerError> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn close(self: Box<Self>) -> Result<(), PeerError> {
        self.sync()
    }
}

impl Reads for &Fjall {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
        let found = self.keyspace.get(key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
        for entry in self.keyspace.range(from..).take(count) {
            let (key, value) = entry.into_inner()?;
            show(&key, &value);
        }
        Ok(())
    }
}
