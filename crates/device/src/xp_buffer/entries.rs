//! The entries of a module's buffer, and which of them holds a unit.
//!
//! A search looks at the one found last, then at the low bits of all units, eight at a time, and only
//! if some agree at the units themselves. There are few (69 on `optane-100`), nearly every access of a
//! large region replaces one, and a table that has to follow that costs more than it saves.
//!
//! ```text
//!  low_bits  | 0 … 7 | 8 … 15 | …
//!  units     | 0 … 15 | 16 … 31 | …            each a cache line of the host; free ones at the end
//!  last_used | 0 | 1 | 2 | …
//!  contents  | 0 | 1 | 2 | …
//! ```

use std::hint::select_unpredictable;

use crate::host::{HalfWords, Words, any_equal, equal_words};

const WORDS: usize = 16;
const HALF_WORDS: usize = 8;
/// No unit, for line numbers have 31 bits.
const FREE: u32 = u32::MAX;

/// What an entry holds of its unit, a bit for each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Lines written since the media were.
    pub(super) written: u8,
    /// Lines whose contents are here.
    pub(super) valid: u8,
}

/// The entries, numbered.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    low_bits: Vec<HalfWords>,
    units: Vec<Words>,
    /// When each was last used.
    last_used: Vec<u64>,
    contents: Vec<Contents>,
    used: usize,
    /// The entry found last, or given to a unit.
    latest: usize,
}

impl Entries {
    /// So many, all free.
    pub(super) fn new(count: usize) -> Self {
        Self {
            low_bits: vec![HalfWords([FREE as u16; HALF_WORDS]); count.div_ceil(HALF_WORDS)],
            units: vec![Words([FREE; WORDS]); count.div_ceil(WORDS)],
            last_used: vec![0; count],
            contents: vec![Contents::default(); count],
            used: 0,
            latest: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.contents.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.contents.len()
    }

    pub(super) fn clear(&mut self) {
        self.units.fill(Words([FREE; WORDS]));
        self.low_bits.fill(HalfWords([FREE as u16; HALF_WORDS]));
        self.used = 0;
    }

    /// What those in use hold.
    pub(super) fn all(&self) -> impl Iterator<Item = Contents> {
        self.contents[..self.used].iter().copied()
    }

    #[inline(always)]
    fn unit(&self, at: usize) -> u32 {
        self.units[at / WORDS].0[at % WORDS]
    }

    /// The entry of a unit.
    #[inline]
    pub(super) fn find(&mut self, unit: u32) -> Option<usize> {
        if self.unit(self.latest) == unit {
            return Some(self.latest);
        }
        if !any_equal(&self.low_bits, unit as u16) {
            return None;
        }
        for (block, units) in self.units.iter().enumerate() {
            let found = equal_words(&units.0, u32::MAX, unit);
            if found != 0 {
                self.latest = block * WORDS + found.trailing_zeros() as usize;
                return Some(self.latest);
            }
        }
        None
    }

    #[inline]
    pub(super) fn contents(&mut self, at: usize) -> &mut Contents {
        &mut self.contents[at]
    }

    #[inline]
    pub(super) fn touch(&mut self, at: usize, now: u64) {
        self.last_used[at] = now;
    }

    /// Of two the one that was used longer ago; of equals the first.
    #[inline]
    pub(super) fn older(&self, first: usize, second: usize) -> usize {
        select_unpredictable(self.last_used[second] < self.last_used[first], second, first)
    }

    /// Gives a unit, which has none, one that is free.
    pub(super) fn add(&mut self, unit: u32, now: u64) -> usize {
        let at = self.used;
        self.used += 1;
        self.replace(at, unit, now);
        at
    }

    /// Gives an entry to another unit, which has none. What it held.
    #[inline]
    pub(super) fn replace(&mut self, at: usize, unit: u32, now: u64) -> Contents {
        self.units[at / WORDS].0[at % WORDS] = unit;
        self.low_bits[at / HALF_WORDS].0[at % HALF_WORDS] = unit as u16;
        self.latest = at;
        self.last_used[at] = now;
        std::mem::take(&mut self.contents[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_unit_is_found_where_a_plain_search_finds_it() {
        let mut random = Random::new(2);
        for count in [1, 2, 5, 16, 17, 69] {
            let mut entries = Entries::new(count);
            let mut plain: Vec<u32> = Vec::new();
            for now in 0..20_000 {
                if now % 5000 == 0 {
                    entries.clear();
                    plain.clear();
                }
                // Some agree in their low bits.
                let unit = random.below(count * 2) as u32 ^ (random.below(2) as u32) << 20;
                let found = plain.iter().position(|&other| other == unit);
                assert_eq!(entries.find(unit), found);
                assert_eq!(entries.is_full(), plain.len() == count);
                if found.is_some() {
                    continue;
                }
                if entries.is_full() {
                    let victim = random.below(count);
                    entries.replace(victim, unit, now);
                    plain[victim] = unit;
                } else {
                    assert_eq!(entries.add(unit, now), plain.len());
                    plain.push(unit);
                }
            }
        }
    }

    #[test]
    fn replacing_an_entry_gives_what_it_held_and_leaves_it_blank() {
        let mut entries = Entries::new(3);
        let at = entries.add(7, 1);
        entries.contents(at).written = 5;
        assert_eq!(entries.replace(at, 8, 2), Contents { written: 5, valid: 0 });
        assert_eq!(*entries.contents(at), Contents::default());
    }
}
