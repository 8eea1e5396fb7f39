//! Writing trace files.

use std::io::{self, Write};

use super::record::{Context, Record};
use super::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, BLOCK_PAYLOAD_BYTES_LIMIT, RECORD_BYTES_LIMIT, RecordProblem,
    TraceHeader, block_crc,
};

/// A block is written when it has so many bytes: what a killed writer may lose.
const BLOCK_BYTES: usize = 32 << 10;
const _: () = assert!(BLOCK_BYTES + RECORD_BYTES_LIMIT + 64 <= BLOCK_PAYLOAD_BYTES_LIMIT);

/// Writes a trace file record by record.
///
/// Dropping it without [`TraceWriter::finish`] leaves what a killed process leaves: whole blocks
/// and no trailer.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    payload: Vec<u8>,
    previous: u64,
    blocks: u32,
    context: Context,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// What writing it says.
    pub fn new(mut out: W, header: &TraceHeader) -> io::Result<Self> {
        out.write_all(&header.encode())?;
        let context = Context { region_bytes: header.region_bytes, ..Context::default() };
        Ok(Self { out, payload: Vec::new(), previous: 0, blocks: 0, context })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// What writing it says; `InvalidInput` with a [`RecordProblem`] if no reader would take the
    /// record here.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.context.admit(record).map_err(|problem: RecordProblem| {
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })?;
        record.encode(&mut self.payload, &mut self.previous);
        if self.payload.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    /// Writes out what has been appended so far.
    ///
    /// # Errors
    /// What writing it says.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.payload.is_empty() {
            self.write_block()?;
        }
        self.out.flush()
    }

    /// Ends the file with the trailer and returns what it was written to.
    ///
    /// # Errors
    /// What writing it says.
    pub fn finish(mut self) -> io::Result<W> {
        self.write(&Record::Trailer { records: self.context.records })?;
        self.flush()?;
        Ok(self.out)
    }

    /// Ends the file without the trailer, as if it had been cut, and returns what it was written to.
    ///
    /// # Errors
    /// What writing it says.
    pub fn leave(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let mut block = Vec::with_capacity(BLOCK_HEADER_BYTES + self.payload.len());
        block.extend(BLOCK_MAGIC);
        block.extend((self.payload.len() as u32).to_le_bytes());
        block.extend(self.blocks.to_le_bytes());
        let crc = block_crc(&block, &self.payload);
        block.extend(crc.to_le_bytes());
        block.append(&mut self.payload);
        self.previous = 0;
        self.blocks += 1;
        // T1: in one piece, after its predecessors.
        self.out.write_all(&block)
    }
}
