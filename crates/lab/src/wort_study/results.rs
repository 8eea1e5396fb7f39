//! What the study finds.

use serde::Serialize;

use super::{Contestant, Latency, StringKind};
use crate::experiment::Row;
use crate::keys::Distribution;

/// Inserts and searches measured on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredOperations {
    /// Keys inserted, and as many searched for.
    pub keys: usize,
    /// Mean time of an insert.
    pub insert_ns: f64,
    /// Mean time of a search.
    pub search_ns: f64,
    /// Mean number of nodes on the way to an entry, the leaf excluded.
    pub depth: f64,
    /// Bytes of the index per key.
    pub bytes_per_key: f64,
}

/// What the modelled machine counted, per operation. Media writes are in units of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerOperation {
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Misses of the last-level cache, those of what the structure keeps in DRAM included.
    pub llc_misses: f64,
    /// Those that were of what the structure keeps in DRAM: inner nodes, locks of leaves.
    pub dram_misses: f64,
    /// Lines that reached the memory controller.
    pub wpq_inserts: f64,
    /// Media writes.
    pub media_writes: f64,
}

/// Virtual time of an operation under one pair of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelledTime {
    /// The latencies.
    #[serde(flatten)]
    pub latency: Latency,
    /// Mean time of an insert.
    pub insert_ns: f64,
    /// Mean time of a search.
    pub search_ns: f64,
}

/// Inserts and searches on the modelled machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelledOperations {
    /// Keys of the index in the end.
    pub keys: usize,
    /// Inserts counted, the last of them.
    pub inserts: usize,
    /// Searches counted.
    pub searches: usize,
    /// An insert.
    pub insert: PerOperation,
    /// A search.
    pub search: PerOperation,
    /// Times, by latency.
    pub times: Vec<ModelledTime>,
    /// Mean number of nodes on the way to an entry, the leaf excluded.
    pub depth: f64,
    /// Bytes of the index per key.
    pub bytes_per_key: f64,
}

/// One structure with one distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OperationsCase {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub distribution: Distribution,
    /// Column (d) of Table 1 of the paper, at 128 M keys.
    pub published_depth: Option<f64>,
}

/// Inserts and searches of one structure with one distribution.
pub type OperationsRow = Row<OperationsCase, MeasuredOperations, ModelledOperations>;

/// Range queries on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RangeTimes {
    /// Entries of a query.
    pub entries: usize,
    /// Queries done.
    pub queries: usize,
    /// Mean time of a query.
    pub query_ns: f64,
    /// Misses of the last-level cache per entry; only the modelled machine knows them.
    pub llc_misses_per_entry: Option<f64>,
}

/// One structure with one distribution, and one share of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RangeCase {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub distribution: Distribution,
    /// Percentage of the keys that a query returns.
    pub percent: f64,
}

/// Range queries; modelled under the first pair of latencies, and not at all if they are of what is
/// volatile.
pub type RangeRow = Row<RangeCase, RangeTimes, RangeTimes>;

/// Opening an index after a crash, measured here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecoveryRow {
    /// The structure.
    pub structure: Contestant,
    /// Keys in it.
    pub keys: usize,
    /// Threads that it may use.
    pub threads: usize,
    /// Whether it has anything to do in proportion to its size.
    pub rebuilds: bool,
    /// Opening the pool, in microseconds.
    pub pool_open_us: f64,
    /// Opening the index and finding one key, in microseconds.
    pub index_open_us: f64,
}

/// How deep a radix tree is at one size, computed from the keys alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RadixDepthRow {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub distribution: Distribution,
    /// How many.
    pub keys: usize,
    /// Mean number of nodes on the way to an entry.
    pub depth: f64,
    /// Column (d) of Table 1 of the paper, at 128 M keys.
    pub published_depth: Option<f64>,
}

/// A tree that was built, looked at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WalkedTree {
    /// Mean number of nodes on the way to an entry, the leaf excluded.
    pub depth: f64,
    /// Greatest such number.
    pub max_depth: u64,
    /// Bytes of the index per key.
    pub bytes_per_key: f64,
}

/// How deep a structure is at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthRow {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub distribution: Distribution,
    /// How many.
    pub keys: usize,
    /// Memory that building it was thought to need.
    pub needed_bytes: u64,
    /// The tree; none if it would not have fitted into the memory that was free.
    pub walked: Option<WalkedTree>,
    /// The mean depth that follows from the keys, of a radix tree.
    pub computed_depth: Option<f64>,
    /// Column (d) of Table 1 of the paper, at 128 M keys.
    pub published_depth: Option<f64>,
}

impl DepthRow {
    /// Whether it says nothing of the depth.
    pub fn is_unknown(&self) -> bool {
        self.walked.is_none() && self.computed_depth.is_none()
    }
}

/// One structure with byte-string keys of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StringCase {
    /// The structure.
    pub structure: Contestant,
    /// The keys.
    pub strings: StringKind,
    /// Their mean length.
    pub key_bytes: f64,
}

/// Inserts and searches of one structure with byte-string keys.
pub type StringRow = Row<StringCase, MeasuredOperations, ModelledOperations>;

/// A row of inserts and searches with keys of either kind.
#[derive(Clone, Copy)]
pub(super) struct Operations<'r> {
    pub(super) structure: Contestant,
    pub(super) keys: &'static str,
    pub(super) published_depth: Option<f64>,
    pub(super) measured: Option<&'r MeasuredOperations>,
    pub(super) modelled: Option<&'r ModelledOperations>,
}

impl StudyResults {
    /// Those with integer keys.
    pub(super) fn of_integers(&self) -> Vec<Operations<'_>> {
        let rows = self.operations.iter().map(|row| Operations {
            structure: row.case.structure,
            keys: row.case.distribution.name(),
            published_depth: row.case.published_depth,
            measured: row.measured.as_ref(),
            modelled: row.modelled.as_ref(),
        });
        rows.collect()
    }

    /// Those with byte-string keys.
    pub(super) fn of_strings(&self) -> Vec<Operations<'_>> {
        let rows = self.strings.iter().map(|row| Operations {
            structure: row.case.structure,
            keys: row.case.strings.name(),
            published_depth: None,
            measured: row.measured.as_ref(),
            modelled: row.modelled.as_ref(),
        });
        rows.collect()
    }
}

/// What `lapis lab wort` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyResults {
    /// The device profile that was modelled.
    pub profile: String,
    /// The flush instruction of this machine.
    pub flush_method: &'static str,
    /// Inserts and searches.
    pub operations: Vec<OperationsRow>,
    /// Range queries.
    pub ranges: Vec<RangeRow>,
    /// Recovery.
    pub recovery: Vec<RecoveryRow>,
    /// Byte-string keys.
    pub strings: Vec<StringRow>,
    /// Depths of the radix trees at the published size.
    pub radix_depths: Vec<RadixDepthRow>,
}

/// What `lapis lab wort --depths` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepthResults {
    /// One row for each structure and distribution.
    pub depths: Vec<DepthRow>,
}
