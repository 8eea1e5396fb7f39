//! The first word of a node: its depth and its compressed prefix.

use super::nibbles::Nibbles;
use crate::key::IndexKey;

/// How many nibbles of a prefix a header has room for: the first ones, if it is longer.
pub(super) const HEADER_NIBBLES: usize = 7;

const DEPTH_SHIFT: u32 = 46;
const LENGTH_SHIFT: u32 = 28;
const LENGTH_MASK: u64 = (1 << (DEPTH_SHIFT - LENGTH_SHIFT)) - 1;
const NIBBLES_MASK: u64 = (1 << LENGTH_SHIFT) - 1;

/// A node's depth (the nibble at which its prefix starts), the length of its prefix, and the
/// prefix as far as it fits. The diagram is in the [module documentation](super).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header(pub(super) u64);

impl Header {
    #[inline(always)]
    fn new(depth: usize, prefix_length: usize, nibbles: u64) -> Self {
        Self((depth as u64) << DEPTH_SHIFT | (prefix_length as u64) << LENGTH_SHIFT | nibbles)
    }

    /// The header of a node at `depth` that branches at `position`, if `key` is below it.
    #[inline]
    pub(super) fn of<K: IndexKey + ?Sized>(
        key: &Nibbles<'_, K>,
        depth: usize,
        position: usize,
    ) -> Self {
        let prefix_length = position.saturating_sub(depth);
        let nibbles = (0..prefix_length.min(HEADER_NIBBLES)).fold(0, |nibbles, index| {
            // Keys below the node do not end before `position`; a damaged pool's may.
            let nibble = key.slot_at(depth + index).unwrap_or(0) as u64 & 15;
            nibbles | nibble << Self::shift(index)
        });
        Self::new(depth, prefix_length, nibbles)
    }

    #[inline(always)]
    fn shift(index: usize) -> u32 {
        LENGTH_SHIFT - 4 - 4 * index as u32
    }

    /// Where the prefix starts: right behind the branch position of the node above, unless the
    /// header is stale.
    #[inline(always)]
    pub(super) fn depth(self) -> usize {
        (self.0 >> DEPTH_SHIFT) as usize
    }

    /// Where the prefix ends: the node's branch position, whatever the depth.
    #[inline(always)]
    pub(super) fn position(self) -> usize {
        self.depth() + self.prefix_length()
    }

    #[inline(always)]
    fn prefix_length(self) -> usize {
        (self.0 >> LENGTH_SHIFT & LENGTH_MASK) as usize
    }

    /// How many nibbles of the prefix are here.
    #[inline(always)]
    fn known(self) -> usize {
        self.prefix_length().min(HEADER_NIBBLES)
    }

    /// Whether the whole prefix is here.
    #[inline(always)]
    pub(super) fn is_whole(self) -> bool {
        self.prefix_length() <= HEADER_NIBBLES
    }

    /// The nibble at `position`, which must be one of those that are here.
    #[inline(always)]
    pub(super) fn nibble_at(self, position: usize) -> usize {
        (self.0 >> Self::shift(position - self.depth()) & 15) as usize
    }

    /// Where `key` leaves the prefix; none if it does not within the nibbles that are here.
    #[inline]
    pub(super) fn first_difference<K: IndexKey + ?Sized>(
        self,
        key: &Nibbles<'_, K>,
    ) -> Option<usize> {
        let depth = self.depth();
        (depth..depth + self.known())
            .find(|&position| key.slot_at(position) != Some(self.nibble_at(position)))
    }

    /// The header of the same node when it has sunk to `depth`, the prefix before that having gone
    /// to a node above. None if too little of the prefix is here. `depth` lies in the part that is
    /// here or right behind it.
    #[inline]
    pub(super) fn sunk_to(self, depth: usize) -> Option<Self> {
        let gone = depth - self.depth();
        let prefix_length = self.prefix_length() - gone;
        let is_known = self.known() - gone == prefix_length.min(HEADER_NIBBLES);
        let nibbles = self.0 << (4 * gone) & NIBBLES_MASK;
        is_known.then(|| Self::new(depth, prefix_length, nibbles))
    }

    /// This prefix as if it started at `depth`: what only a mutant stores.
    #[inline]
    pub(super) fn claiming(self, depth: usize) -> Self {
        Self::new(depth, self.prefix_length(), self.0 & NIBBLES_MASK)
    }

    /// Whether this is, or once was, right (I8) for a node that branches at `position` and has
    /// `key` below it.
    pub(super) fn is_true_of<K: IndexKey + ?Sized>(
        self,
        key: &Nibbles<'_, K>,
        position: usize,
    ) -> bool {
        self.depth() <= position && self == Self::of(key, self.depth(), position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(header.0 & NIBBLES_MASK, 0xEFE_FEFE);
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
                    assert!(!Header(header.0 ^ 1 << bit).is_true_of(&key(), position));
                }
            }
        }
    }
}
