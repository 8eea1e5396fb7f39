//! Keys as sequences of bits, of which no one is the beginning of another.
//!
//! An integer has its 64 bits, the most significant first. A byte string has those of its bytes, of as many
//! zero bytes as the longest key has more, and then of its length in 16 bits. Two keys that are equal
//! but for zero bytes at the end of one so differ in their lengths, and the shorter comes first.

use crate::key::{IndexKey, MAX_KEY_BYTES};
use crate::radix::{Byte, Digits};

/// A key whose bits are looked at.
pub type Bits<'k, K> = Digits<'k, K, Byte>;

/// The byte of the sequence at which a byte string's length begins.
const LENGTH_BYTE: usize = MAX_KEY_BYTES;

/// How many bits the sequences have.
pub const fn sequence_bits<K: IndexKey + ?Sized>() -> u32 {
    if K::INLINE { u64::BITS } else { 8 * (LENGTH_BYTE as u32 + 2) }
}

/// A byte of the sequence.
#[inline(always)]
pub fn byte_at<K: IndexKey + ?Sized>(key: &Bits<'_, K>, number: usize) -> u8 {
    if K::INLINE {
        return key.integer().to_be_bytes().get(number).copied().unwrap_or(0);
    }
    let bytes = key.bytes();
    match bytes.get(number) {
        Some(&byte) => byte,
        None if number < LENGTH_BYTE => 0,
        None => (bytes.len() as u16).to_be_bytes().get(number - LENGTH_BYTE).copied().unwrap_or(0),
    }
}

/// The eight bytes from `first` on.
#[inline(always)]
pub fn window_at<K: IndexKey + ?Sized>(key: &Bits<'_, K>, first: usize) -> u64 {
    if K::INLINE {
        return if first < 8 { key.integer() << (8 * first) } else { 0 };
    }
    match key.bytes().get(first..).and_then(<[u8]>::first_chunk) {
        Some(&bytes) => u64::from_be_bytes(bytes),
        None => {
            (first..first + 8).fold(0, |word, number| word << 8 | u64::from(byte_at(key, number)))
        }
    }
}

/// Whether the bit at `position` is set.
#[inline(always)]
pub fn bit_at<K: IndexKey + ?Sized>(key: &Bits<'_, K>, position: u32) -> bool {
    byte_at(key, position as usize / 8) << (position % 8) & 0x80 != 0
}

/// Where two keys first differ; none if they are equal.
#[inline(always)]
pub fn first_difference<K: IndexKey + ?Sized>(
    key: &Bits<'_, K>,
    other: &Bits<'_, K>,
) -> Option<u32> {
    if K::INLINE {
        let difference = key.integer() ^ other.integer();
        return (difference != 0).then(|| difference.leading_zeros());
    }
    let (ours, theirs) = (key.bytes(), other.bytes());
    let differ = key.first_difference(other)?;
    let in_longer = (differ..ours.len().max(theirs.len()))
        .map(|number| (number, byte_at(key, number) ^ byte_at(other, number)))
        .find(|&(_, difference)| difference != 0);
    let lengths = || (ours.len() as u16 ^ theirs.len() as u16).leading_zeros();
    Some(match in_longer {
        Some((number, difference)) => 8 * number as u32 + difference.leading_zeros(),
        None => 8 * LENGTH_BYTE as u32 + lengths(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings() -> Vec<Vec<u8>> {
        let long = |last: &[u8]| [vec![7; MAX_KEY_BYTES - last.len()], last.to_vec()].concat();
        let mut keys: Vec<Vec<u8>> = [
            b"a".as_slice(),
            b"a\0",
            b"a\0\0",
            b"a\0\x01",
            b"a\x01",
            b"ab",
            b"\0",
            b"\0\0",
            b"b",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefghij\0\0\0\0",
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        keys.extend([long(b""), long(b"\0"), long(b"\x08")]);
        keys.push(long(b"")[1..].to_vec());
        keys.push([long(b"")[1..].to_vec(), vec![0]].concat());
        keys
    }

    #[test]
    fn the_first_bit_in_which_two_byte_strings_differ_says_which_comes_first() {
        for one in &strings() {
            for other in &strings() {
                let (a, b) = (Bits::<[u8]>::of_bytes(one), Bits::of_bytes(other));
                let Some(position) = first_difference(&a, &b) else {
                    assert_eq!(one, other);
                    continue;
                };
                assert!(position < sequence_bits::<[u8]>());
                assert_eq!(
                    (bit_at(&a, position), bit_at(&b, position)),
                    (one > other, other > one)
                );
                let before = (position as usize).saturating_sub(40)..position as usize;
                assert!(
                    before.into_iter().all(|at| bit_at(&a, at as u32) == bit_at(&b, at as u32))
                );
            }
        }
    }

    #[test]
    fn a_window_has_the_bytes_of_the_sequence() {
        for key in &strings() {
            let key = Bits::<[u8]>::of_bytes(key);
            for first in [0, 1, 5, 9, 65_520, 65_526, 65_527, 65_530, 65_534, 65_535, 65_536] {
                let bytes = std::array::from_fn(|number| byte_at(&key, first + number));
                assert_eq!(window_at(&key, first), u64::from_be_bytes(bytes), "at {first}");
            }
        }
        let key = Bits::<u64>::of_integer(0x0123_4567_89AB_CDEF);
        assert_eq!((window_at(&key, 0), window_at(&key, 7)), (key.integer(), 0xEF << 56));
        assert_eq!((window_at(&key, 8), byte_at(&key, 1), byte_at(&key, 8)), (0, 0x23, 0));
    }
}
