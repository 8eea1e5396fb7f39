//! LMDB. Its cache is the kernel's, so it takes no size.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn};

use super::peer::{OnEntry, OpenOptions, Peer, PeerError, Reads, Record};

/// Address space, of which as much is used as there is data.
const MAP_BYTES: usize = 64 << 30;

type Table = Database<'static, Bytes, Bytes>;

struct Lmdb {
    environment: Env,
    table: Table,
}

pub(super) fn open(options: &OpenOptions<'_>) -> Result<Box<dyn Peer>, PeerError> {
    let mut with = EnvOpenOptions::new();
    with.map_size(MAP_BYTES);
    if !options.durable {
        // SAFETY: who asks for no durability syncs before anything is to survive a power cut.
        unsafe { with.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: nobody else changes the files: the directory is the comparison's own.
    let environment = unsafe { with.open(options.directory)? };
    let writing = environment.write_txn()?;
    let table = environment
        .create_databases_and_commit(writing, |opener, writing| {
            opener.create_database(writing, None).map(CommitOrAbort::<_, ()>::Commit)
        })?
        .unwrap_commit();
    Ok(Box::new(Lmdb { environment, table }))
}

impl Peer for Lmdb {
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        let state = self.environment.read_txn()?;
        with(&mut State { state: &state, table: self.table })
    }

    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
        let mut writing = self.environment.write_txn()?;
        for (key, value) in records {
            self.table.put(&mut writing, key, value)?;
        }
        Ok(writing.commit()?)
    }

    fn sync(&self) -> Result<(), PeerError> {
        Ok(self.environment.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<(), PeerError> {
        self.sync()
    }
}

struct State<'s> {
    state: &'s RoTxn<'s>,
    table: Table,
}

impl Reads for State<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
        let found = self.table.get(self.state, key)?;
        value.clear();
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
        let range = (Bound::Included(from), Bound::Unbounded);
        for entry in self.table.range(self.state, &range)?.take(count) {
            let (key, value) = entry?;
            show(key, value);
        }
        Ok(())
    }
}
