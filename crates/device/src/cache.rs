//! One level of write-back cache: set-associative, least recently used.
//!
//! A set is an array of tags in the order of their use, the most recent first. A tag is the line's
//! number plus one (zero is an empty way), and bit 31 says that the line is dirty.
//!
//! ```text
//!  bit  31      30              0
//!      +-------+-----------------+
//!      | dirty | line number + 1 |
//!      +-------+-----------------+
//! ```

use lapis_pmem::LINE_BYTES;
use serde::Serialize;

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

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    tags: Vec<u32>,
    ways: usize,
    sets: usize,
    hashed: bool,
}

impl Cache {
    pub(crate) fn new(shape: CacheShape) -> Self {
        let ways = shape.ways.max(1);
        let sets = (shape.capacity_bytes / LINE_BYTES / ways).max(1);
        Self { tags: vec![0; sets * ways], ways, sets, hashed: false }
    }

    /// A cache that spreads neighbours over its sets by a hash, as shared last levels do.
    pub(crate) fn hashed(shape: CacheShape) -> Self {
        Self { hashed: true, ..Self::new(shape) }
    }

    #[inline]
    fn set(&mut self, line: u32) -> &mut [u32] {
        let sets = self.sets;
        let number = if self.hashed {
            // Not linear, or runs of lines that meet in one set would meet in all (MurmurHash3).
            let mut hash = line.wrapping_mul(0x85EB_CA6B);
            hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
            hash ^= hash >> 16;
            ((u64::from(hash) * sets as u64) >> 32) as usize
        } else if sets.is_power_of_two() {
            line as usize & (sets - 1)
        } else {
            line as usize % sets
        };
        &mut self.tags[number * self.ways..][..self.ways]
    }

    /// Makes a line that is here the most recently used, and dirty if it is written. Whether it is
    /// here.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32, write: bool) -> bool {
        let dirty = if write { DIRTY } else { 0 };
        let set = self.set(line);
        if set[0] & !DIRTY == line + 1 {
            set[0] |= dirty;
            return true;
        }
        let Some(way) = set.iter().position(|tag| tag & !DIRTY == line + 1) else { return false };
        let tag = set[way];
        set.copy_within(..way, 1);
        set[0] = tag | dirty;
        true
    }

    /// Brings in a line that is not here, as the most recently used.
    #[inline]
    pub(crate) fn insert(&mut self, line: u32, dirty: bool) -> Victim {
        let set = self.set(line);
        debug_assert!(set.iter().all(|tag| tag & !DIRTY != line + 1), "line {line} is here");
        let last = set.len() - 1;
        let tag = set[last];
        set.copy_within(..last, 1);
        set[0] = (line + 1) | if dirty { DIRTY } else { 0 };
        (tag & !DIRTY != 0).then(|| ((tag & !DIRTY) - 1, tag & DIRTY != 0))
    }

    #[inline]
    fn find(&mut self, line: u32) -> Option<&mut u32> {
        self.set(line).iter_mut().find(|tag| **tag & !DIRTY == line + 1)
    }

    /// Whether the line is here; its place in the order of use stays.
    pub(crate) fn contains(&mut self, line: u32) -> bool {
        self.find(line).is_some()
    }

    /// Makes the line dirty if it is here; its place in the order of use stays.
    #[inline]
    pub(crate) fn soil(&mut self, line: u32) {
        if let Some(tag) = self.find(line) {
            *tag |= DIRTY;
        }
    }

    /// Writes the line back; it stays, clean. Whether it was dirty.
    #[inline]
    pub(crate) fn clean(&mut self, line: u32) -> bool {
        match self.find(line) {
            Some(tag) => {
                let dirty = *tag & DIRTY != 0;
                *tag &= !DIRTY;
                dirty
            }
            None => false,
        }
    }

    /// Removes the line; none if it is not here. Whether it was dirty.
    #[inline]
    pub(crate) fn remove(&mut self, line: u32) -> Option<bool> {
        let set = self.set(line);
        let way = set.iter().position(|tag| tag & !DIRTY == line + 1)?;
        let dirty = set[way] & DIRTY != 0;
        set.copy_within(way + 1.., way);
        *set.last_mut()? = 0;
        Some(dirty)
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
        if cache.touch(line, write) { Ok(()) } else { Err(cache.insert(line, write)) }
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
        assert!(!cache.touch(0, true));
        cache.insert(0, true);
        assert!(cache.clean(0));
        assert!(!cache.clean(0));
        assert!(!cache.clean(2));
        assert!(hit(&mut cache, 0));
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
        let mut cache = Cache::hashed(CacheShape { capacity_bytes: 300 * LINE_BYTES, ways: 3 });
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
