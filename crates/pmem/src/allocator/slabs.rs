//! The slabs of one class: which of their blocks are in use.

use std::collections::BTreeMap;

use crate::cell::{Link, PCell};
use crate::domain::Domain;
use crate::pool::Pool;
use crate::reachable::ReachabilityProblem;

use super::cache::REFILL;
use super::classes::ClassId;
use super::mutants;

#[derive(Debug)]
struct Slab {
    /// 1 = in use (or in a cache).
    bitmap: Vec<u64>,
    free: usize,
    /// Changed since its bitmap was saved.
    dirty: bool,
    /// In `ClassSlabs::partial`.
    listed: bool,
    /// The bitmap was read from the medium, which may have changed it.
    read: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ClassSlabs {
    /// By first chunk.
    slabs: BTreeMap<u32, Slab>,
    /// Slabs with free blocks; the last is used first.
    partial: Vec<u32>,
    /// Free blocks of slabs that are not known yet, because they were in use before a crash and
    /// have not been reclaimed. They are free because the program freed them since.
    loose: Vec<u64>,
}

impl ClassSlabs {
    pub(super) fn is_exhausted(&self) -> bool {
        self.partial.is_empty() && self.loose.is_empty()
    }

    /// Forgets every slab, before a reclaim says anew which there are.
    pub(super) fn forget<D: Domain>(&mut self, domain: &D) {
        if !self.slabs.is_empty() || !self.is_exhausted() {
            let kept = domain.commits(mutants::LOOSE_KEPT).then(|| self.take_loose());
            *self = Self { loose: kept.unwrap_or_default(), ..Self::default() };
        }
    }

    /// A new slab, all free.
    pub(super) fn adopt_empty(&mut self, class: ClassId, first: u32) {
        self.adopt(class, first, vec![0; class.bitmap_words()], true);
    }

    /// A slab as the last clean shutdown left it.
    pub(super) fn adopt_saved<D: Domain>(&mut self, pool: &Pool<D>, class: ClassId, first: u32) {
        let saved = saved_bitmap(pool, class, first);
        let mut bitmap: Vec<u64> = saved.map(|word| word.load(pool.domain())).collect();
        // No block has the bits behind the last one's. Whatever the others say after damage, they
        // are counted as they are, so that the counts hold.
        if let (Some(last), used @ 1..) = (bitmap.last_mut(), class.blocks_per_slab() % 64) {
            *last &= (1 << used) - 1;
        }
        self.adopt(class, first, bitmap, false);
        if let Some(slab) = self.slabs.get_mut(&first) {
            slab.read = true;
        }
    }

    pub(super) fn adopt(&mut self, class: ClassId, first: u32, bitmap: Vec<u64>, dirty: bool) {
        let blocks = class.blocks_per_slab();
        let in_use: usize = bitmap.iter().map(|word| word.count_ones() as usize).sum();
        let free = blocks.saturating_sub(in_use);
        self.slabs.insert(first, Slab { bitmap, free, dirty, listed: free > 0, read: false });
        if free > 0 {
            self.partial.push(first);
        }
    }

    /// Moves up to [`REFILL`] free blocks into `magazine`, lowest address last (used first).
    pub(super) fn take<D: Domain>(&mut self, domain: &D, class: ClassId, magazine: &mut Vec<u64>) {
        if !self.loose.is_empty() {
            let keep = self.loose.len().saturating_sub(REFILL);
            magazine.extend(self.loose.drain(keep..));
            return;
        }
        let Some(&first) = self.partial.last() else { return };
        let Some(slab) = self.slabs.get_mut(&first) else { return };
        let blocks = class.blocks_per_slab();
        let before = magazine.len();
        let mut wanted = REFILL.min(slab.free);
        slab.free -= wanted;
        slab.dirty = true;
        for (index, word) in slab.bitmap.iter_mut().enumerate() {
            while wanted > 0 && *word != u64::MAX {
                let bit = (!*word).trailing_zeros() as usize;
                let block = index * 64 + bit;
                if block >= blocks {
                    break;
                }
                *word |= 1 << bit;
                magazine.push(class.offset_of(first, block));
                wanted -= 1;
            }
        }
        magazine[before..].reverse();
        if slab.free == 0 || domain.commits(mutants::UNLISTED_EARLY) {
            slab.listed = false;
            self.partial.pop();
        }
    }

    /// Returns one block. If that empties its slab, and it is not the only one with room, the slab
    /// is dissolved and its first chunk returned.
    pub(super) fn give_back(&mut self, class: ClassId, offset: u64) -> Option<u32> {
        let chunk = ClassId::chunk_of(offset);
        let found = self.slabs.range_mut(..=chunk).next_back();
        let Some((&first, slab)) = found.filter(|(first, _)| chunk - **first < class.slab_chunks())
        else {
            self.loose.push(offset);
            return None;
        };
        let Some(index) = class.index_in_slab(first, offset) else {
            // Likewise: a damaged link was followed.
            debug_assert!(slab.read, "freed {offset:#x}, which is not a block");
            return None;
        };
        if slab.bitmap[index / 64] & (1 << (index % 64)) == 0 {
            // It is free already: a saved bitmap that was damaged said so, or somebody frees twice.
            debug_assert!(slab.read, "double free");
            return None;
        }
        slab.bitmap[index / 64] &= !(1 << (index % 64));
        slab.free += 1;
        slab.dirty = true;
        if slab.free == class.blocks_per_slab() && self.partial.len() > 1 {
            self.slabs.remove(&first);
            self.partial.retain(|&other| other != first);
            return Some(first);
        }
        if !slab.listed {
            slab.listed = true;
            self.partial.push(first);
        }
        None
    }

    /// Whether there are blocks whose slab was not known when they were freed.
    pub(super) fn has_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    /// Empties the list of blocks whose slab was not known when they were freed.
    pub(super) fn take_loose(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.loose)
    }

    /// Writes the bitmaps that changed into their slabs and flushes them; the caller fences.
    pub(super) fn save<D: Domain>(&mut self, pool: &Pool<D>, class: ClassId) {
        for (&first, slab) in &mut self.slabs {
            if !std::mem::take(&mut slab.dirty) {
                continue;
            }
            let start = bitmap_start(first);
            let Some(cells) = pool.try_slice(start, class.bitmap_words()) else { continue };
            for (cell, &word) in cells.iter().zip(&slab.bitmap) {
                cell.store(pool.domain(), word);
            }
            // All words first: one flush per line, not per word.
            pool.domain().flush(cells);
        }
    }

    pub(super) fn blocks_in_use(&self) -> u64 {
        let count = |slab: &Slab| -> u64 {
            slab.bitmap.iter().map(|word| u64::from(word.count_ones())).sum()
        };
        self.slabs.values().map(count).sum()
    }

    /// Slabs of which other blocks would be handed out than their bitmaps have free.
    pub(super) fn miscounted(&self, class: ClassId) -> Vec<ReachabilityProblem> {
        // A block that was freed before its slab was known is in use as far as the slab's bitmap goes.
        let free_twice = |first: u32, slab: &Slab| {
            let blocks = self.loose.iter().filter_map(|&loose| class.index_in_slab(first, loose));
            blocks.filter(|block| slab.bitmap[block / 64] & 1 << (block % 64) == 0).count()
        };
        let mut partial = self.partial.clone();
        partial.sort_unstable();
        let listings = |first: u32| {
            let begin = partial.partition_point(|&other| other < first);
            partial[begin..].iter().take_while(|&&other| other == first).count()
        };
        let miscount = |(&first, slab): (&u32, &Slab)| {
            let in_use: usize = slab.bitmap.iter().map(|word| word.count_ones() as usize).sum();
            let free = class.blocks_per_slab().saturating_sub(in_use);
            let given = listings(first) * slab.free + free_twice(first, slab);
            ReachabilityProblem::miscount(first, free as u64, given as u64)
        };
        self.slabs.iter().filter_map(miscount).collect()
    }

    /// The bitmap of blocks in use of the slab at `first`; empty if there is none.
    pub(super) fn bitmap_of(&self, first: u32) -> &[u64] {
        self.slabs.get(&first).map_or(&[], |slab| &slab.bitmap)
    }

    /// Each slab's bitmap of blocks in use.
    pub(super) fn bitmaps(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.slabs.iter().map(|(&first, slab)| (first, slab.bitmap.as_slice()))
    }
}

fn saved_bitmap<D: Domain>(
    pool: &Pool<D>,
    class: ClassId,
    first: u32,
) -> impl Iterator<Item = &PCell<u64>> {
    let start = bitmap_start(first).bits();
    (0..class.bitmap_words())
        .filter_map(move |word| pool.try_at(Link::from_bits(start + 8 * word as u64)))
}

/// Where the bitmap of the slab that begins at chunk `first` is saved.
fn bitmap_start(first: u32) -> Link<PCell<u64>> {
    Link::from_bits(u64::from(first) * crate::region::EXTENT_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hardware;

    #[test]
    fn a_slab_that_is_not_listed_or_counts_its_free_blocks_wrong_is_found() {
        let class = ClassId::for_bytes(100).unwrap();
        let mut slabs = ClassSlabs::default();
        slabs.adopt_empty(class, 3);
        slabs.take(&Hardware::detect(), class, &mut Vec::new());
        assert_eq!(slabs.miscounted(class), []);
        let free = class.blocks_per_slab() - slabs.blocks_in_use() as usize;
        let found = |slabs: &ClassSlabs, listed: usize| {
            let miscount = ReachabilityProblem::miscount(3, free as u64, listed as u64);
            assert_eq!(slabs.miscounted(class), miscount.into_iter().collect::<Vec<_>>());
        };
        slabs.slabs.get_mut(&3).unwrap().free -= 1;
        found(&slabs, free - 1);
        slabs.partial.clear();
        found(&slabs, 0);
        slabs.loose.push(class.offset_of(3, class.blocks_per_slab() - 1));
        found(&slabs, 1);
    }
}
