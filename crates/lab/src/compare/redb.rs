//! redb.

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, TableError,
};

use super::peer::{OnEntry, OpenOptions, Peer, PeerError, Reads, Record};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("t");

struct Redb {
    database: Database,
    durability: Durability,
}

pub(super) fn open(options: &OpenOptions<'_>) -> Result<Box<dyn Peer>, PeerError> {
    let mut with = Builder::new();
    with.set_cache_size(options.cache_bytes as usize);
    let database = with.create(options.directory.join("redb"))?;
    let durability = if options.durable { Durability::Immediate } else { Durability::None };
    Ok(Box::new(Redb { database, durability }))
}

impl Redb {
    fn commit(
        &self,
        durability: Durability,
        records: &mut dyn Iterator<Item = Record<'_>>,
    ) -> Result<(), PeerError> {
        let mut writing = self.database.begin_write()?;
        writing.set_durability(durability)?;
        {
            let mut table = writing.open_table(TABLE)?;
            for (key, value) in records {
                table.insert(key, value)?;
            }
        }
        Ok(writing.commit()?)
    }
}

impl Peer for Redb {
    fn read(
        &self,
        with: &mut dyn FnMut(&mut dyn Reads) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        let table = match self.database.begin_read()?.open_table(TABLE) {
            Err(TableError::TableDoesNotExist(_)) => return Err("it has no records".into()),
            table => table?,
        };
        with(&mut State(table))
    }

    fn put(&self, records: &mut dyn Iterator<Item = Record<'_>>) -> Result<(), PeerError> {
        self.commit(self.durability, records)
    }

    fn sync(&self) -> Result<(), PeerError> {
        self.commit(Durability::Immediate, &mut std::iter::empty())
    }

    fn close(self: Box<Self>) -> Result<(), PeerError> {
        self.sync()?;
        Ok(self.database.close()?)
    }
}

struct State(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reads for State {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, PeerError> {
        let found = self.0.get(key)?;
        value.clear();
        value.extend_from_slice(found.as_ref().map_or(&[], |found| found.value()));
        Ok(found.is_some())
    }

    fn scan(&mut self, from: &[u8], count: usize, show: OnEntry<'_>) -> Result<(), PeerError> {
        for entry in self.0.range(from..)?.take(count) {
            let (key, value) = entry?;
            show(key.value(), value.value());
        }
        Ok(())
    }
}
