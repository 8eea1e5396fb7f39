//! Reading trace files.

use std::io::{ErrorKind, Read};

use serde::Serialize;

use super::encoding::Cursor;
use super::record::{Context, Record};
use super::{
    BLOCK_HEADER_BYTES, BLOCK_MAGIC, BLOCK_PAYLOAD_BYTES_LIMIT, HEADER_BYTES, RecordProblem,
    TraceFileError, TraceHeader, block_crc,
};

/// How a trace file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// With its trailer: nothing is missing.
    Complete,
    /// Without: its writer was stopped. What was read before is whole.
    Cut {
        /// Bytes of the file that were whole.
        whole_bytes: u64,
        /// Bytes after them, of a block that was not written to its end.
        torn_bytes: u64,
    },
}

/// Reads a trace file record by record.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    header: TraceHeader,
    payload: Vec<u8>,
    /// Where the payload begins in the file.
    payload_at: u64,
    at: usize,
    previous: u64,
    blocks: u32,
    /// Bytes of the file taken so far, without a torn block.
    whole_bytes: u64,
    context: Context,
    ending: Option<Ending>,
    /// An error has been given out; nothing comes after it.
    failed: bool,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`TraceFileError`]; a file that is shorter than a header is no trace.
    pub fn new(mut input: R) -> Result<Self, TraceFileError> {
        let mut bytes = [0; HEADER_BYTES];
        if read_up_to(&mut input, &mut bytes)? < HEADER_BYTES {
            return Err(TraceFileError::NotATrace);
        }
        let header = TraceHeader::decode(&bytes)?;
        let context = Context { region_bytes: header.region_bytes, ..Context::default() };
        Ok(Self {
            input,
            header,
            payload: Vec::new(),
            payload_at: 0,
            at: 0,
            previous: 0,
            blocks: 0,
            whole_bytes: HEADER_BYTES as u64,
            context,
            ending: None,
            failed: false,
        })
    }

    /// The header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Bytes of the file up to the end of the block that was read last.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// How the file ended, once [`TraceReader::next_record`] has said that it did.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The next record; `None` at the end. The trailer is not given out.
    ///
    /// # Errors
    /// [`TraceFileError`]. What was given out before it stands. A file that ends early is not an
    /// error, see [`TraceReader::ending`].
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceFileError> {
        if self.ending.is_some() || self.failed {
            return Ok(None);
        }
        let read = self.read_record();
        self.failed = read.is_err();
        read
    }

    fn read_record(&mut self) -> Result<Option<Record>, TraceFileError> {
        if self.at == self.payload.len() && !self.next_block()? {
            return Ok(None);
        }
        let start = self.at;
        let mut cursor = Cursor::new(&self.payload, start);
        let decoded = Record::decode(&mut cursor, &mut self.previous)
            .and_then(|record| self.context.admit(&record).map(|()| record));
        self.at = cursor.at;
        let record = match decoded {
            Ok(record) => record,
            Err(what) => return Err(self.record_error(start, what)),
        };
        if let Record::Trailer { .. } = record {
            // T3.
            let mut further = [0];
            if self.at != self.payload.len() || read_up_to(&mut self.input, &mut further)? > 0 {
                return Err(self.record_error(start, RecordProblem::AfterTrailer));
            }
            self.ending = Some(Ending::Complete);
            return Ok(None);
        }
        Ok(Some(record))
    }

    fn record_error(&self, start: usize, what: RecordProblem) -> TraceFileError {
        TraceFileError::Record {
            record: self.context.records,
            at: self.payload_at + start as u64,
            what,
        }
    }

    /// Reads the next block; false at the end of the file.
    fn next_block(&mut self) -> Result<bool, TraceFileError> {
        let (block, at) = (self.blocks, self.whole_bytes);
        let damaged = |what| Err(TraceFileError::Block { block, at, what });
        let mut header = [0; BLOCK_HEADER_BYTES];
        let got = read_up_to(&mut self.input, &mut header)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| header[at + index]));
        let same = got.min(BLOCK_MAGIC.len());
        if header[..same] != BLOCK_MAGIC[..same] {
            return damaged("it does not begin as blocks do");
        }
        if got < BLOCK_HEADER_BYTES {
            return Ok(self.cut(got));
        }
        let length = word(4) as usize;
        if length == 0 || length > BLOCK_PAYLOAD_BYTES_LIMIT {
            return damaged("its length is not allowed");
        }
        if word(8) != block {
            return damaged("its number is not the next one");
        }
        self.payload.resize(length, 0);
        let filled = read_up_to(&mut self.input, &mut self.payload)?;
        if filled < length {
            self.payload.clear();
            self.at = 0;
            return Ok(self.cut(BLOCK_HEADER_BYTES + filled));
        }
        if word(12) != block_crc(&header[..12], &self.payload) {
            return damaged("its checksum is wrong");
        }
        self.payload_at = at + BLOCK_HEADER_BYTES as u64;
        self.whole_bytes = self.payload_at + length as u64;
        self.blocks += 1;
        self.at = 0;
        self.previous = 0;
        Ok(true)
    }

    fn cut(&mut self, torn_bytes: usize) -> bool {
        let whole_bytes = self.whole_bytes;
        self.ending = Some(Ending::Cut { whole_bytes, torn_bytes: torn_bytes as u64 });
        false
    }
}

/// Fills `buffer` as far as the input goes.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, TraceFileError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
