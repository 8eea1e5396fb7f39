//! What an index writes beside what it flushes: the counts that were published of P-CLHT.
//!
//! Each bucket of P-CLHT has its lock in the same cache line as its keys. An insert flushes the line
//! with the lock held; giving the lock back makes the line dirty once more, and nobody flushes that:
//! it reaches the memory controller when the caches cast it out.

use std::sync::Arc;

use lapis_device::{CacheShape, HierarchyShape, MachineShape, Profile};
use lapis_index::{Index, IndexOptions, PClht};

use super::experiments::{Figures, figure};
use crate::experiment::ExperimentError;
use crate::experiment::meter::{Meter, ModelMeter};
use crate::index_experiment::ROOT_NAME;
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
    let shape = MachineShape { caches, ..machine };
    let (meter, pool) = ModelMeter::with_pool(shape, 64 * MIB, 64 * MIB)?;
    let options = IndexOptions { expected_entries: ENTRIES, ..IndexOptions::default() };
    let index = PClht::<_, u64>::create_named(&Arc::new(pool), ROOT_NAME, &options)?;
    let insert = |keys: std::ops::Range<u64>| -> Result<(), ExperimentError> {
        for key in keys {
            let _ = index.insert(&scatter(key), key)?;
        }
        Ok(())
    };
    meter.machine().set_counting(false);
    insert(0..FILLED)?;
    meter.machine().set_counting(true);
    insert(FILLED..FILLED + COUNTED)?;
    let ((), section) = meter.section(1, || insert(FILLED + COUNTED..FILLED + 2 * COUNTED))?;
    let how = "inserts of scattered keys into a table that does not grow, twenty times the caches";
    Ok(vec![
        figure(
            "p-clht/wpq",
            "P-CLHT, insert, one flush of key and value",
            "WPQ inserts",
            section.per_operation(COUNTED).wpq_inserts,
            how,
        ),
        figure(
            "p-clht/eviction",
            "P-CLHT, insert, of them lines with a lock cast out",
            "WPQ inserts",
            section.counts().wpq_eviction as f64 / COUNTED as f64,
            how,
        ),
    ])
}
