//! The redo record: what one transaction writes to the log.
//!
//! ```text
//!  record  := version:u8 (1)  operations:u32  operation*
//!  operation := table:u64  tag:u8  key_bytes:u16  key  body
//!  body    := (tag 0, delete)        nothing
//!           | (tag 1, put in line)   value_bytes:u32  value
//!           | (tag 2, put by link)   link:u64
//! ```
//!
//! Integers are little-endian. Values longer than [`INLINE_LIMIT`] are in blocks of their own that
//! are durable before the record is appended, and the record has their link.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::value::ValueBlock;

/// The writes of a transaction: the new value, or none for a delete.
pub(crate) type WriteSet = BTreeMap<(u64, Vec<u8>), Option<Vec<u8>>>;

/// Values up to this long lie in the record. Their blocks, made when the record is durable already,
/// fit slabs of one chunk: a larger slab needs chunks side by side, which no reserve can promise.
pub(crate) const INLINE_LIMIT: usize = 4096 - size_of::<ValueBlock>();

const VERSION: u8 = 1;
const DELETE: u8 = 0;
const PUT_INLINE: u8 = 1;
const PUT_LINK: u8 = 2;

/// One change as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Delete,
    PutInline(&'a [u8]),
    PutLink(u64),
}

/// Bytes of the record that `writes` will be.
pub(crate) fn bytes_of(writes: &WriteSet) -> usize {
    let operations = writes.iter().map(|((_, key), value)| {
        let body = match value {
            None => 0,
            Some(value) if value.len() > INLINE_LIMIT => size_of::<u64>(),
            Some(value) => size_of::<u32>() + value.len(),
        };
        size_of::<u64>() + size_of::<u8>() + size_of::<u16>() + key.len() + body
    });
    size_of::<u8>() + size_of::<u32>() + operations.sum::<usize>()
}

/// Begins a record.
pub(crate) fn begin(buffer: &mut Vec<u8>, operations: usize) {
    buffer.clear();
    buffer.push(VERSION);
    buffer.extend((operations as u32).to_le_bytes());
}

/// Adds one operation.
pub(crate) fn push(buffer: &mut Vec<u8>, table: u64, key: &[u8], change: Change<'_>) {
    buffer.extend(table.to_le_bytes());
    buffer.push(match change {
        Change::Delete => DELETE,
        Change::PutInline(_) => PUT_INLINE,
        Change::PutLink(_) => PUT_LINK,
    });
    buffer.extend((key.len() as u16).to_le_bytes());
    buffer.extend(key);
    match change {
        Change::Delete => {}
        Change::PutInline(value) => {
            buffer.extend((value.len() as u32).to_le_bytes());
            buffer.extend(value);
        }
        Change::PutLink(link) => buffer.extend(link.to_le_bytes()),
    }
}

/// One operation of a record: table, key, change.
pub(crate) type Operation<'a> = (u64, &'a [u8], Change<'a>);

/// Reads a record back. Never panics, whatever the bytes.
pub(crate) fn parse(record: &[u8]) -> Result<Vec<Operation<'_>>, Error> {
    parse_operations(record)
        .ok_or_else(|| Error::Damaged { what: "its last log record cannot be read".into() })
}

fn parse_operations(mut rest: &[u8]) -> Option<Vec<Operation<'_>>> {
    let rest = &mut rest;
    if take(rest, 1)? != [VERSION] {
        return None;
    }
    let count = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    let mut operations = Vec::new();
    for _ in 0..count {
        let table = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
        let tag = take(rest, 1)?[0];
        let key_bytes = u16::from_le_bytes(take(rest, 2)?.try_into().ok()?);
        let key = take(rest, key_bytes.into())?;
        let change = match tag {
            DELETE => Change::Delete,
            PUT_INLINE => {
                let bytes = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
                Change::PutInline(take(rest, bytes as usize)?)
            }
            PUT_LINK => Change::PutLink(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?)),
            _ => return None,
        };
        operations.push((table, key, change));
    }
    rest.is_empty().then_some(operations)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let mut buffer = Vec::new();
        begin(&mut buffer, 3);
        push(&mut buffer, 1, b"k", Change::PutInline(b"value"));
        push(&mut buffer, 2, b"", Change::Delete);
        push(&mut buffer, u64::MAX, &[7; 65_535], Change::PutLink(99));
        let operations = parse(&buffer).unwrap();
        assert_eq!(operations[0], (1, b"k".as_slice(), Change::PutInline(b"value")));
        assert_eq!(operations[1], (2, b"".as_slice(), Change::Delete));
        assert_eq!(operations[2].1.len(), 65_535);
        assert_eq!(operations[2].2, Change::PutLink(99));
    }

    #[test]
    fn every_proper_prefix_and_any_trailing_byte_is_refused() {
        let mut buffer = Vec::new();
        begin(&mut buffer, 1);
        push(&mut buffer, 1, b"key", Change::PutInline(b"v"));
        for length in 0..buffer.len() {
            assert!(parse(&buffer[..length]).is_err(), "{length}");
        }
        buffer.push(0);
        assert!(parse(&buffer).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
