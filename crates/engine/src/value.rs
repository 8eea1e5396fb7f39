//! Values as trees have them: short ones as they are, long ones in chunks.
//!
//! ```text
//!  record of a short value    value │ 0 (1)
//!  record of a long value     number (8) │ bytes (8) │ CRC-32C of the value (4) │ 1 (1)
//!  one that expires           the same before its last byte │ milliseconds since 1970 (8) │ 2 or 3 (1)
//!
//!  tree of chunks             key: number (8), place (4), both big-endian; value: the bytes there
//!  catalog                    key: 4, number (8); value: nothing: these chunks are to go
//! ```
//!
//! # Invariants
//!
//! * V1. The chunks of a number that a record names are all there, and never change.
//! * V2. The chunks of a number that no record names are listed in the catalog from before the first of them is
//!   written until after the last is gone. So no crash leaves chunks behind that nobody knows of.
//! * V3. The catalog says of a table that it has long values before the record of the first one is in the log.
//!
//! # Order
//!
//! * Write: the listing; the chunks, in transactions of their own; then, in one transaction, the record and the
//!   end of the listing.
//! * Replace or remove: in one transaction, the record and the listing of the old number. When nobody reads an older
//!   state any more: the chunks; the end of the listing.
//!
//! A long value so needs no room in the log but for a few chunks at a time. It is written twice, as every value
//! is: to the log, and to a page.

use std::ops::{Bound, ControlFlow};

use lapis_blocks::block_log::Durability;
use lapis_pmem::{Domain, host_lock};

use crate::commit::Write;
use crate::engine::Shared;
use crate::error::EngineError;
use crate::key_range::KeyRange;
use crate::tables::{Table, chunks_key};

const SHORT: u8 = 0;
const LONG: u8 = 1;
/// With one of the two.
const EXPIRES: u8 = 2;
const EXPIRY_BYTES: usize = 8;
pub(crate) const CHUNK_KEY_BYTES: usize = 12;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored<'r> {
    Short(&'r [u8]),
    Long(LongValue),
}

/// A value in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongValue {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// Bytes of a record besides a short value.
pub(crate) fn overhead_bytes(expires: Option<u64>) -> usize {
    1 + expires.map_or(0, |_| EXPIRY_BYTES)
}

/// The record of a short value.
pub(crate) fn short_record(value: &[u8], expires: Option<u64>) -> Box<[u8]> {
    [value, Tail::of_short(expires).bytes()].concat().into()
}

/// What a record has behind a short value, or what stands for a long one.
pub(crate) struct Tail {
    bytes: [u8; EXPIRY_BYTES + 1],
    expires: bool,
}

impl Tail {
    fn new(tag: u8, expires: Option<u64>) -> Self {
        let mut bytes = [0; EXPIRY_BYTES + 1];
        bytes[..EXPIRY_BYTES].copy_from_slice(&expires.unwrap_or(0).to_le_bytes());
        bytes[EXPIRY_BYTES] = if expires.is_some() { tag | EXPIRES } else { tag };
        Self { bytes, expires: expires.is_some() }
    }

    pub(crate) fn of_short(expires: Option<u64>) -> Self {
        Self::new(SHORT, expires)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.expires { &self.bytes } else { &self.bytes[EXPIRY_BYTES..] }
    }
}

impl LongValue {
    /// The keys of its first chunk, and behind the last.
    pub(crate) fn chunk_keys(self) -> ([u8; CHUNK_KEY_BYTES], [u8; CHUNK_KEY_BYTES]) {
        (chunk_key(self.number, 0), chunk_key(self.number, u32::MAX))
    }

    /// Whether chunks may come behind what has come of it.
    pub(crate) fn has_room_for(self, value: &[u8]) -> bool {
        (value.len() as u64) < self.bytes
    }

    /// Whether this is all of it.
    pub(crate) fn is_whole(self, value: &[u8]) -> bool {
        value.len() as u64 == self.bytes && crc32c::crc32c(value) == self.checksum
    }

    pub(crate) fn record(self, expires: Option<u64>) -> Box<[u8]> {
        let (number, bytes) = (self.number.to_le_bytes(), self.bytes.to_le_bytes());
        let tail = Tail::new(LONG, expires);
        [&number[..], &bytes, &self.checksum.to_le_bytes(), tail.bytes()].concat().into()
    }
}

/// Reads a record; none if it says nothing.
#[inline]
pub(crate) fn parse(record: &[u8]) -> Option<Stored<'_>> {
    let (tag, rest) = record.split_last()?;
    let expires = tag & EXPIRES != 0;
    let bytes = rest.len().checked_sub(if expires { EXPIRY_BYTES } else { 0 })?;
    let rest = &rest[..bytes];
    match tag & !EXPIRES {
        SHORT => Some(Stored::Short(rest)),
        LONG => {
            let (number, rest) = rest.split_first_chunk()?;
            let (bytes, rest) = rest.split_first_chunk()?;
            let checksum = u32::from_le_bytes(rest.try_into().ok()?);
            let (number, bytes) = (u64::from_le_bytes(*number), u64::from_le_bytes(*bytes));
            Some(Stored::Long(LongValue { number, bytes, checksum }))
        }
        _ => None,
    }
}

/// The value that a record holds itself.
#[inline]
pub(crate) fn short(record: &[u8]) -> Option<&[u8]> {
    match parse(record)? {
        Stored::Short(value) => Some(value),
        Stored::Long(_) => None,
    }
}

/// Whether a record is that of a long value.
pub(crate) fn is_long(record: &[u8]) -> bool {
    record.last().is_some_and(|tag| tag & !EXPIRES == LONG)
}

/// Since when a record counts no more, in milliseconds since 1970; none if it stays.
#[inline]
pub(crate) fn expiry_of(record: &[u8]) -> Option<u64> {
    let (tag, rest) = record.split_last()?;
    match tag & EXPIRES {
        0 => None,
        _ => Some(u64::from_le_bytes(*rest.last_chunk()?)),
    }
}

/// The number that a chunk's key begins with.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.first_chunk()?))
}

pub(crate) fn chunk_key(number: u64, place: u32) -> [u8; CHUNK_KEY_BYTES] {
    let mut key = [0; CHUNK_KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&place.to_be_bytes());
    key
}

/// The error for a value that cannot be read.
pub(crate) fn damaged<D: Domain>(table: &Table<D>, key: &[u8], what: &str) -> EngineError {
    let (name, key) = (table.name(), key.escape_ascii());
    EngineError::Damaged { what: format!("the value of {key} in table {name:?} {what}") }
}

impl<D: Domain> Shared<D> {
    /// The value of a record that was read, in its place. While chunks are read, somebody reads a state in which
    /// the record is: the caller.
    pub(crate) fn resolve(
        &self,
        table: &Table<D>,
        key: &[u8],
        record: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        match parse(record) {
            Some(Stored::Short(value)) => {
                record.truncate(value.len());
                Ok(())
            }
            Some(Stored::Long(long)) => {
                *record = self.read_long(long).map_err(|error| match error {
                    EngineError::Damaged { what } => damaged(table, key, &what),
                    other => other,
                })?;
                Ok(())
            }
            None => Err(damaged(table, key, "is no value")),
        }
    }

    pub(crate) fn read_long(&self, long: LongValue) -> Result<Vec<u8>, EngineError> {
        let wrong = |what: &str| EngineError::Damaged { what: what.to_owned() };
        let bytes = usize::try_from(long.bytes).ok().filter(|&bytes| bytes <= MAX_VALUE_BYTES);
        let bytes = bytes.ok_or_else(|| wrong("is longer than a value can be"))?;
        let (first, last) = long.chunk_keys();
        let range = KeyRange::new(&(first..=last));
        // Where zeroes are read, a part is missing that is not.
        self.guarded(|| {
            let mut value = Vec::with_capacity(bytes);
            self.chunks.contents().visit(&range, |_, chunk| {
                if value.len() + chunk.len() > bytes {
                    return ControlFlow::Break(());
                }
                value.extend_from_slice(chunk);
                ControlFlow::Continue(())
            })?;
            match long.is_whole(&value) {
                true => Ok(value),
                false => Err(wrong("lacks a part, or has another's")),
            }
        })
    }

    /// A long value that was written never gets a record. Nobody has ever read it.
    pub(crate) fn long_value_is_unwanted(&self, number: u64) {
        host_lock::lock(&self.domain, &self.unwanted).push_front((0, number));
    }

    /// The numbers of the long values that these writes replace. Their stripes are held.
    pub(crate) fn replaced_long_values(
        &self,
        writes: &[Write<'_, D>],
    ) -> Result<Vec<u64>, EngineError> {
        let (mut numbers, mut record) = (Vec::new(), Vec::new());
        for write in writes.iter().filter(|write| write.table.has_long_values()) {
            let contents = write.table.contents();
            let _pinned = contents.pin();
            let is_dropped = || write.table.check_not_dropped().is_err();
            if is_dropped() {
                continue;
            }
            record.clear();
            let found = contents.get(write.key, &mut record);
            // What was read may be another's. The transaction is refused in its turn.
            if is_dropped() {
                continue;
            }
            if found? && let Some(Stored::Long(long)) = parse(&record) {
                numbers.push(long.number);
            }
        }
        Ok(numbers)
    }

    /// Takes away chunks of one value that nobody can read any more. Returns whether there was one.
    pub(crate) fn remove_unwanted_chunks(&self) -> Result<bool, EngineError> {
        let oldest = self.order.oldest_reader();
        let number = {
            let mut unwanted = host_lock::lock(&self.domain, &self.unwanted);
            match unwanted.front() {
                Some((since, _)) if *since <= oldest => unwanted.pop_front(),
                _ => None,
            }
        };
        let Some((_, number)) = number else { return Ok(false) };
        let last = chunk_key(number, u32::MAX);
        let mut from = Bound::Included(chunk_key(number, 0).to_vec());
        loop {
            let mut keys = Vec::new();
            let range = KeyRange::new(&(from.clone(), Bound::Included(last.to_vec())));
            self.chunks.contents().visit(&range, |key, _| {
                keys.push(key.to_vec());
                if keys.len() < 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            // In a damaged tree what is seen need not be found, and so not go: it is not looked at twice.
            let Some(behind) = keys.iter().max().filter(|key| range.contains(key)) else { break };
            from = Bound::Excluded(behind.clone());
            let removals = keys.iter().map(|key| Write { table: &self.chunks, key, value: None });
            self.commit(&removals.collect::<Vec<_>>(), None, Durability::Eventual)?;
        }
        let listing = chunks_key(number);
        let unlisted = Write { table: &self.catalog, key: &listing, value: None };
        self.commit(&[unlisted], None, Durability::Eventual)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let long = LongValue { number: 7, bytes: 1 << 20, checksum: 9 };
        for expires in [None, Some(0), Some(u64::MAX)] {
            for value in [&b"abc"[..], b""] {
                let record = short_record(value, expires);
                assert_eq!(record.len(), value.len() + overhead_bytes(expires));
                assert_eq!(parse(&record), Some(Stored::Short(value)));
                assert_eq!((expiry_of(&record), is_long(&record)), (expires, false));
            }
            let record = long.record(expires);
            assert_eq!(parse(&record), Some(Stored::Long(long)));
            assert_eq!((expiry_of(&record), is_long(&record)), (expires, true));
        }
    }

    #[test]
    fn a_record_that_says_nothing_is_none() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"abc\x01"), None);
        assert_eq!(parse(b"1234567\x02"), None);
        assert_eq!(parse(b"12345678\x03"), None);
        assert_eq!(parse(b"abc\x04"), None);
    }
}
