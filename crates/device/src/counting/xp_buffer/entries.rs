//! The entries of a module's buffer, and which of them holds a unit.
//!
//! A search looks at the one found last, then at those whose units agree in their low bits: nearly
//! every access of a large region replaces one, and finds that there are none.
//!
//! ```text
//!  heads    | 0 | 1 | … |       by the low bits of a unit: an entry, or none
//!             │
//!             ▼
//!  entries  | 0 | 1 | 2 | … |   each with the next whose unit has the same low bits, or none
//! ```

use std::hint::select_unpredictable;

/// No unit, for line numbers have 31 bits.
const FREE: u32 = u32::MAX;
/// No entry.
const NONE: u32 = u32::MAX;
/// Heads for each entry, so that few units agree.
const HEADS_PER_ENTRY: usize = 8;

/// What an entry holds of its unit, a bit for each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Lines written since the media were.
    pub(super) written: u8,
    /// Lines whose contents are here.
    pub(super) valid: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it was last used.
    last_used: u64,
    unit: u32,
    next: u32,
    contents: Contents,
}

/// The entries, numbered.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// As many as a power of two.
    heads: Vec<u32>,
    /// The others are free.
    used: usize,
    /// The entry found last, or given to a unit.
    latest: usize,
}

impl Entries {
    /// So many, all free.
    pub(super) fn new(count: usize) -> Self {
        let free = Entry { last_used: 0, unit: FREE, next: NONE, contents: Contents::default() };
        Self {
            entries: vec![free; count],
            heads: vec![NONE; (count * HEADS_PER_ENTRY).next_power_of_two()],
            used: 0,
            latest: 0,
        }
    }

    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.used == self.entries.len()
    }

    pub(super) fn clear(&mut self) {
        for entry in &mut self.entries {
            entry.unit = FREE;
            entry.contents = Contents::default();
        }
        self.heads.fill(NONE);
        self.used = 0;
    }

    /// What those in use hold.
    pub(super) fn all(&self) -> impl Iterator<Item = Contents> {
        self.entries[..self.used].iter().map(|entry| entry.contents)
    }

    /// Where the search for a unit begins.
    #[inline(always)]
    fn head(&mut self, unit: u32) -> &mut u32 {
        let at = unit as usize & (self.heads.len() - 1);
        &mut self.heads[at]
    }

    /// The entry of a unit.
    #[inline(always)]
    pub(super) fn find(&mut self, unit: u32) -> Option<usize> {
        if self.entries[self.latest].unit == unit {
            return Some(self.latest);
        }
        let mut at = *self.head(unit);
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.unit == unit {
                self.latest = at as usize;
                return Some(self.latest);
            }
            at = entry.next;
        }
        None
    }

    #[inline(always)]
    pub(super) fn contents(&mut self, at: usize) -> &mut Contents {
        &mut self.entries[at].contents
    }

    #[inline(always)]
    pub(super) fn touch(&mut self, at: usize, now: u64) {
        self.entries[at].last_used = now;
    }

    /// Of two the one that was used longer ago; of equals the first.
    #[inline(always)]
    pub(super) fn older(&self, first: usize, second: usize) -> usize {
        let sooner = self.entries[second].last_used < self.entries[first].last_used;
        select_unpredictable(sooner, second, first)
    }

    /// Gives a unit, which has none, one that is free.
    pub(super) fn add(&mut self, unit: u32, now: u64) -> usize {
        let at = self.used;
        self.used += 1;
        self.give(at, unit, now);
        at
    }

    /// Gives an entry in use to another unit, which has none. What it held.
    #[inline(always)]
    pub(super) fn replace(&mut self, at: usize, unit: u32, now: u64) -> Contents {
        self.take(at);
        self.give(at, unit, now)
    }

    /// Makes that no search finds an entry.
    #[inline(always)]
    fn take(&mut self, at: usize) {
        let Entry { unit, next, .. } = self.entries[at];
        let head = self.head(unit);
        if *head == at as u32 {
            *head = next;
            return;
        }
        let mut before = *head as usize;
        while self.entries[before].next != at as u32 {
            before = self.entries[before].next as usize;
        }
        self.entries[before].next = next;
    }

    /// Gives an entry that no search finds to a unit. What it held.
    #[inline(always)]
    fn give(&mut self, at: usize, unit: u32, now: u64) -> Contents {
        let next = std::mem::replace(self.head(unit), at as u32);
        self.latest = at;
        let entry = Entry { last_used: now, unit, next, contents: Contents::default() };
        std::mem::replace(&mut self.entries[at], entry).contents
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
                let unit = random.below(count * 2) as u32 ^ (random.below(3) as u32) << 20;
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
