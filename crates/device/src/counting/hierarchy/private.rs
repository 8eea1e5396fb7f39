//! The private caches of a worker.
//!
//! A line of L1 is in L2 too, and if it is dirty it is so in both: then a line that leaves L1 changes
//! nothing, and L2 alone knows what is dirty.

use super::{HierarchyShape, Level, Reach};
use crate::counting::cache::{Cache, Found, Tag, take_in};

/// L1 and L2 of a worker.
#[derive(Clone, Debug)]
pub(super) struct Private {
    pub(super) l1: Cache,
    pub(super) l2: Cache,
}

impl Private {
    pub(super) fn new(shape: &HierarchyShape) -> Self {
        Self { l1: Cache::new(shape.l1), l2: Cache::new(shape.l2) }
    }

    /// None if the line is not here, else whether it was dirty.
    pub(super) fn remove(&mut self, line: u32) -> Option<bool> {
        let dirty = self.l2.remove(line)?;
        self.l1.remove(line);
        Some(dirty)
    }

    /// Writes the line back. None if it is not here, else whether it was dirty.
    #[inline]
    pub(super) fn clean(&mut self, line: u32) -> Option<bool> {
        let dirty = self.l2.clean_if_here(line)?;
        if dirty {
            self.l1.clean(line);
        }
        Some(dirty)
    }

    /// The worker uses a line. None if it is not here, and nothing happens.
    #[inline]
    pub(super) fn touch(&mut self, line: u32, write: bool) -> Option<Level> {
        match self.l1.touch(line, write) {
            Some(true) => {
                self.l2.soil(line);
                Some(Level::L1)
            }
            Some(false) => Some(Level::L1),
            None => self.l2.touch(line, write).map(|_| {
                self.l1.insert(line, write);
                Level::L2
            }),
        }
    }

    /// The worker uses a line, which is here afterwards.
    #[inline]
    pub(super) fn take_in(&mut self, line: u32, write: bool) -> Reach {
        match take_in(&mut self.l1, &mut self.l2, line, write) {
            Found::First => Reach::Private(Level::L1),
            Found::Second => Reach::Private(Level::L2),
            Found::Neither(leaves) => Reach::Beyond(leaves),
        }
    }

    /// Brings in a line that is not here. What has to leave.
    #[inline]
    pub(super) fn insert(&mut self, line: u32, dirty: bool, write: bool) -> Tag {
        let cast_out = self.l2.insert(line, dirty || write);
        if let Some(line) = cast_out.line() {
            self.l1.remove(line);
        }
        self.l1.insert(line, write);
        cast_out
    }
}
