//! The memory that characterisation programs run on.

use core::marker::PhantomData;
use std::path::Path;

use lapis_pmem::{LINE_BYTES, Medium, Region, RegionError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::experiment::memory::region_at;
use crate::named::named;

/// Bytes that partitions begin at multiples of: what DIMMs are interleaved by.
const PARTITION_ALIGNMENT: usize = 4096;

/// Memory of this machine, dealt out to workers in partitions.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    bytes: usize,
}

impl Arena {
    /// Anonymous memory of `bytes` bytes, every page of it touched.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn anonymous(bytes: usize) -> Result<Self, RegionError> {
        Ok(Self::over(Region::anonymous(bytes, bytes)?, bytes))
    }

    /// A new file of `bytes` bytes, mapped, which goes with the arena; on a DAX file system that is persistent
    /// memory. Or a device-DAX device, which is overwritten.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn file(path: &Path, bytes: usize) -> Result<Self, RegionError> {
        Ok(Self::over(region_at(path, bytes, bytes)?, bytes))
    }

    fn over(region: Region, bytes: usize) -> Self {
        let bytes = bytes.max(PARTITION_ALIGNMENT).min(region.mapped_bytes());
        let arena = Self { region, bytes: bytes / PARTITION_ALIGNMENT * PARTITION_ALIGNMENT };
        for page in (0..arena.bytes).step_by(PARTITION_ALIGNMENT) {
            // SAFETY: inside mapped memory, which nobody else has.
            unsafe { arena.region.base().add(page).write(1) };
        }
        arena
    }

    /// What the memory lies on.
    pub fn medium(&self) -> Medium {
        self.region.medium()
    }

    /// How much there is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The region, for a modelled machine over it.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Deals all of it out to `workers` workers. There is one deal at a time, so that no two
    /// workers have the same memory.
    ///
    /// # Panics
    /// If there is not a page for each.
    pub fn deal(&mut self, workers: usize) -> Vec<Partition<'_>> {
        let bytes = self.bytes / workers / PARTITION_ALIGNMENT * PARTITION_ALIGNMENT;
        assert!(bytes > 0, "a partition has at least a page");
        (0..workers)
            .map(|worker| Partition {
                // SAFETY: the partitions lie within the region, one after the other.
                base: unsafe { self.region.base().add(worker * bytes) },
                bytes,
                arena: PhantomData,
            })
            .collect()
    }
}

/// A part of an [`Arena`] that one worker has for itself.
#[derive(Debug)]
pub struct Partition<'a> {
    base: *mut u8,
    bytes: usize,
    arena: PhantomData<&'a mut Arena>,
}

// SAFETY: it stands for exclusive access to plain bytes.
unsafe impl Send for Partition<'_> {}

named! {
    /// In what order lines or chunks are visited.
    pub enum Pattern {
        /// The same one every time.
        Same = "same",
        /// One after the other.
        Sequential = "sequential",
        /// Any, each time.
        Random = "random",
    }
}

impl Partition<'_> {
    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of the byte at `offset`.
    ///
    /// # Panics
    /// If `bytes` bytes from there on are not within the partition.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "outside of the partition");
        // SAFETY: checked above.
        unsafe { self.base.add(offset) }
    }

    /// Makes a chain of all lines: the first word of each holds the offset of the next, in an order
    /// of `pattern`. Written directly, so that no model takes note.
    pub(super) fn chain(&mut self, pattern: Pattern, seed: u64) {
        let lines = self.bytes / LINE_BYTES;
        let mut next: Vec<u32> = match pattern {
            Pattern::Same => (0..lines as u32).collect(),
            Pattern::Sequential => (0..lines as u32).map(|at| (at + 1) % lines as u32).collect(),
            Pattern::Random => (0..lines as u32).collect(),
        };
        if pattern == Pattern::Random {
            // Sattolo's shuffle: one cycle through all of them.
            let mut random = SmallRng::seed_from_u64(seed);
            for at in (1..lines).rev() {
                next.swap(at, random.random_range(0..at));
            }
        }
        for (line, next) in next.into_iter().enumerate() {
            let word = self.at(line * LINE_BYTES, LINE_BYTES).cast::<u64>();
            // SAFETY: within the partition, which is borrowed exclusively; lines are aligned.
            unsafe { word.write(u64::from(next) * LINE_BYTES as u64) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines in the order of the chain, until it comes back to the first.
    fn visited(partition: &Partition<'_>) -> Vec<u64> {
        let (mut visited, mut at) = (Vec::new(), 0);
        loop {
            visited.push(at / LINE_BYTES as u64);
            // SAFETY: within the partition, which nobody else has.
            at = unsafe { partition.at(at as usize, 8).cast::<u64>().read() };
            if at == 0 || visited.len() > partition.bytes() {
                return visited;
            }
        }
    }

    #[test]
    fn a_random_chain_visits_every_line_once_in_no_order() {
        let mut arena = Arena::anonymous(1 << 16).unwrap();
        let mut partitions = arena.deal(2);
        partitions[1].chain(Pattern::Random, 7);
        let mut visited = visited(&partitions[1]);
        assert!(!visited.is_sorted());
        visited.sort_unstable();
        assert_eq!(visited, (0..512).collect::<Vec<_>>());
    }

    #[test]
    fn a_sequential_chain_visits_one_line_after_the_other() {
        let mut arena = Arena::anonymous(1 << 16).unwrap();
        let mut partitions = arena.deal(1);
        partitions[0].chain(Pattern::Sequential, 7);
        assert_eq!(visited(&partitions[0]), (0..1024).collect::<Vec<_>>());
    }

    #[test]
    fn partitions_are_disjoint_and_of_whole_pages() {
        let mut arena = Arena::anonymous(1 << 20).unwrap();
        let partitions = arena.deal(3);
        for pair in partitions.windows(2) {
            assert_eq!(pair[0].base.addr() + pair[0].bytes, pair[1].base.addr());
            assert!(pair[0].bytes.is_multiple_of(4096) && pair[0].bytes > 300_000);
        }
    }
}
