//! The records that are to be written next.

use lapis_pmem::BlockBuffer;

use super::record::{
    Form, RECORD_HEADER_BYTES, RecordHeader, WITNESS_RECORD_BYTES, payload_checksum, record_bytes,
};
use super::ring::Ring;

/// A part of the stream, from the beginning of a unit on. What lies behind its end is anything.
pub(super) struct Batch {
    buffer: BlockBuffer,
    unit_bytes: u64,
    first: u64,
    end: u64,
}

impl Batch {
    /// An empty one at `end`, if `buffer` begins with the bytes before that in its unit.
    pub(super) fn at(end: u64, unit_bytes: u64, buffer: BlockBuffer) -> Self {
        Self { buffer, unit_bytes, first: end - end % unit_bytes, end }
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the buffer reaches that far.
    pub(super) fn has_room_until(&self, end: u64) -> bool {
        end - self.first <= self.buffer.len() as u64
    }

    /// The units that hold records.
    pub(super) fn units(&self) -> &[u8] {
        &self.buffer[..self.offset(self.end.next_multiple_of(self.unit_bytes))]
    }

    pub(super) fn into_buffer(self) -> BlockBuffer {
        self.buffer
    }

    fn offset(&self, at: u64) -> usize {
        (at - self.first) as usize
    }

    fn zero_until(&mut self, until: u64) {
        let (from, until) = (self.offset(self.end), self.offset(until));
        self.buffer[from..until].fill(0);
    }

    /// Appends a user's record, for which there is room. `checksum` is the [`payload_checksum`].
    pub(super) fn append(
        &mut self,
        ring: Ring,
        witness: u64,
        kind: u8,
        parts: &[&[u8]],
        checksum: u32,
    ) -> u64 {
        let length = parts.iter().map(|part| part.len()).sum();
        let at = match ring.place_in_segment(self.end, record_bytes(length)) {
            Some(at) => at,
            None => self.begin_segment(ring, witness),
        };
        self.put(at, Form::User, kind, parts, checksum);
        at
    }

    /// Ends the batch with a witness of all before it being durable up to `witness`.
    pub(super) fn mark(&mut self, ring: Ring, witness: u64) {
        match ring.place_in_segment(self.end, WITNESS_RECORD_BYTES) {
            Some(at) => self.put_witness(ring, at, Form::Mark, witness),
            None => _ = self.begin_segment(ring, witness),
        }
    }

    /// Fills the segment and begins the next one. Returns where the next record goes.
    fn begin_segment(&mut self, ring: Ring, witness: u64) -> u64 {
        let at = ring.next_segment(self.end);
        self.zero_until(at);
        if let Some(length) = (at - self.end).checked_sub(RECORD_HEADER_BYTES) {
            let pad =
                RecordHeader { lsn: self.end, form: Form::Pad, kind: 0, length: length as u32 };
            let header = pad.encode(payload_checksum(ring.identity(), &[]));
            let offset = self.offset(self.end);
            self.buffer[offset..][..header.len()].copy_from_slice(&header);
            self.end = at;
        }
        self.put_witness(ring, at, Form::Segment, witness);
        self.end
    }

    fn put_witness(&mut self, ring: Ring, at: u64, form: Form, witness: u64) {
        let payload = witness.to_le_bytes();
        let checksum = payload_checksum(ring.identity(), &[&payload]);
        self.put(at, form, 0, &[&payload], checksum);
    }

    fn put(&mut self, at: u64, form: Form, kind: u8, parts: &[&[u8]], checksum: u32) {
        self.zero_until(at);
        let mut offset = self.offset(at);
        let mut copy = |bytes: &[u8]| {
            self.buffer[offset..][..bytes.len()].copy_from_slice(bytes);
            offset += bytes.len();
        };
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        copy(&RecordHeader { lsn: at, form, kind, length: length as u32 }.encode(checksum));
        parts.iter().for_each(|part| copy(part));
        self.end = at + record_bytes(length);
        let until = self.offset(self.end);
        self.buffer[offset..until].fill(0);
    }

    /// Takes the batch to write it, and goes on in another buffer, with what the last unit holds (B2).
    pub(super) fn close(&mut self, next: BlockBuffer, drops_last_unit: bool) -> Self {
        let mut next = Self::at(self.end, self.unit_bytes, next);
        let kept = self.offset(next.first)..self.offset(self.end);
        if drops_last_unit {
            next.buffer[..kept.len()].fill(0);
        } else {
            next.buffer[..kept.len()].copy_from_slice(&self.buffer[kept]);
        }
        self.zero_until(self.end.next_multiple_of(self.unit_bytes));
        std::mem::replace(self, next)
    }
}
