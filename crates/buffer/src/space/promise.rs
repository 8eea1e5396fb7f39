//! Room that is promised: pages that somebody is about to allocate, and may then not be refused.
//!
//! A committed change cannot be taken back when the disk turns out to be full while it is applied. So whoever commits has
//! as many pages promised before as the change may take at worst. A promise that needs the device to grow makes it
//! grow, and is refused where it cannot.
//!
//! * S1. The device has storage for as many pages as are in use and promised. Whoever allocates a page has it promised,
//!   so the device need not grow for it.
//! * S2. A promise for what grows leaves [`RESERVED_PAGES`] besides. What makes room is promised pages of these, so it
//!   goes on where there is no room for anything else. Recovery has them too: a leaf that is older than the log
//!   may have to split where none did before. Trimming leaves them.

use lapis_pmem::{BlockError, Domain, host_lock};

use super::map::SpaceMap;
use super::{Space, SpaceError};

/// Pages that are kept for what makes room.
pub const RESERVED_PAGES: u64 = 32;

/// What pages are promised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFor {
    /// More contents.
    Growth,
    /// What ends with fewer pages in use: removals, compaction.
    MakingRoom,
}

impl RoomFor {
    /// What stays besides.
    fn reserved(self) -> u64 {
        match self {
            Self::Growth => RESERVED_PAGES,
            Self::MakingRoom => 0,
        }
    }
}

/// Pages that are kept free for somebody, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Promise<'s, D: Domain> {
    space: &'s Space<D>,
    pages: u64,
}

impl<D: Domain> Drop for Promise<'_, D> {
    fn drop(&mut self) {
        self.space.map.lock().promised -= self.pages;
    }
}

impl<D: Domain> Space<D> {
    /// Promises that so many pages can be allocated. What was freed counts when that is durable
    /// ([`Space::write_freed`]).
    ///
    /// # Errors
    /// [`SpaceError::NoRoom`], [`SpaceError::Device`].
    pub fn promise(&self, pages: u64, room_for: RoomFor) -> Result<Promise<'_, D>, SpaceError> {
        let needed = |map: &SpaceMap| map.used() + map.promised + pages + room_for.reserved();
        loop {
            {
                let mut map = self.map.lock();
                if needed(&map) <= map.backed {
                    if map.used() + map.promised + pages + map.reserved > map.backed {
                        self.domain.happens("room of the reserve is promised");
                    }
                    map.promised += pages;
                    map.reserved = map.reserved.max(room_for.reserved());
                    return Ok(Promise { space: self, pages });
                }
            }
            // Nobody trims meanwhile. The map is not held: others look into it while the device works.
            let _turn = host_lock::lock(&self.domain, &self.writer);
            let (backed, needed) = {
                let map = self.map.lock();
                (map.backed, needed(&map))
            };
            if needed > backed {
                let backed = self.back(backed, needed).map_err(|error| match error {
                    source @ BlockError::NoSpace { .. } => {
                        self.domain.happens("the disk has no room for a promise");
                        SpaceError::NoRoom { pages, source }
                    }
                    error => error.into(),
                })?;
                self.map.lock().backed = backed;
            }
        }
    }

    /// Puts storage beneath the first `needed` pages, of which the first `backed` have some, and beneath more for those
    /// that come. Returns how many have some then.
    fn back(&self, backed: u64, needed: u64) -> Result<u64, BlockError> {
        self.grow_to_hold(needed - 1)?;
        let pages = self.geometry.pages_within(self.device.capacity_blocks());
        // As long as it is, part of it may have been given back.
        let from = self.geometry.end(backed);
        let reserve = |pages| self.device.reserve(from, self.geometry.end(pages) - from);
        let more = (needed / 8).max(RESERVED_PAGES);
        let generous = pages.min(needed + more);
        match reserve(generous) {
            Ok(()) => Ok(generous),
            Err(BlockError::NoSpace { .. }) => reserve(needed).map(|()| needed),
            Err(error) => Err(error),
        }
    }
}
