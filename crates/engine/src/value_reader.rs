//! Reading a value of which not all is in memory at a time.

use std::sync::Arc;

use lapis_pmem::Domain;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::snapshot::{Reader, Snapshot};
use crate::tables::Table;
use crate::value::{self, LongValue, Stored, chunk_key};

/// A value at one state, read from any place on. It keeps that state, and so its chunks.
///
/// Each page that it reads has a checksum. The value's own, which tells parts of one value from those of another, is
/// looked at by whoever has read all of it from the beginning on.
#[derive(Debug)]
pub struct ValueReader<D: Domain> {
    reader: Arc<Reader<D>>,
    table: Arc<Table<D>>,
    key: Box<[u8]>,
    /// Where it is; none if all of it is the one chunk.
    long: Option<LongValue>,
    bytes: u64,
    position: u64,
    /// The chunk that was read last, and its place.
    chunk: Vec<u8>,
    place: Option<u32>,
    /// How much was read from the beginning on without a gap, and its checksum.
    in_order: u64,
    checksum: u32,
}

impl<D: Domain> Engine<D> {
    /// Reads the newest value of a key, durable, or none.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn value_reader(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
    ) -> Result<Option<ValueReader<D>>, EngineError> {
        self.snapshot()?.value_reader(table, key)
    }
}

impl<D: Domain> Snapshot<D> {
    /// Reads the value of a key, or none.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn value_reader(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
    ) -> Result<Option<ValueReader<D>>, EngineError> {
        table.check_not_dropped()?;
        let reader = Arc::clone(self.reader());
        let Some(mut record) = reader.get_record(table, key)?.filter(|it| reader.sees(it)) else {
            return Ok(None);
        };
        let (long, bytes) = match value::parse(&record) {
            Some(Stored::Short(value)) => (None, value.len()),
            Some(Stored::Long(long)) => (Some(long), 0),
            None => return Err(value::damaged(table, key, "is no value")),
        };
        record.truncate(bytes);
        Ok(Some(ValueReader {
            reader,
            table: Arc::clone(table),
            key: key.into(),
            long,
            bytes: long.map_or(bytes as u64, |long| long.bytes),
            position: 0,
            chunk: record,
            place: long.is_none().then_some(0),
            in_order: 0,
            checksum: 0,
        }))
    }
}

impl<D: Domain> ValueReader<D> {
    /// Bytes of the value.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of the next byte that is read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a place, which may lie behind the end.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// Reads at most as much as there is room for, and at least a byte if there is one; returns how many.
    ///
    /// # Errors
    /// [`EngineError::Damaged`] and others.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, EngineError> {
        if self.position >= self.bytes || into.is_empty() {
            return Ok(0);
        }
        let at = match self.long {
            None => self.position as usize,
            Some(long) => {
                let chunk_bytes = self.reader.engine().shared().chunk_bytes() as u64;
                self.load(long, self.position / chunk_bytes, chunk_bytes)?;
                (self.position % chunk_bytes) as usize
            }
        };
        let there = self.chunk.get(at..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        self.position += count as u64;
        Ok(count)
    }

    /// Reads a chunk, if it was not the last.
    fn load(&mut self, long: LongValue, place: u64, chunk_bytes: u64) -> Result<(), EngineError> {
        let lacks =
            |this: &Self| value::damaged(&this.table, &this.key, "lacks a part, or has another's");
        let Ok(index) = u32::try_from(place) else { return Err(lacks(self)) };
        if self.place == Some(index) {
            return Ok(());
        }
        let shared = self.reader.engine().shared();
        let key = chunk_key(long.number, index);
        self.place = None;
        self.chunk.clear();
        let chunk = &mut self.chunk;
        let found = shared.guarded(|| shared.chunks.contents().get(&key, chunk))?;
        let first = place * chunk_bytes;
        if !found || self.chunk.len() as u64 != (self.bytes - first).min(chunk_bytes) {
            return Err(lacks(self));
        }
        if first == self.in_order {
            self.checksum = crc32c::crc32c_append(self.checksum, &self.chunk);
            self.in_order += self.chunk.len() as u64;
            if self.in_order == self.bytes && self.checksum != long.checksum {
                return Err(lacks(self));
            }
        }
        self.place = Some(index);
        Ok(())
    }
}
