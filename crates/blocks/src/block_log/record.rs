//! Records and their positions.

use std::fmt;

/// Bytes of a record before its payload.
pub(super) const RECORD_HEADER_BYTES: u64 = 24;
/// Records begin at multiples of it.
pub(super) const ALIGNMENT: u64 = 8;
/// A mark, or the record that a segment begins with: a witness and nothing else.
pub(super) const WITNESS_RECORD_BYTES: u64 = record_bytes(size_of::<u64>());

const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(ALIGNMENT) && WITNESS_RECORD_BYTES == 32);

/// The log sequence number of a record: its position in the stream of all bytes of a log. No record
/// has the position 0, and no position is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The position with this number, for instance one that was stored elsewhere.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {}", self.0)
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// Its position.
    pub lsn: Lsn,
    /// What its writer called it.
    pub kind: u8,
    /// What it says.
    pub payload: &'r [u8],
}

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Form {
    /// The user's.
    User = 1,
    /// The first of a segment: a witness.
    Segment = 2,
    /// The last of a batch: a witness.
    Mark = 3,
    /// Nothing, to the end of the segment. Its payload is not in its checksum.
    Pad = 4,
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) lsn: u64,
    pub(super) form: Form,
    pub(super) kind: u8,
    /// Bytes of the payload.
    pub(super) length: u32,
}

/// Bytes of a record with a payload of so many.
pub(super) const fn record_bytes(payload_bytes: usize) -> u64 {
    (RECORD_HEADER_BYTES + payload_bytes as u64).next_multiple_of(ALIGNMENT)
}

/// What of a record's checksum is known without its position.
pub(super) fn payload_checksum(identity: u64, parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .fold(crc32c::crc32c(&identity.to_le_bytes()), |crc, part| crc32c::crc32c_append(crc, part))
}

impl RecordHeader {
    /// As it is written, if `payload` is the [`payload_checksum`].
    pub(super) fn encode(self, payload: u32) -> [u8; RECORD_HEADER_BYTES as usize] {
        let mut bytes = [0; RECORD_HEADER_BYTES as usize];
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16] = self.form as u8;
        bytes[17] = self.kind;
        let checksum = crc32c::crc32c_append(payload, &bytes[4..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What it says, and its checksum; none if it says nothing that makes sense. That the checksum is
    /// right remains to be seen.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let bytes: &[u8; RECORD_HEADER_BYTES as usize] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let form = match bytes[16] {
            1 => Form::User,
            2 => Form::Segment,
            3 => Form::Mark,
            4 => Form::Pad,
            _ => return None,
        };
        let lsn = u64::from(word(8)) | u64::from(word(12)) << 32;
        Some((Self { lsn, form, kind: bytes[17], length: word(4) }, word(0)))
    }

    /// Bytes of the whole record.
    pub(super) fn record_bytes(self) -> u64 {
        record_bytes(self.length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader =
        RecordHeader { lsn: 1 << 40, form: Form::User, kind: 9, length: 3 };

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let bytes = HEADER.encode(payload_checksum(7, &[b"abc"]));
        let (read, checksum) = RecordHeader::decode(&bytes).unwrap();
        assert_eq!(read, HEADER);
        assert_eq!(checksum.to_le_bytes(), bytes[..4]);
        assert_eq!(read.record_bytes(), 32);
    }

    #[test]
    fn the_checksum_covers_identity_payload_position_and_kind() {
        let checksum = |header: RecordHeader, identity, payload: &[u8]| {
            header.encode(payload_checksum(identity, &[payload]))[..4].to_vec()
        };
        let as_it_is = checksum(HEADER, 7, b"abc");
        assert_ne!(checksum(HEADER, 8, b"abc"), as_it_is);
        assert_ne!(checksum(HEADER, 7, b"abd"), as_it_is);
        assert_ne!(checksum(RecordHeader { lsn: 8, ..HEADER }, 7, b"abc"), as_it_is);
        assert_ne!(checksum(RecordHeader { kind: 8, ..HEADER }, 7, b"abc"), as_it_is);
        assert_ne!(checksum(RecordHeader { form: Form::Mark, ..HEADER }, 7, b"abc"), as_it_is);
    }

    #[test]
    fn parts_are_checked_like_the_whole() {
        assert_eq!(payload_checksum(7, &[b"ab", b"", b"c"]), payload_checksum(7, &[b"abc"]));
    }

    #[test]
    fn zeroes_are_no_header() {
        assert_eq!(RecordHeader::decode(&[0; RECORD_HEADER_BYTES as usize]), None);
    }
}
