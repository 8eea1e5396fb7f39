//! Leaves: a value and its whole key.

use std::mem::offset_of;

use lapis_pmem::{AllocError, Dirty, Domain, Link, Owned, PCell, Pool, persistent};

use super::digits::{Digits, Span};
use crate::key::{IndexKey, KeyBlob, MAX_KEY_BYTES};

persistent! {
    /// A leaf. The second word is the key if that is an integer; otherwise its length, and the
    /// bytes follow.
    pub struct Leaf: 16 {
        pub value: PCell<u64>,
        pub key: PCell<u64>,
    }
}

const KEY_OFFSET: usize = offset_of!(Leaf, key);
const _: () = assert!(KEY_OFFSET + size_of::<KeyBlob>() == size_of::<Leaf>(), "length, then bytes");

impl Leaf {
    /// The key word ([`IndexKey`]) of the leaf at `link`, which has this key: the length and bytes of a
    /// byte string lie there as in a blob of its own.
    #[inline(always)]
    pub fn key_word<K: IndexKey + ?Sized, S: Span>(
        link: Link<Self>,
        key: &Digits<'_, K, S>,
    ) -> u64 {
        if K::INLINE { key.integer() } else { link.offset() + KEY_OFFSET as u64 }
    }
}

/// Writes a leaf.
#[inline(always)]
#[track_caller]
pub fn write_leaf<'p, D: Domain, K: IndexKey + ?Sized, S: Span>(
    pool: &'p Pool<D>,
    key: &Digits<'_, K, S>,
    value: u64,
) -> Result<Owned<'p, D, Leaf, Dirty>, AllocError> {
    let mut leaf = pool.allocate_with_tail::<Leaf>(key.bytes().len())?;
    leaf.value.store(pool.domain(), value);
    if K::INLINE {
        leaf.key.store(pool.domain(), key.integer());
    } else {
        leaf.key.store(pool.domain(), key.bytes().len() as u64);
        leaf.write_tail(0, key.bytes());
    }
    Ok(leaf)
}

/// The key of the leaf at `link`; none if there cannot be a leaf.
#[inline(always)]
pub fn leaf_key<D: Domain, K: IndexKey + ?Sized, S: Span>(
    pool: &Pool<D>,
    link: Link<Leaf>,
) -> Option<Digits<'_, K, S>> {
    key_in_leaf(pool, pool.try_at(link)?, link)
}

/// The key of the leaf at `link`, which is `leaf`; none if there cannot be a leaf.
#[inline(always)]
pub fn key_in_leaf<'p, D: Domain, K: IndexKey + ?Sized, S: Span>(
    pool: &'p Pool<D>,
    leaf: &Leaf,
    link: Link<Leaf>,
) -> Option<Digits<'p, K, S>> {
    let word = leaf.key.load(pool.domain());
    if K::INLINE {
        return Some(Digits::of_integer(word));
    }
    if word == 0 || word > MAX_KEY_BYTES as u64 {
        return None;
    }
    pool.try_tail(link, word as usize).map(Digits::of_bytes)
}

/// Bytes of the leaf of `key`.
#[inline(always)]
pub fn leaf_bytes<K: IndexKey + ?Sized, S: Span>(key: &Digits<'_, K, S>) -> usize {
    size_of::<Leaf>() + key.bytes().len()
}
