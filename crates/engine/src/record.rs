//! The redo records of transactions.
//!
//! ```text
//!  record   0  8  token: which transaction (0: it has no other part)
//!           8  …  entries, end to end
//!  entry    0  4  table
//!           4  4  bytes of the value; 0xFFFF_FFFF: the key is removed
//!           8  2  bytes of the key
//!          10  …  key, value
//! ```
//!
//! The log's records carry checksums and their LSN. A transaction that is longer than a record of the log has
//! several: parts, and then the one that commits.

use crate::error::EngineError;
use crate::tables::TableId;

/// Bytes before the entries.
pub(crate) const HEADER_BYTES: usize = 8;
const ENTRY_HEADER_BYTES: usize = 10;
const REMOVED: u32 = u32::MAX;

/// Bytes of an entry, whose value has so many, if there is one.
pub(crate) fn entry_bytes(key: &[u8], value_bytes: Option<usize>) -> u64 {
    (ENTRY_HEADER_BYTES + key.len() + value_bytes.unwrap_or(0)) as u64
}

/// Adds an entry to a record.
pub(crate) fn push(into: &mut Vec<u8>, table: TableId, key: &[u8], value: Option<&[u8]>) {
    let value_bytes = value.map_or(REMOVED, |value| value.len() as u32);
    into.extend_from_slice(&table.to_le_bytes());
    into.extend_from_slice(&value_bytes.to_le_bytes());
    into.extend_from_slice(&(key.len() as u16).to_le_bytes());
    into.extend_from_slice(key);
    into.extend_from_slice(value.unwrap_or_default());
}

/// Begins a record.
pub(crate) fn begin(into: &mut Vec<u8>, token: u64) {
    into.clear();
    into.extend_from_slice(&token.to_le_bytes());
}

/// An entry of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'r> {
    pub(crate) table: TableId,
    pub(crate) key: &'r [u8],
    pub(crate) value: Option<&'r [u8]>,
}

/// The token and the entries of a record.
pub(crate) fn parse(record: &[u8]) -> Result<(u64, Entries<'_>), EngineError> {
    let (token, entries) = record.split_first_chunk().ok_or_else(damaged)?;
    Ok((u64::from_le_bytes(*token), Entries(entries)))
}

/// The entries of a record that are still to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries<'r>(pub(crate) &'r [u8]);

fn damaged() -> EngineError {
    EngineError::Damaged { what: "a record of the log ends in the middle of an entry".to_owned() }
}

impl<'r> Entries<'r> {
    fn take(&mut self, bytes: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_entry(&mut self) -> Option<Entry<'r>> {
        let header = self.take(ENTRY_HEADER_BYTES)?;
        let (table, header) = header.split_first_chunk()?;
        let (value_bytes, header) = header.split_first_chunk()?;
        let key_bytes = u16::from_le_bytes(*header.first_chunk()?);
        let key = self.take(usize::from(key_bytes))?;
        let value = match u32::from_le_bytes(*value_bytes) {
            REMOVED => None,
            bytes => Some(self.take(bytes as usize)?),
        };
        Some(Entry { table: TableId::from_le_bytes(*table), key, value })
    }
}

impl<'r> Iterator for Entries<'r> {
    type Item = Result<Entry<'r>, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.take_entry();
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry.ok_or_else(damaged))
    }
}

/// Whether bytes are a record of a transaction: for fuzzing the parser.
pub fn is_record(bytes: &[u8]) -> bool {
    parse(bytes).is_ok_and(|(_, mut entries)| entries.all(|entry| entry.is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut record = Vec::new();
        begin(&mut record, 7);
        push(&mut record, 3, b"key", Some(b"value"));
        push(&mut record, 4, b"", None);
        record
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let record = written();
        let (token, entries) = parse(&record).unwrap();
        let entries: Vec<_> = entries.map(Result::unwrap).collect();
        assert_eq!(token, 7);
        assert_eq!(entries[0], Entry { table: 3, key: b"key", value: Some(b"value") });
        assert_eq!(entries[1], Entry { table: 4, key: b"", value: None });
        let bytes = entry_bytes(b"key", Some(5)) + entry_bytes(b"", None);
        assert_eq!(record.len(), HEADER_BYTES + bytes as usize);
    }

    #[test]
    fn a_record_that_ends_early_is_damage() {
        let record = written();
        let whole = [HEADER_BYTES, HEADER_BYTES + 18, record.len()];
        for bytes in 0..=record.len() {
            let parsed = parse(&record[..bytes])
                .and_then(|(_, entries)| entries.collect::<Result<Vec<_>, _>>());
            assert_eq!(parsed.is_ok(), whole.contains(&bytes), "{bytes}");
        }
    }
}
