//! What the engine promises, on this machine.

mod backup;
mod compaction;
mod concurrency;
mod damage;
mod dropped_meanwhile;
mod expiry;
mod failures;
mod formats;
mod full_disk;
mod harness;
mod history;
mod index_tables;
mod loading;
mod long_values;
mod memory_faults;
mod metrics;
mod model;
mod placements;
mod recovery;
mod salvage;
mod scans;
mod serializability;
mod tables;
mod together;
mod transactions;

// Compiled already.
use lapis_compiled_indexes as _;
