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
pub(super) const MOST_WAYS_WITH_ORDER: usize = 14;
/// Every way in the place of its number.
const UNUSED: u64 = 0xFEDC_BA98_7654_3210;
/// A one in each four bits.
const ONES: u64 = 0x1111_1111_1111_1111;

/// The tags of all sets. `APART` says that the orders are not among the words.
#[derive(Clone, Debug)]
pub(super) struct Packed<const APART: bool> {
    words: Vec<Words>,
    /// By set, if they are apart.
    orders: Vec<u64>,
    ways: usize,
    /// Bits of the last way in the order.
    last: u32,
    /// A bit for each way.
    all: u32,
}

/// The way of a line.
#[inline(always)]
fn way(words: &Words, all: u32, line: u32) -> Option<usize> {
    let found = equal_words(words, !DIRTY, line + 1) & all;
    (found != 0).then_some(found.trailing_zeros() as usize % MOST_WAYS)
}

impl<const APART: bool> Packed<APART> {
    /// # Panics
    /// If so many ways do not go with such orders.
    pub(super) fn new(sets: usize, ways: usize) -> Self {
        assert!((1..=MOST_WAYS).contains(&ways), "{ways} ways");
        assert_eq!(APART, ways > MOST_WAYS_WITH_ORDER, "{ways} ways");
        let mut words = Words([0; MOST_WAYS]);
        if !APART {
            (words.0[14], words.0[15]) = (UNUSED as u32, (UNUSED >> 32) as u32);
        }
        Self {
            words: vec![words; sets],
            orders: if APART { vec![UNUSED; sets] } else { Vec::new() },
            ways,
            last: 4 * (ways as u32 - 1),
            all: u32::MAX >> (32 - ways),
        }
    }

    #[inline(always)]
    fn order(&self, set: usize, words: &Words) -> u64 {
        if APART {
            return self.orders[set];
        }
        u64::from(words.0[14]) | u64::from(words.0[15]) << 32
    }

    #[inline(always)]
    fn set_order(&mut self, set: usize, order: u64) {
        if APART {
            self.orders[set] = order;
            return;
        }
        let words = &mut self.words[set].0;
        (words[14], words[15]) = (order as u32, (order >> 32) as u32);
    }

    #[inline(always)]
    pub(super) fn touch(&mut self, set: usize, line: u32, write: bool) -> Option<bool> {
        let order = self.order(set, &self.words[set]);
        let dirty = u32::from(write) << DIRTY.trailing_zeros();
        let words = &mut self.words[set];
        // Most uses follow another of the same line.
        let latest = &mut words.0[order as usize % MOST_WAYS];
        if *latest & !DIRTY == line + 1 {
            let soiled = dirty & !*latest != 0;
            *latest |= dirty;
            return Some(soiled);
        }
        let way = way(words, self.all, line)?;
        let soiled = dirty & !words.0[way] != 0;
        words.0[way] |= dirty;
        self.set_order(set, first(order, place(order, way), way));
        Some(soiled)
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, set: usize, line: u32, dirty: bool) -> Victim {
        debug_assert!(!self.contains(set, line), "line {line} is here");
        let order = self.order(set, &self.words[set]);
        let way = (order >> self.last) as usize % MOST_WAYS;
        let tag = (line + 1) | u32::from(dirty) << DIRTY.trailing_zeros();
        let old = std::mem::replace(&mut self.words[set].0[way], tag);
        self.set_order(set, first(order, self.last, way));
        victim(old)
    }

    /// The line that the next insertion casts out.
    #[inline(always)]
    pub(super) fn next_victim(&self, set: usize) -> Victim {
        let words = &self.words[set];
        let way = (self.order(set, words) >> self.last) as usize % MOST_WAYS;
        victim(words.0[way])
    }

    #[inline(always)]
    pub(super) fn contains(&self, set: usize, line: u32) -> bool {
        way(&self.words[set], self.all, line).is_some()
    }

    #[inline(always)]
    pub(super) fn find(&mut self, set: usize, line: u32) -> Option<&mut u32> {
        let words = &mut self.words[set];
        let way = way(words, self.all, line)?;
        Some(&mut words.0[way])
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, set: usize, line: u32) -> Option<bool> {
        let words = &mut self.words[set];
        let way = way(words, self.all, line)?;
        let tag = std::mem::take(&mut words.0[way]);
        let order = self.order(set, &self.words[set]);
        self.set_order(set, last(order, place(order, way), self.last, way));
        Some(tag & DIRTY != 0)
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        self.words.iter().flat_map(|words| words.0[..self.ways].iter().copied())
    }

    /// Lets the host fetch a set.
    #[inline(always)]
    pub(super) fn prefetch(&self, set: usize) {
        prefetch(self.words.as_ptr().wrapping_add(set).cast());
        if APART {
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

    fn check<const APART: bool>(ways: usize, random: &mut Random) {
        let (mut packed, mut ordered) = (Packed::<APART>::new(3, ways), Ordered::new(3, ways));
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
                    if here.is_none() {
                        let next = packed.next_victim(set);
                        let victim = packed.insert(set, line, write);
                        assert_eq!(victim, ordered.insert(set, line, write));
                        assert_eq!(victim, next);
                    }
                }
            }
        }
    }

    #[test]
    fn every_number_of_ways_does_what_sets_in_order_of_use_do() {
        let mut random = Random::new(11);
        for ways in 1..=MOST_WAYS {
            if ways > MOST_WAYS_WITH_ORDER {
                check::<true>(ways, &mut random);
            } else {
                check::<false>(ways, &mut random);
            }
        }
    }
}
