//! What an engine in use can tell of itself: where its bytes are, what its caches are worth, what commits take.

mod counters;
mod latencies;

use std::time::{Duration, Instant};

use lapis_blocks::block_log::BlockLogStatistics;
use lapis_buffer::{BufferManager, MigrationStatistics, ResidentPages, Statistics};
use lapis_pmem::Domain;

pub(crate) use counters::ShardedCounter;
pub use latencies::Latencies;
pub(crate) use latencies::LatencyCounters;

use crate::engine::Engine;

/// What is counted while an engine is in use. Who counts writes to memory that few others write to, and takes no
/// lock.
#[derive(Debug)]
pub(crate) struct Counters {
    opened: Instant,
    /// Descents of trees for somebody's keys: as many leaves were asked for.
    pub(crate) leaf_accesses: ShardedCounter,
    /// Bytes of keys and values that were committed or loaded.
    pub(crate) written_bytes: ShardedCounter,
    /// Of commits that waited for the log.
    pub(crate) commits: LatencyCounters,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            opened: Instant::now(),
            leaf_accesses: ShardedCounter::default(),
            written_bytes: ShardedCounter::default(),
            commits: LatencyCounters::default(),
        }
    }
}

/// Bytes of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierBytes {
    /// Of pages that are there.
    pub used: u64,
    /// That there is room for; on the device as far as it has grown.
    pub capacity: u64,
}

/// What an engine tells of itself, since it was opened or between two moments ([`Metrics::since`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// How long that was.
    pub elapsed: Duration,
    /// In DRAM, now.
    pub dram: TierBytes,
    /// In persistent memory, now.
    pub persistent_memory: TierBytes,
    /// On the device of the pages, now.
    pub device: TierBytes,
    /// Leaves that were asked for; by scans, about.
    pub leaf_accesses: u64,
    /// Pages taken from persistent memory into DRAM.
    pub loads_from_persistent_memory: u64,
    /// Pages that were read there and stayed there, with [`Placement::Spitfire`](crate::Placement::Spitfire): each time.
    pub reads_in_persistent_memory: u64,
    /// What chance has decided since the engine was opened, if it decides.
    pub migration: Option<MigrationStatistics>,
    /// Pages read from the device.
    pub loads_from_device: u64,
    /// Pages that made room for others in DRAM.
    pub evictions_from_dram: u64,
    /// Pages that made room for others in persistent memory.
    pub evictions_from_persistent_memory: u64,
    /// Pages that left DRAM and entered persistent memory.
    pub admissions: u64,
    /// Pages that left DRAM and did not enter.
    pub denials: u64,
    /// Bytes of the log's records.
    pub log_bytes: u64,
    /// Bytes of the log that an opening after a crash would read, now.
    pub bytes_to_redo: u64,
    /// How long that would take, as it is estimated: by what was measured at the last opening if that had enough to read.
    pub time_to_redo: Duration,
    /// Commits that waited for the log, and how long they took.
    pub commits: Latencies,
    /// Bytes of the keys and values that were committed or loaded.
    pub written_bytes: u64,
    /// Bytes written to the devices for that.
    pub device_written_bytes: u64,
}

fn ratio(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

impl Metrics {
    /// How many of the leaves that were asked for were in DRAM; none if none was asked for. Inner pages are
    /// loaded too, and seldom, and count against it.
    pub fn dram_hit_ratio(&self) -> Option<f64> {
        let others = self.loads_from_device + self.uses_of_persistent_memory();
        ratio(self.leaf_accesses.saturating_sub(others), self.leaf_accesses)
    }

    /// How many of the pages that were not in DRAM were in persistent memory; none if all were in DRAM.
    pub fn persistent_memory_hit_ratio(&self) -> Option<f64> {
        let hits = self.uses_of_persistent_memory();
        ratio(hits, self.loads_from_device + hits)
    }

    fn uses_of_persistent_memory(&self) -> u64 {
        self.loads_from_persistent_memory + self.reads_in_persistent_memory
    }

    /// Bytes of the log's records a second.
    pub fn log_bytes_per_second(&self) -> f64 {
        self.log_bytes as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Bytes written to the devices for each byte of keys and values; none if none was written.
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device_written_bytes, self.written_bytes)
    }

    /// What happened since these, which are earlier ones of the same engine. What is *now* stays so.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        Self {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            dram: self.dram,
            persistent_memory: self.persistent_memory,
            device: self.device,
            leaf_accesses: less(|it| it.leaf_accesses),
            loads_from_persistent_memory: less(|it| it.loads_from_persistent_memory),
            reads_in_persistent_memory: less(|it| it.reads_in_persistent_memory),
            migration: self.migration,
            loads_from_device: less(|it| it.loads_from_device),
            evictions_from_dram: less(|it| it.evictions_from_dram),
            evictions_from_persistent_memory: less(|it| it.evictions_from_persistent_memory),
            admissions: less(|it| it.admissions),
            denials: less(|it| it.denials),
            log_bytes: less(|it| it.log_bytes),
            bytes_to_redo: self.bytes_to_redo,
            time_to_redo: self.time_to_redo,
            commits: self.commits.since(&earlier.commits),
            written_bytes: less(|it| it.written_bytes),
            device_written_bytes: less(|it| it.device_written_bytes),
        }
    }
}

impl<D: Domain> Engine<D> {
    /// What the engine can tell of itself since it was opened. Looks at every frame of both tiers.
    pub fn metrics(&self) -> Metrics {
        let shared = self.shared();
        let (manager, counters) = (&shared.manager, &shared.counters);
        let Statistics { loads, evictions, tier, .. } = manager.statistics();
        let BlockLogStatistics { payload_bytes, written_bytes, .. } =
            shared.log.block_log().statistics();
        let space = manager.space();
        let pages_written = space.map_or(0, |space| space.device_counts().written_bytes);
        Metrics {
            elapsed: counters.opened.elapsed(),
            dram: dram_bytes(manager),
            persistent_memory: persistent_memory_bytes(manager),
            device: device_bytes(manager),
            leaf_accesses: counters.leaf_accesses.sum(),
            loads_from_persistent_memory: tier.loads,
            reads_in_persistent_memory: tier.migration.map_or(0, |it| it.dram_reads.otherwise),
            migration: tier.migration,
            loads_from_device: loads,
            evictions_from_dram: evictions,
            evictions_from_persistent_memory: tier.evictions,
            admissions: tier.admissions,
            denials: tier.denials,
            log_bytes: payload_bytes,
            bytes_to_redo: shared.bytes_to_redo(),
            time_to_redo: shared.time_to_redo(),
            commits: counters.commits.latencies(),
            written_bytes: counters.written_bytes.sum(),
            device_written_bytes: pages_written + written_bytes,
        }
    }
}

fn dram_bytes<D: Domain>(manager: &BufferManager<D>) -> TierBytes {
    let kinds = manager.resident_pages();
    let bytes = |of: fn(&ResidentPages) -> usize| {
        kinds.iter().map(|kind| (of(kind) * kind.frame_bytes) as u64).sum()
    };
    TierBytes { used: bytes(|kind| kind.pages), capacity: bytes(|kind| kind.frames) }
}

fn persistent_memory_bytes<D: Domain>(manager: &BufferManager<D>) -> TierBytes {
    let (used, frames) = manager.resident_pages_in_tier();
    let [used, capacity] = [used, frames].map(|pages| (pages * manager.page_bytes()) as u64);
    TierBytes { used, capacity }
}

fn device_bytes<D: Domain>(manager: &BufferManager<D>) -> TierBytes {
    manager.space().map_or_else(TierBytes::default, |space| TierBytes {
        used: space.used_pages() * space.page_bytes() as u64,
        capacity: space.device_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_what_happened_in_between() {
        let earlier = Metrics {
            leaf_accesses: 100,
            loads_from_device: 90,
            written_bytes: 10,
            device_written_bytes: 100,
            ..Metrics::default()
        };
        let later = Metrics {
            elapsed: Duration::from_secs(2),
            leaf_accesses: 200,
            loads_from_device: 95,
            loads_from_persistent_memory: 10,
            reads_in_persistent_memory: 5,
            log_bytes: 300,
            written_bytes: 20,
            device_written_bytes: 130,
            ..Metrics::default()
        };
        let between = later.since(&earlier);
        assert_eq!(between.dram_hit_ratio(), Some(0.8));
        assert_eq!(between.persistent_memory_hit_ratio(), Some(0.75));
        assert_eq!(between.write_amplification(), Some(3.0));
        assert_eq!(between.log_bytes_per_second().round(), 150.0);
    }

    #[test]
    fn of_nothing_there_is_no_ratio() {
        let nothing = Metrics::default();
        assert_eq!(nothing.dram_hit_ratio(), None);
        assert_eq!(nothing.persistent_memory_hit_ratio(), None);
        assert_eq!(nothing.write_amplification(), None);
    }
}
