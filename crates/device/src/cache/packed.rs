//! Sets of up to sixteen ways, each in one or two cache lines of the host.
//!
//! A tag stays in its way as long as its line is here; the order of use is apart, sixteen numbers of
//! ways of four bits each, the most recent lowest. Up to fourteen ways leave room for the order
//! beside the tags:
//!
//! ```text
//!  words  0        1               13       14          15
//!        +--------+--------+-...-+--------+----------------------+
//!        | tag    | tag    |     | tag    | order: ways by use   |   up to 14 ways
//!        +--------+--------+-...-+--------+----------------------+
//!        | tag    | tag    |     | tag    | tag      | tag       |   15, 16: orders elsewhere
//!        +--------+--------+-...-+--------+----------------------+
//! ```
//!
//! A search compares all words at once and forgets what it found beyond the ways. Ways beyond those
//! of the set stand in the order behind the last and never move.

use super::{DIRTY, Victim, victim};
use crate::host::{Words, equal_words, prefetch};

/// Most ways of a set.
pub(super) const MOST_WAYS: usize = 16;
/// Most ways that leave room for their order.
const MOST_WAYS_WITH_ORDER: usize = 14;
/// Every way in the place of its number.
const UNUSED: u64 = 0xFEDC_BA98_7654_3210;
/// A one in each four bits.
const ONES: u64 = 0x1111_1111_1111_1111;

/// The tags of all sets.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    words: Vec<Words>,
    /// By set; empty if the orders are among the words.
    orders: Vec<u64>,
    ways: usize,
    /// Bits of the last way in the order.
    last: u32,
    /// A bit for each way.
    all: u32,
}

impl Packed {
    pub(super) fn new(sets: usize, ways: usize) -> Self {
        assert!((1..=MOST_WAYS).contains(&ways), "{ways} ways");
        let mut words = Words([0; MOST_WAYS]);
        let apart = ways > MOST_WAYS_WITH_ORDER;
        if !apart {
            (words.0[14], words.0[15]) = (UNUSED as u32, (UNUSED >> 32) as u32);
        }
        Self {
            words: vec![words; sets],
            orders: if apart { vec![UNUSED; sets] } else { Vec::new() },
            ways,
            last: 4 * (ways as u32 - 1),
            all: u32::MAX >> (32 - ways),
        }
    }

    #[inline(always)]
    fn way(&self, set: usize, line: u32) -> Option<usize> {
        let found = equal_words(&self.words[set], !DIRTY, line + 1) & self.all;
        (found != 0).then_some(found.trailing_zeros() as usize % MOST_WAYS)
    }

    #[inline(always)]
    fn order(&self, set: usize) -> u64 {
        if self.ways > MOST_WAYS_WITH_ORDER {
            return self.orders[set];
        }
        let words = &self.words[set].0;
        u64::from(words[14]) | u64::from(words[15]) << 32
    }

    #[inline(always)]
    fn set_order(&mut self, set: usize, order: u64) {
        if self.ways > MOST_WAYS_WITH_ORDER {
            self.orders[set] = order;
            return;
        }
        let words = &mut self.words[set].0;
        (words[14], words[15]) = (order as u32, (order >> 32) as u32);
    }

    #[inline(always)]
    pub(super) fn touch(&mut self, set: usize, line: u32, write: bool) -> bool {
        let order = self.order(set);
        // Most uses follow another of the same line.
        let latest = &mut self.words[set].0[order as usize % MOST_WAYS];
        if *latest & !DIRTY == line + 1 {
            *latest |= if write { DIRTY } else { 0 };
            return true;
        }
        let Some(way) = self.way(set, line) else { return false };
        self.words[set].0[way] |= if write { DIRTY } else { 0 };
        self.set_order(set, first(order, place(order, way), way));
        true
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, set: usize, line: u32, dirty: bool) -> Victim {
        debug_assert!(self.way(set, line).is_none(), "line {line} is here");
        let order = self.order(set);
        let way = (order >> self.last) as usize % MOST_WAYS;
        self.set_order(set, first(order, self.last, way));
        let tag = (line + 1) | if dirty { DIRTY } else { 0 };
        victim(std::mem::replace(&mut self.words[set].0[way], tag))
    }

    /// The line that the next insertion casts out.
    #[inline(always)]
    pub(super) fn next_victim(&self, set: usize) -> Victim {
        let way = (self.order(set) >> self.last) as usize % MOST_WAYS;
        victim(self.words[set].0[way])
    }

    #[inline(always)]
    pub(super) fn contains(&self, set: usize, line: u32) -> bool {
        self.way(set, line).is_some()
    }

    /// Whether the line is the one that was used last.
    #[inline(always)]
    pub(super) fn is_latest(&self, set: usize, line: u32) -> bool {
        self.words[set].0[self.order(set) as usize % MOST_WAYS] & !DIRTY == line + 1
    }

    #[inline(always)]
    pub(super) fn find(&mut self, set: usize, line: u32) -> Option<&mut u32> {
        let way = self.way(set, line)?;
        Some(&mut self.words[set].0[way])
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, set: usize, line: u32) -> Option<bool> {
        let way = self.way(set, line)?;
        let order = self.order(set);
        self.set_order(set, last(order, place(order, way), self.last, way));
        Some(std::mem::take(&mut self.words[set].0[way]) & DIRTY != 0)
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        self.words.iter().flat_map(|words| words.0[..self.ways].iter().copied())
    }

    /// Lets the host fetch a set.
    #[inline(always)]
    pub(super) fn prefetch(&self, set: usize) {
        prefetch(self.words.as_ptr().wrapping_add(set).cast());
        if self.ways > MOST_WAYS_WITH_ORDER {
            prefetch(self.orders.as_ptr().wrapping_add(set).cast());
        }
    }
}

/// At which bit of an order a way stands.
#[inline(always)]
fn place(order: u64, way: usize) -> u32 {
    // The lowest four bits that are zero.
    let other = order ^ (ONES * way as u64);
    let zero = other.wrapping_sub(ONES) & !other & (ONES << 3);
    zero.trailing_zeros() & 0x3C
}

/// The order after the way at bit `at` was used.
#[inline(always)]
fn first(order: u64, at: u32, way: usize) -> u64 {
    let before = order & !(u64::MAX << at);
    let behind = order & (u64::MAX << at << 4);
    behind | before << 4 | way as u64
}

/// The order after the way at bit `at` became the last of the set, at bit `to`.
#[inline(always)]
fn last(order: u64, at: u32, to: u32, way: usize) -> u64 {
    let before = order & !(u64::MAX << at);
    let unmoved = order & (u64::MAX << to << 4);
    let behind = order & !(u64::MAX << to << 4);
    unmoved | (way as u64) << to | (behind >> at >> 4 << at) | before
}

#[cfg(test)]
mod tests {
    use super::super::ordered::Ordered;
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_number_of_ways_does_what_sets_in_order_of_use_do() {
        let mut random = Random::new(11);
        for ways in 1..=MOST_WAYS {
            let (mut packed, mut ordered) = (Packed::new(3, ways), Ordered::new(3, ways));
            for _ in 0..4000 {
                let (set, line) = (random.below(3), random.below(ways * 3 / 2 + 2) as u32);
                let write = random.below(2) == 0;
                match random.below(8) {
                    0 => assert_eq!(packed.remove(set, line), ordered.remove(set, line)),
                    1 => {
                        let found = packed.find(set, line).copied();
                        assert_eq!(found, ordered.find(set, line).copied());
                        assert_eq!(packed.contains(set, line), found.is_some());
                        assert_eq!(ordered.contains(set, line), found.is_some());
                    }
                    _ => {
                        let here = packed.touch(set, line, write);
                        assert_eq!(here, ordered.touch(set, line, write));
                        if !here {
                            let next = packed.next_victim(set);
                            let victim = packed.insert(set, line, write);
                            assert_eq!(victim, ordered.insert(set, line, write));
                            assert_eq!(victim, next);
                        }
                        assert!(packed.is_latest(set, line));
                    }
                }
            }
        }
    }
}
