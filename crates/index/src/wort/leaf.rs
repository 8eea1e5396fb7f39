//! Leaves: a value and its whole key.

use lapis_pmem::{AllocError, Domain, InFlight, Link, Owned, PCell, Pool, persistent};

use super::mutants;
use super::nibbles::Nibbles;
use crate::key::{IndexKey, MAX_KEY_BYTES};

persistent! {
    /// A leaf. The second word is the key if that is an integer; otherwise its length, and the
    /// bytes follow.
    pub(super) struct Leaf: 16 {
        pub(super) value: PCell<u64>,
        pub(super) key: PCell<u64>,
    }
}

/// Writes and flushes a leaf; it is durable after the caller's next fence.
#[inline(always)]
#[track_caller]
pub(super) fn make_leaf<'p, D: Domain, K: IndexKey + ?Sized>(
    pool: &'p Pool<D>,
    key: &Nibbles<'_, K>,
    value: u64,
) -> Result<Owned<'p, D, Leaf, InFlight>, AllocError> {
    let mut leaf = pool.allocate_with_tail::<Leaf>(key.bytes().len())?;
    leaf.value.store(pool.domain(), value);
    if K::INLINE {
        leaf.key.store(pool.domain(), key.integer());
    } else {
        leaf.key.store(pool.domain(), key.bytes().len() as u64);
        leaf.write_tail(0, key.bytes());
    }
    let _mutant = pool.domain().omitting(mutants::MISSING_LEAF_FLUSH);
    Ok(leaf.flush())
}

/// The key of the leaf at `link`; none if there cannot be a leaf.
#[inline(always)]
pub(super) fn leaf_key<D: Domain, K: IndexKey + ?Sized>(
    pool: &Pool<D>,
    link: Link<Leaf>,
) -> Option<Nibbles<'_, K>> {
    let word = pool.try_at(link)?.key.load(pool.domain());
    if K::INLINE {
        return Some(Nibbles::of_integer(word));
    }
    if word == 0 || word > MAX_KEY_BYTES as u64 {
        return None;
    }
    pool.try_tail(link, word as usize).map(Nibbles::of_bytes)
}

/// Bytes of the leaf of `key`.
#[inline(always)]
pub(super) fn leaf_bytes<K: IndexKey + ?Sized>(key: &Nibbles<'_, K>) -> usize {
    size_of::<Leaf>() + key.bytes().len()
}
