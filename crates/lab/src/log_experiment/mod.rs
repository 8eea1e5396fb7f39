//! Appends to logs of every kind, by the size of entries: measured here, and modelled.
//!
//! The counterpart of Fig. 8 of van Renen et al., *Building blocks for persistent memory* (The VLDB
//! Journal 29, 2020): what a log's barriers cost, and what it costs to persist a line twice.
//!
//! What is timed is appends, and nothing else: logs are laid out before, and truncated between.
//! *Measured* is the time of this machine, in anonymous memory, with its flush instruction.
//! *Modelled* is the virtual time of the machine of a device profile, with the same stated
//! [`CPU_NS`] for every append of every log, so that what differs is memory alone. With several
//! threads, each has a log of its own, with a sequence number over all ([`ThreadLogs`]), or all
//! share one ([`SharedLog`]).
//!
//! [`ThreadLogs`]: lapis_blocks::thread_logs::ThreadLogs
//! [`SharedLog`]: lapis_blocks::shared_log::SharedLog

mod figure;
mod here;
mod model;
mod tables;
mod variant;

use lapis_blocks::log::{LogError, Placement};
use lapis_device::{Profile, ProfileError};
use lapis_pmem::{PoolError, RegionError, RootError};
use serde::{Serialize, Serializer};

pub use figure::figure;
pub use tables::{COMMAND, markdown};
pub use variant::LogVariant;

/// The stated CPU cost of an append on the modelled machine, in nanoseconds: an assumption, the same
/// for all logs.
pub const CPU_NS: u64 = 20;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// The logs.
    pub variants: Vec<LogVariant>,
    /// How entries lie.
    pub placements: Vec<Placement>,
    /// Bytes of entries.
    pub sizes: Vec<usize>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// The device profile, by name or path.
    pub profile: String,
    /// Whether to measure here.
    pub measure: bool,
    /// Whether to model.
    pub model: bool,
    /// Appends are measured for so long per row.
    pub measure_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variants: LogVariant::ALL.to_vec(),
            placements: Placement::ALL.to_vec(),
            sizes: vec![8, 24, 40, 48, 64, 100, 128, 256, 512, 1000, 1024, 4096],
            threads: vec![1, 2],
            profile: "optane-100".to_owned(),
            measure: true,
            model: true,
            measure_ms: 30,
        }
    }
}

/// Whose the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// There is one thread.
    Own,
    /// Each thread has a log.
    PerThread,
    /// All threads have the same.
    Shared,
}

impl Sharing {
    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::PerThread => "per-thread",
            Self::Shared => "shared",
        }
    }
}

/// What this machine did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Appends per second, of all threads together.
    pub appends_per_s: f64,
    /// Nanoseconds from one append of a thread to its next.
    pub ns_per_append: f64,
}

/// What the modelled machine did, per append.
#[derive(Clone, Debug, Serialize)]
pub struct ModelledAppend {
    /// The device profile.
    pub profile: String,
    /// Appends per second of virtual time, of all workers together.
    pub appends_per_s: f64,
    /// Nanoseconds of virtual time from one append of a worker to its next.
    pub ns_per_append: f64,
    /// Lines flushed.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Lines that entered the write pending queue.
    pub wpq_inserts: f64,
    /// Media writes, in units of 64 bytes.
    pub media_writes: f64,
}

/// One log, one size of entries.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The log.
    #[serde(serialize_with = "variant_name")]
    pub variant: LogVariant,
    /// How its entries lie.
    #[serde(serialize_with = "placement_name")]
    pub placement: Placement,
    /// Bytes of an entry's payload.
    pub size_bytes: usize,
    /// Threads.
    pub threads: usize,
    /// Whose the log is.
    pub sharing: Sharing,
    /// This machine.
    pub measured: Option<Measured>,
    /// The modelled machine.
    pub modelled: Option<ModelledAppend>,
    /// Barriers (fences) per append, counted.
    pub barriers: f64,
    /// Bytes that an entry takes, with everything.
    pub entry_bytes: f64,
}

fn variant_name<S: Serializer>(variant: &LogVariant, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(variant.name())
}

fn placement_name<S: Serializer>(placement: &Placement, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(placement.name())
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct LogResults {
    /// The device profile of what is modelled.
    pub profile: String,
    /// The flush instruction of what is measured.
    pub flush_method: String,
    /// One per log, placement, size, number of threads and sharing.
    pub rows: Vec<Row>,
}

/// Why the experiment could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogExperimentError {
    /// No such profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A log refused.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A pool could not be had.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Memory could not be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A root could not be published.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A size that cannot be compared.
    #[error("entries of {size_bytes} bytes cannot be compared; choose 1 to {LARGEST_BYTES}")]
    Size {
        /// The size.
        size_bytes: usize,
    },
    /// A number of threads that cannot be.
    #[error("{threads} threads are impossible; choose 1 to {MOST_THREADS}")]
    Threads {
        /// The number.
        threads: usize,
    },
    /// No log, no placement or no size is named.
    #[error(
        "there is nothing to compare; name at least one log, placement, size and number of threads"
    )]
    NothingToDo,
}

/// The largest entries that are compared.
pub const LARGEST_BYTES: usize = 64 << 10;
/// The most threads.
pub const MOST_THREADS: usize = 64;

/// Runs the experiment; `progress` is told how many rows of how many are done.
///
/// # Errors
/// [`LogExperimentError`].
pub fn run(
    options: &Options,
    progress: &dyn Fn(u64, u64),
) -> Result<LogResults, LogExperimentError> {
    let profile = Profile::find(&options.profile)?;
    if let Some(&size_bytes) = options.sizes.iter().find(|&&s| !(1..=LARGEST_BYTES).contains(&s)) {
        return Err(LogExperimentError::Size { size_bytes });
    }
    if let Some(&threads) = options.threads.iter().find(|&&t| !(1..=MOST_THREADS).contains(&t)) {
        return Err(LogExperimentError::Threads { threads });
    }
    let mut plan = Vec::new();
    for &threads in &options.threads {
        for &placement in &options.placements {
            for &variant in &options.variants {
                let sharings: &[Sharing] = match threads {
                    1 => &[Sharing::Own],
                    _ if variant.can_be_shared(placement) => &[Sharing::PerThread, Sharing::Shared],
                    _ => &[Sharing::PerThread],
                };
                for &sharing in sharings {
                    let row = |&size_bytes| (variant, placement, size_bytes, threads, sharing);
                    plan.extend(options.sizes.iter().map(row));
                }
            }
        }
    }
    if plan.is_empty() {
        return Err(LogExperimentError::NothingToDo);
    }
    let mut rows = Vec::with_capacity(plan.len());
    for &(variant, placement, size_bytes, threads, sharing) in &plan {
        let job = Job { variant, placement, size_bytes, threads, sharing };
        let counted = model::run(job, &profile, options.model)?;
        let measured =
            if options.measure { Some(here::run(job, options.measure_ms)?) } else { None };
        rows.push(Row {
            variant,
            placement,
            size_bytes,
            threads,
            sharing,
            measured,
            barriers: counted.append.fences,
            entry_bytes: counted.entry_bytes,
            modelled: options.model.then_some(counted.append),
        });
        progress(rows.len() as u64, plan.len() as u64);
    }
    let flush_method = lapis_pmem::Hardware::detect().method().name().to_owned();
    Ok(LogResults { profile: profile.name.clone(), flush_method, rows })
}

/// One row to be filled in.
#[derive(Clone, Copy, Debug)]
struct Job {
    variant: LogVariant,
    placement: Placement,
    size_bytes: usize,
    threads: usize,
    sharing: Sharing,
}

impl Job {
    /// Bytes that are surely enough for an entry, whatever the log.
    fn most_entry_bytes(self) -> usize {
        (self.size_bytes + 40) * 64 / 63 + 192
    }

    fn payload(self) -> Vec<u8> {
        (0..self.size_bytes).map(|at| (at * 131 + 17) as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modelled_only() -> Options {
        Options { measure: false, threads: vec![1], ..Options::default() }
    }

    /// The log in segments and the one in a ring.
    const POP_LOGS: [LogVariant; 2] = [LogVariant::PopLog, LogVariant::PopRing];

    /// Modelled nanoseconds per append of each log, its placement and sharing, at one size.
    fn times(results: &LogResults, size: usize) -> Vec<(&Row, f64)> {
        let rows = results.rows.iter().filter(|row| row.size_bytes == size);
        rows.map(|row| (row, row.modelled.as_ref().unwrap().ns_per_append)).collect()
    }

    #[test]
    fn pop_logs_are_at_least_as_fast_as_logs_of_other_schemes_padded_and_streamed_on_the_model() {
        let options = Options {
            placements: vec![Placement::Padded, Placement::Streamed],
            threads: vec![1, 2],
            ..modelled_only()
        };
        let results = run(&options, &|_, _| {}).unwrap();
        for &size in &options.sizes {
            let times = times(&results, size);
            let of_pop = times.iter().filter(|(row, _)| POP_LOGS.contains(&row.variant));
            for (pop, pop_ns) in of_pop {
                let alike = |row: &Row| {
                    (row.placement, row.threads, row.sharing)
                        == (pop.placement, pop.threads, pop.sharing)
                        && !POP_LOGS.contains(&row.variant)
                };
                // Two logs, each of which lies over the modules in its own way, may get into each other's
                // way by a per cent.
                let rounding = if pop.threads == 1 { 1.001 } else { 1.02 };
                for (other, other_ns) in times.iter().filter(|(row, _)| alike(row)) {
                    assert!(
                        *pop_ns <= other_ns * rounding,
                        "{size} bytes, {}, {} threads: {} {pop_ns} ns, {} {other_ns} ns",
                        pop.placement,
                        pop.threads,
                        pop.variant,
                        other.variant
                    );
                }
            }
        }
    }

    #[test]
    fn no_log_of_another_scheme_is_faster_than_pop_logs_however_its_entries_lie() {
        let results = run(&modelled_only(), &|_, _| {}).unwrap();
        for &size in &modelled_only().sizes {
            let times = times(&results, size);
            let best = |of: &dyn Fn(LogVariant) -> bool| {
                let those = times.iter().filter(|(row, _)| of(row.variant));
                those.map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min)
            };
            let others = best(&|variant| !POP_LOGS.contains(&variant));
            for pop in POP_LOGS {
                let pop_ns = best(&|variant| variant == pop);
                assert!(pop_ns <= others * 1.001, "{size} bytes: {pop} {pop_ns}, {others} ns");
            }
        }
    }

    #[test]
    fn dancing_size_fields_bring_the_header_log_level_with_the_classic_one_on_the_model() {
        let options = Options {
            sizes: vec![8, 48, 100],
            placements: vec![Placement::Padded],
            ..modelled_only()
        };
        let results = run(&options, &|_, _| {}).unwrap();
        for &size in &options.sizes {
            let ns = |variant: LogVariant| {
                let mut rows = results.rows.iter();
                let row = rows.find(|row| row.size_bytes == size && row.variant == variant);
                row.unwrap().modelled.as_ref().unwrap().ns_per_append
            };
            let classic = ns(LogVariant::Classic);
            let dancing = ns(LogVariant::HeaderDancing);
            assert!((dancing / classic - 1.0).abs() < 0.15, "{size}: {dancing} and {classic} ns");
            assert!(ns(LogVariant::Header) > 1.5 * dancing, "{size}: one size field is not dearer");
        }
    }

    #[test]
    fn the_model_gives_the_same_figures_on_every_run() {
        let options = Options { sizes: vec![100], threads: vec![1, 2], ..modelled_only() };
        let text = || serde_json::to_string(&run(&options, &|_, _| {}).unwrap()).unwrap();
        assert_eq!(text(), text());
    }

    #[test]
    fn barriers_are_two_two_two_two_one_one_one() {
        let options = Options { sizes: vec![64], model: false, ..modelled_only() };
        let results = run(&options, &|_, _| {}).unwrap();
        for row in &results.rows {
            let expected = if row.variant.has_one_barrier() { 1.0 } else { 2.0 };
            assert_eq!(row.barriers, expected, "{}", row.variant);
            assert!(row.modelled.is_none() && row.measured.is_none());
        }
    }

    #[test]
    fn this_machine_is_measured_with_one_thread_and_with_two() {
        let options = Options {
            sizes: vec![40],
            model: false,
            measure_ms: 1,
            placements: vec![Placement::Padded],
            ..Options::default()
        };
        let results = run(&options, &|_, _| {}).unwrap();
        assert!(results.rows.iter().all(|row| row.measured.unwrap().appends_per_s > 0.0));
        assert!(results.rows.iter().any(|row| row.sharing == Sharing::Shared));
    }

    #[test]
    fn impossible_sizes_threads_and_profiles_are_refused() {
        let refused = |options| run(&options, &|_, _| {}).unwrap_err();
        for sizes in [vec![0], vec![LARGEST_BYTES + 1]] {
            let error = refused(Options { sizes, ..modelled_only() });
            assert!(matches!(error, LogExperimentError::Size { .. }), "{error}");
        }
        let error = refused(Options { threads: vec![0], ..modelled_only() });
        assert!(matches!(error, LogExperimentError::Threads { .. }), "{error}");
        let error = refused(Options { profile: "no such".to_owned(), ..modelled_only() });
        assert!(matches!(error, LogExperimentError::Profile(_)), "{error}");
        let error = refused(Options { placements: vec![], ..modelled_only() });
        assert!(matches!(error, LogExperimentError::NothingToDo), "{error}");
    }
}
