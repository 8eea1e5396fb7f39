//! A part of the stream, read from the device, and what lies there.

use std::sync::Arc;

use lapis_pmem::{BlockBuffer, BlockDevice, BlockError, Domain};

use super::mutants;
use super::record::{
    Form, RECORD_HEADER_BYTES, RecordHeader, WITNESS_RECORD_BYTES, payload_checksum,
};
use super::ring::{BLOCK, Ring};

/// What the first read takes, if no record is longer; each next one takes twice as much. Most logs that are opened are
/// empty.
const FIRST_BYTES: u64 = 16 * BLOCK;

/// Blocks of the stream in memory, in one segment.
pub(super) struct Window<D> {
    domain: D,
    device: Arc<dyn BlockDevice>,
    ring: Ring,
    blocks: BlockBuffer,
    first: u64,
    /// Bytes that were read.
    bytes: u64,
    /// Bytes to read next.
    next_bytes: u64,
}

impl<D: Domain> Window<D> {
    /// One of at most so many blocks.
    pub(super) fn new(domain: D, device: Arc<dyn BlockDevice>, ring: Ring, blocks: usize) -> Self {
        let blocks = BlockBuffer::zeroed(blocks);
        Self { domain, device, ring, blocks, first: 0, bytes: 0, next_bytes: FIRST_BYTES }
    }

    pub(super) fn ring(&self) -> Ring {
        self.ring
    }

    /// The bytes from `at` on, so many, in one segment and not more than a batch has.
    pub(super) fn bytes(&mut self, at: u64, bytes: u64) -> Result<&[u8], BlockError> {
        if at < self.first || at + bytes > self.first + self.bytes {
            self.bytes = 0;
            self.first = at - at % BLOCK;
            let needed = (at + bytes - self.first).next_multiple_of(BLOCK);
            let most = (self.ring.segment_end(at) - self.first).min(self.blocks.len() as u64);
            let wanted = needed.max(self.next_bytes).min(most);
            self.next_bytes = (self.next_bytes * 2).min(self.blocks.len() as u64);
            let into = &mut self.blocks[..wanted as usize];
            self.device.read_blocks(self.ring.block_of(at), into)?;
            self.bytes = wanted;
        }
        let offset = (at - self.first) as usize;
        Ok(&self.blocks[offset..][..bytes as usize])
    }

    /// Whose record begins at `at`, where one may begin, and bytes of its payload; none if no record
    /// is there.
    pub(super) fn entry_at(&mut self, at: u64) -> Result<Option<RecordHeader>, BlockError> {
        let Some((header, checksum)) = RecordHeader::decode(self.bytes(at, RECORD_HEADER_BYTES)?)
        else {
            return Ok(None);
        };
        let room = self.ring.segment_end(at) - at;
        let is_in_place = match header.form {
            Form::Segment | Form::Mark => header.record_bytes() == WITNESS_RECORD_BYTES,
            Form::Pad => RECORD_HEADER_BYTES + u64::from(header.length) == room,
            Form::User => header.length as usize <= self.ring.largest_payload_bytes(),
        };
        let begins_segment = self.ring.is_segment_start(at);
        let fits =
            header.record_bytes() <= room && begins_segment == (header.form == Form::Segment);
        let is_stale = header.lsn != at && !self.domain.commits(mutants::STALE_RECORD_ACCEPTED);
        if !is_in_place || !fits || is_stale {
            return Ok(None);
        }
        let identity = self.ring.identity();
        let payload = match header.form {
            Form::Pad => payload_checksum(identity, &[]),
            _ => payload_checksum(identity, &[self.payload(at, header)?]),
        };
        let expected = header.encode(payload);
        let is_whole = expected[..4] == checksum.to_le_bytes();
        // The bytes in no field are zero.
        let is_plain = self.bytes(at, RECORD_HEADER_BYTES)?[4..] == expected[4..];
        let is_trusted = self.domain.commits(mutants::TORN_RECORD_TRUSTED);
        Ok((is_whole && is_plain || is_trusted).then_some(header))
    }

    /// The payload of the record at `at`.
    pub(super) fn payload(&mut self, at: u64, header: RecordHeader) -> Result<&[u8], BlockError> {
        self.bytes(at + RECORD_HEADER_BYTES, header.length.into())
    }

    /// Up to where all was durable when the record at `at` was written, if it says so.
    pub(super) fn witness(
        &mut self,
        at: u64,
        header: RecordHeader,
    ) -> Result<Option<u64>, BlockError> {
        if !matches!(header.form, Form::Segment | Form::Mark) {
            return Ok(None);
        }
        let payload = self.payload(at, header)?;
        Ok(payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
    }
}
