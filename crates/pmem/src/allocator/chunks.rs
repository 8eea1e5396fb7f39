//! Chunks: the pool's 64 KiB pieces, their descriptors, and which of them are free.

use std::collections::{BTreeMap, BTreeSet};

use crate::cell::{Link, PCell};
use crate::commit::Committed;
use crate::domain::{self, Domain};
use crate::pool::Pool;
use crate::reachable::ReachabilityProblem;
use crate::region::{EXTENT_BYTES, Region, RegionError};

use super::classes::ClassId;
use super::mutants;

/// Chunks of segment 0: as many as 60 KiB of descriptors name.
const FIRST_SEGMENT_CHUNKS: u32 = ((EXTENT_BYTES - FIRST_TABLE_OFFSET) / 8) as u32;
const FIRST_TABLE_OFFSET: usize = 4096;
/// Chunks of every later segment: 64 GiB.
const SEGMENT_CHUNKS: u32 = 1 << 20;
/// Chunks that the table of a later segment takes: 8 MiB.
const SEGMENT_TABLE_CHUNKS: u32 = SEGMENT_CHUNKS * 8 / EXTENT_BYTES as u32;

/// How far the persistent high-water mark is moved ahead of need, at most.
const HIGH_WATER_STEP: u32 = 16;

/// Descriptors looked at in one step of discovery.
const DISCOVER_STEP: u32 = 256;

pub(crate) const FREE: u8 = 0;
pub(crate) const SLAB: u8 = 1;
pub(crate) const LARGE: u8 = 2;
/// In no table: what a damaged descriptor is taken for. Its chunks are in use, and belong to nobody.
pub(super) const UNKNOWN: u8 = 3;

/// What a chunk is the beginning of. See the layout in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor(u64);

impl Descriptor {
    const FREE: Self = Self(0);

    pub(crate) fn slab(class: ClassId, chunks: u32) -> Self {
        Self(u64::from(SLAB) | (class.index() as u64) << 8 | u64::from(chunks) << 32)
    }
    pub(crate) fn large(chunks: u32) -> Self {
        Self(u64::from(LARGE) | u64::from(chunks) << 32)
    }
    pub(crate) fn kind(self) -> u8 {
        self.0 as u8
    }
    pub(crate) fn class(self) -> Option<ClassId> {
        ClassId::from_index((self.0 >> 8) as u8)
    }
    pub(crate) fn chunks(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Where the descriptor of `chunk` is.
fn descriptor_offset(chunk: u32) -> u64 {
    let start = segment_start(chunk);
    let table = u64::from(start) * EXTENT_BYTES as u64;
    table.max(FIRST_TABLE_OFFSET as u64) + 8 * u64::from(chunk - start)
}

/// If `chunk` begins a segment, how many chunks its table takes.
fn table_chunks_at(chunk: u32) -> u32 {
    match chunk {
        0 => 1,
        _ if chunk < FIRST_SEGMENT_CHUNKS => 0,
        _ if (chunk - FIRST_SEGMENT_CHUNKS).is_multiple_of(SEGMENT_CHUNKS) => SEGMENT_TABLE_CHUNKS,
        _ => 0,
    }
}

/// The first chunk of the segment that holds `chunk`.
fn segment_start(chunk: u32) -> u32 {
    match chunk.checked_sub(FIRST_SEGMENT_CHUNKS) {
        None => 0,
        Some(beyond) => chunk - beyond % SEGMENT_CHUNKS,
    }
}

/// The first chunk of the segment after the one that holds `chunk`.
fn next_segment(chunk: u32) -> u32 {
    if chunk < FIRST_SEGMENT_CHUNKS {
        return FIRST_SEGMENT_CHUNKS;
    }
    let segment = (chunk - FIRST_SEGMENT_CHUNKS) / SEGMENT_CHUNKS + 1;
    FIRST_SEGMENT_CHUNKS.saturating_add(segment.saturating_mul(SEGMENT_CHUNKS))
}

/// What begins at chunk `at`, which no run covers and no table. Runs end at the high-water mark (A3), or before it, and
/// where their segment does; a slab has as many chunks as its class says.
fn run_at<D: Domain>(pool: &Pool<D>, at: u32, high_water: u32) -> Descriptor {
    let load = |chunk| Descriptor(descriptor_cell(pool, chunk).load(pool.domain()));
    let (found, end) = (load(at), high_water.min(next_segment(at)));
    if found == Descriptor::FREE {
        return found;
    }
    let class = found.class().filter(|_| found.kind() == SLAB);
    let expected = match class {
        Some(class) => Descriptor::slab(class, class.slab_chunks()),
        None => Descriptor::large(found.chunks().max(1)),
    };
    let room = end.saturating_sub(at).max(1);
    if found == expected && found.chunks() <= room {
        return found;
    }
    // How far it goes is not known: but not beyond the next descriptor, and to there nothing is known to be free.
    let behind = (1..room).take_while(|&more| load(at + more) == Descriptor::FREE).count();
    Descriptor(u64::from(UNKNOWN) | (behind as u64 + 1) << 32)
}

fn descriptor_cell<D: Domain>(pool: &Pool<D>, chunk: u32) -> &PCell<u64> {
    pool.at(Link::from_bits(descriptor_offset(chunk)))
}

pub(super) fn format<D: Domain>(region: &Region, domain: &D) {
    for page in FIRST_TABLE_OFFSET / 4096..EXTENT_BYTES / 4096 {
        // SAFETY: the first chunk is mapped (pools have at least two) and nobody else has it yet.
        unsafe { domain.zero_nontemporal(region.base().add(page * 4096), 4096) };
    }
}

/// Whether no chunk from `end` on belongs to a block or a table, of those below `high_water`; the chunks before
/// `end` are mapped. What was never used, and what was freed, has descriptors of zero (A2, A3).
pub(crate) fn is_unused_from<D: Domain>(
    region: &Region,
    domain: &D,
    end: u32,
    high_water: u32,
) -> bool {
    let mut at = 0;
    while at < high_water {
        let tables = table_chunks_at(at);
        let mut last = at.saturating_add(tables);
        let mut used = tables > 0;
        if !used {
            let offset = descriptor_offset(at) as usize;
            // SAFETY: its table lies before `end` (checked when the segment began, below), so it is mapped; any bits
            // are a word.
            let cell = unsafe { &*region.base().add(offset).cast::<PCell<u64>>() };
            let descriptor = Descriptor(cell.load(domain));
            used = descriptor != Descriptor::FREE;
            last = at.saturating_add(descriptor.chunks().max(1));
        }
        // No run goes over a table: of one that says so it is not known where it ends, and what follows.
        if used && (last > end || last > next_segment(at)) {
            return false;
        }
        at = last;
    }
    true
}

/// Which chunks are free, as far as known.
#[derive(Debug)]
pub(super) struct ChunkMap {
    /// Free runs by first chunk; neighbours are merged.
    free: BTreeMap<u32, u32>,
    /// The next chunk that was never used.
    next_fresh: u32,
    /// The persistent high-water mark (A3).
    high_water: u32,
    /// Descriptors in `undiscovered.0..undiscovered.1` have not been read since the pool was opened.
    undiscovered: (u32, u32),
    /// Whether there was a crash, and it has not been reclaimed since: which blocks of the slabs are free is
    /// not known. Which chunks are free is: those that no descriptor has (A1, A2).
    needs_reclaim: bool,
}

impl ChunkMap {
    pub(super) fn open(high_water: u32, bitmaps_valid: bool) -> Self {
        // No run ends in a chunk table: a mark there, of before they were kept out of it or damaged, is as good as one before it.
        let high_water = match segment_start(high_water) {
            start if high_water - start < table_chunks_at(start) => start,
            _ => high_water,
        };
        Self {
            free: BTreeMap::new(),
            next_fresh: high_water,
            high_water,
            undiscovered: (1, high_water),
            needs_reclaim: !bitmaps_valid,
        }
    }

    pub(super) fn needs_reclaim(&self) -> bool {
        self.needs_reclaim
    }

    pub(super) fn high_water(&self) -> u32 {
        self.high_water
    }

    /// Reads some descriptors that have not been read since the pool was opened: chunks that none of them has
    /// are free. `slab` is told of each slab whose saved bitmap counts (A4). Returns whether there were any to read.
    pub(super) fn discover<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        mut slab: impl FnMut(ClassId, u32),
    ) -> bool {
        let (mut at, end) = self.undiscovered;
        if at >= end {
            return false;
        }
        let stop = at.saturating_add(DISCOVER_STEP).min(end);
        while at < stop {
            let tables = table_chunks_at(at);
            if tables > 0 {
                at += tables;
                continue;
            }
            let descriptor = run_at(pool, at, self.high_water);
            let count = descriptor.chunks().max(1);
            match (descriptor.kind(), descriptor.class()) {
                (SLAB, Some(class)) if !self.needs_reclaim => slab(class, at),
                (FREE, _) if pool.domain().commits(mutants::FREE_CHUNKS_UNNOTED) => {}
                (FREE, _) => self.add_free(at, 1),
                (UNKNOWN, _) => {
                    tracing::warn!(chunk = at, count, "a chunk's descriptor is damaged")
                }
                _ => {}
            }
            at = at.saturating_add(count);
        }
        self.undiscovered.0 = at;
        true
    }

    /// Takes a run of `count` chunks and makes `descriptor` durable for it (A1).
    pub(super) fn take_run<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        count: u32,
        descriptor: Descriptor,
    ) -> Result<u32, RegionError> {
        let fit = self.free.iter().find(|&(_, &length)| length >= count);
        let first = match fit.map(|(&first, &length)| (first, length)) {
            Some((first, length)) => {
                pool.domain().happens("chunks are used again");
                self.free.remove(&first);
                if length > count {
                    self.free.insert(first + count, length - count);
                }
                first
            }
            None => self.take_fresh(pool, count)?,
        };
        let cell = descriptor_cell(pool, first);
        let _covered = cell.publish(pool.domain(), descriptor.0).flush();
        // A1: blocks of the slab may be published by other threads, whose fences do not cover this.
        domain::fence_for_other_threads(pool.domain());
        Ok(first)
    }

    /// Takes a run of which chunks were never used: all, or those behind a free run that is too short by itself.
    fn take_fresh<D: Domain>(&mut self, pool: &Pool<D>, count: u32) -> Result<u32, RegionError> {
        let is_joined = |&(first, length): &(u32, u32)| {
            first + length == self.next_fresh && first + count <= next_segment(first)
        };
        let last_free = self.free.last_key_value().map(|(&first, &length)| (first, length));
        let joined = last_free.filter(is_joined).map(|(first, _)| first);
        let mut first = joined.unwrap_or(self.next_fresh);
        let segment_end = next_segment(first);
        if first + count > segment_end {
            first = segment_end;
        }
        first += table_chunks_at(first);
        let end = first
            .checked_add(count)
            .ok_or(RegionError::Full { capacity_bytes: pool.region().reserved_bytes() })?;
        let end_bytes = end as usize * EXTENT_BYTES;
        if end_bytes > pool.region().mapped_bytes() {
            grow(pool, end_bytes)?;
        }
        let table_start = first - first.saturating_sub(self.next_fresh).min(SEGMENT_TABLE_CHUNKS);
        if table_chunks_at(table_start) > 0 {
            pool.domain().happens("a further segment of the chunk table");
            // A device may hold anything here; a file holds zeroes and stays so.
            let table = Link::<PCell<u64>>::from_bits(descriptor_offset(table_start));
            let bytes = SEGMENT_TABLE_CHUNKS as usize * EXTENT_BYTES;
            let table = pool.address_of(table.offset());
            if !pool.domain().commits(mutants::TABLE_NOT_ZEROED) {
                // SAFETY: within the pool, which was grown to `end` chunks, and beyond everything that
                // was ever used.
                unsafe { pool.domain().zero_nontemporal(table, bytes) };
                pool.domain().fence();
            }
        }
        if end > self.high_water {
            pool.domain().happens("the high-water mark moves");
            let mapped = (pool.region().mapped_bytes() / EXTENT_BYTES) as u32;
            // Not into the next segment's table: what begins at the mark when the pool is opened is a table or a run.
            let mark = end.saturating_add(HIGH_WATER_STEP).min(mapped).min(next_segment(first));
            let header = pool.header();
            // H5, A3: durable before anything beyond the old mark is used.
            header.storage_bytes.store_ordered(pool.domain(), pool.region().mapped_bytes() as u64);
            let _mutant = pool.domain().omitting(mutants::DOUBLE_ALLOCATION_AFTER_CRASH);
            let _: Committed = header.high_water.publish(pool.domain(), mark.into()).persist();
            self.high_water = mark;
        }
        // What was skipped to reach the next segment is free.
        let skipped_to = if first < segment_end { first } else { segment_end };
        let skipped = skipped_to.saturating_sub(self.next_fresh);
        if first >= segment_end && skipped > 0 {
            self.add_free(self.next_fresh, skipped);
        }
        if let Some(joined) = joined {
            pool.domain().happens("chunks are used again");
            self.free.remove(&joined);
        }
        self.next_fresh = end;
        Ok(first)
    }

    /// Free chunks: known runs and those mapped and never used.
    pub(super) fn free_chunks<D: Domain>(&self, pool: &Pool<D>) -> u32 {
        let mapped = (pool.region().mapped_bytes() / EXTENT_BYTES) as u32;
        let known: u32 = self.free.values().sum();
        let mut fresh = mapped.saturating_sub(self.next_fresh);
        let mut segment = match table_chunks_at(self.next_fresh) {
            0 => next_segment(self.next_fresh),
            _ => self.next_fresh,
        };
        while segment < mapped {
            // Its table comes first.
            fresh -= SEGMENT_TABLE_CHUNKS.min(mapped - segment);
            segment = next_segment(segment);
        }
        known.saturating_add(fresh)
    }

    /// Maps storage until `count` chunks are free.
    pub(super) fn grow_by<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        count: u32,
    ) -> Result<(), RegionError> {
        loop {
            let missing = count.saturating_sub(self.free_chunks(pool)) as usize;
            if missing == 0 {
                return Ok(());
            }
            grow(pool, pool.region().mapped_bytes() + missing * EXTENT_BYTES)?;
        }
    }

    /// Gives a run back. Its descriptor is zeroed and durable before the chunks can be used (A2).
    pub(super) fn free_run<D: Domain>(&mut self, pool: &Pool<D>, first: u32, count: u32) {
        pool.domain().happens("a run of chunks is free");
        let _mutant = pool.domain().omitting(mutants::FREED_DESCRIPTOR_NOT_FLUSHED);
        let cell = descriptor_cell(pool, first);
        let _covered = cell.publish(pool.domain(), Descriptor::FREE.0).flush();
        // A2: the run may be taken by another thread, whose fence does not cover this.
        domain::fence_for_other_threads(pool.domain());
        // What has not been discovered will be, and is found free then: it must not be so twice, or what
        // lies before it and is free too makes two runs of it.
        let (undiscovered, end) = self.undiscovered;
        if !(undiscovered..end).contains(&first) {
            self.add_free(first, count);
        }
    }

    /// Notes that a run is free whose descriptors are zero and durable.
    pub(super) fn add_free(&mut self, mut first: u32, mut count: u32) {
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            first = before;
            count += length;
        }
        if let Some(length) = self.free.remove(&(first + count)) {
            count += length;
        }
        self.free.insert(first, count);
    }

    /// Every run below the high-water mark that is known to the descriptors, free ones and damaged ones included,
    /// in order.
    pub(super) fn survey<D: Domain>(&self, pool: &Pool<D>) -> Vec<(u32, Descriptor)> {
        // Of a pool that is not large, as many as there can be.
        let mut runs = Vec::with_capacity(self.next_fresh.min(64) as usize);
        let mut at = 0;
        while at < self.next_fresh {
            let tables = table_chunks_at(at);
            if tables > 0 {
                at += tables;
                continue;
            }
            let descriptor = run_at(pool, at, self.high_water);
            runs.push((at, descriptor));
            at = at.saturating_add(descriptor.chunks().max(1));
        }
        runs
    }

    /// Where the free runs are others than those that no descriptor has, of a [`ChunkMap::survey`].
    pub(super) fn miscounted(&self, runs: &[(u32, Descriptor)]) -> Vec<ReachabilityProblem> {
        let mut free = BTreeMap::<u32, u32>::new();
        for &(chunk, _) in runs.iter().filter(|(_, descriptor)| descriptor.kind() == FREE) {
            match free.last_entry() {
                Some(mut run) if run.key() + run.get() == chunk => *run.get_mut() += 1,
                _ => _ = free.insert(chunk, 1),
            }
        }
        let firsts: BTreeSet<_> = free.keys().chain(self.free.keys()).copied().collect();
        let miscount = |first: u32| {
            let [free, listed] =
                [&free, &self.free].map(|runs| runs.get(&first).map_or(0, |&count| count.into()));
            ReachabilityProblem::miscount(first, free, listed)
        };
        firsts.into_iter().filter_map(miscount).collect()
    }

    /// Forgets what is free, before a reclaim says so anew; afterwards nothing is left of that.
    pub(super) fn forget(&mut self) {
        self.free.clear();
        self.undiscovered = (0, 0);
        self.needs_reclaim = false;
    }

    pub(super) fn large_bytes<D: Domain>(&self, pool: &Pool<D>) -> u64 {
        let runs = self.survey(pool);
        let large = runs.iter().filter(|(_, descriptor)| descriptor.kind() == LARGE);
        large.map(|(_, descriptor)| u64::from(descriptor.chunks()) * EXTENT_BYTES as u64).sum()
    }
}

/// Grows the region to hold `end_bytes`, which is durable before anybody claims it (H5): by a quarter of what there is, at least 1 MiB and at most
/// 1 GiB, or by exactly what is needed if there is no room for more.
fn grow<D: Domain>(pool: &Pool<D>, end_bytes: usize) -> Result<(), RegionError> {
    pool.domain().happens("the storage grows");
    let mapped = pool.region().mapped_bytes();
    let step = (mapped / 4).clamp(1 << 20, 1 << 30);
    let generous = end_bytes.max(mapped + step);
    match pool.region().grow_to(generous) {
        Err(RegionError::Full { .. } | RegionError::NoSpace { .. }) if generous > end_bytes => {
            pool.region().grow_to(end_bytes)
        }
        other => other,
    }?;
    let is_durable = !pool.domain().commits(mutants::SIZE_CLAIMED_EARLY);
    pool.domain().note_storage(pool.region().mapped_bytes(), is_durable);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;

    #[test]
    #[cfg_attr(miri, ignore = "memory")]
    fn a_run_that_is_said_to_go_over_a_chunk_table_hides_nothing_behind_it() {
        let table = FIRST_SEGMENT_CHUNKS..FIRST_SEGMENT_CHUNKS + SEGMENT_TABLE_CHUNKS;
        let (end, high_water) = (table.end + 200, table.end + 400);
        let region = Region::anonymous(high_water as usize * EXTENT_BYTES, usize::MAX).unwrap();
        let domain = Hardware::detect();
        let set = |chunk, descriptor: Descriptor| {
            // SAFETY: mapped and aligned; any bits are a word.
            let cell = unsafe {
                &*region.base().add(descriptor_offset(chunk) as usize).cast::<PCell<u64>>()
            };
            cell.store(&domain, descriptor.0);
        };
        let is_unused = || is_unused_from(&region, &domain, end, high_water);
        let before = table.start - 80;
        set(before, Descriptor::large(80));
        assert!(is_unused(), "it ends where the table begins");
        set(table.end + 150, Descriptor::large(100));
        assert!(!is_unused());
        // Damaged: it ends where what is asked for begins.
        set(before, Descriptor::large(end - before));
        assert!(!is_unused());
    }
}
