//! Writing a value of which not all is in memory at a time.

use std::sync::Arc;

use lapis_blocks::block_log::Durability;
use lapis_pmem::Domain;

use crate::commit::Write;
use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::expiry::TimeToLive;
use crate::mutants::{CHUNKS_NOT_LISTED, STREAM_RECORD_EARLY};
use crate::tables::{Table, chunks_key};
use crate::value::{CHUNK_KEY_BYTES, LongValue, MAX_VALUE_BYTES, chunk_key};

/// Bytes of chunks that are committed together, unless the log is so short that a transaction may have no more than that.
const TOGETHER_BYTES: usize = 64 << 10;

/// The chunks of a long value that are written so far (V2).
#[derive(Debug)]
pub(crate) struct Chunks {
    number: u64,
    count: u32,
    bytes: u64,
    checksum: u32,
}

impl Chunks {
    /// The value that they are, with these bytes at its end.
    fn value_with(&self, last: &[u8]) -> LongValue {
        let checksum = crc32c::crc32c_append(self.checksum, last);
        LongValue { number: self.number, bytes: self.bytes + last.len() as u64, checksum }
    }
}

impl<D: Domain> Shared<D> {
    /// Bytes of every chunk but the last of a value.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunks.largest_record_bytes(&[0; CHUNK_KEY_BYTES])
    }

    /// Bytes of a whole number of chunks.
    fn together_bytes(&self) -> usize {
        let (chunk_bytes, most) = (self.chunk_bytes(), self.most_transaction_bytes() / 2);
        let most = usize::try_from(most).map_or(TOGETHER_BYTES, |most| most.min(TOGETHER_BYTES));
        (most / chunk_bytes).max(1) * chunk_bytes
    }

    /// A number that no value has, nor chunks that are to go. After an opening one may come again: numbers begin behind the end
    /// of the log then, of which those that were given and not logged yet had taken nothing.
    fn unused_number(&self) -> Result<u64, EngineError> {
        let mut found = Vec::new();
        loop {
            let number = self.next_token();
            let is_used = self.chunks.contents().get(&chunk_key(number, 0), &mut found)?
                || self.catalog.contents().get(&chunks_key(number), &mut found)?;
            if !is_used {
                return Ok(number);
            }
        }
    }

    /// Lists the number of a long value (V2). What is written is to become a record, in a transaction that ends the listing
    /// too; who gives that up says so ([`Shared::long_value_is_unwanted`]).
    fn begin_chunks(&self) -> Result<Chunks, EngineError> {
        let number = self.unused_number()?;
        let listing = chunks_key(number);
        let listed = Write { table: &self.catalog, key: &listing, value: Some(&[]) };
        if !self.domain.commits(CHUNKS_NOT_LISTED) {
            let listed = self.commit(&[listed], None, Durability::Eventual);
            listed.inspect_err(|_| self.long_value_is_unwanted(number))?;
        }
        Ok(Chunks { number, count: 0, bytes: 0, checksum: 0 })
    }

    /// Writes what comes next: whole chunks, but at the end.
    fn append_chunks(&self, chunks: &mut Chunks, bytes: &[u8]) -> Result<(), EngineError> {
        let chunk_bytes = self.chunk_bytes();
        for together in bytes.chunks(self.together_bytes()) {
            let parts: Vec<_> = (chunks.count..).zip(together.chunks(chunk_bytes)).collect();
            let keys: Vec<_> =
                parts.iter().map(|(place, _)| chunk_key(chunks.number, *place)).collect();
            let writes = keys.iter().zip(&parts);
            let writes = writes.map(|(key, (_, chunk))| Write {
                table: &self.chunks,
                key,
                value: Some(chunk),
            });
            self.commit(&writes.collect::<Vec<_>>(), None, Durability::Eventual)?;
            chunks.count += parts.len() as u32;
            chunks.bytes += together.len() as u64;
            chunks.checksum = crc32c::crc32c_append(chunks.checksum, together);
        }
        Ok(())
    }

    /// Writes a long value that is in memory.
    pub(crate) fn write_long(&self, value: &[u8]) -> Result<LongValue, EngineError> {
        let mut chunks = self.begin_chunks()?;
        let written = self.append_chunks(&mut chunks, value);
        written.inspect_err(|_| self.long_value_is_unwanted(chunks.number))?;
        Ok(chunks.value_with(&[]))
    }
}

/// A value under way, from its first byte on. Nobody sees anything of it before [`ValueWriter::finish`]; dropping it
/// leaves no trace.
#[derive(Debug)]
pub struct ValueWriter<D: Domain> {
    engine: Engine<D>,
    table: Arc<Table<D>>,
    key: Box<[u8]>,
    time_to_live: TimeToLive,
    /// What is not in chunks yet.
    buffer: Vec<u8>,
    chunks: Option<Chunks>,
}

impl<D: Domain> Engine<D> {
    /// Begins a value of a key.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn value_writer(
        &self,
        table: &Arc<Table<D>>,
        key: &[u8],
        time_to_live: TimeToLive,
    ) -> Result<ValueWriter<D>, EngineError> {
        self.shared().check_write(table, key, None)?;
        Ok(ValueWriter {
            engine: self.clone(),
            table: Arc::clone(table),
            key: key.into(),
            time_to_live,
            buffer: Vec::new(),
            chunks: None,
        })
    }
}

impl<D: Domain> ValueWriter<D> {
    /// Bytes of the value so far.
    pub fn bytes(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.bytes) + self.buffer.len() as u64
    }

    /// Adds bytes at its end.
    ///
    /// # Errors
    /// [`EngineError::ValueTooLong`], and what committing does; the value has then none of these bytes, or some:
    /// [`ValueWriter::bytes`] says how many.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<(), EngineError> {
        while !bytes.is_empty() {
            bytes = &bytes[self.append_some(bytes)?..];
        }
        Ok(())
    }

    /// Adds as many of these bytes at its end as there is room for in memory: one at least, unless there are none. Returns
    /// how many. What was added is not durable.
    ///
    /// # Errors
    /// [`EngineError::ValueTooLong`] if all of them are too many, and what committing does; the value has then none
    /// of them, so that they may be given again.
    pub fn append_some(&mut self, bytes: &[u8]) -> Result<usize, EngineError> {
        let all = self.bytes().saturating_add(bytes.len() as u64);
        if all > MAX_VALUE_BYTES as u64 {
            let bytes = usize::try_from(all).unwrap_or(usize::MAX);
            return Err(EngineError::ValueTooLong { bytes, most: MAX_VALUE_BYTES });
        }
        let together = self.engine.shared().together_bytes();
        // A buffer that is full waits for more: it may be the end of the value. It goes before anything is taken, for
        // who is refused has given nothing.
        if self.buffer.len() == together && !bytes.is_empty() {
            self.write_buffer()?;
        }
        let taken = bytes.len().min(together - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn write_buffer(&mut self) -> Result<(), EngineError> {
        let shared = self.engine.shared();
        if self.chunks.is_none() {
            self.engine.note_long_values(&self.table)?;
            self.chunks = Some(shared.begin_chunks()?);
        }
        if let Some(chunks) = &mut self.chunks {
            shared.append_chunks(chunks, &self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Gives the key the value, in a transaction of its own. Returns its place in the log.
    ///
    /// # Errors
    /// [`EngineError`]; the key is then as it was.
    pub fn finish(mut self, durability: Durability) -> Result<u64, EngineError> {
        if self.chunks.is_none() {
            let (engine, table, key) = (&self.engine, &self.table, &self.key);
            return engine.put_with(table, key, &self.buffer, self.time_to_live, durability);
        }
        let is_early = self.engine.shared().domain.commits(STREAM_RECORD_EARLY);
        if !is_early {
            self.write_buffer()?;
        }
        let mut transaction = self.engine.begin()?;
        let expires = self.engine.shared().expiry.of(self.time_to_live, &self.table);
        let chunks = self.chunks.take();
        if let Some(chunks) = &chunks {
            // From here on the transaction sees to what becomes of the chunks.
            let value = chunks.value_with(&self.buffer);
            transaction.put_long(&self.table, &self.key, value, expires)?;
        }
        let committed = transaction.commit(durability);
        if let Some(mut chunks) = chunks.filter(|_| is_early) {
            self.engine.shared().append_chunks(&mut chunks, &self.buffer)?;
        }
        committed
    }
}

impl<D: Domain> Drop for ValueWriter<D> {
    fn drop(&mut self) {
        if let Some(chunks) = &self.chunks {
            self.engine.shared().long_value_is_unwanted(chunks.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use lapis_device::{ModelledSsd, SsdConfig};
    use lapis_pmem::{BlockDevice, FlushMethod, Hardware};

    use super::*;
    use crate::engine::EngineOptions;
    use crate::storage::Storage;

    fn device(blocks: u64) -> Arc<ModelledSsd> {
        Arc::new(ModelledSsd::new(blocks, SsdConfig::default()).unwrap())
    }

    fn create(pages: &Arc<ModelledSsd>) -> Engine<Hardware> {
        let domain = Hardware::with_method(FlushMethod::PageCacheNone).unwrap();
        let pages = Arc::clone(pages) as Arc<dyn BlockDevice>;
        Engine::create(domain, Storage::ssd(pages, device(2 + 1024)), &EngineOptions::small())
            .unwrap()
    }

    #[test]
    fn a_number_whose_chunks_are_there_is_not_given_again() {
        let engine = create(&device(1));
        let table = engine.create_table("t").unwrap();
        let value = |key: &[u8]| vec![key[0]; 20_000];
        let put = |key: &[u8]| engine.put(&table, key, &value(key), Durability::Immediate).unwrap();
        let token = &engine.shared().next_token;
        let first = token.load(Ordering::Relaxed);
        put(b"a");
        put(b"b");
        // Listed: it is to go, and has not.
        put(b"b");
        token.store(first, Ordering::Relaxed);
        put(b"c");
        engine.maintain().unwrap();
        for key in [b"a", b"b", b"c"] {
            assert!(engine.get(&table, key).unwrap().unwrap() == value(key));
        }
        assert_eq!(engine.check(), Vec::<String>::new());
    }

    #[test]
    fn bytes_that_are_refused_for_want_of_room_are_not_in_the_value() {
        let pages = device(1);
        let engine = create(&pages);
        let table = engine.create_table("t").unwrap();
        pages.limit_to(pages.capacity_blocks() + 100);

        let value: Vec<u8> = (0..3_u32 << 20).map(|at| (at / 777) as u8).collect();
        let mut writer = engine.value_writer(&table, b"a", TimeToLive::OfTable).unwrap();
        let mut taken = 0;
        let refused = loop {
            match writer.append_some(&value[taken..]) {
                Ok(more) => taken += more,
                Err(refused) => break refused,
            }
        };
        assert!(refused.is_no_room(), "{refused}");
        assert!((1..value.len()).contains(&taken), "{taken}");
        assert_eq!(writer.bytes(), taken as u64);

        pages.limit_to(u64::MAX);
        writer.append(&value[taken..]).unwrap();
        writer.finish(Durability::Immediate).unwrap();
        assert!(engine.get(&table, b"a").unwrap().unwrap() == value);
    }
}
