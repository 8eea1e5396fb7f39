//! The words by which small nodes and those of 48 say which bytes they have and where.
//!
//! Nothing here touches memory: these are the contents of words that have been loaded or are to be
//! stored.

use crate::index::Direction;

/// The entries of a node of 4: four key bytes and the slot array.
///
/// ```text
///   byte 0   1   2   3   4   5   6   7
///  +-------+---+---+---+---+---+---+---+
///  | k0    k1  k2  k3  | s0  s1  s2  s3 |   s: 1 + the number of the child of that key; 0: no entry
///  +-------+---+---+---+---+---+---+---+
/// ```
///
/// Entries are sorted by key and have no gaps; those that are not there are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entries4(pub(super) u64);

impl Entries4 {
    const ROOM: usize = 4;

    /// From `(key, child number)` pairs in the order of keys.
    pub(super) fn of(pairs: impl Iterator<Item = (u8, usize)>) -> Self {
        pairs.enumerate().fold(Self(0), |Self(word), (at, (key, child))| {
            Self(word | u64::from(key) << (8 * at) | (child as u64 + 1) << (32 + 8 * at))
        })
    }

    #[inline(always)]
    fn slot(self, at: usize) -> usize {
        (self.0 >> (32 + 8 * at) & 0xFF) as usize
    }

    #[inline(always)]
    fn key(self, at: usize) -> u8 {
        (self.0 >> (8 * at)) as u8
    }

    /// The keys and the numbers of their children.
    #[inline(always)]
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = (u8, usize)> {
        // A damaged slot selects a wrong child and no more.
        (0..self.count()).map(move |at| (self.key(at), (self.slot(at) - 1) % Self::ROOM))
    }

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        (0..Self::ROOM).take_while(|&at| self.slot(at) != 0).count()
    }

    #[inline(always)]
    pub(super) fn find(self, key: u8) -> Option<usize> {
        self.iter().find(|&(other, _)| other == key).map(|(_, child)| child)
    }

    /// The entry with the smallest key from `from` on, or with the greatest up to it.
    #[inline(always)]
    pub(super) fn nearest(self, from: u8, direction: Direction) -> Option<(u8, usize)> {
        match direction {
            Direction::Forward => self.iter().find(|&(key, _)| key >= from),
            Direction::Backward => self.iter().rev().find(|&(key, _)| key <= from),
        }
    }

    /// A child that no entry has.
    pub(super) fn free_child(self) -> Option<usize> {
        (0..Self::ROOM).find(|&child| self.iter().all(|(_, other)| other != child))
    }

    /// With an entry more; there is room for it.
    pub(super) fn with(self, key: u8, child: usize) -> Self {
        let (before, behind) = (move |(other, _): &(u8, usize)| *other < key, self.iter());
        Self::of(
            self.iter().take_while(before).chain([(key, child)]).chain(behind.skip_while(before)),
        )
    }

    /// Without the entry of `key`.
    pub(super) fn without(self, key: u8) -> Self {
        Self::of(self.iter().filter(|&(other, _)| other != key))
    }

    /// Whether this is a word that [`Entries4::of`] makes of different keys with different children.
    pub(super) fn is_sound(self) -> bool {
        let pairs = || self.iter();
        let sorted = pairs().zip(pairs().skip(1)).all(|(a, b)| a.0 < b.0);
        let children = pairs().fold(0u32, |seen, (_, child)| seen | 1 << child);
        sorted && children.count_ones() as usize == self.count() && Self::of(pairs()) == self
    }
}

/// The entries of a node of 16: sixteen key bytes, in no order, of which a bitmap says which count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entries16 {
    pub(super) bitmap: u64,
    pub(super) keys: [u64; 2],
}

impl Entries16 {
    const ALL: u64 = 0xFFFF;

    #[inline(always)]
    fn key(self, entry: usize) -> u8 {
        (self.keys[entry / 8] >> (8 * (entry % 8))) as u8
    }

    /// The keys and the numbers of their children.
    #[inline(always)]
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = (u8, usize)> {
        (0..16)
            .filter(move |&entry| self.bitmap >> entry & 1 != 0)
            .map(move |entry| (self.key(entry), entry))
    }

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        (self.bitmap & Self::ALL).count_ones() as usize
    }

    /// All sixteen keys are compared at once, eight to a word.
    #[inline(always)]
    pub(super) fn find(self, key: u8) -> Option<usize> {
        let equal = |word| bits_of_equal_bytes(word, key);
        let found = (equal(self.keys[0]) | equal(self.keys[1]) << 8) & self.bitmap;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// The entry with the smallest key from `from` on, or with the greatest up to it.
    #[inline(always)]
    pub(super) fn nearest(self, from: u8, direction: Direction) -> Option<(u8, usize)> {
        // Seen backward, a key is the smaller the greater it is.
        let flip = if direction == Direction::Backward { 0xFF } else { 0 };
        let (mut best, mut rest) = (u16::MAX, self.bitmap & Self::ALL);
        while rest != 0 {
            let entry = rest.trailing_zeros() as usize;
            let key = self.key(entry) ^ flip;
            if key >= from ^ flip {
                best = best.min(u16::from(key) << 8 | entry as u16);
            }
            rest &= rest - 1;
        }
        (best != u16::MAX).then(|| ((best >> 8) as u8 ^ flip, usize::from(best as u8)))
    }

    /// The first entry that does not count.
    pub(super) fn free_entry(self) -> Option<usize> {
        let free = !self.bitmap & Self::ALL;
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// The word of keys that `entry` is in, with `key` there.
    pub(super) fn keys_with(self, entry: usize, key: u8) -> u64 {
        let shift = 8 * (entry % 8);
        self.keys[entry / 8] & !(0xFF << shift) | u64::from(key) << shift
    }

    /// Whether no key is there twice and no bit is set that means nothing.
    pub(super) fn is_sound(self) -> bool {
        let mut seen = [false; 256];
        self.bitmap & !Self::ALL == 0
            && self.iter().all(|(key, _)| !std::mem::replace(&mut seen[usize::from(key)], true))
    }
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// A bit for each of the eight bytes of `word`: whether it is `byte`.
#[inline(always)]
fn bits_of_equal_bytes(word: u64, byte: u8) -> u64 {
    let differs = word ^ (LOW_BITS * u64::from(byte));
    // The high bit of each byte that is zero, exactly: no carry leaves a byte.
    let zero = !(((differs & !HIGH_BITS) + !HIGH_BITS) | differs) & HIGH_BITS;
    // Gathers the eight bits in the top byte.
    (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The child index of a node of 48: for each byte 1 + the number of its child, or 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChildIndex(pub(super) [u64; 32]);

impl ChildIndex {
    const ROOM: usize = 48;

    /// The word of the index that `byte` is in, and the shift to its eight bits.
    #[inline(always)]
    pub(super) fn place(byte: u8) -> (usize, u32) {
        (usize::from(byte / 8), 8 * u32::from(byte % 8))
    }

    /// The child that a word of the index gives the byte at `shift`.
    #[inline(always)]
    pub(super) fn child_in(word: u64, shift: u32) -> Option<usize> {
        let number = (word >> shift) as usize & 0xFF;
        // A damaged number selects a wrong child and no more.
        (number != 0).then(|| (number - 1) % Self::ROOM)
    }

    /// That word with `child` for the byte at `shift`, or none.
    #[inline(always)]
    pub(super) fn word_with(word: u64, shift: u32, child: Option<usize>) -> u64 {
        word & !(0xFF << shift) | child.map_or(0, |child| child as u64 + 1) << shift
    }

    /// The numbers of all bytes.
    #[inline(always)]
    pub(super) fn numbers(&self) -> [[u8; 8]; 32] {
        self.0.map(u64::to_le_bytes)
    }

    /// The bytes and the numbers of their children.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, usize)> {
        (0..=u8::MAX).filter_map(|byte| {
            let (word, shift) = Self::place(byte);
            Self::child_in(self.0[word], shift).map(|child| (byte, child))
        })
    }

    pub(super) fn count(&self) -> usize {
        self.numbers().as_flattened().iter().filter(|&&number| number != 0).count()
    }

    /// A child that the index gives to no byte. What the children themselves hold does not say: a
    /// power cut between the store of one and that of its number leaves a child that no number
    /// leads to.
    pub(super) fn free_child(&self) -> Option<usize> {
        // Children are used in order until one is removed.
        let numbers = self.numbers();
        let numbers = numbers.as_flattened();
        let last = usize::from(numbers.iter().fold(0, |most, &number| number.max(most)));
        if last < Self::ROOM {
            return Some(last);
        }
        let used = numbers.iter().fold(0u64, |used, &number| used | 1 << (number & 63));
        (0..Self::ROOM).find(|child| used >> (child + 1) & 1 == 0)
    }

    /// Whether all numbers are those of different children.
    pub(super) fn is_sound(&self) -> bool {
        let mut seen = [false; Self::ROOM + 1];
        self.numbers().as_flattened().iter().filter(|&&number| number != 0).all(|&number| {
            seen.get_mut(usize::from(number)).is_some_and(|seen| !std::mem::replace(seen, true))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_entries_stay_sorted_whatever_children_they_have() {
        let entries = Entries4(0).with(9, 0).with(3, 1).with(0, 2).with(255, 3);
        let pairs: Vec<_> = entries.iter().collect();
        assert_eq!(pairs, [(0, 2), (3, 1), (9, 0), (255, 3)]);
        assert_eq!((entries.find(9), entries.find(4)), (Some(0), None));
        assert_eq!((entries.free_child(), entries.without(3).free_child()), (None, Some(1)));
        assert!(entries.is_sound() && !Entries4(entries.0 ^ 1 << 33).is_sound());
        assert_eq!(entries.without(3).with(3, 1), entries);
    }

    #[test]
    fn equal_bytes_are_found_exactly() {
        for (word, byte) in [(0x0100_FF00_8001_0180, 1), (0, 0), (u64::MAX, 0xFF), (0x80, 0x80)] {
            let expected = (0..8).filter(|at| word >> (8 * at) & 0xFF == u64::from(byte));
            let bits = expected.fold(0, |bits, at| bits | 1 << at);
            assert_eq!(bits_of_equal_bytes(word, byte), bits, "{word:#x} {byte}");
        }
    }

    #[test]
    fn sixteen_keys_count_only_where_the_bitmap_says_so() {
        let mut entries = Entries16 { bitmap: 0, keys: [0; 2] };
        for (entry, key) in (0..16).map(|entry| (entry, 255 - 3 * entry as u8)) {
            assert_eq!(entries.find(key), None);
            assert_eq!(entries.free_entry(), Some(entry));
            entries.keys[entry / 8] = entries.keys_with(entry, key);
            entries.bitmap |= 1 << entry;
            assert_eq!(entries.find(key), Some(entry));
        }
        assert_eq!((entries.free_entry(), entries.count()), (None, 16));
        assert!(entries.is_sound());
        entries.keys[1] = entries.keys_with(9, 255);
        assert!(!entries.is_sound());
        entries.bitmap &= !1;
        assert_eq!((entries.find(255), entries.free_entry()), (Some(9), Some(0)));
    }

    #[test]
    fn a_child_index_gives_children_in_order_and_then_those_that_were_given_back() {
        let mut index = ChildIndex([0; 32]);
        for number in 0..48u8 {
            let child = index.free_child();
            assert_eq!(child, Some(usize::from(number)));
            let (word, shift) = ChildIndex::place(number * 5);
            index.0[word] = ChildIndex::word_with(index.0[word], shift, child);
        }
        assert_eq!((index.free_child(), index.count(), index.is_sound()), (None, 48, true));
        let (word, shift) = ChildIndex::place(35);
        assert_eq!(ChildIndex::child_in(index.0[word], shift), Some(7));
        index.0[word] = ChildIndex::word_with(index.0[word], shift, None);
        assert_eq!((index.free_child(), index.count()), (Some(7), 47));
        index.0[word] = ChildIndex::word_with(index.0[word], shift, Some(8));
        assert!(!index.is_sound());
    }
}
