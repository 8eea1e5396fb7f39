//! `lab index`: what each index structure does per operation, measured here and modelled.
//!
//! For each index and distribution one index is loaded and the operations are run on it one after
//! another; each finds it holding the keys it was loaded with, and those that the ones before it added:
//! workloads D and E a key in 20 operations, `insert` and `insert-many` one in each. Every answer is
//! checked.
//!
//! *Measured* is this machine: anonymous memory that was used once before, the flush instruction that
//! the processor has, all threads, wall-clock time. *Modelled* is the counting machine of `lapis-device`: the same
//! operations by as many logical workers, interleaved by their virtual clocks on one thread, so
//! that counts and virtual time are the same on every run and every machine. The two are never
//! mixed. Counting takes about a hundred times as long as running, so the modelled index may be
//! smaller; its rows say how large it was.

mod contender;
pub(crate) mod engine;
mod findings;
mod pages;
mod peers;
pub(crate) mod plan;
mod sessions;

use std::path::PathBuf;

use lapis_device::Profile;
use lapis_index::IndexKind;
use serde::{Serialize, Serializer};

use crate::experiment::memory::check_room;
use crate::experiment::{self, ExperimentError, OnModel, Sides};
use crate::keys::Distribution;
use crate::named::named;
use crate::progress::OnProgress;
use crate::ycsb::Workload;

pub(crate) use contender::ROOT_NAME;
pub(crate) use sessions::{INITIAL_BYTES, room_bytes, wrong_answers};

pub use contender::{Contender, OwnIndex};
pub use peers::{Ours, PEERS, PEERS_NOTE, Peer, PeerComparison, compare_with_peers};

/// What is done with the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Inserts every key into an empty index.
    Load,
    /// Looks keys up.
    Get,
    /// Reads 100 entries in order from a key on. Ordered structures only.
    Range,
    /// Replaces values.
    Update,
    /// A core workload of YCSB on keys and values of eight bytes. Which keys are asked for is the
    /// distribution's to say, except in D, which always asks for the latest.
    Ycsb(Workload),
    /// Removes keys.
    Delete,
    /// Inserts keys that were not loaded.
    Insert,
    /// Looks up what [`Operation::Get`] does, [many at once](lapis_index::Index::get_many).
    GetMany,
    /// Inserts as [`Operation::Insert`] does, [many at once](lapis_index::Index::insert_many).
    InsertMany,
}

/// Look-ups and inserts of one call, where many are made at once.
const MANY: usize = 64;

impl Operation {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 14] = [
        Self::Load,
        Self::Get,
        Self::Range,
        Self::Ycsb(Workload::C),
        Self::Update,
        Self::Ycsb(Workload::A),
        Self::Ycsb(Workload::B),
        Self::Ycsb(Workload::F),
        Self::Ycsb(Workload::D),
        Self::Ycsb(Workload::E),
        Self::Delete,
        Self::Insert,
        Self::GetMany,
        Self::InsertMany,
    ];

    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Get => "get",
            Self::Range => "range",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Insert => "insert",
            Self::GetMany => "get-many",
            Self::InsertMany => "insert-many",
            Self::Ycsb(workload) => match workload {
                Workload::Load => "ycsb-load",
                Workload::A => "ycsb-a",
                Workload::B => "ycsb-b",
                Workload::C => "ycsb-c",
                Workload::D => "ycsb-d",
                Workload::E => "ycsb-e",
                Workload::F => "ycsb-f",
            },
        }
    }

    /// Whether only ordered structures can do it.
    pub fn needs_order(self) -> bool {
        matches!(self, Self::Range | Self::Ycsb(Workload::E))
    }

    /// Operations of one call of the index.
    fn at_once(self) -> usize {
        if matches!(self, Self::GetMany | Self::InsertMany) { MANY } else { 1 }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Structures of Lapis.
    pub indexes: Vec<IndexKind>,
    /// Structures of one's own, behind them.
    pub own: Vec<Contender>,
    /// Operations. Those that need order are left out for structures that have none.
    pub operations: Vec<Operation>,
    /// Distributions.
    pub distributions: Vec<Distribution>,
    /// Keys to load.
    pub keys: usize,
    /// How often each operation other than load is done, at most as often as there are keys.
    pub repetitions: usize,
    /// Whether look-ups ask for different keys, in random order, whatever the distribution asks for.
    pub each_key_once: bool,
    /// How often everything is measured, each time on an index of its own.
    pub runs: usize,
    /// What measured indexes in ordinary memory lie in.
    pub pages: Pages,
    /// Threads of the measured runs, logical workers of the modelled ones.
    pub threads: usize,
    /// Persistent memory to measure on: a file to be made, which goes with the run, a directory for it, or a device, which is
    /// overwritten. Anonymous memory otherwise.
    pub memory: Option<PathBuf>,
    /// Whether hash tables are given room for all keys when they are created.
    pub presized: bool,
    /// Where it is run.
    pub sides: Sides,
    /// Most keys of a modelled index.
    pub modelled_keys: usize,
    /// Most repetitions on a modelled index.
    pub modelled_repetitions: usize,
    /// Keys that the caches of the modelled machine are to be in proportion to: they are smaller by as
    /// much as the modelled index has fewer. If none, they are those of the profile.
    pub caches_for_keys: Option<usize>,
    /// What the random numbers start from.
    pub seed: u64,
}

/// The most threads.
const MOST_THREADS: usize = 1024;
/// Logical workers that a modelled machine can have.
const MOST_WORKERS: usize = 256;

impl Default for Options {
    fn default() -> Self {
        Self {
            indexes: IndexKind::ALL.to_vec(),
            own: Vec::new(),
            // Those of many at once do again what others do; who wants to compare them names them.
            operations: Operation::ALL.into_iter().filter(|one| one.at_once() == 1).collect(),
            distributions: vec![Distribution::Uniform],
            keys: 1_000_000,
            repetitions: 250_000,
            each_key_once: false,
            runs: 1,
            pages: Pages::default(),
            threads: 1,
            memory: None,
            presized: false,
            sides: Sides::default(),
            modelled_keys: 1_000_000,
            modelled_repetitions: 50_000,
            caches_for_keys: None,
            seed: 42,
        }
    }
}

named! {
    /// Pages of memory that an index is measured in.
    #[derive(Default)]
    pub enum Pages {
        /// Huge ones, where the kernel gives them ([`Machine::huge_pages`](experiment::Machine::huge_pages)).
        #[default]
        Huge = "huge",
        /// Small ones only, the process's other memory included.
        Small = "small",
    }
}

/// What was measured on this machine. Of several runs these are the figures of the one with the median
/// throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Runs.
    pub repetitions: usize,
    /// Million operations per second, all threads together.
    pub mops: f64,
    /// The same of the slowest run.
    pub mops_min: f64,
    /// The same of the fastest run.
    pub mops_max: f64,
    /// Median latency in nanoseconds. Latencies are sampled: at most one operation in 64 is timed. Of many at once it is
    /// the latency of all of one call.
    pub p50_ns: u64,
    /// Latency that 99 % did not exceed.
    pub p99_ns: u64,
    /// Latency that 99.99 % did not exceed.
    pub p9999_ns: u64,
}

/// What was modelled beside the counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Modelled {
    /// Million operations per second of virtual time, all workers together. What an operation
    /// costs beyond its accesses to persistent memory is `core.operation_ns` of the profile.
    pub mops: Option<f64>,
    /// Keys that the modelled index was loaded with.
    pub keys: usize,
    /// Operations that were counted.
    pub operations: u64,
    /// Media writes, in units of 64 bytes, for each line that entered the write pending queue.
    pub media_per_wpq: Option<f64>,
    /// Bytes of the modelled caches for each byte of the index, once loaded.
    pub cached_share: f64,
}

/// What was run: one operation on one index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The name of the structure.
    pub index: &'static str,
    /// The operation.
    pub operation: Operation,
    /// Where the keys lie and which are asked for.
    pub distribution: Distribution,
    /// Keys the index was loaded with.
    pub keys: usize,
    /// Threads of the measured run, logical workers of the modelled one.
    pub threads: usize,
    /// Mean number of nodes on the way to an entry, the leaf excluded, once loaded.
    pub depth: f64,
    /// Bytes of the index per key, once loaded.
    pub bytes_per_key: f64,
}

/// One operation on one index.
pub type Row = experiment::Row<Case, Measured, OnModel<Modelled>>;

/// What `lab index` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexResults {
    /// What was measured in.
    pub pages: Pages,
    /// One row for each index, distribution and operation.
    pub rows: Vec<Row>,
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::bad_option(what));
        if [self.keys, self.modelled_keys, self.caches_for_keys.unwrap_or(1)].contains(&0) {
            return bad("an index experiment takes at least one key");
        }
        if [self.repetitions, self.modelled_repetitions, self.runs].contains(&0) {
            return bad("an operation is done at least once");
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return bad(&format!(
                "an index experiment takes 1 to {MOST_THREADS} threads, not {}",
                self.threads
            ));
        }
        let indexes = self.indexes.len() + self.own.len();
        if indexes == 0 || self.operations.is_empty() || self.distributions.is_empty() {
            return bad("an index experiment takes an index, an operation and a distribution");
        }
        if self.sides.model && self.threads > MOST_WORKERS {
            return bad(
                "a modelled machine has at most 256 workers; use fewer threads, or only measure",
            );
        }
        let profile = self.sides.check()?;
        if self.sides.measure {
            check_room(self.keys, 1, sessions::bytes_per_key(self.memory.as_deref()))?;
        }
        if self.sides.model {
            check_room(self.keys.min(self.modelled_keys), 1, sessions::bytes_per_key(None))?;
        }
        Ok(profile)
    }
}

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<IndexResults, ExperimentError> {
    sessions::run(options, &options.check()?, progress)
}
