//! Keys as sequences of digits, the most significant first.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::key::{IndexKey, MAX_KEY_BYTES};

/// How wide the digits of a tree are.
pub trait Span: Copy + Eq + Debug + 'static {
    /// Bits of a digit; divides 8.
    const BITS: u32;
    /// How many digits of a prefix a header has room for: the first ones, if it is longer.
    const HEADER_DIGITS: usize;

    /// Slots for digits in a node.
    const SLOTS: usize = 1 << Self::BITS;
    /// The slot of the key that ends at a node's branch position, behind the others.
    const END_SLOT: usize = Self::SLOTS;
    /// Digits of a byte.
    const PER_BYTE: usize = 8 / Self::BITS as usize;

    /// The place of a slot in the order of keys: a key that ends comes before all that go on.
    #[inline(always)]
    fn rank_of(slot: usize) -> usize {
        if slot == Self::END_SLOT { 0 } else { slot + 1 }
    }

    /// The slot at that place.
    #[inline(always)]
    fn slot_of(rank: usize) -> usize {
        if rank == 0 { Self::END_SLOT } else { rank - 1 }
    }

    /// Whether keys of kind `K` can end at `position`, so that nodes there have an end slot.
    #[inline(always)]
    fn has_end_slot<K: IndexKey + ?Sized>(position: usize) -> bool {
        !K::INLINE && position.is_multiple_of(Self::PER_BYTE)
    }

    /// Positions lie before the end of the longest key, or at it.
    fn last_position<K: IndexKey + ?Sized>() -> usize {
        if K::INLINE { 8 * Self::PER_BYTE - 1 } else { MAX_KEY_BYTES * Self::PER_BYTE }
    }
}

/// Digits of four bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nibble {}

impl Span for Nibble {
    const BITS: u32 = 4;
    const HEADER_DIGITS: usize = 7;
}

/// Digits of eight bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Byte {}

impl Span for Byte {
    const BITS: u32 = 8;
    const HEADER_DIGITS: usize = 4;
}

/// A key of kind `K`, seen as digits. An integer has 64 bits of them; a byte string has those of its
/// bytes and then its end, which is a digit of its own that sorts before every other.
pub struct Digits<'k, K: ?Sized, S> {
    /// The whole key, if `K` is an integer.
    integer: u64,
    /// The whole key, if `K` is a byte string.
    bytes: &'k [u8],
    _kind: PhantomData<fn(&K) -> S>,
}

impl<K: ?Sized, S> Clone for Digits<'_, K, S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, S> Copy for Digits<'_, K, S> {}

impl<'k, K: IndexKey + ?Sized, S: Span> Digits<'k, K, S> {
    /// The digits of `key`; `space` is for bytes that have to be made.
    #[inline(always)]
    pub fn of(key: &'k K, space: &'k mut [u8; 8]) -> Self {
        let bytes = key.bytes(space);
        if K::INLINE {
            Self::of_integer(u64::from_be_bytes(bytes.try_into().unwrap_or_default()))
        } else {
            Self::of_bytes(bytes)
        }
    }

    /// The digits of an integer.
    #[inline(always)]
    pub fn of_integer(integer: u64) -> Self {
        Self { integer, bytes: &[], _kind: PhantomData }
    }

    /// The digits of a byte string.
    #[inline(always)]
    pub fn of_bytes(bytes: &'k [u8]) -> Self {
        Self { integer: 0, bytes, _kind: PhantomData }
    }

    /// The integer; zero for byte strings.
    #[inline(always)]
    pub fn integer(&self) -> u64 {
        self.integer
    }

    /// The byte string; empty for integers.
    #[inline(always)]
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }

    /// The slot that this key takes in a node that branches at `position`: its digit there, or
    /// [`Span::END_SLOT`] if it ends there. None if it ends before.
    #[inline(always)]
    pub fn slot_at(&self, position: usize) -> Option<usize> {
        let mask = S::SLOTS - 1;
        if K::INLINE {
            // Positions are below the number of digits; a damaged one selects a wrong digit and no
            // more.
            let behind = S::BITS.wrapping_mul(position as u32).wrapping_add(S::BITS);
            return Some(self.integer.rotate_left(behind) as usize & mask);
        }
        match self.bytes.get(position / S::PER_BYTE) {
            Some(&byte) => {
                let behind = S::PER_BYTE - 1 - position % S::PER_BYTE;
                Some(usize::from(byte) >> (S::BITS as usize * behind) & mask)
            }
            None if position == S::PER_BYTE * self.bytes.len() => Some(S::END_SLOT),
            None => None,
        }
    }

    /// Where this key and `other` first differ; none if they are equal.
    #[inline(always)]
    pub fn first_difference(&self, other: &Digits<'_, K, S>) -> Option<usize> {
        if K::INLINE {
            let difference = self.integer ^ other.integer;
            return (difference != 0).then(|| (difference.leading_zeros() / S::BITS) as usize);
        }
        let (ours, theirs) = (self.bytes, other.bytes);
        let common = common_bytes(ours, theirs);
        match (ours.get(common), theirs.get(common)) {
            (Some(a), Some(b)) => {
                Some(S::PER_BYTE * common + ((a ^ b).leading_zeros() / S::BITS) as usize)
            }
            (None, None) => None,
            _ => Some(S::PER_BYTE * common),
        }
    }

    /// A number made of `position` and of the digits before it: the same for all keys that agree
    /// on those. Of a long byte string, made of its length and both its ends.
    #[inline(always)]
    pub fn branch_number(&self, position: usize) -> u64 {
        // Odd numbers of many bits, the first that of the golden ratio.
        const POSITIONS: u64 = 0x9E37_79B9_7F4A_7C15;
        const DIGITS: u64 = 0xD6E8_FEB8_6659_FD93;
        let digits = if K::INLINE {
            let behind = 64u32.wrapping_sub(S::BITS.wrapping_mul(position as u32));
            self.integer.checked_shr(behind).unwrap_or(0)
        } else {
            let whole = self.bytes.len().min(position / S::PER_BYTE);
            let (before, rest) = self.bytes.split_at(whole);
            // Half a byte, where digits are nibbles.
            let partial = match (position % S::PER_BYTE, rest.first()) {
                (0, _) | (_, None) => 0,
                (_, Some(byte)) => byte >> S::BITS,
            };
            let (first, last) = (&before[..whole.min(8)], &before[whole.saturating_sub(8)..]);
            let word =
                |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            (word(first).wrapping_mul(POSITIONS) ^ word(last)).wrapping_mul(POSITIONS)
                ^ u64::from(partial)
        };
        (digits ^ (position as u64).wrapping_mul(POSITIONS)).wrapping_mul(DIGITS)
    }

    /// Whether the two are the same key.
    #[inline(always)]
    pub fn is(&self, other: &Digits<'_, K, S>) -> bool {
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

    type Nibbles<'k, K> = Digits<'k, K, Nibble>;

    fn nibbles(key: &[u8]) -> Nibbles<'_, [u8]> {
        Digits::of_bytes(key)
    }

    fn bytes(key: &[u8]) -> Digits<'_, [u8], Byte> {
        Digits::of_bytes(key)
    }

    #[test]
    fn an_integer_has_sixteen_nibbles_from_the_top() {
        let mut space = [0; 8];
        let key = Nibbles::of(&0x1234_5678_9ABC_DEF0u64, &mut space);
        let slots: Vec<_> = (0..16).filter_map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0]);
    }

    #[test]
    fn an_integer_has_eight_bytes_from_the_top() {
        let key = Digits::<u64, Byte>::of_integer(0x0123_4567_89AB_CDFF);
        let slots: Vec<_> = (0..8).filter_map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xFF]);
    }

    #[test]
    fn a_byte_string_ends_in_a_slot_of_its_own_and_has_nothing_behind() {
        let key = nibbles(b"\x1F");
        let slots: Vec<_> = (0..4).map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [Some(1), Some(15), Some(Nibble::END_SLOT), None]);
        let key = bytes(b"\x1F");
        let slots: Vec<_> = (0..3).map(|position| key.slot_at(position)).collect();
        assert_eq!(slots, [Some(0x1F), Some(Byte::END_SLOT), None]);
    }

    #[test]
    fn the_first_difference_is_found_in_either_half_of_a_byte_and_at_the_end_of_a_prefix() {
        assert_eq!(nibbles(b"abc\x12").first_difference(&nibbles(b"abc\x22")), Some(6));
        assert_eq!(nibbles(b"abc\x12").first_difference(&nibbles(b"abc\x13")), Some(7));
        assert_eq!(nibbles(b"abc").first_difference(&nibbles(b"abc\x00")), Some(6));
        assert_eq!(nibbles(b"abcdefghi").first_difference(&nibbles(b"abcdefghi")), None);
        assert_eq!(nibbles(b"abcdefgh-").first_difference(&nibbles(b"abcdefghi")), Some(16));
        let (low, high) = (Nibbles::<u64>::of_integer(0x10), Nibbles::of_integer(0x20));
        assert_eq!(low.first_difference(&high), Some(14));
    }

    fn numbers_tell_branches_apart<K: IndexKey + ?Sized, S: Span>(keys: [Digits<'_, K, S>; 3]) {
        let [key, other, apart] = keys;
        let differ = key.first_difference(&other).unwrap();
        for position in 0..=differ {
            assert_eq!(key.branch_number(position), other.branch_number(position));
        }
        assert_ne!(key.branch_number(differ + 1), other.branch_number(differ + 1));
        assert_ne!(key.branch_number(differ), key.branch_number(differ - 1));
        assert_ne!(key.branch_number(2), apart.branch_number(2));
    }

    #[test]
    fn a_branch_has_the_same_number_for_all_keys_below_it_and_others_have_another() {
        let strings = [b"\x12\x34\x56\x78".as_slice(), b"\x12\x34\x5F", b"\x92\x34"];
        let integers = [0x1234_5678_9ABC_DEF0, 0x1234_5678_9FFF_0000, 0x9234_0000_0000_0000];
        numbers_tell_branches_apart(strings.map(Digits::<[u8], Nibble>::of_bytes));
        numbers_tell_branches_apart(strings.map(Digits::<[u8], Byte>::of_bytes));
        numbers_tell_branches_apart(integers.map(Digits::<u64, Nibble>::of_integer));
        numbers_tell_branches_apart(integers.map(Digits::<u64, Byte>::of_integer));
    }

    #[test]
    fn digits_of_a_byte_differ_where_the_bytes_do() {
        assert_eq!(bytes(b"abc\x12").first_difference(&bytes(b"abc\x13")), Some(3));
        assert_eq!(bytes(b"abc").first_difference(&bytes(b"abc\x00")), Some(3));
        let (low, high) = (Digits::<u64, Byte>::of_integer(0x1000), Digits::of_integer(0x2000));
        assert_eq!(low.first_difference(&high), Some(6));
    }
}
