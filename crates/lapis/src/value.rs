//! Values: blocks behind the index, and the bytes a user gets.
//!
//! ```text
//!  offset  bytes  field
//!       0      4  value_bytes
//!       4      4  crc32c of the value
//!       8      n  the value
//! ```
//!
//! V1. A block that an index entry refers to is durable and never changes: it is flushed before the
//! entry is written, and a fence comes between (the index's, if it orders prior flushes; else the
//! store's own).

use std::fmt;
use std::ops::Deref;

use lapis_pmem::{
    AllocError, BlockVisitor, Domain, InFlight, Link, Owned, PCell, Pool, persistent,
};

use crate::error::Error;

persistent! {
    /// The head of a value's block.
    pub(crate) struct ValueBlock: 8 {
        value_bytes: PCell<u32>,
        crc32c: PCell<u32>,
    }
}

/// Values longer than this are written past the caches.
const STREAM_OVER_BYTES: usize = 4096;

/// Allocates, writes and flushes a value's block; the caller fences.
pub(crate) fn write<'p, D: Domain>(
    pool: &'p Pool<D>,
    value: &[u8],
) -> Result<Owned<'p, D, ValueBlock, InFlight>, AllocError> {
    let mut block = pool.allocate_with_tail::<ValueBlock>(value.len())?;
    block.value_bytes.store(pool.domain(), value.len() as u32);
    block.crc32c.store(pool.domain(), crc32c::crc32c(value));
    if value.len() > STREAM_OVER_BYTES {
        block.write_tail_nontemporal(0, value);
        Ok(block.flush_head())
    } else {
        block.write_tail(0, value);
        Ok(block.flush())
    }
}

/// The value at `link`, copied out.
pub(crate) fn read<D: Domain>(pool: &Pool<D>, link: u64) -> Result<Value, Error> {
    let damaged = |what: &str| Error::Damaged { what: format!("the value at {link:#x} {what}") };
    let link = Link::<ValueBlock>::from_bits(link);
    let head = pool.try_at(link).ok_or_else(|| damaged("is outside the pool"))?;
    let length = head.value_bytes.load(pool.domain()) as usize;
    let bytes = pool.try_tail(link, length).ok_or_else(|| damaged("ends outside the pool"))?;
    if crc32c::crc32c(bytes) != head.crc32c.load(pool.domain()) {
        return Err(damaged("has a wrong checksum"));
    }
    Ok(Value(bytes.to_vec()))
}

/// Bytes of the block at `link`, head included; none if the link is outside the pool.
pub(crate) fn block_bytes<D: Domain>(pool: &Pool<D>, link: u64) -> Option<usize> {
    let head = pool.try_at(Link::<ValueBlock>::from_bits(link))?;
    Some(size_of::<ValueBlock>() + head.value_bytes.load(pool.domain()) as usize)
}

/// Visits the block at `link`.
pub(crate) fn visit_blocks<D: Domain>(visitor: &mut BlockVisitor<'_, D>, link: u64) {
    match block_bytes(visitor.pool(), link) {
        Some(bytes) => {
            visitor.visit(Link::<ValueBlock>::from_bits(link), bytes);
        }
        None => {
            visitor.problem(format!("an entry refers to a value at {link:#x}, outside the pool"))
        }
    }
}

/// A value read from a store: owned bytes, independent of the store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(pub(crate) Vec<u8>);

impl Value {
    /// The bytes, without copying.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.0
    }
}
impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}
impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        self.0 == *other
    }
}
impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.0 == *other
    }
}
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
