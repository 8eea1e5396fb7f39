//! Sets of any number of ways, their tags kept in the order of their use.
//!
//! The most recent tag comes first; every use moves those before it. This is the plain form of what
//! module `packed` does faster for up to sixteen ways, and its measure in tests.

use super::{DIRTY, Tag, TagSets};

/// The tags of all sets, a row of `ways` for each.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    tags: Vec<u32>,
    ways: usize,
}

impl Ordered {
    pub(super) fn new(sets: usize, ways: usize) -> Self {
        Self { tags: vec![0; sets * ways], ways }
    }

    fn set(&mut self, number: usize) -> &mut [u32] {
        &mut self.tags[number * self.ways..][..self.ways]
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = u32> {
        self.tags.iter().copied()
    }
}

impl TagSets for Ordered {
    fn touch(&mut self, set: usize, line: u32, write: bool) -> Option<bool> {
        let set = self.set(set);
        let way = set.iter().position(|tag| tag & !DIRTY == line + 1)?;
        let tag = set[way];
        set.copy_within(..way, 1);
        set[0] = tag | if write { DIRTY } else { 0 };
        Some(set[0] != tag)
    }

    fn take_in(&mut self, set: usize, line: u32, write: bool) -> Result<(), Tag> {
        match self.touch(set, line, write) {
            Some(_) => Ok(()),
            None => Err(self.insert(set, Tag::of(line, write))),
        }
    }

    fn insert(&mut self, set: usize, tag: Tag) -> Tag {
        let set = self.set(set);
        debug_assert!(set.iter().all(|other| (other ^ tag.0) & !DIRTY != 0), "{tag:?} is here");
        let last = set.len() - 1;
        let leaves = set[last];
        set.copy_within(..last, 1);
        set[0] = tag.0;
        Tag(leaves)
    }

    fn contains(&self, set: usize, line: u32) -> bool {
        let set = &self.tags[set * self.ways..][..self.ways];
        set.iter().any(|tag| tag & !DIRTY == line + 1)
    }

    fn find(&mut self, set: usize, line: u32) -> Option<&mut u32> {
        self.set(set).iter_mut().find(|tag| **tag & !DIRTY == line + 1)
    }

    fn remove(&mut self, set: usize, line: u32) -> Option<bool> {
        let set = self.set(set);
        let way = set.iter().position(|tag| tag & !DIRTY == line + 1)?;
        let dirty = set[way] & DIRTY != 0;
        set.copy_within(way + 1.., way);
        *set.last_mut()? = 0;
        Some(dirty)
    }
}
