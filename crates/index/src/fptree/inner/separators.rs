//! Separators: the keys of inner nodes. An integer is in the node; of a byte string the first eight
//! bytes are, zero-padded, and behind a handle the whole, copied, so that neither a search nor a
//! removal needs the leaf that it came from.
//!
//! ```text
//!  handle  63            16 15       0
//!         +----------------+----------+
//!         |  first word    |  length  |   zero for integers
//!         +----------------+----------+
//!  words: the bytes, eight to a word, the first in the highest place, zero-padded
//! ```
//!
//! Words are given out in powers of two and reused by size. A reader may look at words that are a
//! separator no more; it finds out when it validates the node.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use lapis_pmem::{AllocError, Domain, Pool};

use super::memory::Memory;
use crate::index::InnerNodes;
use crate::key::{IndexKey, MAX_KEY_BYTES, leading_word};

/// Words of the first chunk: any key fits into it.
const FIRST_WORDS: usize = (MAX_KEY_BYTES + 1) / 8;
/// Sizes in words are 2^0 to 2^13.
const SIZES: usize = FIRST_WORDS.ilog2() as usize + 1;

/// A separator, as the node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fptree) struct Separator {
    pub(super) prefix: u64,
    pub(super) handle: u64,
}

/// The memory of the separators that are byte strings.
#[derive(Debug)]
pub(super) struct Separators {
    memory: Memory,
}

/// What of it is free. Under the tree's lock for changes.
#[derive(Debug, Default)]
pub(super) struct FreeWords {
    /// By size: the places of what has been given back.
    returned: [Vec<usize>; SIZES],
    /// All words from here on have never been used.
    fresh: usize,
}

/// Eight bytes from eight times `word` on, zero-padded.
#[inline(always)]
fn word_at(bytes: &[u8], word: usize) -> u64 {
    leading_word(bytes.get(word * 8..).unwrap_or_default())
}

fn size_class(words: usize) -> usize {
    words.next_power_of_two().trailing_zeros() as usize
}

impl Separators {
    pub(super) fn new(placement: InnerNodes, next_place: &Arc<AtomicUsize>) -> Self {
        Self { memory: Memory::new(placement, FIRST_WORDS, next_place) }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Copies a key.
    pub(super) fn make<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        free: &mut FreeWords,
        key: &K,
    ) -> Result<Separator, AllocError> {
        let prefix = key.prefix();
        if K::INLINE {
            return Ok(Separator { prefix, handle: 0 });
        }
        let mut space = [0; 8];
        let bytes = key.bytes(&mut space);
        let class = size_class(bytes.len().div_ceil(8));
        let place = match free.returned[class].pop() {
            Some(place) => place,
            None => {
                let words = 1 << class;
                let mut place = free.fresh;
                if place + words > self.memory.chunk_end(place) {
                    place = self.memory.chunk_end(place);
                }
                self.memory.provide(pool, place)?;
                free.fresh = place + words;
                place
            }
        };
        if let Some(words) = self.memory.words(pool, place, 1 << class) {
            for word in 0..bytes.len().div_ceil(8) {
                words.store(pool.domain(), word, word_at(bytes, word));
            }
        }
        Ok(Separator { prefix, handle: (place as u64) << 16 | bytes.len() as u64 })
    }

    /// Takes back a separator that no node has any more.
    pub(super) fn give_back(&self, free: &mut FreeWords, separator: Separator) {
        if separator.handle != 0 {
            let (place, bytes) = parts(separator);
            free.returned[size_class(bytes.div_ceil(8))].push(place);
        }
    }

    /// Compares a separator with a key whose prefix is `prefix`.
    #[inline(always)]
    pub(super) fn compare<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        separator: Separator,
        prefix: u64,
        key: &K,
    ) -> Ordering {
        let by_prefix = separator.prefix.cmp(&prefix);
        if K::INLINE || by_prefix.is_ne() {
            return by_prefix;
        }
        self.compare_rest(pool, separator, key)
    }

    /// Compares what is behind the prefix, which is the same.
    fn compare_rest<D: Domain, K: IndexKey + ?Sized>(
        &self,
        pool: &Pool<D>,
        separator: Separator,
        key: &K,
    ) -> Ordering {
        let mut space = [0; 8];
        let key = key.bytes(&mut space);
        let (place, bytes) = parts(separator);
        let both = bytes.min(key.len()).div_ceil(8);
        if both > 1 {
            // What is not there is being reused; the reader will notice.
            let Some(words) = self.memory.words(pool, place, both) else { return Ordering::Equal };
            for word in 1..both {
                let order = words.load(pool.domain(), word).cmp(&word_at(key, word));
                if order.is_ne() {
                    return order;
                }
            }
        }
        bytes.cmp(&key.len())
    }

    /// Calls `with` with the key that a separator is.
    pub(super) fn with<D: Domain, K: IndexKey + ?Sized, R>(
        &self,
        pool: &Pool<D>,
        separator: Separator,
        with: impl FnOnce(&K) -> R,
    ) -> Option<R> {
        if K::INLINE {
            return K::with_bytes(&separator.prefix.to_be_bytes(), with);
        }
        let (place, bytes) = parts(separator);
        let words = self.memory.words(pool, place, bytes.div_ceil(8))?;
        let mut copy = Vec::with_capacity(bytes.next_multiple_of(8));
        for word in 0..bytes.div_ceil(8) {
            copy.extend(words.load(pool.domain(), word).to_be_bytes());
        }
        copy.truncate(bytes);
        K::with_bytes(&copy, with)
    }
}

fn parts(separator: Separator) -> (usize, usize) {
    ((separator.handle >> 16) as usize, (separator.handle & 0xFFFF) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_compare_like_the_keys_they_copy() {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let separators = Separators::new(InnerNodes::Dram, &Arc::default());
        let mut free = FreeWords::default();
        let long = [7u8; 70];
        let mut longer = long.to_vec();
        longer[69] = 8;
        let keys: [&[u8]; 9] = [
            b"a",
            b"a\0",
            b"a\0\0\0\0\0\0\0",
            b"a\0\0\0\0\0\0\0\0",
            b"b",
            b"bcdefghi",
            b"bcdefghij",
            &long,
            &longer,
        ];
        for one in keys {
            let separator = separators.make(&pool, &mut free, one).unwrap();
            for other in keys {
                let order = separators.compare(&pool, separator, other.prefix(), other);
                assert_eq!(order, one.cmp(other), "{one:?} {other:?}");
            }
            assert_eq!(separators.with(&pool, separator, <[u8]>::to_vec), Some(one.to_vec()));
        }
    }

    #[test]
    fn words_that_are_given_back_are_used_again() {
        let pool = Pool::create_anonymous(1 << 20).unwrap();
        let separators = Separators::new(InnerNodes::Dram, &Arc::default());
        let mut free = FreeWords::default();
        let key = vec![1u8; MAX_KEY_BYTES];
        for _ in 0..100 {
            let separator = separators.make(&pool, &mut free, key.as_slice()).unwrap();
            separators.give_back(&mut free, separator);
        }
        assert_eq!(free.fresh, FIRST_WORDS);
    }
}
