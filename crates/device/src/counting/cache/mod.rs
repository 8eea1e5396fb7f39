//! One level of write-back cache: set-associative, least recently used.
//!
//! Sets of up to sixteen ways are `packed`, larger ones kept in `ordered` rows; what they do is the
//! same. In each way stands a `tag`.

mod inclusive;
mod ordered;
mod packed;
mod tag;

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

pub(crate) use self::inclusive::{Found, take_in};
use self::ordered::Ordered;
use self::packed::{Packed, Row, Wide, WithinLine};
use self::tag::DIRTY;
pub(crate) use self::tag::Tag;
use crate::counting::divider::Divider;

/// Size and shape of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheShape {
    /// Bytes of data. Rounded down to a whole number of sets, at least one.
    pub capacity_bytes: usize,
    /// Lines per set.
    pub ways: usize,
}

/// The tags of all sets, in their order of use.
trait TagSets {
    /// Makes a line that is here the most recently used of its set, and dirty if it is written. None if
    /// it is not here; else whether it was clean and is dirty. Quick if it was the most recently used
    /// before.
    fn touch(&mut self, set: usize, line: u32, write: bool) -> Option<bool>;

    /// The same for a line that is brought in if it is not here. An error is what has to leave for it.
    fn take_in(&mut self, set: usize, line: u32, write: bool) -> Result<(), Tag>;

    /// Brings in a line that is not here, as the most recently used. What has to leave for it.
    fn insert(&mut self, set: usize, tag: Tag) -> Tag;

    /// What stands in the line's way.
    fn find(&mut self, set: usize, line: u32) -> Option<&mut u32>;

    fn contains(&self, set: usize, line: u32) -> bool;

    /// Removes a line; none if it is not here. Whether it was dirty.
    fn remove(&mut self, set: usize, line: u32) -> Option<bool>;
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
    index: Index<HASHED>,
}

/// Which set a line belongs to.
#[derive(Clone, Copy, Debug)]
struct Index<const HASHED: bool> {
    /// Of sets.
    number: u32,
    /// If that is a power of two, one less.
    mask: Option<u32>,
    by_number: Divider,
}

macro_rules! on_set {
    ($cache:expr, $line:expr, $sets:ident, $set:ident => $result:expr) => {{
        let $set = $cache.index.set($line);
        match &mut $cache.sets {
            Sets::WithinLines($sets) => $result,
            Sets::Wide($sets) => $result,
            Sets::Ordered($sets) => $result,
        }
    }};
}

impl<const HASHED: bool> Index<HASHED> {
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
        Self { sets, index: Index { number, mask, by_number: Divider::new(number) } }
    }

    /// [`TagSets::touch`].
    #[inline(always)]
    pub(crate) fn touch(&mut self, line: u32, write: bool) -> Option<bool> {
        on_set!(self, line, sets, set => sets.touch(set, line, write))
    }

    /// [`TagSets::take_in`].
    #[inline(always)]
    pub(crate) fn take_in(&mut self, line: u32, write: bool) -> Result<(), Tag> {
        on_set!(self, line, sets, set => sets.take_in(set, line, write))
    }

    /// [`TagSets::insert`].
    #[inline(always)]
    pub(crate) fn insert(&mut self, line: u32, dirty: bool) -> Tag {
        on_set!(self, line, sets, set => sets.insert(set, Tag::of(line, dirty)))
    }

    /// The same for what left another cache, if anything did.
    #[inline(always)]
    pub(crate) fn insert_tag(&mut self, tag: Tag) -> Tag {
        match tag.line() {
            Some(line) => on_set!(self, line, sets, set => sets.insert(set, tag)),
            None => Tag::NONE,
        }
    }

    #[inline]
    fn find(&mut self, line: u32) -> Option<&mut u32> {
        on_set!(self, line, sets, set => sets.find(set, line))
    }

    /// Whether the line is here; its place in the order of use stays.
    #[inline]
    pub(crate) fn contains(&self, line: u32) -> bool {
        let set = self.index.set(line);
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

    /// [`TagSets::remove`].
    #[inline(always)]
    pub(crate) fn remove(&mut self, line: u32) -> Option<bool> {
        on_set!(self, line, sets, set => sets.remove(set, line))
    }

    /// The line that would leave if this one were brought in, as far as that is cheaply known.
    #[inline]
    pub(crate) fn next_victim(&self, line: u32) -> Tag {
        match &self.sets {
            Sets::WithinLines(sets) => sets.next_victim(self.index.set(line)),
            Sets::Wide(sets) => sets.next_victim(self.index.set(line)),
            Sets::Ordered(_) => Tag::NONE,
        }
    }

    /// Lets the host fetch what it will need for this line.
    #[inline]
    pub(crate) fn prefetch(&self, line: u32) {
        match &self.sets {
            Sets::WithinLines(sets) => sets.prefetch(self.index.set(line)),
            Sets::Wide(sets) => sets.prefetch(self.index.set(line)),
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
        tags.filter_map(|tag| Tag(tag).line()).collect()
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
    fn access(cache: &mut Cache, line: u32, write: bool) -> Result<(), Tag> {
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
        assert_eq!(access(&mut cache, 0, true), Err(Tag::NONE));
        assert_eq!(access(&mut cache, 2, false), Err(Tag::NONE));
        assert_eq!(access(&mut cache, 4, false), Err(Tag::of(0, true)));
        assert_eq!(access(&mut cache, 6, false), Err(Tag::of(2, false)));
    }

    #[test]
    fn soiling_and_looking_leave_the_order_of_use() {
        let mut cache = small();
        hit(&mut cache, 0);
        hit(&mut cache, 2);
        cache.soil(0);
        cache.soil(4);
        assert!(cache.contains(0) && !cache.contains(4));
        assert_eq!(access(&mut cache, 4, false), Err(Tag::of(0, true)));
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
        assert_eq!(cache.insert(4, false), Tag::NONE);
        assert!(hit(&mut cache, 0));
        assert_eq!(cache.remove(2), None);
    }

    #[test]
    fn a_hash_spreads_neighbours_over_all_sets() {
        let mut cache =
            Cache::<true>::new(CacheShape { capacity_bytes: 300 * LINE_BYTES, ways: 3 });
        let evicted = (0..300).filter(|&line| cache.insert(line, true) != Tag::NONE).count();
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
