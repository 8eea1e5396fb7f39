//! Splitting and merging segments, and with them the directory.

use lapis_pmem::{AllocError, Committed, Domain, EXTENT_BYTES, Link};

use super::directory::{Change, Reference};
use super::segment::{Header, Image, MAX_DEPTH, NoKey, Segment, few_entries, until_counted};
use super::write::Locked;
use super::{Cceh, Prefix, SLOTS, damaged_directory};
use crate::hash_table::locks::HeldLock;
use crate::index::{IndexError, RoomNeeded};
use crate::key::IndexKey;

impl From<NoKey> for IndexError {
    fn from(_: NoKey) -> Self {
        Self::Damaged { what: "I3: a key word has no key".into() }
    }
}

/// A slab of segments has room for them in proportion to this many bytes, so that some are counted too many.
const SLAB_BYTES: usize = 8 * EXTENT_BYTES;

impl<D: Domain, K: IndexKey + ?Sized> Cceh<D, K> {
    /// What splitting takes in so many changes.
    ///
    /// Each of a few changes may find its window full. Of many, hashes spread them over the segments, and of those that
    /// a segment is given one in some fifty finds its window full: at a load at which this is likelier, it was split
    /// long before. For one in so many of a segment's slots that would be one in sixteen, three times as many, and
    /// eight more for chance.
    pub(super) fn room_to_split(&self, changes: usize) -> RoomNeeded {
        let slots = self.lines * SLOTS;
        let splits = changes.min(8 + changes.saturating_mul(64) / slots);
        // An old segment stays until its readers have gone. Blocks are up to a third larger than what is asked for.
        let segments = self.segment_bytes() / 2 * 3;
        let segments = splits.saturating_mul(2 * segments).next_multiple_of(SLAB_BYTES);
        // Twice as many entries take the directory one bit further, and chance another one: each time all of it is written
        // anew, and what was before is half of that.
        let before = self.directory().len() as usize;
        let entries = before.saturating_add(splits.saturating_mul(2)).next_power_of_two();
        let directories = entries.saturating_mul(2 * (2 + 1) * size_of::<u64>());
        let piece_bytes = segments.saturating_add(directories);
        RoomNeeded { piece_bytes, ..RoomNeeded::for_small_nodes(changes) }
    }

    /// Gives the upper half of a segment's hashes a segment of its own.
    #[cold]
    pub(super) fn split(&self, locked: Locked<'_, D>) -> Result<(), IndexError> {
        let Locked { segment, prefix, held } = locked;
        match self.divide(segment, prefix) {
            Ok(replaced) => {
                drop(held);
                if let Some(committed) = replaced {
                    self.retire_segment(segment.link, committed);
                }
                Ok(())
            }
            Err(error) => {
                held.leave_unchanged();
                Err(error)
            }
        }
    }

    /// [`Cceh::split`] of a segment that the caller holds. Returns the proof that it is out of reach, if it
    /// is.
    fn divide(
        &self,
        segment: Segment<'_>,
        prefix: Prefix,
    ) -> Result<Option<Committed>, IndexError> {
        let (pool, domain) = (&*self.pool, self.domain());
        if prefix.depth() >= MAX_DEPTH {
            return Err(AllocError::TooLarge { asked_bytes: usize::MAX }.into());
        }
        let [lower, upper] = prefix.halves();
        let build = |half| -> Result<_, IndexError> {
            let image = segment.part::<D, K>(pool, prefix, half)?;
            Ok(image.build(pool, image.until_counted())?)
        };
        let upper = build(upper)?;
        // Lazy deletion: the segment keeps what it has, if it can be told what of it counts.
        let lower = match K::INLINE {
            true => None,
            false => Some(build(lower)?),
        };
        let segments = pool.fence((upper, lower));

        let _structure = self.lock_structure();
        let depth = self.directory().log2();
        if prefix.depth() > depth {
            // I5: what has no place in the directory is not recorded, or the table could not be opened any more.
            return Err(damaged_directory());
        }
        if prefix.depth() == depth {
            self.resize_directory(depth + 1)?;
        }
        let (upper, lower) = &segments;
        let lower = lower.as_ref().map(|lower| lower.link());
        let change = Change {
            part: prefix,
            lower: lower.unwrap_or(segment.link),
            upper: Some(upper.link()),
        };
        domain.happens("split of a segment");
        self.record(&change, segments);
        let committed = self.carry_out(&change)?;
        if lower.is_some() {
            return Ok(Some(committed));
        }
        let half = segment.lines.len() * SLOTS / 2;
        segment.header.until_counted.store(domain, until_counted(half, segment.lines.len()));
        Ok(None)
    }

    /// Makes one segment of this and its buddy if both have few entries.
    #[cold]
    pub(super) fn merge_if_sparse(&self, locked: Locked<'_, D>) {
        let Locked { segment, prefix, held } = locked;
        let domain = self.domain();
        let entries = segment.entries::<D, K>(&self.pool, prefix).count();
        let until = until_counted(entries, segment.lines.len());
        segment.header.until_counted.store(domain, until);
        if entries > few_entries(segment.lines.len()) {
            return;
        }
        // Whoever has either of these locks may be waiting for the one that is held here.
        let take = |lock| HeldLock::try_take(lock, domain, self.generation);
        let Some(structure) = take(self.structure_lock()) else { return };
        let directory = self.directory();
        if prefix.depth() > directory.log2() {
            // As in `divide`.
            return;
        }
        let Some(buddy) = self.reference_in(directory, prefix.buddy().start()) else { return };
        if buddy.depth() != prefix.depth() {
            return;
        }
        let Some(buddy) = self.segment(buddy.link()) else { return };
        let Some(held_buddy) = take(&buddy.header.lock) else { return };
        let merged = self.unite([(segment, prefix), (buddy, prefix.buddy())]);
        let Ok(Some(committed)) = merged else {
            held_buddy.leave_unchanged();
            return;
        };
        drop((held, held_buddy));
        self.retire_segment(segment.link, committed);
        self.retire_segment(buddy.link, committed);
        // What became shallower may have been the last of the deepest.
        if prefix.depth() == self.directory().log2() {
            self.halve_directory();
        }
        drop(structure);
    }

    /// Replaces two segments, which the caller holds, by one; none if they have too many entries.
    fn unite(&self, both: [(Segment<'_>, Prefix); 2]) -> Result<Option<Committed>, IndexError> {
        let pool = &*self.pool;
        let Some(parent) = both[0].1.parent() else { return Ok(None) };
        let mut image = Image::vacant::<K>(parent, self.lines);
        for (segment, prefix) in both {
            if segment.entries::<D, K>(pool, prefix).count() > few_entries(self.lines) {
                return Ok(None);
            }
            for entry in segment.entries::<D, K>(pool, prefix) {
                let (hash, word, value) = entry?;
                if !image.add(hash, word, value) {
                    return Ok(None);
                }
            }
        }
        let merged = pool.fence(image.build(pool, image.until_counted())?);
        let change = Change { part: parent, lower: merged.link(), upper: None };
        self.domain().happens("merge of segments");
        self.record(&change, merged);
        self.carry_out(&change).map(Some)
    }

    /// Halves the directory while no segment is as deep, if there is room for the smaller one.
    fn halve_directory(&self) {
        loop {
            let directory = self.directory();
            let Some(entries) = directory.elements(&self.pool) else { return };
            let is_as_deep = |entry: &lapis_pmem::PCell<u64>| {
                Reference(entry.load(self.domain())).depth() >= directory.log2()
            };
            if directory.log2() == 1
                || entries.iter().any(is_as_deep)
                || self.resize_directory(directory.log2() - 1).is_err()
            {
                return;
            }
        }
    }

    /// Retires a segment that the directory no longer leads to.
    fn retire_segment(&self, link: Link<Header>, committed: Committed) {
        self.pool.retire(link, self.segment_bytes(), committed, &self.pool.pin());
    }
}
