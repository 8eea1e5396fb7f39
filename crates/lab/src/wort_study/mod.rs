//! `lapis lab wort`: the experiments of the WORT study.
//!
//! Lee, Lim, Song, Nam and Noh (*WORT*, FAST 2017) set three radix trees beside three B+-trees for
//! persistent memory. The same structures do the same here:
//!
//! | experiment | of the paper | what is run |
//! |---|---|---|
//! | operations | Figs. 7 to 9, Table 1 | inserts into an index that grows, then searches |
//! | ranges | Fig. 10 | scans of 0.001 % and 0.01 % of the keys |
//! | recovery | – | opening after a crash, by size and threads |
//! | strings | section 5.4 | inserts and searches with byte-string keys |
//! | radix depths | Table 1 (d) | the depth that 128 Mi keys give a radix tree, without building one |
//! | depths | Table 1 (d) | builds and walks; for sizes at which nothing else is wanted |
//!
//! Keys are dense, sparse and clustered (Fig. 6), in random order, and one thread does everything.
//!
//! *Measured* is this machine: anonymous memory, real flushes, wall-clock time. *Modelled* is the
//! machine of a device profile, by default the paper's (`wort-study`): counts of the last inserts and
//! of searches, and virtual time under several latencies at once. Its index is filled uncounted
//! first, so it can be large; what the caches then hold is what the inserts before the counted ones
//! left. The two are never mixed.
//!
//! FPTree and NV-Tree run twice on the modelled machine: with inner nodes in DRAM, and on PM as in
//! section 5.4 of the paper. Here memory is of one kind, so they are measured once.

mod byte_strings;
mod claims;
mod contestant;
mod depths;
mod figure;
mod free_memory;
mod key_list;
mod measured;
mod modelled;
mod published;
mod radix_depth;
mod ranges;
mod recovery;
mod results;
mod strings;
mod tables;

use lapis_device::Profile;
use lapis_index::IndexKind;
use lapis_pmem::Hardware;
use serde::Serialize;

use crate::experiment::{ExperimentError, Sides, modelling_threads};
use crate::keys::Distribution;
use crate::named::named;
use crate::progress::OnProgress;

pub use byte_strings::{StringKind, StringSource};
pub use contestant::Contestant;
pub use depths::{Plan, depths};
pub use published::published_depth;
pub use results::{
    DepthResults, DepthRow, MeasuredOperations, ModelledOperations, ModelledTime, OperationsCase,
    OperationsRow, PerOperation, RadixDepthRow, RangeCase, RangeRow, RangeTimes, RecoveryRow,
    StringCase, StringRow, StudyResults, WalkedTree,
};

/// The device profile that is modelled unless another is asked for.
pub const PROFILE: &str = "wort-study";

/// The distributions of Fig. 6.
pub const DISTRIBUTIONS: [Distribution; 3] =
    [Distribution::Dense, Distribution::Sparse, Distribution::Clustered];

/// Fewest keys.
pub const LEAST_KEYS: usize = 1000;
/// Most keys: 128 Mi, those of the paper.
pub const MOST_KEYS: usize = 128 << 20;

/// Keys of a modelled index unless said otherwise, and inserts that are counted.
const MODELLED_KEYS: usize = 1_000_000;
const MODELLED_OPERATIONS: usize = 500_000;

named! {
    /// An experiment of the study.
    pub enum Experiment {
        /// Inserts and searches, their time and their traffic.
        Operations = "operations",
        /// Scans of parts of the keys.
        Ranges = "ranges",
        /// Opening after a crash.
        Recovery = "recovery",
        /// Inserts and searches with byte-string keys.
        Strings = "strings",
        /// The depth of radix trees at the published size.
        RadixDepths = "radix-depths",
    }
}

/// Latencies of persistent memory that are put in the place of a profile's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Of a read that no cache answers.
    pub read_ns: u32,
    /// Of a flushed line.
    pub write_ns: u32,
}

impl Latency {
    /// The latencies of Fig. 8: the reads' are varied, then the writes'.
    pub const STUDY: [Self; 5] =
        [Self::new(100, 100), Self::new(200, 100), Self::new(300, 100), Self::new(100, 200), {
            Self::new(100, 300)
        }];

    /// These two.
    pub const fn new(read_ns: u32, write_ns: u32) -> Self {
        Self { read_ns, write_ns }
    }
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.read_ns, self.write_ns)
    }
}

/// Why a text is no [`Latency`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("latencies are read/write in nanoseconds, each from 1 to 10000, as in 300/100")]
pub struct BadLatency;

impl std::str::FromStr for Latency {
    type Err = BadLatency;

    fn from_str(text: &str) -> Result<Self, BadLatency> {
        let number = |text: &str| text.parse().ok().filter(|ns| (1..=10_000).contains(ns));
        let (read, write) = text.split_once('/').ok_or(BadLatency)?;
        let (read_ns, write_ns) = number(read).zip(number(write)).ok_or(BadLatency)?;
        Ok(Self { read_ns, write_ns })
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Structures; all of [`Contestant::KINDS`] unless said otherwise.
    pub indexes: Vec<IndexKind>,
    /// Distributions.
    pub distributions: Vec<Distribution>,
    /// Experiments.
    pub experiments: Vec<Experiment>,
    /// Keys of a measured index.
    pub keys: usize,
    /// Keys of a modelled index.
    pub modelled_keys: usize,
    /// Byte-string keys, the same ones for measured and modelled indexes.
    pub strings: StringSource,
    /// Inserts that are counted, the last of them; at most all of the load. A quarter as many searches.
    pub modelled_operations: usize,
    /// Latencies that are modelled; counts do not depend on them.
    pub latencies: Vec<Latency>,
    /// Where it is run.
    pub sides: Sides,
    /// Keys of which the depth of radix trees is computed, without building one.
    pub radix_keys: usize,
    /// Numbers of threads with which indexes are opened.
    pub recovery_threads: Vec<usize>,
    /// What the random numbers start from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            indexes: Contestant::KINDS.to_vec(),
            distributions: DISTRIBUTIONS.to_vec(),
            experiments: Experiment::ALL.to_vec(),
            keys: 4_000_000,
            modelled_keys: MODELLED_KEYS,
            strings: StringSource::Generated(200_000),
            modelled_operations: MODELLED_OPERATIONS,
            latencies: Latency::STUDY.to_vec(),
            sides: Sides { profile: PROFILE.into(), ..Sides::default() },
            radix_keys: MOST_KEYS,
            recovery_threads: vec![1, 2],
            seed: 42,
        }
    }
}

impl Options {
    fn check(&self) -> Result<Profile, ExperimentError> {
        let profile = self.check_values()?;
        if self.sides.measure {
            free_memory::check(self.keys, 1)?;
        }
        if self.sides.model {
            free_memory::check(self.modelled_keys, modelling_threads())?;
        }
        Ok(profile)
    }

    /// Whether the values make sense, however much memory there is.
    fn check_values(&self) -> Result<Profile, ExperimentError> {
        let bad = |what: &str| Err(ExperimentError::bad_option(what));
        let sizes = [(self.sides.measure, self.keys), (self.sides.model, self.modelled_keys)];
        if sizes.iter().any(|&(on, keys)| on && !(LEAST_KEYS..=MOST_KEYS).contains(&keys)) {
            return bad("the study takes between 1,000 and 134,217,728 (128Mi) keys");
        }
        if let StringSource::Generated(count) = self.strings
            && !(LEAST_KEYS..=MOST_KEYS).contains(&count)
        {
            return bad("the study takes between 1,000 and 134,217,728 (128Mi) byte-string keys");
        }
        if self.modelled_operations == 0 {
            return bad("an operation is done at least once");
        }
        if self.indexes.is_empty() || self.distributions.is_empty() || self.experiments.is_empty() {
            return bad("the study takes an index, a distribution and an experiment");
        }
        if let Some(index) = self.indexes.iter().find(|kind| !Contestant::KINDS.contains(kind)) {
            let names = Contestant::KINDS.map(IndexKind::name).join(", ");
            return bad(&format!("{index} is not part of the study; use {names}"));
        }
        if self.latencies.is_empty() {
            return bad("a model of latencies takes at least one pair of them");
        }
        if self.recovery_threads.is_empty()
            || self.recovery_threads.iter().any(|threads| !(1..=64).contains(threads))
        {
            return bad("indexes are opened by 1 to 64 threads");
        }
        self.sides.check()
    }

    fn runs(&self, experiment: Experiment) -> bool {
        self.experiments.contains(&experiment)
    }

    fn contestants(&self) -> impl Iterator<Item = Contestant> {
        Contestant::ALL.into_iter().filter(|contestant| {
            contestant.index().is_some_and(|index| self.indexes.contains(&index))
        })
    }
}

/// Runs the study.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<StudyResults, ExperimentError> {
    let profile = options.check()?;
    let mut results = StudyResults {
        profile: profile.name.clone(),
        flush_method: Hardware::detect().method().name(),
        operations: Vec::new(),
        ranges: Vec::new(),
        recovery: Vec::new(),
        strings: Vec::new(),
        radix_depths: Vec::new(),
    };
    if options.runs(Experiment::Operations) || options.runs(Experiment::Ranges) {
        sessions(options, &profile, progress, &mut results)?;
    }
    if options.sides.measure && options.runs(Experiment::Recovery) {
        results.recovery = recovery::run(options, progress)?;
    }
    if options.runs(Experiment::Strings) {
        results.strings = strings::run(options, &profile, progress)?;
    }
    if options.runs(Experiment::RadixDepths) {
        let of = |&distribution: &Distribution| radix_depths(distribution, options);
        results.radix_depths = options.distributions.iter().flat_map(of).collect();
    }
    Ok(results)
}

/// What sessions share: an index is built once for inserts, searches and scans.
fn sessions(
    options: &Options,
    profile: &Profile,
    progress: OnProgress<'_>,
    results: &mut StudyResults,
) -> Result<(), ExperimentError> {
    let ranges = options.runs(Experiment::Ranges);
    let reference = (options.sides.measure && ranges).then_some(Contestant::BTreeMap);
    let cases: Vec<(Distribution, Contestant)> = options
        .distributions
        .iter()
        .flat_map(|&keys| options.contestants().chain(reference).map(move |one| (keys, one)))
        .collect();
    let mut keys = None;
    let found = options.sides.run_side_by_side(
        &cases,
        progress,
        |&(distribution, contestant)| {
            let make = || measured::Keys::generate(distribution, options);
            let keys = measured::once_for(&mut keys, distribution, make);
            match contestant {
                Contestant::Index(_) => measured::session(contestant, keys, options),
                Contestant::InnerOnPm(_) => Ok(measured::Found::default()),
                Contestant::BTreeMap => Ok(measured::reference(keys)),
            }
        },
        |&(distribution, contestant)| match contestant {
            Contestant::BTreeMap => Ok(modelled::Found::default()),
            _ => modelled::session(contestant, distribution, options, profile),
        },
    )?;
    for ((distribution, structure), (measured, modelled)) in cases.into_iter().zip(found) {
        let (measured, modelled) = (measured.unwrap_or_default(), modelled.unwrap_or_default());
        if options.runs(Experiment::Operations) && structure != Contestant::BTreeMap {
            let published_depth = published_depth(structure, distribution);
            results.operations.push(OperationsRow {
                case: OperationsCase { structure, distribution, published_depth },
                measured: measured.operations,
                modelled: modelled.operations,
            });
        }
        let shares = ranges::PERCENTS.iter().enumerate().filter(|_| ranges);
        results.ranges.extend(shares.map(|(at, &percent)| RangeRow {
            case: RangeCase { structure, distribution, percent },
            measured: measured.ranges.get(at).copied(),
            modelled: modelled.ranges.get(at).copied(),
        }));
    }
    Ok(())
}

/// The depths of the radix trees at `options.radix_keys` keys, as the keys give them.
fn radix_depths(distribution: Distribution, options: &Options) -> Vec<RadixDepthRow> {
    let keys = options.radix_keys;
    let bits = [published::WORT_BITS, published::ART_BITS];
    let Some(depths) = radix_depth::mean_depths(distribution, keys, options.seed, bits) else {
        return Vec::new();
    };
    let row = |structure: Contestant| {
        let at = bits.iter().position(|&bits| Some(bits) == structure.radix_bits())?;
        let published_depth = published_depth(structure, distribution);
        Some(RadixDepthRow { structure, distribution, keys, depth: depths[at], published_depth })
    };
    options.contestants().filter_map(row).collect()
}
