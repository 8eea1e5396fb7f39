//! The first word of a node: its depth and its compressed prefix.
//!
//! ```text
//!   63              |               |                                 0
//!  +---------------+---------------+-------+--------+-- ... --+------+
//!  | depth         | prefix length | first | second |         | last |  digits of the prefix,
//!  +---------------+---------------+-------+--------+-- ... --+------+  zero if it is shorter
//!   nibbles:  18 bits, 18 bits, 7 digits       bytes:  16 bits, 16 bits, 4 digits
//! ```

use std::marker::PhantomData;

use super::digits::{Digits, Span};
use crate::key::IndexKey;

/// A node's depth (the digit at which its prefix starts), the length of its prefix, and the prefix
/// as far as it fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<S>(u64, PhantomData<S>);

impl<S: Span> Header<S> {
    const LENGTH_SHIFT: u32 = S::BITS * S::HEADER_DIGITS as u32;
    const LENGTH_BITS: u32 = (64 - Self::LENGTH_SHIFT) / 2;
    const DEPTH_SHIFT: u32 = Self::LENGTH_SHIFT + Self::LENGTH_BITS;
    const LENGTH_MASK: u64 = (1 << Self::LENGTH_BITS) - 1;
    const DIGITS_MASK: u64 = (1 << Self::LENGTH_SHIFT) - 1;

    /// The header that is stored as `bits`.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits, PhantomData)
    }

    /// The word to store.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn new(depth: usize, prefix_length: usize, digits: u64) -> Self {
        let (depth, length) = (depth as u64, prefix_length as u64);
        Self::from_bits(depth << Self::DEPTH_SHIFT | length << Self::LENGTH_SHIFT | digits)
    }

    /// The header of a node at `depth` that branches at `position`, if `key` is below it.
    #[inline]
    pub fn of<K: IndexKey + ?Sized>(key: &Digits<'_, K, S>, depth: usize, position: usize) -> Self {
        let prefix_length = position.saturating_sub(depth);
        let digits = (0..prefix_length.min(S::HEADER_DIGITS)).fold(0, |digits, index| {
            // Keys below the node do not end before `position`; a damaged pool's may.
            let digit = key.slot_at(depth + index).unwrap_or(0) & (S::SLOTS - 1);
            digits | (digit as u64) << Self::shift(index)
        });
        Self::new(depth, prefix_length, digits)
    }

    #[inline(always)]
    fn shift(index: usize) -> u32 {
        Self::LENGTH_SHIFT - S::BITS * (index as u32 + 1)
    }

    /// Where the prefix starts: right behind the branch position of the node above, unless the
    /// header is stale.
    #[inline(always)]
    pub fn depth(self) -> usize {
        (self.0 >> Self::DEPTH_SHIFT) as usize
    }

    /// Where the prefix ends: the node's branch position, whatever the depth.
    #[inline(always)]
    pub fn position(self) -> usize {
        self.depth() + self.prefix_length()
    }

    #[inline(always)]
    fn prefix_length(self) -> usize {
        (self.0 >> Self::LENGTH_SHIFT & Self::LENGTH_MASK) as usize
    }

    /// How many digits of the prefix are here.
    #[inline(always)]
    fn known(self) -> usize {
        self.prefix_length().min(S::HEADER_DIGITS)
    }

    /// Whether the whole prefix is here.
    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.prefix_length() <= S::HEADER_DIGITS
    }

    /// The digit at `position`, which must be one of those that are here.
    #[inline(always)]
    pub fn digit_at(self, position: usize) -> usize {
        (self.0 >> Self::shift(position - self.depth())) as usize & (S::SLOTS - 1)
    }

    /// Where `key` leaves the prefix; none if it does not within the digits that are here.
    #[inline]
    pub fn first_difference<K: IndexKey + ?Sized>(self, key: &Digits<'_, K, S>) -> Option<usize> {
        let depth = self.depth();
        (depth..depth + self.known())
            .find(|&position| key.slot_at(position) != Some(self.digit_at(position)))
    }

    /// The header of the same node when it has sunk to `depth`, the prefix before that having gone
    /// to a node above. None if too little of the prefix is here. `depth` lies in the part that is
    /// here or right behind it.
    #[inline]
    pub fn sunk_to(self, depth: usize) -> Option<Self> {
        let gone = depth - self.depth();
        let prefix_length = self.prefix_length() - gone;
        let is_known = self.known() - gone == prefix_length.min(S::HEADER_DIGITS);
        let digits = self.0.wrapping_shl(S::BITS * gone as u32) & Self::DIGITS_MASK;
        is_known.then(|| Self::new(depth, prefix_length, digits))
    }

    /// This prefix as if it started at `depth`: what only a mutant stores.
    #[inline]
    pub fn claiming(self, depth: usize) -> Self {
        Self::new(depth, self.prefix_length(), self.0 & Self::DIGITS_MASK)
    }

    /// Whether this is, or once was, right (I8) for a node that branches at `position` and has
    /// `key` below it.
    pub fn is_true_of<K: IndexKey + ?Sized>(self, key: &Digits<'_, K, S>, position: usize) -> bool {
        self.depth() <= position && self == Self::of(key, self.depth(), position)
    }
}

#[cfg(test)]
mod tests {
    use super::super::digits::{Byte, Nibble};
    use super::*;

    type Nibbles<'k, K> = Digits<'k, K, Nibble>;
    type Header = super::Header<Nibble>;

    fn key() -> Nibbles<'static, u64> {
        Nibbles::of_integer(0x0123_4567_89AB_CDEF)
    }

    #[test]
    fn a_header_keeps_depth_length_and_seven_nibbles() {
        assert_eq!(Header::of(&key(), 3, 5).0, 3 << 46 | 2 << 28 | 0x340_0000);
        assert_eq!(Header::of(&key(), 1, 15).0, 1 << 46 | 14 << 28 | 0x123_4567);
        let long = Nibbles::of_bytes(&[0xFE; 65_535]);
        let header = Header::of::<[u8]>(&long, 131_070, 131_070);
        assert_eq!((header.depth(), header.prefix_length()), (131_070, 0));
        let header = Header::of::<[u8]>(&long, 1, 131_070);
        assert_eq!((header.depth(), header.prefix_length()), (1, 131_069));
        assert_eq!(header.0 & Header::DIGITS_MASK, 0xEFE_FEFE);
    }

    #[test]
    fn a_key_leaves_the_prefix_where_a_nibble_differs_or_the_key_ends() {
        let header = Header::of(&key(), 2, 6);
        assert_eq!(header.first_difference(&key()), None);
        assert_eq!(
            header.first_difference(&Nibbles::<u64>::of_integer(0xFF23_4567_0000_0000)),
            None
        );
        assert_eq!(
            header.first_difference(&Nibbles::<u64>::of_integer(0x0123_5000_0000_0000)),
            Some(4)
        );
        let header = Header::of::<[u8]>(&Nibbles::of_bytes(b"\x12\x34"), 1, 4);
        assert_eq!(header.first_difference::<[u8]>(&Nibbles::of_bytes(b"\x12")), Some(2));
    }

    #[test]
    fn a_header_that_sinks_is_the_one_that_a_key_gives_or_none() {
        for position in 0..16 {
            for depth in 0..=position {
                let header = Header::of(&key(), depth, position);
                for lower in depth..=depth + header.known() {
                    let expected = Header::of(&key(), lower, position);
                    match header.sunk_to(lower) {
                        Some(sunk) => assert_eq!(sunk, expected),
                        None => assert!(!header.is_whole() && lower > depth),
                    }
                }
            }
        }
    }

    #[test]
    fn a_header_is_true_at_any_depth_but_not_with_one_bit_changed() {
        for position in 0..16 {
            for depth in 0..=position {
                let header = Header::of(&key(), depth, position);
                assert!(header.is_true_of(&key(), position));
                for bit in 0..64 {
                    assert!(!Header::from_bits(header.0 ^ 1 << bit).is_true_of(&key(), position));
                }
            }
        }
    }

    #[test]
    fn a_header_of_bytes_keeps_depth_length_and_four_of_them() {
        let key = Digits::<u64, Byte>::of_integer(0x0123_4567_89AB_CDEF);
        assert_eq!(super::Header::of(&key, 1, 3).bits(), 1 << 48 | 2 << 32 | 0x2345_0000);
        assert_eq!(super::Header::of(&key, 1, 7).bits(), 1 << 48 | 6 << 32 | 0x2345_6789);
        let long = Digits::<[u8], Byte>::of_bytes(&[0xFE; 65_535]);
        let header = super::Header::of(&long, 65_535, 65_535);
        assert_eq!((header.depth(), header.prefix_length()), (65_535, 0));
        let header = super::Header::of(&long, 0, 65_535);
        assert_eq!((header.depth(), header.prefix_length()), (0, 65_535));
        assert!(header.is_true_of(&long, 65_535) && header.sunk_to(4).is_none());
    }
}
