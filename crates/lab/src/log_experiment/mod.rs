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
mod variant;

use lapis_blocks::log::{Layout, Placement};
use serde::{Serialize, Serializer};

use crate::experiment::{self, ExperimentError, OnModel, Sides};
use crate::named::named;
use crate::progress::OnProgress;

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
    /// Where it is run.
    pub sides: Sides,
    /// Appends are measured for so long per row.
    pub measure_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variants: LogVariant::all(),
            placements: Placement::ALL.to_vec(),
            sizes: vec![8, 24, 40, 48, 64, 100, 128, 256, 512, 1000, 1024, 4096],
            threads: vec![1, 2],
            sides: Sides::default(),
            measure_ms: 30,
        }
    }
}

named! {
    /// Whose the log is.
    pub enum Sharing {
        /// There is one thread.
        Own = "own",
        /// Each thread has a log.
        PerThread = "per-thread",
        /// All threads have the same.
        Shared = "shared",
    }
}

/// How fast it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Appends per second, of all threads together.
    pub appends_per_s: f64,
    /// Nanoseconds from one append of a thread to its next.
    pub ns_per_append: f64,
}

/// What was run: one log, one size of entries.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
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
    /// Barriers (fences) per append, counted.
    pub barriers: f64,
    /// Bytes that an entry takes, with everything.
    pub entry_bytes: f64,
}

/// One log, one size of entries.
pub type Row = experiment::Row<Case, Rate>;

fn variant_name<S: Serializer>(variant: &LogVariant, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(variant.name)
}

fn placement_name<S: Serializer>(placement: &Placement, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(placement.name())
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogResults {
    /// The device profile of what is modelled.
    pub profile: String,
    /// The flush instruction of what is measured.
    pub flush_method: String,
    /// One per log, placement, size, number of threads and sharing.
    pub rows: Vec<Row>,
}

/// The largest entries that are compared.
pub const LARGEST_BYTES: usize = 64 << 10;
/// The most threads.
pub const MOST_THREADS: usize = 64;

/// Runs the experiment.
///
/// # Errors
/// [`ExperimentError`].
pub fn run(options: &Options, progress: OnProgress<'_>) -> Result<LogResults, ExperimentError> {
    let profile = options.sides.check()?;
    if let Some(size) = options.sizes.iter().find(|&&size| !(1..=LARGEST_BYTES).contains(&size)) {
        let what =
            format!("entries of {size} bytes cannot be compared; choose 1 to {LARGEST_BYTES}");
        return Err(ExperimentError::bad_option(what));
    }
    if let Some(threads) =
        options.threads.iter().find(|&&count| !(1..=MOST_THREADS).contains(&count))
    {
        let what = format!("{threads} threads are impossible; choose 1 to {MOST_THREADS}");
        return Err(ExperimentError::bad_option(what));
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
                    let row =
                        |&size_bytes| Job { variant, placement, size_bytes, threads, sharing };
                    plan.extend(options.sizes.iter().map(row));
                }
            }
        }
    }
    if plan.is_empty() {
        return Err(ExperimentError::bad_option(
            "there is nothing to compare; name at least one log, placement, size and number of \
             threads",
        ));
    }
    let found = options.sides.run(
        &plan,
        progress,
        |&job| here::run(job, options.measure_ms),
        |&job| model::run(job, &profile, true),
    )?;
    let mut rows = Vec::with_capacity(plan.len());
    for (job, (measured, modelled)) in plan.into_iter().zip(found) {
        // Barriers are counted in any case.
        let few = if modelled.is_none() { Some(model::run(job, &profile, false)?) } else { None };
        let counted = modelled.as_ref().or(few.as_ref());
        let (barriers, entry_bytes) =
            counted.map_or((0.0, 0.0), |of| (of.append.counts.fences, of.entry_bytes));
        let Job { variant, placement, size_bytes, threads, sharing } = job;
        rows.push(Row {
            case: Case { variant, placement, size_bytes, threads, sharing, barriers, entry_bytes },
            measured,
            modelled: modelled.map(|of| of.append),
        });
    }
    let flush_method = lapis_pmem::Hardware::detect().method().name().to_owned();
    Ok(LogResults { profile: profile.name.clone(), flush_method, rows })
}

/// Of a log that threads cannot fill side by side.
fn not_shared(job: Job) -> ExperimentError {
    ExperimentError::bad_option(format!("threads cannot share a {}", job.variant))
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

    /// The layout of a log that has room for so many bytes.
    fn layout(self, bytes: usize) -> Layout {
        self.variant.layout(self.placement, bytes)
    }

    fn payload(self) -> Vec<u8> {
        (0..self.size_bytes).map(|at| (at * 131 + 17) as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use lapis_blocks::log::Log;
    use lapis_blocks::{LogKind, with_log};

    use super::*;

    fn modelled_only() -> Options {
        Options { sides: Sides::modelled_only(), threads: vec![1], ..Options::default() }
    }

    /// The log in segments and the one in a ring.
    const POP_LOGS: [LogKind; 2] = [LogKind::PopLog, LogKind::PopRing];

    /// Modelled nanoseconds per append of each log, its placement and sharing, at one size.
    fn times(results: &LogResults, size: usize) -> Vec<(&Case, f64)> {
        let rows = results.rows.iter().filter(|row| row.case.size_bytes == size);
        let ns = |row: &Row| row.modelled.as_ref().unwrap().figures.ns_per_append;
        rows.map(|row| (&row.case, ns(row))).collect()
    }

    #[test]
    fn pop_logs_are_at_least_as_fast_as_logs_of_other_schemes_padded_and_streamed_on_the_model() {
        let options = Options {
            placements: vec![Placement::Padded, Placement::Streamed],
            threads: vec![1, 2],
            ..modelled_only()
        };
        let results = run(&options, &|_| ()).unwrap();
        for &size in &options.sizes {
            let times = times(&results, size);
            let of_pop = times.iter().filter(|(row, _)| POP_LOGS.contains(&row.variant.kind));
            for (pop, pop_ns) in of_pop {
                let alike = |row: &Case| {
                    (row.placement, row.threads, row.sharing)
                        == (pop.placement, pop.threads, pop.sharing)
                        && !POP_LOGS.contains(&row.variant.kind)
                };
                // Two logs, each of which lies over the modules in its own way, may get into each other's
                // way by a few per cent.
                let rounding = if pop.threads == 1 { 1.001 } else { 1.1 };
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
        let results = run(&modelled_only(), &|_| ()).unwrap();
        for &size in &modelled_only().sizes {
            let times = times(&results, size);
            let best = |of: &dyn Fn(LogKind) -> bool| {
                let those = times.iter().filter(|(row, _)| of(row.variant.kind));
                those.map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min)
            };
            let others = best(&|kind| !POP_LOGS.contains(&kind));
            for pop in POP_LOGS {
                let pop_ns = best(&|kind| kind == pop);
                assert!(pop_ns <= others * 1.001, "{size} bytes: {pop} {pop_ns}, {others} ns");
            }
        }
    }

    #[test]
    fn dancing_size_fields_gain_on_the_model_and_stay_behind_the_classic_log() {
        let options = Options {
            sizes: vec![8, 48, 100],
            placements: vec![Placement::Padded],
            ..modelled_only()
        };
        let results = run(&options, &|_| ()).unwrap();
        for &size in &options.sizes {
            let ns = |variant: &str| {
                let mut rows = results.rows.iter();
                let of =
                    |row: &&Row| (row.case.size_bytes, row.case.variant.name) == (size, variant);
                rows.find(of).unwrap().modelled.as_ref().unwrap().figures.ns_per_append
            };
            let classic = ns("classic-log");
            let dancing = ns("header-log:dancing");
            // In the paper they are level: here each field's line is read again, since its flush has dropped it.
            assert!(
                (1.5..2.0).contains(&(dancing / classic)),
                "{size}: {dancing} and {classic} ns"
            );
            assert!(ns("header-log") > 1.5 * dancing, "{size}: one size field is not dearer");
        }
    }

    #[test]
    fn the_model_gives_the_same_figures_on_every_run() {
        let options = Options { sizes: vec![100], threads: vec![1, 2], ..modelled_only() };
        let text = || serde_json::to_string(&run(&options, &|_| ()).unwrap()).unwrap();
        assert_eq!(text(), text());
    }

    #[test]
    fn barriers_are_two_two_two_two_one_one_one() {
        let sides = Sides::measured_only();
        let options = Options { sizes: vec![64], measure_ms: 1, sides, ..modelled_only() };
        for Row { case, modelled, .. } in run(&options, &|_| ()).unwrap().rows {
            let expected =
                with_log!(case.variant.kind, lapis_pmem::Hardware, |L| <L as Log<_>>::BARRIERS);
            assert_eq!(case.barriers, expected as f64, "{}", case.variant);
            assert!(modelled.is_none());
        }
    }

    #[test]
    fn this_machine_is_measured_with_one_thread_and_with_two() {
        let options = Options {
            sizes: vec![40],
            sides: Sides::measured_only(),
            measure_ms: 1,
            placements: vec![Placement::Padded],
            ..Options::default()
        };
        let results = run(&options, &|_| ()).unwrap();
        assert!(results.rows.iter().all(|row| row.measured.unwrap().appends_per_s > 0.0));
        assert!(results.rows.iter().any(|row| row.case.sharing == Sharing::Shared));
    }

    #[test]
    fn impossible_sizes_threads_and_profiles_are_refused() {
        let profile = "no such".to_owned();
        for (options, says) in [
            (Options { sizes: vec![0], ..modelled_only() }, "entries of 0 bytes"),
            (Options { sizes: vec![LARGEST_BYTES + 1], ..modelled_only() }, "choose 1 to 65536"),
            (Options { threads: vec![0], ..modelled_only() }, "0 threads are impossible"),
            (Options { placements: vec![], ..modelled_only() }, "nothing to compare"),
            (
                Options { sides: Sides { profile, ..Sides::default() }, ..modelled_only() },
                "there is no device profile no such",
            ),
        ] {
            let error = run(&options, &|_| ()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
