//! Keys as sequences of 4-bit digits, the most significant first.

use std::marker::PhantomData;

use super::node::END_SLOT;
use crate::key::IndexKey;

/// A key of kind `K`, seen as nibbles. An integer has 16; a byte string has two per byte and then
/// its end, which is a digit of its own that sorts before every nibble.
pub(super) struct Nibbles<'k, K: ?Sized> {
    /// The whole key, if `K` is an integer.
    integer: u64,
    /// The whole key, if `K` is a byte string.
    bytes: &'k [u8],
    _kind: PhantomData<fn(&K)>,
}

impl<'k, K: IndexKey + ?Sized> Nibbles<'k, K> {
    /// The nibbles of `key`; `space` is for bytes that have to be made.
    #[inline(always)]
    pub(super) fn of(key: &'k K, space: &'k mut [u8; 8]) -> Self {
        let bytes = key.bytes(space);
        if K::INLINE {
            Self::of_integer(u64::from_be_bytes(bytes.try_into().unwrap_or_default()))
        } else {
            Self::of_bytes(bytes)
        }
    }

    /// The nibbles of an integer.
    #[inline(always)]
    pub(super) fn of_integer(integer: u64) -> Self {
        Self { integer, bytes: &[], _kind: PhantomData }
    }

    /// The nibbles of a byte string.
    #[inline(always)]
    pub(super) fn of_bytes(bytes: &'k [u8]) -> Self {
        Self { integer: 0, bytes, _kind: PhantomData }
    }

    /// The integer; zero for byte strings.
    #[inline(always)]
    pub(super) fn integer(&self) -> u64 {
        self.integer
    }

    /// The byte string; empty for integers.
    #[inline(always)]
    pub(super) fn bytes(&self) -> &'k [u8] {
        self.bytes
    }

    /// Calls `with` with the key.
    #[inline]
    pub(super) fn with_key<R>(&self, with: impl FnOnce(&K) -> R) -> Option<R> {
        if K::INLINE {
            K::with_bytes(&self.integer.to_be_bytes(), with)
        } else {
            K::with_bytes(self.bytes, with)
        }
    }

    /// The slot that this key takes in a node that branches at `position`: its nibble there, or
    /// [`END_SLOT`] if it ends there. None if it ends before.
    #[inline(always)]
    pub(super) fn slot_at(&self, position: usize) -> Option<usize> {
        if K::INLINE {
            // Positions are at most 15; a damaged one selects a wrong nibble and no more.
            let shift = 60u32.wrapping_sub(4 * position as u32);
            return Some((self.integer.wrapping_shr(shift) & 15) as usize);
        }
        match self.bytes.get(position / 2) {
            Some(&byte) => {
                Some(usize::from(if position.is_multiple_of(2) { byte >> 4 } else { byte & 15 }))
            }
            None if position == 2 * self.bytes.len() => Some(END_SLOT),
            None => None,
        }
    }

    /// Where this key and `other` first differ; none if they are equal.
    #[inline(always)]
    pub(super) fn first_difference(&self, other: &Nibbles<'_, K>) -> Option<usize> {
        if K::INLINE {
            let difference = self.integer ^ other.integer;
            return (difference != 0).then(|| difference.leading_zeros() as usize / 4);
        }
        let (ours, theirs) = (self.bytes, other.bytes);
        let common = common_bytes(ours, theirs);
        match (ours.get(common), theirs.get(common)) {
            (Some(a), Some(b)) => Some(2 * common + usize::from(a >> 4 == b >> 4)),
            (None, None) => None,
            _ => Some(2 * common),
        }
    }

    /// Whether the two are the same key.
    #[inline(always)]
    pub(super) fn is(&self, other: &Nibbles<'_, K>) -> bool {
        if K::INLINE { self.integer == other.integer } else { self.bytes == other.bytes }
    }
}

/// How many bytes two strings have in common before they differ or one ends.
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[8 * words..], &b[8 * words..]);
    8 * words + rest_a.iter().zip(rest_b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(key: &[u8]) -> Nibbles<'_, [u8]> {
        Nibbles::of_bytes(key)
    }

    #[test]
    fn an_integer_has_sixteen_nibbles_from_the_top() {
        let mut space = [0; 8];
        let key = Nibbles::of(&0x1234_5678_9ABC_DEF0u64, &mut space);
        let slots: Vec<_> = (0..16).filter_map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0]);
    }

    #[test]
    fn a_byte_string_ends_in_a_slot_of_its_own_and_has_nothing_behind() {
        let key = bytes(b"\x1F");
        let slots: Vec<_> = (0..4).map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [Some(1), Some(15), Some(END_SLOT), None]);
    }

    #[test]
    fn the_first_difference_is_found_in_either_half_of_a_byte_and_at_the_end_of_a_prefix() {
        assert_eq!(bytes(b"abc\x12").first_difference(&bytes(b"abc\x22")), Some(6));
        assert_eq!(bytes(b"abc\x12").first_difference(&bytes(b"abc\x13")), Some(7));
        assert_eq!(bytes(b"abc").first_difference(&bytes(b"abc\x00")), Some(6));
        assert_eq!(bytes(b"abcdefghi").first_difference(&bytes(b"abcdefghi")), None);
        assert_eq!(bytes(b"abcdefgh-").first_difference(&bytes(b"abcdefghi")), Some(16));
        let (low, high) = (Nibbles::<u64>::of_integer(0x10), Nibbles::of_integer(0x20));
        assert_eq!(low.first_difference(&high), Some(14));
    }
}
