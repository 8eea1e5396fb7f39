//! What has happened, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lapis_pmem::{Domain, LINE_BYTES};

use super::BufferManager;
use crate::migration::{MigrationStatistics, Migrations};
use crate::page::lines::MINI_LINES;

/// What has happened since the manager was made.
///
/// Pages that are found in DRAM are not counted: that would be a shared word for each access. Who fixes
/// pages knows how often, and subtracts the loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Pages read from the device.
    pub loads: u64,
    /// Pages that made room for others in DRAM.
    pub evictions: u64,
    /// Batches written.
    pub batches: u64,
    /// Pages in them, from DRAM.
    pub pages_written: u64,
    /// References that became frames.
    pub swizzled: u64,
    /// References that became page numbers again.
    pub unswizzled: u64,
    /// Times that somebody had to write pages before going on.
    pub back_pressure: u64,
    /// Attempts that were begun again by [`BufferManager::retry`].
    pub restarts: u64,
    /// Loads for which another child of the same parent was evicted.
    pub loads_beside_evictions: u64,
    /// Frames with changes that neither persistent memory nor the device has, now.
    pub changed_frames: u64,
    /// What concerns persistent memory.
    pub tier: TierStatistics,
}

/// What has happened to pages in persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Pages that were there when it was opened, and are used.
    pub kept: u64,
    /// Pages read from the device that went there, and not into DRAM.
    pub loads_from_ssd: u64,
    /// Pages that were changed there.
    pub writes_in_place: u64,
    /// What chance has decided, if it decides.
    pub migration: Option<MigrationStatistics>,
    /// Pages taken from there into DRAM.
    pub loads: u64,
    /// Those of them that took a mini frame.
    pub mini_loads: u64,
    /// Pages that got a frame of their own size for a mini frame.
    pub promotions: u64,
    /// Pages that entered.
    pub admissions: u64,
    /// Pages that left DRAM and did not enter.
    pub denials: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// Pages written to it.
    pub pages_written: u64,
    /// Lines taken from there into DRAM, of pages that did not come whole.
    pub lines_loaded: u64,
    /// Lines of pages that were there before that were changed and written.
    pub lines_written: u64,
    /// Pages written from it to the device.
    pub pages_to_ssd: u64,
    /// Frames with changes that the device does not have, now.
    pub changed_frames: u64,
}

/// Pages in frames of one size, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentPages {
    /// Pages that are there.
    pub pages: usize,
    /// Frames for them.
    pub frames: usize,
    /// Bytes of a frame.
    pub frame_bytes: usize,
}

macro_rules! counters {
    ($($counter:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $counter: AtomicU64),*
        }

        /// What the counters say at a moment.
        struct Counts {
            $($counter: u64),*
        }

        impl Counters {
            fn counts(&self) -> Counts {
                Counts { $($counter: self.$counter.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    loads, reading_ns, evictions, batches, pages_written, swizzled, unswizzled, back_pressure, restarts,
    loads_beside_evictions,
    tier_kept, tier_loads, tier_mini_loads, tier_admissions, tier_denials, tier_evictions, tier_pages_written,
    tier_lines_written, tier_pages_to_ssd, tier_loads_from_ssd, tier_writes_in_place,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<D: Domain> BufferManager<D> {
    /// Pages in DRAM and the frames for them: whole ones and mini frames. Looks at every frame.
    pub fn resident_pages(&self) -> [ResidentPages; 2] {
        let kind = |frame_bytes| ResidentPages { pages: 0, frames: 0, frame_bytes };
        let mut kinds = [kind(self.page_bytes), kind(MINI_LINES * LINE_BYTES)];
        for frame in &self.frames[..self.clocked] {
            let kind = &mut kinds[usize::from(self.memory.is_mini(frame.block.get()))];
            kind.pages += usize::from(frame.page(&self.domain).is_some());
            kind.frames += 1;
        }
        kinds
    }

    /// Pages in persistent memory, and frames there are for them. Looks at every frame.
    pub fn resident_pages_in_tier(&self) -> (usize, usize) {
        let Some(tier) = self.tier.as_deref() else { return (0, 0) };
        let frames = 0..tier.frames.len();
        let pages = frames.filter(|&frame| tier.frames[frame].page(&self.domain).is_some());
        (pages.count(), tier.frames.len())
    }

    /// How many pages were read from the device so far, and how long that took.
    pub fn time_of_reads(&self) -> (u64, Duration) {
        let Counts { loads, reading_ns, .. } = self.counters.counts();
        (loads, Duration::from_nanos(reading_ns))
    }

    /// What has happened so far.
    pub fn statistics(&self) -> Statistics {
        let counts = self.counters.counts();
        let tier = self.tier.as_deref();
        Statistics {
            loads: counts.loads,
            evictions: counts.evictions,
            batches: counts.batches,
            pages_written: counts.pages_written,
            swizzled: counts.swizzled,
            unswizzled: counts.unswizzled,
            back_pressure: counts.back_pressure,
            restarts: counts.restarts,
            loads_beside_evictions: counts.loads_beside_evictions,
            changed_frames: self.changed_frames.get(&self.domain),
            tier: TierStatistics {
                kept: counts.tier_kept,
                loads_from_ssd: counts.tier_loads_from_ssd,
                writes_in_place: counts.tier_writes_in_place,
                migration: self.migrations.as_ref().map(Migrations::statistics),
                loads: counts.tier_loads,
                mini_loads: counts.tier_mini_loads,
                promotions: self.memory.promotions.load(Ordering::Relaxed),
                admissions: counts.tier_admissions,
                denials: counts.tier_denials,
                evictions: counts.tier_evictions,
                pages_written: counts.tier_pages_written,
                lines_loaded: tier.map_or(0, |tier| tier.lines_loaded()),
                lines_written: counts.tier_lines_written,
                pages_to_ssd: counts.tier_pages_to_ssd,
                changed_frames: tier.map_or(0, |tier| tier.frames.changed(&self.domain)),
            },
        }
    }
}
