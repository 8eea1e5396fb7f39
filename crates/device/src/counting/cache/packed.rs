//! Sets of up to sixteen ways.
//!
//! A tag stays in its way as long as its line is here; the order of use is apart, sixteen numbers of
//! ways of four bits each, the most recent lowest. Up to fourteen ways leave room for the order
//! in the one cache line of the host that a set then is (module `row`).
//!
//! A search compares sixteen words at once and forgets what it found beyond the ways. The numbers in
//! an order beyond those of the ways mean nothing: whoever looks for a way comes first upon the place
//! that counts.

mod row;

pub(super) use self::row::{Row, Wide, WithinLine};
use super::{DIRTY, Tag, TagSets};
use crate::counting::host_processor::{equal_words, prefetch};

/// Most ways of a set.
pub(super) const MOST_WAYS: usize = 16;
/// Every way in the place of its number.
const UNUSED: u64 = 0xFEDC_BA98_7654_3210;
/// A one in each four bits.
const ONES: u64 = 0x1111_1111_1111_1111;

/// All sets.
#[derive(Clone, Debug)]
pub(super) struct Packed<R> {
    rows: Vec<R>,
    shape: Shape,
}

/// How many ways the sets have.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Bits of the last way in the order.
    last: u32,
    /// A bit for each way.
    all: u32,
}

impl Shape {
    /// The way of a line.
    #[inline(always)]
    fn way(self, row: &impl Row, line: u32) -> Option<usize> {
        let found = equal_words(row.words(), !DIRTY, line + 1) & self.all;
        (found != 0).then_some(found.trailing_zeros() as usize % MOST_WAYS)
    }

    /// For a cache that is asked for the same line again and again.
    #[inline(always)]
    fn touch(self, row: &mut impl Row, line: u32, write: bool) -> Option<bool> {
        let latest = row.order() as usize % MOST_WAYS;
        let way = if row.words()[latest] & !DIRTY == line + 1 {
            latest
        } else {
            let way = self.way(row, line)?;
            promote(row, way);
            way
        };
        Some(write_to(row, way, write))
    }

    /// For a cache that another stands before.
    #[inline(always)]
    fn take_in(self, row: &mut impl Row, line: u32, write: bool) -> Result<(), Tag> {
        match self.way(row, line) {
            Some(way) => {
                promote(row, way);
                write_to(row, way, write);
                Ok(())
            }
            None => Err(self.insert(row, Tag::of(line, write))),
        }
    }

    /// Brings in a line that is not here. What stood in its way.
    #[inline(always)]
    fn insert(self, row: &mut impl Row, tag: Tag) -> Tag {
        let order = row.order();
        let way = (order >> self.last) as usize % MOST_WAYS;
        let leaves = std::mem::replace(&mut row.words_mut()[way], tag.0);
        row.set_order(order << 4 | way as u64);
        Tag(leaves)
    }

    /// Empties a way, which will be the next one to be filled. The tag that was there.
    #[inline(always)]
    fn empty(self, row: &mut impl Row, way: usize) -> Tag {
        let tag = std::mem::take(&mut row.words_mut()[way]);
        let order = row.order();
        let at = place(order, way);
        let before = order & !(u64::MAX << at);
        let behind = order >> at >> 4 << at & !(u64::MAX << self.last);
        row.set_order(before | behind | (way as u64) << self.last);
        Tag(tag)
    }
}

impl<R: Row> Packed<R> {
    /// # Panics
    /// If rows have no room for so many ways.
    pub(super) fn new(sets: usize, ways: usize) -> Self {
        assert!((1..=R::MOST_WAYS).contains(&ways), "{ways} ways");
        let shape = Shape { last: 4 * (ways as u32 - 1), all: u32::MAX >> (32 - ways) };
        Self { rows: vec![R::unused(); sets], shape }
    }

    /// The line that the next insertion casts out.
    #[inline(always)]
    pub(super) fn next_victim(&self, set: usize) -> Tag {
        let row = &self.rows[set];
        Tag(row.words()[(row.order() >> self.shape.last) as usize % MOST_WAYS])
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        let ways = self.shape.all.count_ones() as usize;
        self.rows.iter().flat_map(move |row| row.words()[..ways].iter().copied())
    }

    /// Lets the host fetch a set.
    #[inline(always)]
    pub(super) fn prefetch(&self, set: usize) {
        let row = self.rows.as_ptr().wrapping_add(set);
        prefetch(row.cast());
        if size_of::<R>() > 64 {
            prefetch(row.wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
    }
}

impl<R: Row> TagSets for Packed<R> {
    #[inline(always)]
    fn touch(&mut self, set: usize, line: u32, write: bool) -> Option<bool> {
        self.shape.touch(&mut self.rows[set], line, write)
    }

    #[inline(always)]
    fn take_in(&mut self, set: usize, line: u32, write: bool) -> Result<(), Tag> {
        self.shape.take_in(&mut self.rows[set], line, write)
    }

    #[inline(always)]
    fn insert(&mut self, set: usize, tag: Tag) -> Tag {
        debug_assert!(tag.line().is_some_and(|line| !self.contains(set, line)), "{tag:?} is here");
        self.shape.insert(&mut self.rows[set], tag)
    }

    #[inline(always)]
    fn contains(&self, set: usize, line: u32) -> bool {
        self.shape.way(&self.rows[set], line).is_some()
    }

    #[inline(always)]
    fn find(&mut self, set: usize, line: u32) -> Option<&mut u32> {
        let row = &mut self.rows[set];
        let way = self.shape.way(row, line)?;
        Some(&mut row.words_mut()[way])
    }

    #[inline(always)]
    fn remove(&mut self, set: usize, line: u32) -> Option<bool> {
        let row = &mut self.rows[set];
        let way = self.shape.way(row, line)?;
        Some(self.shape.empty(row, way).is_dirty())
    }
}

#[inline(always)]
fn dirty_bit(dirty: bool) -> u32 {
    u32::from(dirty) << DIRTY.trailing_zeros()
}

/// The line in a way is written or not. Whether it was clean and is dirty.
#[inline(always)]
fn write_to(row: &mut impl Row, way: usize, write: bool) -> bool {
    let tag = &mut row.words_mut()[way];
    let soiled = dirty_bit(write) & !*tag != 0;
    *tag |= dirty_bit(write);
    soiled
}

/// Makes a way the most recently used.
#[inline(always)]
fn promote(row: &mut impl Row, way: usize) {
    let order = row.order();
    let at = place(order, way);
    let before = order & !(u64::MAX << at);
    let behind = order & (u64::MAX << at << 4);
    row.set_order(behind | before << 4 | way as u64);
}

/// At which bit of an order a way stands.
#[inline(always)]
fn place(order: u64, way: usize) -> u32 {
    // The lowest four bits that are zero.
    let other = order ^ (ONES * way as u64);
    let zero = other.wrapping_sub(ONES) & !other & (ONES << 3);
    zero.trailing_zeros() & 0x3C
}

#[cfg(test)]
mod tests {
    use super::super::ordered::Ordered;
    use super::*;
    use crate::random::Random;

    fn check<R: Row>(ways: usize, random: &mut Random) {
        let (mut packed, mut ordered) = (Packed::<R>::new(3, ways), Ordered::new(3, ways));
        for _ in 0..4000 {
            let (set, line) = (random.below(3), random.below(ways * 3 / 2 + 2) as u32);
            let write = random.below(2) == 0;
            match random.below(9) {
                0 => assert_eq!(packed.remove(set, line), ordered.remove(set, line)),
                1 => {
                    let found = packed.find(set, line).copied();
                    assert_eq!(found, ordered.find(set, line).copied());
                    assert_eq!(packed.contains(set, line), found.is_some());
                    assert_eq!(ordered.contains(set, line), found.is_some());
                }
                2..=4 => {
                    let here = packed.take_in(set, line, write);
                    assert_eq!(here, ordered.take_in(set, line, write));
                }
                _ => {
                    let here = packed.touch(set, line, write);
                    assert_eq!(here, ordered.touch(set, line, write));
                    if here.is_none() {
                        let next = packed.next_victim(set);
                        let victim = packed.insert(set, Tag::of(line, write));
                        assert_eq!(victim, ordered.insert(set, Tag::of(line, write)));
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
            check::<Wide>(ways, &mut random);
            if ways <= WithinLine::MOST_WAYS {
                check::<WithinLine>(ways, &mut random);
            }
        }
    }
}
