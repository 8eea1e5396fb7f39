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

/// Size and shape of the last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheShape {
    /// Bytes of data. Rounded down to a whole number of sets, at least one.
    pub capacity_bytes: usize,
    /// Lines per set.
    pub ways: usize,
}

impl Default for CacheShape {
    fn default() -> Self {
        Self { capacity_bytes: 32 << 20, ways: 16 }
    }
}

/// What an access did to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) hit: bool,
    /// A dirty line that had to leave.
    pub(crate) evicted: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    tags: Vec<u32>,
    ways: usize,
    sets: usize,
}

impl Cache {
    pub(crate) fn new(shape: CacheShape) -> Self {
        let ways = shape.ways.max(1);
        let sets = (shape.capacity_bytes / LINE_BYTES / ways).max(1);
        Self { tags: vec![0; sets * ways], ways, sets }
    }

    #[inline]
    fn set(&mut self, line: u32) -> &mut [u32] {
        let sets = self.sets;
        let number =
            if sets.is_power_of_two() { line as usize & (sets - 1) } else { line as usize % sets };
        &mut self.tags[number * self.ways..][..self.ways]
    }

    /// Brings the line in and makes it the most recently used.
    #[inline]
    pub(crate) fn access(&mut self, line: u32, write: bool) -> Access {
        let dirty = if write { DIRTY } else { 0 };
        let set = self.set(line);
        if set[0] & !DIRTY == line + 1 {
            set[0] |= dirty;
            return Access { hit: true, evicted: None };
        }
        let found = set.iter().position(|tag| tag & !DIRTY == line + 1);
        let way = found.unwrap_or(set.len() - 1);
        let tag = set[way];
        set.copy_within(..way, 1);
        if found.is_some() {
            set[0] = tag | dirty;
            return Access { hit: true, evicted: None };
        }
        set[0] = (line + 1) | dirty;
        Access { hit: false, evicted: (tag & DIRTY != 0).then(|| (tag & !DIRTY) - 1) }
    }

    /// Writes the line back; it stays, clean. Whether it was dirty.
    #[inline]
    pub(crate) fn clean(&mut self, line: u32) -> bool {
        match self.set(line).iter_mut().find(|tag| **tag & !DIRTY == line + 1) {
            Some(tag) => {
                let dirty = *tag & DIRTY != 0;
                *tag &= !DIRTY;
                dirty
            }
            None => false,
        }
    }

    /// Removes the line. Whether it was dirty.
    pub(crate) fn remove(&mut self, line: u32) -> bool {
        let set = self.set(line);
        let Some(way) = set.iter().position(|tag| tag & !DIRTY == line + 1) else { return false };
        let dirty = set[way] & DIRTY != 0;
        set.copy_within(way + 1.., way);
        *set.last_mut().expect("a set has a way") = 0;
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sets of two ways.
    fn small() -> Cache {
        Cache::new(CacheShape { capacity_bytes: 4 * LINE_BYTES, ways: 2 })
    }

    fn hit(cache: &mut Cache, line: u32) -> bool {
        cache.access(line, false).hit
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
    fn only_dirty_lines_are_evicted_with_a_write() {
        let mut cache = small();
        cache.access(0, true);
        cache.access(2, false);
        assert_eq!(cache.access(4, false), Access { hit: false, evicted: Some(0) });
        assert_eq!(cache.access(6, false), Access { hit: false, evicted: None });
    }

    #[test]
    fn cleaning_keeps_the_line_and_tells_dirty_from_clean_and_absent() {
        let mut cache = small();
        cache.access(0, true);
        assert!(cache.clean(0));
        assert!(!cache.clean(0));
        assert!(!cache.clean(2));
        assert!(hit(&mut cache, 0));
    }

    #[test]
    fn a_removed_line_is_gone_and_its_way_free() {
        let mut cache = small();
        cache.access(0, true);
        cache.access(2, true);
        assert!(cache.remove(2));
        assert_eq!(cache.access(4, false), Access { hit: false, evicted: None });
        assert!(hit(&mut cache, 0));
        assert!(!cache.remove(2));
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
