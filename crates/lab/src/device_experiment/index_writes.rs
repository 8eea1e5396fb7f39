//! What an index writes beside what it flushes: the counts that were published of P-CLHT.
//!
//! Each bucket of P-CLHT has its lock in the same cache line as its keys. An insert flushes the line
//! with the lock held; giving the lock back makes the line dirty once more, and nobody flushes that:
//! it reaches the memory controller when the caches cast it out.

use lapis_device::{CacheShape, Config, HierarchyShape, MachineShape, Modelled, Profile};
use lapis_index::{Index, IndexOptions, PClht};
use lapis_pmem::{Pool, Region};

use super::DeviceError;
use super::experiments::{Figures, figure};
use crate::index_experiment::ExperimentError;
use crate::index_experiment::engine::create;
use crate::keys::scatter;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// The table takes so many entries without growing: 16 MiB of buckets, many times the caches.
const ENTRIES: usize = 400_000;
/// Entries before the caches are warmed; so many more warm them, and so many are counted.
const FILLED: u64 = 100_000;
const COUNTED: u64 = 30_000;

/// WPQ inserts of an insert into a table that does not grow.
pub(super) fn index_writes(profile: &Profile) -> Figures {
    // Smaller caches of the same shape, so that a small table is many times larger.
    let machine = profile.machine();
    let level = |capacity_bytes, ways| CacheShape { capacity_bytes, ways };
    let caches = HierarchyShape {
        l1: level(8 * KIB, 8),
        l2: level(128 * KIB, 16),
        l3: level(704 * KIB, 11),
        ..machine.caches
    };
    let region = Region::anonymous(64 * MIB, 64 * MIB)?;
    let counting = Some(MachineShape { caches, ..machine });
    let machine = Modelled::over(&region, Config { counting, ..Config::default() });
    let failed = |error: ExperimentError| DeviceError::Index(Box::new(error));
    let pool = Pool::create(region, machine.clone()).map_err(|error| failed(error.into()))?;
    let options = IndexOptions { expected_entries: ENTRIES, ..IndexOptions::default() };
    let index: PClht<Modelled, u64> = create(pool, &options).map_err(failed)?;
    let insert = |keys: std::ops::Range<u64>| -> Result<(), DeviceError> {
        for key in keys {
            let _ = index.insert(&scatter(key), key).map_err(|error| failed(error.into()))?;
        }
        Ok(())
    };
    machine.set_counting(false);
    insert(0..FILLED)?;
    machine.set_counting(true);
    insert(FILLED..FILLED + COUNTED)?;
    let before = machine.counts();
    insert(FILLED + COUNTED..FILLED + 2 * COUNTED)?;
    let counts = machine.counts() - before;
    let how = "inserts of scattered keys into a table that does not grow, twenty times the caches";
    let each = |count: u64| count as f64 / COUNTED as f64;
    Ok(vec![
        figure(
            "p-clht/wpq",
            "P-CLHT, insert, one flush of key and value",
            "WPQ inserts",
            each(counts.wpq_inserts()),
            how,
        ),
        figure(
            "p-clht/eviction",
            "P-CLHT, insert, of them lines with a lock cast out",
            "WPQ inserts",
            each(counts.wpq_eviction),
            how,
        ),
    ])
}
