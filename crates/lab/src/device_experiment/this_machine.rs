//! A characterisation of a memory in the manner of the persistent-memory study that the building
//! blocks rest on (van Renen, Vogel, Leis, Neumann, Kemper, "Building blocks for persistent memory",
//! The VLDB Journal 29, 2020, section 2): latency, bandwidth, interference.
//!
//! One set of programs runs on two machines: on this one, by its clock, and on the modelled
//! machine, by virtual time. What was measured here and what was modelled are two columns and never
//! mixed. Figures measured on a machine without persistent memory are figures of its DRAM, and the
//! result says so.

use std::collections::HashMap;
use std::path::PathBuf;

use lapis_device::Profile;
use lapis_pmem::Medium;
use serde::Serialize;

use super::arena::Arena;
use super::machine::{Effort, Machine, ThisMachine};
use super::modelled_machine::ModelledMachine;
use super::point::{Experiment, Figures, Point};
use super::{bandwidth, interference, latency};
use crate::experiment::table::Table;
use crate::experiment::{ExperimentError, Findings, in_order};
use crate::plot::{Axis, Panel, Plot, Source};
use crate::progress::{OnProgress, Progress};

/// What to find out, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory to work on. More than the caches hold, or the caches are what is measured.
    pub bytes: usize,
    /// A file to be made for that, on a DAX file system for instance; anonymous memory otherwise.
    pub file: Option<PathBuf>,
    /// How long each measured point runs, after its warm-up.
    pub measured_ns: u64,
    /// The experiments to run.
    pub experiments: Vec<Experiment>,
    /// Measure here.
    pub measure: bool,
    /// Model the machine of this profile.
    pub model: Option<Profile>,
    /// What the random numbers start from.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            file: None,
            measured_ns: 100_000_000,
            experiments: Experiment::ALL.to_vec(),
            measure: true,
            model: None,
            seed: 42,
        }
    }
}

/// One row: a point, and what was found about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The experiment.
    pub experiment: &'static str,
    /// The figure of the publication that it repeats.
    pub figure: &'static str,
    /// How lines are read or written.
    pub method: &'static str,
    /// In what order.
    pub pattern: &'static str,
    /// Bytes accessed together.
    pub granularity_bytes: usize,
    /// Workers.
    pub threads: usize,
    /// The task, where several are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<&'static str>,
    /// The task that runs beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<&'static str>,
    /// Its workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_threads: Option<usize>,
    /// What this machine's clock says; absent where it lacks the cores or the instruction.
    pub measured: Option<Figures>,
    /// What the modelled machine says; absent where it has no such instruction.
    pub modelled: Option<Figures>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Characterisation {
    /// What the memory measured here lies on.
    pub memory: &'static str,
    /// Whether that is persistent memory.
    pub memory_is_persistent: bool,
    /// What to keep in mind when reading the measured figures.
    pub remark: &'static str,
    /// Bytes that were worked on.
    pub bytes: usize,
    /// Cores of this machine.
    pub cores: usize,
    /// Processes that wanted a core, on the average of the minute before; more than a few tenths
    /// disturb what is measured. `None` where the system does not say.
    pub load_average_before: Option<f64>,
    /// The profile that was modelled.
    pub profile: Option<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

const LEAST_BYTES: usize = 64 << 20;
/// Threads of the publication's machine: the counts at which its figures have points.
const PUBLISHED_THREADS: [usize; 7] = [1, 2, 4, 8, 12, 16, 24];
const PUBLISHED_SCAN_THREADS: usize = 14;
const PUBLISHED_BESIDE_THREADS: [usize; 3] = [1, 5, 10];

/// The points for a machine of `cores` cores and for the publication's.
pub fn points(experiments: &[Experiment], cores: usize) -> Vec<Point> {
    let mut all = latency::points();
    let most = PUBLISHED_THREADS[PUBLISHED_THREADS.len() - 1];
    let mut ends = vec![cores, most];
    ends.dedup();
    all.extend(bandwidth::granularity_points(&ends));
    let mut threads = PUBLISHED_THREADS.to_vec();
    threads.push(cores);
    threads.sort_unstable();
    threads.dedup();
    all.extend(bandwidth::thread_points(&threads));
    // Half of this machine's cores against the other half, and the publication's numbers.
    if cores > 1 && cores / 2 != PUBLISHED_SCAN_THREADS {
        all.extend(interference::points(cores / 2, &[cores - cores / 2]));
    }
    all.extend(interference::points(PUBLISHED_SCAN_THREADS, &PUBLISHED_BESIDE_THREADS));
    all.retain(|point| experiments.contains(&point.experiment));
    all
}

/// Finds every point on one machine. Interfering tasks are compared with themselves alone.
pub fn find_all<M: Machine>(
    machine: &M,
    points: &[Point],
    arena: &mut Arena,
    effort: impl Fn(&Point) -> Effort,
    seed: u64,
    mut done: impl FnMut(),
) -> Vec<Option<Figures>> {
    let mut alone = HashMap::new();
    let mut found = Vec::with_capacity(points.len());
    for point in points {
        let figures = point.find(machine, arena, effort(point), seed);
        let figures = figures.map(|figures| match (point.beside, alone.get(&point.alone())) {
            (Some(_), Some(&alone)) => interference::with_slowdown(figures, alone),
            _ => figures,
        });
        if let (None, Some(figures)) = (point.beside, figures) {
            alone.insert(*point, figures);
        }
        found.push(figures);
        done();
    }
    found
}

/// Characterises the memory of this machine, and the modelled machine beside it.
///
/// # Errors
/// [`ExperimentError`].
pub fn characterise(
    options: &Options,
    progress: OnProgress<'_>,
) -> Result<Characterisation, ExperimentError> {
    if options.bytes < LEAST_BYTES {
        let bytes = options.bytes;
        let what = format!("{bytes} bytes are too few; characterise at least {LEAST_BYTES}");
        return Err(ExperimentError::bad_option(what));
    }
    let arena = match &options.file {
        Some(path) => Arena::file(path, options.bytes),
        None => Arena::anonymous(options.bytes),
    };
    let mut arena = arena.map_err(|error| {
        ExperimentError::bad_option(format!("no memory to characterise: {error}"))
    })?;
    let load_average_before = load_average();
    let machine = ThisMachine::detect();
    let cores = machine.most_workers();
    let points = points(&options.experiments, cores);
    let machines = u64::from(options.measure) + u64::from(options.model.is_some());
    let total = machines * points.len() as u64;
    let mut count = 0;
    let mut done = || {
        count += 1;
        progress(Progress { done: count, total });
    };
    let measured = if options.measure {
        let effort = |_: &Point| Effort {
            // What ordinary stores leave in the caches must be evicted as fast as it comes.
            warm_up_bytes: options.bytes / 4,
            duration_ns: options.measured_ns,
        };
        find_all(&machine, &points, &mut arena, effort, options.seed, &mut done)
    } else {
        vec![None; points.len()]
    };
    let modelled = match &options.model {
        Some(profile) => {
            let machine = ModelledMachine::of(profile);
            let effort = ModelledMachine::effort;
            find_all(&machine, &points, &mut arena, effort, options.seed, &mut done)
        }
        None => vec![None; points.len()],
    };
    let found = points.iter().zip(measured.into_iter().zip(modelled));
    let rows = found.filter(|(_, (measured, modelled))| measured.is_some() || modelled.is_some());
    let medium = arena.medium();
    let memory_is_persistent = matches!(medium, Medium::Dax | Medium::DeviceDax);
    Ok(Characterisation {
        memory: medium.name(),
        memory_is_persistent,
        remark: if memory_is_persistent {
            "measured on persistent memory"
        } else {
            "this machine's memory is not PM: measured figures are those of its DRAM and caches"
        },
        bytes: arena.bytes(),
        cores,
        load_average_before,
        profile: options.model.as_ref().map(|profile| profile.name.clone()),
        rows: rows.map(|(point, (measured, modelled))| row(point, measured, modelled)).collect(),
    })
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn row(point: &Point, measured: Option<Figures>, modelled: Option<Figures>) -> Row {
    Row {
        experiment: point.experiment.name(),
        figure: point.experiment.figure(),
        method: point.method.name(),
        pattern: point.task.pattern.name(),
        granularity_bytes: point.task.chunk_bytes,
        threads: point.threads,
        task: point.task_name,
        beside: point.beside.map(|beside| beside.name),
        beside_threads: point.beside.map(|beside| beside.threads),
        measured,
        modelled,
    }
}

impl Findings for Characterisation {
    /// Measured and modelled side by side, never mixed.
    fn tables(&self) -> Vec<Table> {
        let headings = "experiment | figure | method | pattern | bytes | threads | beside | measured \
             here | modelled";
        let mut table = Table::new(7, headings);
        for row in &self.rows {
            let method = match row.task {
                Some(task) => format!("{task} ({})", row.method),
                None => row.method.to_owned(),
            };
            let beside = row.beside.zip(row.beside_threads);
            table.push([
                row.experiment.to_owned(),
                row.figure.to_owned(),
                method,
                row.pattern.to_owned(),
                row.granularity_bytes.to_string(),
                row.threads.to_string(),
                beside.map_or_else(String::new, |(task, threads)| format!("{threads} × {task}")),
                words(row.measured.as_ref()),
                words(row.modelled.as_ref()),
            ]);
        }
        vec![table]
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "measured here: {} MiB of {}, {} cores; {}.",
            self.bytes >> 20,
            self.memory,
            self.cores,
            self.remark
        )];
        if let Some(load) = self.load_average_before.filter(|&load| load > 0.5) {
            notes.push(format!(
                "The load average was {load:.1} before: other processes disturbed what was measured."
            ));
        }
        if let Some(profile) = &self.profile {
            notes.push(format!("modelled: {profile}, in virtual time."));
            notes.push("-: too few cores or no such instruction here, or not modelled.".to_owned());
        }
        notes.push(format!("figure: of {STUDY}."));
        notes
    }

    /// Bandwidth by the bytes accessed together, and by threads.
    fn figure(&self) -> Option<Plot> {
        let of = |experiment: Experiment| {
            self.rows.iter().filter(move |row| row.experiment == experiment.name())
        };
        let mut panels = Vec::new();
        for threads in in_order(of(Experiment::BandwidthByGranularity).map(|row| row.threads)) {
            let rows = of(Experiment::BandwidthByGranularity).filter(|row| row.threads == threads);
            let title = format!("bandwidth by bytes accessed together, {threads} threads");
            let x = Axis::log2("bytes");
            panels.push(self.panel(&title, x, rows.collect(), |row| row.granularity_bytes));
        }
        for bytes in in_order(of(Experiment::BandwidthByThreads).map(|row| row.granularity_bytes)) {
            let rows =
                of(Experiment::BandwidthByThreads).filter(|row| row.granularity_bytes == bytes);
            let title = format!("bandwidth by threads, {bytes} bytes together");
            panels.push(
                self.panel(&title, Axis::linear("threads"), rows.collect(), |row| row.threads),
            );
        }
        Some(Plot::new("The memory of this machine", &format!("After {STUDY}."), panels))
    }
}

/// Where the experiments are from.
const STUDY: &str =
    "van Renen et al., Building blocks for persistent memory, VLDB Journal 29, 2020";

impl Characterisation {
    /// A line for each method and machine.
    fn panel(&self, title: &str, x: Axis, rows: Vec<&Row>, place: impl Fn(&Row) -> usize) -> Panel {
        let mut panel = Panel::new(title, x, Axis::linear("GB/s"));
        let modelled = Source::modelled(self.profile.as_deref().unwrap_or_default());
        for method in in_order(rows.iter().map(|row| row.method)) {
            let points = |side: fn(&Row) -> Option<Figures>| -> Vec<(f64, f64)> {
                let of = rows.iter().filter(|row| row.method == method);
                of.filter_map(|row| Some((place(row) as f64, side(row)?.gb_s?))).collect()
            };
            for (source, points) in [
                (Source::Measured, points(|row| row.measured)),
                (modelled.clone(), points(|row| row.modelled)),
            ] {
                if !points.is_empty() {
                    panel.line(method, source, points);
                }
            }
        }
        panel
    }
}

/// A latency, or a bandwidth and what it lost.
fn words(figures: Option<&Figures>) -> String {
    let Some(figures) = figures else { return "-".to_owned() };
    let latency = figures.latency_ns.map(|latency_ns| format!("{latency_ns:.1} ns"));
    let bandwidth = figures.gb_s.map(|gb_s| format!("{gb_s:.2} GB/s"));
    // Adding zero turns a negative zero into a positive one.
    let lost = figures.slowdown_percent.map(|lost| format!("({:.0} % lost)", lost.round() + 0.0));
    latency.into_iter().chain(bandwidth).chain(lost).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn options(experiments: &[Experiment]) -> Options {
        Options {
            bytes: LEAST_BYTES,
            measured_ns: 200_000,
            experiments: experiments.to_vec(),
            ..Options::default()
        }
    }

    #[test]
    fn the_latencies_of_this_machine_come_in_every_pattern_and_method_it_has() {
        let options = options(&[Experiment::ReadLatency, Experiment::PersistLatency]);
        let last = AtomicU64::new(0);
        let progress = |progress: Progress| last.store(progress.done, Ordering::Relaxed);
        let found = characterise(&options, &progress).unwrap();
        assert!(!found.memory_is_persistent && found.remark.contains("not PM"));
        for pattern in ["same", "sequential", "random"] {
            let of = |experiment| {
                let rows = found.rows.iter();
                rows.filter(move |row| row.experiment == experiment && row.pattern == pattern)
            };
            assert_eq!(of("read-latency").count(), 1);
            assert!(of("persist-latency").count() >= 2, "streaming and one flush at least");
        }
        for row in &found.rows {
            let figures = row.measured.unwrap();
            assert!(figures.latency_ns.unwrap() > 0.0 && figures.gb_s.is_none());
            assert_eq!(row.modelled, None);
        }
        assert_eq!(last.into_inner(), 18);
    }

    #[test]
    fn points_that_need_more_cores_are_not_measured() {
        let machine = ThisMachine::detect();
        let mut arena = Arena::anonymous(LEAST_BYTES).unwrap();
        let mut point = bandwidth::thread_points(&[1])[0];
        let effort = Effort { warm_up_bytes: 0, duration_ns: 1000 };
        assert!(point.find(&machine, &mut arena, effort, 1).is_some());
        point.threads = machine.most_workers() + 1;
        assert_eq!(point.find(&machine, &mut arena, effort, 1), None);
    }

    #[test]
    fn every_experiment_has_points_and_each_point_once() {
        for cores in [1, 2, 14, 24, 28, 64] {
            let all = points(&Experiment::ALL, cores);
            let distinct: std::collections::HashSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{cores} cores");
            for experiment in Experiment::ALL {
                assert!(all.iter().any(|point| point.experiment == experiment));
            }
        }
    }

    #[test]
    fn a_task_beside_others_is_compared_with_itself_alone() {
        let alone = Figures { gb_s: Some(8.0), ..Figures::default() };
        let beside = Figures { gb_s: Some(6.0), beside_gb_s: Some(1.0), ..Figures::default() };
        let compared = interference::with_slowdown(beside, alone);
        assert_eq!(compared.slowdown_percent, Some(25.0));
        assert_eq!(compared.beside_gb_s, Some(1.0));
    }

    #[test]
    fn too_little_memory_is_refused() {
        let options = Options { bytes: 1 << 20, ..Options::default() };
        let error = characterise(&options, &|_| ()).unwrap_err();
        assert!(error.to_string().contains("too few"), "{error}");
    }
}
