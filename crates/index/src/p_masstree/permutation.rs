//! The permutation word: which slots of a node count, in the order of their keys.
//!
//! ```text
//!  63  60 59                                    4 3       0
//! +------+---------------------------------------+---------+
//! | zero | slot of entry 13  ...  slot of entry 0 |  count  |   4 bits each
//! +------+---------------------------------------+---------+
//! ```
//!
//! What lies behind the last entry that counts is zero, so that one order has one word.

/// Entries of a node.
pub const WIDTH: usize = 14;

const COUNT_BITS: usize = 4;
const SLOT_BITS: usize = 4;
const SLOT_MASK: u64 = 15;
const ALL_SLOTS: u32 = (1 << WIDTH) - 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permutation(pub u64);

const fn shift_of(index: usize) -> usize {
    COUNT_BITS + SLOT_BITS * index
}

const _: () = assert!(shift_of(WIDTH) <= u64::BITS as usize);

impl Permutation {
    /// The first so many slots in their order.
    pub fn of_first(count: usize) -> Self {
        let slots = (0..count).map(|slot| (slot as u64) << shift_of(slot));
        Self(slots.fold(count as u64, |word, slot| word | slot))
    }

    /// How many entries count; no more than there are slots, whatever the word.
    #[inline(always)]
    pub fn count(self) -> usize {
        ((self.0 & SLOT_MASK) as usize).min(WIDTH)
    }

    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.count() == WIDTH
    }

    /// The slot of an entry; there is one of that number, whatever the word.
    #[inline(always)]
    pub fn slot(self, index: usize) -> usize {
        ((self.0 >> shift_of(index) & SLOT_MASK) as usize).min(WIDTH - 1)
    }

    /// The slots of all entries, in order.
    pub fn slots(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.count()).map(move |index| self.slot(index))
    }

    fn used(self) -> u32 {
        self.slots().fold(0, |used, slot| used | 1 << slot)
    }

    /// A slot that no entry has, if there is room for one more: none, too, where a damaged word names a slot twice.
    #[inline(always)]
    pub fn free_slot(self) -> Option<usize> {
        let free = !self.used() & ALL_SLOTS;
        (!self.is_full()).then(|| free.trailing_zeros() as usize)
    }

    /// With an entry more, in `slot`, before the one that is at `index` now. There is room.
    #[inline(always)]
    pub fn with(self, index: usize, slot: usize) -> Self {
        let shift = shift_of(index);
        let before = self.0 & ((1 << shift) - 1);
        let behind = self.0 >> shift << (shift + SLOT_BITS);
        Self((before | (slot as u64) << shift | behind) + 1)
    }

    /// Without the entry at `index`, which counts.
    #[inline(always)]
    pub fn without(self, index: usize) -> Self {
        let shift = shift_of(index);
        let before = self.0 & ((1 << shift) - 1);
        let behind = self.0 >> (shift + SLOT_BITS) << shift;
        Self((before | behind) - 1)
    }

    /// The first `count` entries alone.
    pub fn truncated(self, count: usize) -> Self {
        let slots = self.0 & ((1 << shift_of(count)) - 1);
        Self(slots & !SLOT_MASK | count as u64)
    }

    /// Whether no order has this word.
    pub fn is_malformed(self) -> bool {
        let count = self.count();
        self.0 & SLOT_MASK != count as u64
            || self.truncated(count) != self
            || self.used().count_ones() != count as u32
            || (0..count).any(|index| self.0 >> shift_of(index) & SLOT_MASK >= WIDTH as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(permutation: Permutation) -> Vec<usize> {
        assert!(!permutation.is_malformed(), "{permutation:x?}");
        permutation.slots().collect()
    }

    #[test]
    fn entries_come_and_go_in_their_order() {
        let all = (0..WIDTH)
            .fold(Permutation::of_first(0), |all, _| all.with(0, all.free_slot().unwrap()));
        assert_eq!(slots(all), (0..WIDTH).rev().collect::<Vec<_>>());
        assert_eq!((all.is_full(), all.free_slot()), (true, None));
        let some = all.without(13).without(0).without(3);
        assert_eq!(slots(some), [12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(some.free_slot(), Some(0));
        assert_eq!(slots(some.with(11, 0)), [12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(slots(some.with(2, 9).truncated(4)), [12, 11, 9, 10]);
        assert_eq!(all.truncated(WIDTH), all);
        assert_eq!(all.truncated(0), Permutation::of_first(0));
    }

    #[test]
    fn words_of_no_order_are_told_and_lead_to_no_slot_that_is_not_there() {
        let order = Permutation::of_first(3);
        assert!(!order.is_malformed());
        let wrong = [15, order.0 + 1, order.0 | 1 << 63, order.0 | 1 << 16, u64::MAX, 0x0E1, 0x112];
        for word in wrong.map(Permutation) {
            assert!(word.is_malformed(), "{word:x?}");
            assert!(word.slots().all(|slot| slot < WIDTH));
            assert_eq!(word.free_slot().is_none(), word.is_full(), "{word:x?}");
        }
    }
}
