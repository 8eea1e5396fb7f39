//! Keys: what an index is asked for, and how a key fits into eight bytes of a node.

use std::cmp::Ordering;
use std::fmt::Debug;

use lapis_pmem::{
    AllocError, Batch, BlockVisitor, Blocks, Committed, Domain, Durable, Guard, InFlight, InOrder,
    Link, Owned, PCell, Pool, persistent,
};

use crate::error::IndexError;

/// How an index stores its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum KeyKind {
    /// 8-byte integers, in place.
    Fixed8 = 1,
    /// Byte strings of 1 to 65,535 bytes.
    Bytes = 2,
}

/// The longest byte-string key.
pub const MAX_KEY_BYTES: usize = 65_535;

persistent! {
    /// A byte-string key out of line: its length, then its bytes.
    ///
    /// ```text
    ///  offset  bytes  field
    ///       0      8  key_bytes
    ///       8      n  the key
    /// ```
    ///
    /// Written before it is linked and never changed.
    pub struct KeyBlob: 8 {
        key_bytes: PCell<u64>,
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for [u8] {}
}

/// A key: `u64`, ordered as an integer, or `[u8]`, ordered as bytes.
///
/// Structures that keep keys in 8-byte fields store a *key word*: the integer itself, or a link to a
/// [`KeyBlob`] with 16 bits of the key's hash above it. A word of a byte-string key is never zero.
pub trait IndexKey: sealed::Sealed + Ord + Debug + Send + Sync + 'static {
    /// An owned key.
    type Buf: Clone + Ord + Debug + Send + Sync + 'static;
    /// How the index root names this kind.
    const KIND: KeyKind;
    /// Whether the key word is the key, so that words compare like keys.
    const INLINE: bool;

    /// A copy.
    fn to_buf(&self) -> Self::Buf;
    /// The key in an owned key.
    fn borrow(buf: &Self::Buf) -> &Self;

    /// Whether the key has a length that an index takes.
    ///
    /// # Errors
    /// [`IndexError::EmptyKey`], [`IndexError::KeyTooLong`].
    fn validate(&self) -> Result<(), IndexError>;

    /// 64 well-mixed bits.
    #[inline(always)]
    fn hash64(&self) -> u64 {
        self.hash64_by(0)
    }

    /// The same by a seed: who does not know it cannot choose byte strings that have the same. An integer has one hash,
    /// whatever the seed.
    fn hash64_by(&self, seed: u64) -> u64;

    /// Byte `index` in the order of comparison (integers big-endian), or none past the end.
    fn byte_at(&self, index: usize) -> Option<u8>;

    /// The first eight bytes, padded with zeroes, as a number that orders as they do: an integer is its own.
    fn prefix(&self) -> u64;

    /// The key's bytes in the order of comparison, in `space` if they have to be made.
    fn bytes<'a>(&'a self, space: &'a mut [u8; 8]) -> &'a [u8];

    /// Calls `with` with the key that `bytes`, in the order of comparison, are; none if they cannot
    /// be a key of this kind.
    fn with_bytes<R>(bytes: &[u8], with: impl FnOnce(&Self) -> R) -> Option<R>;

    /// Prepares the word for storing: for byte strings, allocates, writes and flushes a blob. A
    /// fence of the caller must come before the word becomes reachable.
    ///
    /// # Errors
    /// [`AllocError`].
    fn make_word<'p, D: Domain>(&self, pool: &'p Pool<D>) -> Result<KeyWord<'p, D>, AllocError>;

    /// Compares this key with the one that a word stands for. A damaged word compares as greater.
    fn cmp_word<D: Domain>(&self, pool: &Pool<D>, word: u64) -> Ordering;

    /// Orders the keys of two words. Damaged words come last, in an order of their own, so that this
    /// is a total order whatever the bytes.
    fn cmp_words<D: Domain>(pool: &Pool<D>, one: u64, other: u64) -> Ordering {
        if Self::INLINE {
            return one.cmp(&other);
        }
        let both =
            Self::with_word(pool, one, |one| Self::with_word(pool, other, |other| one.cmp(other)));
        match both {
            Some(Some(order)) => order,
            Some(None) => Ordering::Less,
            None if Self::with_word(pool, other, |_| ()).is_some() => Ordering::Greater,
            None => one.cmp(&other),
        }
    }

    /// Whether a word stands for this key. `tag` is [`IndexKey::tag`] of this key.
    fn eq_word<D: Domain>(&self, pool: &Pool<D>, tag: u64, word: u64) -> bool;

    /// The hash bits that this key's word has above its link (0 for integers).
    fn tag(&self) -> u64;

    /// Calls `with` with the key that a word stands for; none if the word is damaged.
    fn with_word<D: Domain, R>(
        pool: &Pool<D>,
        word: u64,
        with: impl FnOnce(&Self) -> R,
    ) -> Option<R>;

    /// Retires what a word refers to (nothing for integers).
    fn retire_word<D: Domain>(pool: &Pool<D>, word: u64, unlinked: Committed, guard: &Guard<'_, D>);

    /// Visits what a word refers to (nothing for integers).
    fn visit_blocks<D: Domain>(visitor: &mut BlockVisitor<'_, D>, word: u64);

    /// Bytes of the blocks that a word refers to.
    fn word_block_bytes<D: Domain>(pool: &Pool<D>, word: u64) -> usize;
}

/// A key word and, for byte strings, the block it refers to, in persistence state `S` and not yet
/// reachable. Dropping it gives the block back.
#[derive(Debug)]
pub struct KeyWord<'p, D: Domain, S = InFlight> {
    word: u64,
    blob: Option<Owned<'p, D, KeyBlob, S>>,
}

impl<'p, D: Domain, S> KeyWord<'p, D, S> {
    /// The word, for writing into a node that is not reachable yet, or to a place in one that is
    /// locked and does not count yet.
    pub fn bits(&self) -> u64 {
        self.word
    }

    /// A word that the structure has already, to be stored once more: nothing comes with it.
    pub(crate) fn again(word: u64) -> Self {
        Self { word, blob: None }
    }
}

impl<'p, D: Domain> KeyWord<'p, D> {
    /// Fences if there is a block, or the caller has flushed something else.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fence_if(self, pool: &Pool<D>, is_needed: bool) -> KeyWord<'p, D, Durable> {
        if is_needed || self.blob.is_some() {
            return pool.fence(self);
        }
        KeyWord::again(self.word)
    }

    /// The word has been stored by a change that fences before it makes the word count.
    pub(crate) fn release(self) {
        let _ = self.blob.map(Owned::<_, _, InFlight>::release);
    }
}

impl<'p, D: Domain> Batch for KeyWord<'p, D> {
    type Durable = KeyWord<'p, D, Durable>;
    #[inline(always)]
    fn fenced(self, order: InOrder) -> Self::Durable {
        KeyWord { word: self.word, blob: self.blob.fenced(order) }
    }
}

impl<S, D: Domain> Blocks<S> for KeyWord<'_, D, S> {
    #[inline(always)]
    fn hand_over(self, order: InOrder) {
        self.blob.hand_over(order);
    }
}

impl IndexKey for u64 {
    type Buf = u64;
    const KIND: KeyKind = KeyKind::Fixed8;
    const INLINE: bool = true;

    #[inline(always)]
    fn to_buf(&self) -> u64 {
        *self
    }
    #[inline(always)]
    fn borrow(buf: &u64) -> &u64 {
        buf
    }
    #[inline(always)]
    fn validate(&self) -> Result<(), IndexError> {
        Ok(())
    }
    #[inline(always)]
    fn hash64_by(&self, _seed: u64) -> u64 {
        // Both halves of a product: a search waits for other searches' misses for as long as their
        // instructions fit beside its own.
        let product = u128::from(self ^ KEY_OF_HASH_ZERO) * u128::from(MULTIPLIER);
        product as u64 ^ (product >> 64) as u64
    }
    #[inline(always)]
    fn byte_at(&self, index: usize) -> Option<u8> {
        (index < 8).then(|| (self >> (56 - 8 * index)) as u8)
    }
    #[inline(always)]
    fn prefix(&self) -> u64 {
        *self
    }
    #[inline(always)]
    fn bytes<'a>(&'a self, space: &'a mut [u8; 8]) -> &'a [u8] {
        *space = self.to_be_bytes();
        space
    }
    #[inline(always)]
    fn with_bytes<R>(bytes: &[u8], with: impl FnOnce(&u64) -> R) -> Option<R> {
        Some(with(&u64::from_be_bytes(bytes.try_into().ok()?)))
    }
    #[inline(always)]
    fn make_word<'p, D: Domain>(&self, _pool: &'p Pool<D>) -> Result<KeyWord<'p, D>, AllocError> {
        Ok(KeyWord { word: *self, blob: None })
    }
    #[inline(always)]
    fn cmp_word<D: Domain>(&self, _pool: &Pool<D>, word: u64) -> Ordering {
        self.cmp(&word)
    }
    #[inline(always)]
    fn eq_word<D: Domain>(&self, _pool: &Pool<D>, _tag: u64, word: u64) -> bool {
        *self == word
    }
    #[inline(always)]
    fn tag(&self) -> u64 {
        0
    }
    #[inline(always)]
    fn with_word<D: Domain, R>(
        _pool: &Pool<D>,
        word: u64,
        with: impl FnOnce(&u64) -> R,
    ) -> Option<R> {
        Some(with(&word))
    }
    #[inline(always)]
    fn retire_word<D: Domain>(_: &Pool<D>, _: u64, _: Committed, _: &Guard<'_, D>) {}
    #[inline(always)]
    fn visit_blocks<D: Domain>(_: &mut BlockVisitor<'_, D>, _: u64) {}
    #[inline(always)]
    fn word_block_bytes<D: Domain>(_: &Pool<D>, _: u64) -> usize {
        0
    }
}

/// The integer key whose hash is zero.
pub(crate) const KEY_OF_HASH_ZERO: u64 = 0x9E37_79B9_7F4A_7C15;
/// A random number that, as a part of 2^64, is near no simple fraction: so neighbours do not meet. Of sixteen such
/// the one that spreads regular patterns most evenly.
const MULTIPLIER: u64 = 0xD9F7_B516_3DD3_D8E7;

/// The hash that decides about a key's place in a hash table. The words of byte-string keys carry the
/// upper bits of the hash as their tag, and their place is taken from elsewhere, so that the tag tells
/// apart the keys of one place.
#[inline(always)]
pub fn place_hash<K: IndexKey + ?Sized>(key: &K) -> u64 {
    place_hash_by(key, 0)
}

/// The same in a table of this seed ([`IndexOptions::hash_seed`](crate::IndexOptions::hash_seed)). The tag has none: it says
/// nothing of a place, and keys that have the same only take longer to be told apart.
#[inline(always)]
pub(crate) fn place_hash_by<K: IndexKey + ?Sized>(key: &K, seed: u64) -> u64 {
    let tag_bits = if K::INLINE { 0 } else { u64::BITS - TAG_SHIFT };
    key.hash64_by(seed).rotate_left(tag_bits)
}

/// The first eight bytes, padded with zeroes, as a number that orders as they do.
#[inline(always)]
pub(crate) fn leading_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

const TAG_SHIFT: u32 = 48;

fn blob_link(word: u64) -> Link<KeyBlob> {
    Link::from_bits(word)
}

fn blob_bytes<D: Domain>(pool: &Pool<D>, word: u64) -> Option<&[u8]> {
    let link = blob_link(word);
    let bytes = pool.try_at(link)?.key_bytes.load(pool.domain()) as usize;
    if bytes == 0 || bytes > MAX_KEY_BYTES {
        return None;
    }
    pool.try_tail(link, bytes)
}

impl IndexKey for [u8] {
    type Buf = Vec<u8>;
    const KIND: KeyKind = KeyKind::Bytes;
    const INLINE: bool = false;

    fn to_buf(&self) -> Vec<u8> {
        self.to_vec()
    }
    fn borrow(buf: &Vec<u8>) -> &[u8] {
        buf
    }
    fn validate(&self) -> Result<(), IndexError> {
        match self.len() {
            0 => Err(IndexError::EmptyKey),
            bytes if bytes > MAX_KEY_BYTES => Err(IndexError::KeyTooLong { bytes }),
            _ => Ok(()),
        }
    }
    #[inline]
    fn hash64_by(&self, seed: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(self, seed)
    }
    #[inline(always)]
    fn byte_at(&self, index: usize) -> Option<u8> {
        self.get(index).copied()
    }
    #[inline(always)]
    fn prefix(&self) -> u64 {
        leading_word(self)
    }
    #[inline(always)]
    fn bytes<'a>(&'a self, _space: &'a mut [u8; 8]) -> &'a [u8] {
        self
    }
    #[inline(always)]
    fn with_bytes<R>(bytes: &[u8], with: impl FnOnce(&[u8]) -> R) -> Option<R> {
        Some(with(bytes))
    }
    #[track_caller]
    fn make_word<'p, D: Domain>(&self, pool: &'p Pool<D>) -> Result<KeyWord<'p, D>, AllocError> {
        let mut blob = pool.allocate_with_tail::<KeyBlob>(self.len())?;
        blob.key_bytes.store(pool.domain(), self.len() as u64);
        blob.write_tail(0, self);
        let blob = blob.flush();
        Ok(KeyWord { word: self.tag() | blob.link().bits(), blob: Some(blob) })
    }
    fn cmp_word<D: Domain>(&self, pool: &Pool<D>, word: u64) -> Ordering {
        match blob_bytes(pool, word) {
            Some(bytes) => self.cmp(bytes),
            None => Ordering::Greater,
        }
    }
    fn eq_word<D: Domain>(&self, pool: &Pool<D>, tag: u64, word: u64) -> bool {
        word >> TAG_SHIFT == tag >> TAG_SHIFT && blob_bytes(pool, word) == Some(self)
    }
    fn tag(&self) -> u64 {
        self.hash64() >> TAG_SHIFT << TAG_SHIFT
    }
    fn with_word<D: Domain, R>(
        pool: &Pool<D>,
        word: u64,
        with: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        blob_bytes(pool, word).map(with)
    }
    fn retire_word<D: Domain>(
        pool: &Pool<D>,
        word: u64,
        unlinked: Committed,
        guard: &Guard<'_, D>,
    ) {
        let bytes = Self::word_block_bytes(pool, word);
        if bytes > 0 {
            pool.retire(blob_link(word), bytes, unlinked, guard);
        }
    }
    fn visit_blocks<D: Domain>(visitor: &mut BlockVisitor<'_, D>, word: u64) {
        let bytes = Self::word_block_bytes(visitor.pool(), word);
        if bytes > 0 {
            visitor.visit(blob_link(word), bytes);
        } else {
            visitor.problem(format!("the key word {word:#x} refers to no key"));
        }
    }
    fn word_block_bytes<D: Domain>(pool: &Pool<D>, word: u64) -> usize {
        blob_bytes(pool, word).map_or(0, |bytes| size_of::<KeyBlob>() + bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_bytes_sort_like_integers() {
        let (a, b) = (255u64, 256u64);
        let (mut space_a, mut space_b) = ([0; 8], [0; 8]);
        assert!(a.bytes(&mut space_a) < b.bytes(&mut space_b));
        assert_eq!(b.byte_at(6), Some(1));
        assert_eq!(b.byte_at(8), None);
    }

    /// How unevenly keys are spread among the places that some bits of their hashes tell apart: around 1 for
    /// random hashes, the number of keys if all are in one place.
    fn unevenness(keys: &[u64], from_bit: u32, bits: u32) -> f64 {
        let mut places = vec![0u32; 1 << bits];
        for key in keys {
            places[(key.hash64() >> from_bit) as usize % (1 << bits)] += 1;
        }
        let share = keys.len() as f64 / places.len() as f64;
        let squares = places.iter().map(|&keys| (f64::from(keys) - share).powi(2));
        squares.sum::<f64>() / keys.len() as f64
    }

    #[test]
    fn integers_in_regular_patterns_are_spread_almost_as_evenly_as_at_random() {
        let strides = [1, 2, 3, 7, 8, 10, 48, 64, 100, 1000, 4096, 65_537, 1_000_000, 1 << 32];
        let keys = |number_of: &dyn Fn(u64) -> u64| (0..1 << 13).map(number_of).collect::<Vec<_>>();
        let multiples = strides.map(|stride| keys(&|i| i * stride));
        let pairs = [16, 32, 48].map(|shift| keys(&|i| ((i / 64) << shift) | (i % 64)));
        let fractions = keys(&|i| (i as f64 * 0.1).to_bits());
        let patterns = multiples.into_iter().chain(pairs).chain([fractions]);
        for (number, keys) in patterns.enumerate() {
            for (count, bits) in [(64, 5), (128, 6), (1024, 9), (1 << 13, 10)] {
                // Where hash tables take the numbers of places from.
                for from_bit in [0, u64::BITS / 2 - bits, u64::BITS - bits] {
                    let found = unevenness(&keys[..count], from_bit, bits);
                    assert!(found < 4.0, "pattern {number}, {count} keys, bit {from_bit}: {found}");
                }
            }
        }
    }

    #[test]
    fn byte_string_words_compare_by_content() {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let key: &[u8] = b"a\0b";
        let word = key.make_word(&pool).unwrap();
        assert_eq!(key.cmp_word(&pool, word.bits()), Ordering::Equal);
        assert!(key.eq_word(&pool, key.tag(), word.bits()));
        assert_eq!(b"a".as_slice().cmp_word(&pool, word.bits()), Ordering::Less);
        assert_eq!(<[u8]>::with_word(&pool, word.bits(), <[u8]>::to_vec), Some(key.to_vec()));
        assert_eq!(<[u8]>::word_block_bytes(&pool, word.bits()), 11);
    }

    #[test]
    fn empty_and_overlong_keys_are_refused() {
        assert!(matches!([].as_slice().validate(), Err(IndexError::EmptyKey)));
        let long = vec![0u8; MAX_KEY_BYTES + 1];
        assert!(matches!(
            long.as_slice().validate(),
            Err(IndexError::KeyTooLong { bytes: 65_536 })
        ));
    }
}
