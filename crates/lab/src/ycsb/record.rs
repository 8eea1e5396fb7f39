//! YCSB records that can be checked: every byte follows from the record's number and how often each
//! field was written.
//!
//! ```text
//!  record:  field 0 | field 1 | … | field n-1        each of the same length
//!
//!  field:   offset  bytes  contents
//!                0      8  record number
//!                8      4  version: how often the field was written since it was loaded
//!               12      n  bytes that follow from number, field and version
//! ```

use crate::keys::scatter;
use crate::zipfian::fnv_hash;

/// The shortest field: number, version and some bytes to check.
pub const MIN_FIELD_BYTES: usize = 16;

const NUMBER: std::ops::Range<usize> = 0..8;
const VERSION: std::ops::Range<usize> = 8..12;
const FILL: usize = 12;

/// The key of a record: as YCSB's, "user" and the hash of the number.
pub fn key(number: u64) -> Vec<u8> {
    format!("user{}", fnv_hash(number)).into_bytes()
}

/// The shape of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) fields: usize,
    pub(crate) field_bytes: usize,
}

/// What a sound record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) number: u64,
    /// Field writes since the record was loaded, over all fields.
    pub(crate) writes: u64,
}

impl Shape {
    pub(crate) fn record_bytes(self) -> usize {
        self.fields * self.field_bytes
    }

    /// Writes a record as it is first inserted.
    pub(crate) fn fill(self, record: &mut Vec<u8>, number: u64) {
        record.resize(self.record_bytes(), 0);
        for (field, bytes) in record.chunks_exact_mut(self.field_bytes).enumerate() {
            write_field(bytes, field, number, 0);
        }
    }

    /// Writes one field anew.
    pub(crate) fn bump(self, record: &mut [u8], field: usize) {
        let start = field * self.field_bytes;
        if let Some(bytes) = record.get_mut(start..start + self.field_bytes) {
            let (number, version) = header(bytes);
            write_field(bytes, field, number, version.wrapping_add(1));
        }
    }

    /// Reads a record and checks every byte of it.
    pub(crate) fn check(self, record: &[u8]) -> Result<Contents, String> {
        if record.len() != self.record_bytes() {
            return Err(format!("it has {} bytes, not {}", record.len(), self.record_bytes()));
        }
        let mut contents = Contents { number: header(record).0, writes: 0 };
        for (field, bytes) in record.chunks_exact(self.field_bytes).enumerate() {
            let (number, version) = header(bytes);
            if number != contents.number {
                return Err(format!("field {field} belongs to record {number}"));
            }
            let mut words = fill_words(field, number, version);
            let sound = bytes[FILL..].chunks(8).all(|chunk| {
                let word = words.next().unwrap_or_default().to_le_bytes();
                chunk == &word[..chunk.len()]
            });
            if !sound {
                return Err(format!("field {field} is not what version {version} of it was"));
            }
            contents.writes += u64::from(version);
        }
        Ok(contents)
    }
}

fn header(field: &[u8]) -> (u64, u32) {
    let number = field[NUMBER].try_into().map_or(0, u64::from_le_bytes);
    let version = field[VERSION].try_into().map_or(0, u32::from_le_bytes);
    (number, version)
}

fn write_field(bytes: &mut [u8], field: usize, number: u64, version: u32) {
    bytes[NUMBER].copy_from_slice(&number.to_le_bytes());
    bytes[VERSION].copy_from_slice(&version.to_le_bytes());
    let words = fill_words(field, number, version);
    for (chunk, word) in bytes[FILL..].chunks_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

fn fill_words(field: usize, number: u64, version: u32) -> impl Iterator<Item = u64> {
    let start = scatter(scatter(number) ^ (field as u64) << 32 ^ u64::from(version));
    (0..).map(move |i| scatter(start.wrapping_add(i)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SHAPE: Shape = Shape { fields: 10, field_bytes: 100 };

    #[test]
    fn keys_look_like_those_of_ycsb_and_are_distinct() {
        assert!(key(0).starts_with(b"user") && key(0)[4..].iter().all(u8::is_ascii_digit));
        let keys: BTreeSet<_> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn a_record_says_its_number_and_how_often_it_was_written() {
        let mut record = Vec::new();
        SHAPE.fill(&mut record, 77);
        assert_eq!(record.len(), 1000);
        assert_eq!(SHAPE.check(&record), Ok(Contents { number: 77, writes: 0 }));
        SHAPE.bump(&mut record, 3);
        SHAPE.bump(&mut record, 3);
        SHAPE.bump(&mut record, 9);
        assert_eq!(SHAPE.check(&record), Ok(Contents { number: 77, writes: 3 }));
    }

    #[test]
    fn every_changed_byte_is_found() {
        let shape = Shape { fields: 2, field_bytes: 21 };
        let mut record = Vec::new();
        shape.fill(&mut record, 5);
        for at in 0..record.len() {
            let mut wrong = record.clone();
            wrong[at] ^= 0x10;
            assert!(shape.check(&wrong).is_err(), "byte {at}");
        }
        assert!(shape.check(&record[..41]).is_err());
    }

    #[test]
    fn fields_of_two_versions_that_are_swapped_are_found() {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        SHAPE.fill(&mut old, 5);
        SHAPE.fill(&mut new, 5);
        SHAPE.bump(&mut new, 0);
        // Half of a field from one version and half from another: a torn write.
        old[50..100].copy_from_slice(&new[50..100]);
        assert!(SHAPE.check(&old).is_err());
    }
}
