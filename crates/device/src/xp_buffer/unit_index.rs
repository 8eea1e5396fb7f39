//! Which entry of a module's buffer holds a unit: a hash table with linear probing, a quarter full.
//!
//! The entries keep the units, the table only their numbers.

use super::Entry;

const FREE: u16 = u16::MAX;

#[derive(Clone, Debug)]
pub(super) struct UnitIndex {
    /// Numbers of entries; a power of two of them, at least four times as many as there are entries.
    buckets: Vec<u16>,
    /// What a hash is shifted by to number a bucket.
    shift: u32,
}

impl UnitIndex {
    /// For so many entries.
    ///
    /// # Panics
    /// If that is more than 65 535.
    pub(super) fn new(entries: usize) -> Self {
        assert!(entries <= usize::from(FREE), "a buffer of {entries} units");
        let buckets = (entries * 4).next_power_of_two();
        Self { buckets: vec![FREE; buckets], shift: 32 - buckets.trailing_zeros() }
    }

    pub(super) fn clear(&mut self) {
        self.buckets.fill(FREE);
    }

    /// Where the search for a unit begins.
    #[inline]
    fn home(&self, unit: u32) -> usize {
        (unit.wrapping_mul(0x9E37_79B1) >> self.shift) as usize
    }

    #[inline]
    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// The entry of a unit.
    #[inline]
    pub(super) fn find(&self, unit: u32, entries: &[Entry]) -> Option<usize> {
        let mut bucket = self.home(unit);
        loop {
            match self.buckets[bucket] {
                FREE => return None,
                at if entries[usize::from(at)].unit == unit => return Some(usize::from(at)),
                _ => bucket = self.after(bucket),
            }
        }
    }

    /// Notes the unit of an entry, which is not noted yet.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, entries: &[Entry]) {
        let mut bucket = self.home(entries[at].unit);
        while self.buckets[bucket] != FREE {
            bucket = self.after(bucket);
        }
        self.buckets[bucket] = at as u16;
    }

    /// Forgets the unit of an entry, which is noted.
    #[inline]
    pub(super) fn remove(&mut self, at: usize, entries: &[Entry]) {
        let mut gap = self.home(entries[at].unit);
        while usize::from(self.buckets[gap]) != at {
            gap = self.after(gap);
        }
        // What was put further on because this bucket was taken moves up.
        let mask = self.buckets.len() - 1;
        let mut bucket = self.after(gap);
        while self.buckets[bucket] != FREE {
            let home = self.home(entries[usize::from(self.buckets[bucket])].unit);
            if bucket.wrapping_sub(home) & mask >= bucket.wrapping_sub(gap) & mask {
                self.buckets[gap] = self.buckets[bucket];
                gap = bucket;
            }
            bucket = self.after(bucket);
        }
        self.buckets[gap] = FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_unit_is_found_where_a_search_of_all_entries_finds_it() {
        let mut random = Random::new(2);
        for count in [1, 2, 5, 69] {
            let mut index = UnitIndex::new(count);
            let mut entries = vec![Entry::default(); count];
            let mut used = 0;
            for _ in 0..20_000 {
                let unit = random.below(count * 2) as u32;
                let found = entries[..used].iter().position(|entry| entry.unit == unit);
                assert_eq!(index.find(unit, &entries), found);
                if found.is_some() {
                    continue;
                }
                let at = if used < count {
                    used += 1;
                    used - 1
                } else {
                    let victim = random.below(count);
                    index.remove(victim, &entries);
                    victim
                };
                entries[at].unit = unit;
                index.insert(at, &entries);
            }
        }
    }
}
