//! The blocks of a backup. The layout is in the [module above](super).

use std::io::{self, ErrorKind, Read, Write};

use super::BackupError;

const MAGIC: &[u8; 8] = b"LAPISBAK";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const CHECKED_HEADER_BYTES: usize = 32;
const BLOCK_HEADER_BYTES: usize = 8;
/// Bytes of the payload of a block that is written.
pub(super) const PAYLOAD_BYTES: usize = 256 << 10;
/// The longest payload that is read.
const MOST_PAYLOAD_BYTES: usize = 16 << 20;
const LAST: u32 = 1 << 31;

const _: () = assert!(PAYLOAD_BYTES <= MOST_PAYLOAD_BYTES && MOST_PAYLOAD_BYTES < LAST as usize);
const _: () = assert!(CHECKED_HEADER_BYTES + 8 == HEADER_BYTES);

/// What a backup says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) identity: u64,
    pub(super) state: u64,
}

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.state.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..CHECKED_HEADER_BYTES]);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BackupError> {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
        let version = word(8) as u32;
        if bytes[..8] != *MAGIC {
            return Err(BackupError::NotABackup);
        }
        if version > VERSION {
            return Err(BackupError::NewerVersion { found: version, supported: VERSION });
        }
        let sum = crc32c::crc32c(&bytes[..CHECKED_HEADER_BYTES]);
        // Where this version has zeroes, another would say what this one does not know.
        if word(32) != u64::from(sum) || word(8) != u64::from(VERSION) {
            return Err(BackupError::NotABackup);
        }
        Ok(Self { identity: word(16), state: word(24) })
    }

    /// K1.
    fn checksum(self, block: u64, length: u32, payload: &[u8]) -> u32 {
        let place = [self.identity, self.state, block].map(u64::to_le_bytes);
        let sum = crc32c::crc32c(place.as_flattened());
        let sum = crc32c::crc32c_append(sum, &length.to_le_bytes());
        crc32c::crc32c_append(sum, payload)
    }
}

/// Bytes on their way into blocks.
pub(super) struct BlockWriter<W> {
    into: W,
    header: Header,
    block: u64,
    payload: Vec<u8>,
}

impl<W: Write> BlockWriter<W> {
    pub(super) fn begin(mut into: W, header: Header) -> io::Result<Self> {
        into.write_all(&header.encode())?;
        Ok(Self { into, header, block: 0, payload: Vec::with_capacity(PAYLOAD_BYTES) })
    }

    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.payload.len() == PAYLOAD_BYTES {
                self.write_block(0)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PAYLOAD_BYTES - self.payload.len()));
            self.payload.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// A byte that says what comes, and a number.
    pub(super) fn write_tagged(&mut self, tag: u8, number: u64) -> io::Result<()> {
        self.write_all(&[tag])?;
        self.write_all(&number.to_le_bytes())
    }

    fn write_block(&mut self, last: u32) -> io::Result<()> {
        let length = self.payload.len() as u32 | last;
        let sum = self.header.checksum(self.block, length, &self.payload);
        self.into.write_all(&sum.to_le_bytes())?;
        self.into.write_all(&length.to_le_bytes())?;
        self.into.write_all(&self.payload)?;
        self.payload.clear();
        self.block += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_block(LAST)
    }
}

/// Bytes on their way out of blocks.
pub(super) struct BlockReader<R> {
    from: R,
    header: Header,
    /// Blocks that were read.
    blocks: u64,
    is_last: bool,
    payload: Vec<u8>,
    /// Bytes of it that were given.
    at: usize,
}

impl<R: Read> BlockReader<R> {
    pub(super) fn begin(mut from: R) -> Result<Self, BackupError> {
        let mut bytes = [0; HEADER_BYTES];
        from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => BackupError::NotABackup,
            _ => error.into(),
        })?;
        let header = Header::decode(&bytes)?;
        Ok(Self { from, header, blocks: 0, is_last: false, payload: Vec::new(), at: 0 })
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    /// The error for the block that was read last.
    pub(super) fn damaged(&self, what: &'static str) -> BackupError {
        BackupError::Damaged { block: self.blocks.saturating_sub(1), what }
    }

    fn read_from(&mut self, into: &mut [u8]) -> Result<(), BackupError> {
        self.from.read_exact(into).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => BackupError::CutOff { block: self.blocks },
            _ => error.into(),
        })
    }

    fn read_block(&mut self) -> Result<(), BackupError> {
        if self.is_last {
            return Err(self.damaged("ends in the middle of a record"));
        }
        let block = self.blocks;
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.read_from(&mut header)?;
        let [sum, length] = [0, 4].map(|at: usize| {
            header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
        });
        let bytes = (length & !LAST) as usize;
        if bytes > MOST_PAYLOAD_BYTES {
            return Err(BackupError::Damaged { block, what: "is longer than any" });
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(bytes, 0);
        self.read_from(&mut payload)?;
        if self.header.checksum(block, length, &payload) != sum {
            return Err(BackupError::Damaged { block, what: "is not as it was written" });
        }
        (self.payload, self.at, self.is_last) = (payload, 0, length & LAST != 0);
        self.blocks += 1;
        Ok(())
    }

    pub(super) fn read_into(&mut self, mut into: &mut [u8]) -> Result<(), BackupError> {
        while !into.is_empty() {
            if self.at == self.payload.len() {
                self.read_block()?;
                continue;
            }
            let bytes = into.len().min(self.payload.len() - self.at);
            let (now, later) = into.split_at_mut(bytes);
            now.copy_from_slice(&self.payload[self.at..self.at + bytes]);
            self.at += bytes;
            into = later;
        }
        Ok(())
    }

    /// So many bytes. Memory is taken as they come: nobody has said yet that there are as many.
    pub(super) fn read_bytes(&mut self, length: usize) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let (start, more) = (bytes.len(), (length - bytes.len()).min(PAYLOAD_BYTES));
            bytes.resize(start + more, 0);
            self.read_into(&mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Nothing may come any more (K2).
    pub(super) fn end(&mut self) -> Result<(), BackupError> {
        if !self.is_last || self.at < self.payload.len() {
            return Err(self.damaged("goes on behind the end"));
        }
        let mut byte = [0];
        loop {
            match self.from.read(&mut byte) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(self.damaged("is not the end of the file")),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
