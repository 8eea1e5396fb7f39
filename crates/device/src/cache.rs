//! One level of write-back cache: set-associative, least recently used.
//!
//! A tag is the line's number plus one (zero is an empty way), and bit 31 says that the line is
//! dirty. Sets of up to sixteen ways are `packed`, larger ones kept in `ordered` rows; what they do
//! is the same.
//!
//! ```text
//!  bit  31      30              0
//!      +-------+-----------------+
//!      | dirty | line number + 1 |
//!      +-------+-----------------+
//! ```

mod ordered;
mod packed;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

use self::ordered::Ordered;
use self::packed::{Packed, Row, Wide, WithinLine};
use crate::divider::Divider;

const DIRTY: u32 = 1 << 31;

/// Size and shape of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheShape {
    /// Bytes of data. Rounded down to a whole number of sets, at least one.
    pub capacity_bytes: usize,
    /// Lines per set.
    pub ways: usize,
}

/// A line that had to leave, and whether it was dirty.
pub(crate) type Victim = Option<(u32, bool)>;

/// What a tag that left its way stood for.
#[inline(always)]
fn victim(tag: u32) -> Victim {
    (tag & !DIRTY != 0).then(|| ((tag & !DIRTY) - 1, tag & DIRTY != 0))
}

#[derive(Clone, Debug)]
enum Sets {
    WithinLines(Packed<WithinLine>),
    Wide(Packed<Wide>),
    Ordered(Ordered),
}

/// A level. `HASHED` says that the set of a line is chosen by a hash, which spreads neighbours over
/// all sets as shared last levels do; otherwise it is the remainder by the number of sets.
#[derive(Clone, Debug)]
pub(crate) struct Cache<const HASHED: bool = false> {
    sets: Sets,
    number: u32,
    /// If that is a power of two, one less.
    mask: Option<u32>,
    by_number: Divider,
}

macro_rules! on_set {
    ($cache:expr, $line:expr, $sets:ident, $set:ident => $result:expr) => {{
        let $set = $cache.set($line);
        match &mut $cache.sets {
            Sets::WithinLines($sets) => $result,
            Sets::Wide($sets) => $result,
            Sets::Ordered($sets) => $result,
        }
    }};
}

impl<const HASHED: bool> Cache<HASHED> {
    pub(crate) fn new(shape: CacheShape) -> Self {
        let ways = shape.ways.max(1);
        let number = (shape.capacity_bytes / LINE_BYTES / ways).clamp(1, u32::MAX as usize);
        let sets = if ways <= WithinLine::MOST_WAYS {
            Sets::WithinLines(Packed::new(number, ways))
        } else if ways <= Wide::MOST_WAYS {
            Sets::Wide(Packed::new(number, ways))
        } else {
            Sets::Ordered(Ordered::new(number, ways))
        };
        let number = number as u32;
        let mask = number.is_power_of_two().then(|| number - 1);
        Self { sets, number, mask, by_number: Divider::new(number) }
    }

    /// The number of a line's set.
    #[inline(always)]
    fn set(&self, line: u32) -> usize {
        if HASHED {
            // Not linear, or runs of lines that meet in one set would meet in all (MurmurHash3).
            let mut hash = line.wrapping_mul(0x85EB_CA6B);
            hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
            hash ^= hash >> 16;
            return ((u64::from(hash) * u64::from(self.number)) >> 32) as usize;
        }
        match self.mask {
            Some(mask) => (line & mask) as usize,
            None => self.by_number.divide(line).1 as usize,
        }
    }

    /// Makes a line that is here the most recently used, and dirty if it is written. None if it is
    /// not here; else whether it was clean and is dirty.
    #[inline(always)]
    pub(crate) fn touch(&mut self, line: u32, write: bool) -> Option<bool> {
        on_set!(self, line, sets, set => sets.touch(set, line, write))
    }

    /// The same for a line that is brought in if it is not here. An error is what has to leave for it.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, line: u32, write: bool) -> Result<(), Victim> {
        on_set!(self, line, sets, set => sets.take_in(set, line, write))
    }

    /// Brings in a line that is not here, as the most recently used.
    #[inline(always)]
    pub(crate) fn insert(&mut self, line: u32, dirty: bool) -> Victim {
        on_set!(self, line, sets, set => sets.insert(set, line, dirty))
    }

    #[inline]
    fn find(&mut self, line: u32) -> Option<&mut u32> {
        on_set!(self, line, sets, set => sets.find(set, line))
    }

    /// Whether the line is here; its place in the order of use stays.
    #[inline]
    pub(crate) fn contains(&self, line: u32) -> bool {
        let set = self.set(line);
        match &self.sets {
            Sets::WithinLines(sets) => sets.contains(set, line),
            Sets::Wide(sets) => sets.contains(set, line),
            Sets::Ordered(sets) => sets.contains(set, line),
        }
    }

    /// Makes the line dirty if it is here; its place in the order of use stays.
    #[inline]
    pub(crate) fn soil(&mut self, line: u32) {
        if let Some(tag) = self.find(line) {
            *tag |= DIRTY;
        }
    }

    /// Writes the line back; it stays, clean. Whether it was dirty; none if it is not here.
    #[inline]
    pub(crate) fn clean_if_here(&mut self, line: u32) -> Option<bool> {
        let tag = self.find(line)?;
        let dirty = *tag & DIRTY != 0;
        *tag &= !DIRTY;
        Some(dirty)
    }

    /// Writes the line back; it stays, clean. Whether it was dirty.
    #[inline]
    pub(crate) fn clean(&mut self, line: u32) -> bool {
        self.clean_if_here(line) == Some(true)
    }

    /// Removes the line; none if it is not here. Whether it was dirty.
    #[inline(always)]
    pub(crate) fn remove(&mut self, line: u32) -> Option<bool> {
        on_set!(self, line, sets, set => sets.remove(set, line))
    }

    /// The line that would leave if this one were brought in, as far as that is cheaply known.
    #[inline]
    pub(crate) fn next_victim(&self, line: u32) -> Victim {
        match &self.sets {
            Sets::WithinLines(sets) => sets.next_victim(self.set(line)),
            Sets::Wide(sets) => sets.next_victim(self.set(line)),
            Sets::Ordered(_) => None,
        }
    }

    /// Lets the host fetch what it will need for this line.
    #[inline]
    pub(crate) fn prefetch(&self, line: u32) {
        match &self.sets {
            Sets::WithinLines(sets) => sets.prefetch(self.set(line)),
            Sets::Wide(sets) => sets.prefetch(self.set(line)),
            Sets::Ordered(_) => {}
        }
    }

    /// Every line that is here.
    pub(crate) fn lines(&self) -> Vec<u32> {
        let tags: &mut dyn Iterator<Item = u32> = match &self.sets {
            Sets::WithinLines(sets) => &mut sets.tags(),
            Sets::Wide(sets) => &mut sets.tags(),
            Sets::Ordered(sets) => &mut sets.tags(),
        };
        tags.filter_map(victim).map(|(line, _)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sets of two ways.
    fn small() -> Cache {
        Cache::new(CacheShape { capacity_bytes: 4 * LINE_BYTES, ways: 2 })
    }

    /// Whether the line was here; it is afterwards.
    fn hit(cache: &mut Cache, line: u32) -> bool {
        access(cache, line, false).is_ok()
    }

    /// `Err` is a miss, with the victim.
    fn access(cache: &mut Cache, line: u32, write: bool) -> Result<(), Victim> {
        if cache.touch(line, write).is_some() { Ok(()) } else { Err(cache.insert(line, write)) }
    }

    #[test]
    fn the_least_recently_used_line_of_the_set_leaves() {
        let mut cache = small();
        assert!(!hit(&mut cache, 0));
        assert!(!hit(&mut cache, 2));
        assert!(hit(&mut cache, 0));
        assert!(!hit(&mut cache, 4)); // in place of 2
        assert!(hit(&mut cache, 0));
        assert!(!hit(&mut cache, 2));
    }

    #[test]
    fn sets_do_not_disturb_each_other() {
        let mut cache = small();
        hit(&mut cache, 0);
        for line in [1, 3, 5, 7] {
            hit(&mut cache, line);
        }
        assert!(hit(&mut cache, 0));
    }

    #[test]
    fn a_victim_comes_with_whether_it_was_dirty() {
        let mut cache = small();
        assert_eq!(access(&mut cache, 0, true), Err(None));
        assert_eq!(access(&mut cache, 2, false), Err(None));
        assert_eq!(access(&mut cache, 4, false), Err(Some((0, true))));
        assert_eq!(access(&mut cache, 6, false), Err(Some((2, false))));
    }

    #[test]
    fn soiling_and_looking_leave_the_order_of_use() {
        let mut cache = small();
        hit(&mut cache, 0);
        hit(&mut cache, 2);
        cache.soil(0);
        cache.soil(4);
        assert!(cache.contains(0) && !cache.contains(4));
        assert_eq!(access(&mut cache, 4, false), Err(Some((0, true))));
    }

    #[test]
    fn cleaning_keeps_the_line_and_tells_dirty_from_clean_and_absent() {
        let mut cache = small();
        assert_eq!(cache.touch(0, true), None);
        cache.insert(0, true);
        assert!(cache.clean(0));
        assert!(!cache.clean(0));
        assert!(!cache.clean(2));
        assert!(hit(&mut cache, 0));
    }

    #[test]
    fn a_touch_tells_that_a_write_was_the_first_since_the_line_was_clean() {
        let mut cache = small();
        cache.insert(0, false);
        let touches = [false, true, true, false].map(|write| cache.touch(0, write));
        assert_eq!(touches, [Some(false), Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn a_removed_line_is_gone_and_its_way_free() {
        let mut cache = small();
        cache.insert(0, true);
        cache.insert(2, true);
        assert_eq!(cache.remove(2), Some(true));
        assert_eq!(cache.insert(4, false), None);
        assert!(hit(&mut cache, 0));
        assert_eq!(cache.remove(2), None);
    }

    #[test]
    fn a_hash_spreads_neighbours_over_all_sets() {
        let mut cache =
            Cache::<true>::new(CacheShape { capacity_bytes: 300 * LINE_BYTES, ways: 3 });
        let evicted = (0..300).filter(|&line| cache.insert(line, true).is_some()).count();
        assert!((1..120).contains(&evicted), "{evicted}");
    }

    #[test]
    fn a_number_of_sets_that_is_no_power_of_two_works_by_remainder() {
        let mut cache = Cache::new(CacheShape { capacity_bytes: 3 * LINE_BYTES, ways: 1 });
        hit(&mut cache, 0);
        hit(&mut cache, 1);
        hit(&mut cache, 2);
        assert!(hit(&mut cache, 0) && hit(&mut cache, 1) && hit(&mut cache, 2));
        assert!(!hit(&mut cache, 3) && !hit(&mut cache, 0));
    }
}
