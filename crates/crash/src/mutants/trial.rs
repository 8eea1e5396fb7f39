//! The trial: each mutant and each strategy, and the structures as they are.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::concurrent::{
    ConcurrentOptions, MOST_PLANNED_SCHEDULES, PLANNED_WORKERS, explore_structure_concurrently,
};
use crate::options::ExploreOptions;
use crate::report::ExploreReport;
use crate::stop_flag::StopFlag;
use crate::strategy::Strategy;
use crate::structure::{
    CrashError, Progress, Structure, explore_after_cuts, explore_structure, is_history,
};

use super::{MutantEntry, catalogue, concurrent_catalogue};

/// What is spent on each mutant, and on each structure as it is, by each strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutantBudget {
    /// Runs of operations, from seed 1 on; for a mutant, until it is killed.
    pub seeds: u64,
    /// [`ExploreOptions::exhaustive_limit`].
    pub exhaustive_limit: u64,
    /// [`ExploreOptions::samples`].
    pub samples: u32,
    /// [`ExploreOptions::crash_in_recovery_every`].
    pub crash_in_recovery_every: u64,
    /// Histories of [`WORKERS`] workers, from seed 1 on; for a mutant, until it is killed. Sixty times
    /// as many for one that takes several workers to show.
    pub schedules: u64,
    /// [`ExploreOptions::spread_images`] of a structure as it is. A mutant that such a run does not kill is explored once
    /// more with all images.
    pub spread_images: u64,
    /// [`ExploreOptions::spread_images`] of each run that begins with a power cut ([`ExploreOptions::cut_in`]): a mutant
    /// that no other run kills is tried in those of eight seeds.
    pub images_after_cut: u64,
    /// Whether structures as they are are tried in such runs, too.
    pub cuts_unmutated: bool,
    /// Runs that are [`LONGER`] times as long, with [`IMAGES_OF_LONGER`] images each, from seed 1 on, before that: what is
    /// wrong may show in a state that short runs do not come to.
    pub longer_seeds: u64,
}

/// How many times longer the longer runs are.
const LONGER: usize = 5;
/// [`ExploreOptions::spread_images`] of the longer runs.
const IMAGES_OF_LONGER: u64 = 20;

/// Of so many seeds a mutant that is hard to kill is tried in runs that begin with a power cut.
const SEEDS_WITH_CUTS: u64 = 8;

/// Workers of the histories that mutants are tried with besides the strategies.
pub const WORKERS: usize = 3;
/// [`ConcurrentOptions::exhaustive_limit`] and [`ConcurrentOptions::samples`] in them.
const WORKERS_EXHAUSTIVE_LIMIT: u64 = 16;
const WORKERS_SAMPLES: u32 = 8;

impl Default for MutantBudget {
    fn default() -> Self {
        Self {
            seeds: 2,
            exhaustive_limit: 64,
            samples: 16,
            crash_in_recovery_every: 256,
            schedules: 20,
            spread_images: 1000,
            images_after_cut: 100,
            cuts_unmutated: true,
            longer_seeds: 8,
        }
    }
}

impl MutantBudget {
    /// The budget of the default test suite.
    pub fn small() -> Self {
        Self {
            seeds: 1,
            exhaustive_limit: 24,
            samples: 8,
            crash_in_recovery_every: 1024,
            schedules: 0,
            spread_images: 1000,
            images_after_cut: 20,
            cuts_unmutated: false,
            longer_seeds: 0,
        }
    }
}

/// What to try.
#[derive(Clone, Debug)]
pub struct MutantTrial {
    /// The structures whose mutants are tried.
    pub structures: Vec<Structure>,
    /// By these strategies.
    pub strategies: Vec<Strategy>,
    /// How much is spent on each.
    pub budget: MutantBudget,
    /// Threads. What is found does not depend on it.
    pub threads: usize,
    /// Stop as soon as it is raised; what was not tried to its end is left out.
    pub stop: StopFlag,
}

impl Default for MutantTrial {
    fn default() -> Self {
        Self {
            structures: Structure::all().collect(),
            strategies: Strategy::ALL.to_vec(),
            budget: MutantBudget::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            stop: StopFlag::default(),
        }
    }
}

/// How a mutant is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Search {
    /// By histories of so many workers.
    Workers(usize),
    /// By the images of a run of one worker, chosen so.
    #[serde(untagged)]
    Strategy(Strategy),
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strategy(strategy) => strategy.fmt(f),
            Self::Workers(count) => write!(f, "{count} workers"),
        }
    }
}

/// What became of a mutant under a strategy.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MutantRow {
    /// The mutant.
    pub name: &'static str,
    /// Its structure.
    pub structure: &'static str,
    /// The strategy, or the workers.
    pub strategy: Search,
    /// Whether it was found out.
    pub killed: bool,
    /// Images tried until then; or all that the budget gave.
    pub images: u64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// The violation that gave it away.
    pub by: Option<String>,
}

/// What was found of a structure as it is, at the same budget.
#[derive(Clone, Debug, serde::Serialize)]
pub struct UnmutatedRow {
    /// The structure.
    pub structure: &'static str,
    /// The strategy, or the workers.
    pub strategy: Search,
    /// Images tried.
    pub images: u64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// What was not survived.
    pub violations: Vec<String>,
}

/// The outcome of a trial.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MutantReport {
    /// Mutants by strategies.
    pub mutants: Vec<MutantRow>,
    /// The structures as they are.
    pub unmutated: Vec<UnmutatedRow>,
    /// Violations of the structures as they are.
    pub unmutated_violations: u64,
    /// It ended early, because somebody asked for that.
    pub stopped: bool,
}

impl MutantReport {
    /// The mutants that no strategy killed.
    pub fn survivors(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.mutants.iter().map(|row| row.name).collect();
        names.dedup();
        names.retain(|name| !self.mutants.iter().any(|row| row.name == *name && row.killed));
        names
    }

    /// Whether every mutant was killed by some strategy, and nothing was found wrong otherwise.
    pub fn is_good(&self) -> bool {
        self.unmutated_violations == 0 && self.survivors().is_empty()
    }
}

/// One exploration, or several until one kills.
struct Job {
    structure: Structure,
    strategy: Search,
    /// None: the structure as it is.
    entry: Option<MutantEntry>,
    /// Histories, with several workers.
    schedules: u64,
    seeds: std::ops::RangeInclusive<u64>,
    stop: StopFlag,
}

/// [`explore_structure`] or [`explore_after_cuts`].
type Explore = fn(
    Structure,
    Option<&str>,
    &ExploreOptions,
    &Progress<'_>,
) -> Result<ExploreReport, CrashError>;

/// By what, from which seeds, so many operations with so many images.
type Pass = (Explore, std::ops::RangeInclusive<u64>, usize, u64);

#[derive(Default)]
struct Outcome {
    images: u64,
    seconds: f64,
    violations: Vec<String>,
}

impl Job {
    fn run(&self, budget: MutantBudget) -> Outcome {
        let (started, mut outcome) = (Instant::now(), Outcome::default());
        match self.strategy {
            Search::Strategy(strategy) => self.run_by(strategy, budget, &mut outcome),
            Search::Workers(_) if self.entry.is_some_and(|entry| is_planned(&entry)) => {
                self.run_planned(budget, &mut outcome);
            }
            Search::Workers(workers) => {
                let options = ConcurrentOptions {
                    workers,
                    schedules: self.schedules,
                    exhaustive_limit: WORKERS_EXHAUSTIVE_LIMIT,
                    samples: WORKERS_SAMPLES,
                    ..ConcurrentOptions::default()
                };
                // One that shows in one worker may name runs that several do not make.
                let of_several = self.entry.filter(|entry| entry.takes_workers);
                let only = of_several.and_then(|entry| entry.subjects.first().copied());
                self.run_with(only, options, &mut outcome);
            }
        }
        outcome.seconds = started.elapsed().as_secs_f64();
        outcome
    }

    /// A few images all over the run of every seed and every subject; a mutant that is still alive then, fewer over
    /// longer runs, then all. Then a few over runs that begin with a power cut. Ends at the first violation.
    fn run_by(&self, strategy: Strategy, budget: MutantBudget, outcome: &mut Outcome) {
        let ops = self.structure.mutants().ops;
        let (seeds, images) = (|| self.seeds.clone(), budget.images_after_cut);
        let mut passes: Vec<Pass> = vec![(explore_structure, seeds(), ops, budget.spread_images)];
        if self.entry.is_some() {
            let longer = 1..=budget.longer_seeds;
            passes.push((explore_structure, longer, ops * LONGER, IMAGES_OF_LONGER));
            passes.push((explore_structure, seeds(), ops, 0));
            passes.push((explore_after_cuts, 1..=SEEDS_WITH_CUTS, ops, images));
        } else if budget.cuts_unmutated {
            passes.push((explore_after_cuts, seeds(), ops, images));
        }
        for pass in passes {
            self.run_spread(strategy, budget, pass, outcome);
            if !outcome.violations.is_empty() {
                return;
            }
        }
    }

    fn run_spread(
        &self,
        strategy: Strategy,
        budget: MutantBudget,
        (explore, seeds, ops, spread_images): Pass,
        outcome: &mut Outcome,
    ) {
        let named = self.entry.map_or(&[][..], |entry| entry.subjects);
        let subjects = if named.is_empty() { self.structure.subjects() } else { named.to_vec() };
        let MutantBudget { exhaustive_limit, samples, crash_in_recovery_every, .. } = budget;
        for seed in seeds {
            for subject in &subjects {
                let options = ExploreOptions {
                    ops,
                    seed,
                    strategy,
                    exhaustive_limit,
                    samples,
                    crash_in_recovery_every,
                    // So that the images up to the first violation are the same everywhere.
                    threads: 1,
                    violation_limit: 1,
                    stop: self.stop,
                    mutant: self.entry.map(|entry| entry.mutant),
                    spread_images,
                    ..ExploreOptions::default()
                };
                let found = explore(self.structure, Some(subject), &options, &|_| {});
                outcome.add(found.map(|report| {
                    (report.images, report.violations.into_iter().next().map(|it| it.what))
                }));
                if !outcome.violations.is_empty() {
                    return;
                }
            }
        }
    }

    /// The histories that are made for a mutant, on all schedules with one deviation from worker after worker.
    fn run_planned(&self, budget: MutantBudget, outcome: &mut Outcome) {
        let MutantBudget { exhaustive_limit, samples, .. } = budget;
        for seed in self.seeds.clone() {
            for history in self.entry.map_or(&[][..], |entry| entry.subjects) {
                let options = ConcurrentOptions {
                    workers: PLANNED_WORKERS,
                    seed,
                    most_deviations: Some(1),
                    schedules: MOST_PLANNED_SCHEDULES,
                    exhaustive_limit,
                    samples,
                    ..ConcurrentOptions::default()
                };
                self.run_with(Some(history), options, outcome);
                if !outcome.violations.is_empty() {
                    return;
                }
            }
        }
    }

    /// Histories of several workers, until the first violation.
    fn run_with(&self, subject: Option<&str>, options: ConcurrentOptions, outcome: &mut Outcome) {
        let mutant = self.entry.map(|entry| entry.mutant);
        // As for one worker.
        let stop = self.stop;
        let options = ConcurrentOptions { threads: 1, violation_limit: 1, stop, mutant, ..options };
        let found = explore_structure_concurrently(self.structure, subject, &options, &|_| {});
        outcome.add(
            found.map(|report| {
                (report.images, report.violations.into_iter().next().map(|it| it.what))
            }),
        );
    }
}

/// Whether there are histories of several workers that are made for it.
pub(super) fn is_planned(entry: &MutantEntry) -> bool {
    entry.subjects.iter().any(|name| is_history(name))
}

impl Outcome {
    /// Adds images and the first violation; a structure that fails without a crash is one.
    fn add(&mut self, found: Result<(u64, Option<String>), CrashError>) {
        match found {
            Ok((images, violation)) => {
                self.images += images;
                self.violations.extend(violation);
            }
            Err(CrashError::Failed { what, .. }) => self.violations.push(what),
            Err(error) => self.violations.push(error.to_string()),
        }
    }
}

/// Tries every mutant by every strategy, and the structures as they are at the same budget.
/// `progress` is told how many of these have been done.
pub fn try_mutants(trial: &MutantTrial, progress: &Progress<'_>) -> MutantReport {
    let mut jobs = Vec::new();
    let schedules = trial.budget.schedules;
    let strategies: Vec<_> = trial.strategies.iter().map(|&by| Search::Strategy(by)).collect();
    let stop = trial.stop;
    let job = |structure, strategy, entry, seeds| Job {
        structure,
        strategy,
        entry,
        schedules,
        seeds,
        stop,
    };
    // The long ones first.
    for &structure in &trial.structures {
        for &strategy in &strategies {
            let seeds = 1..=trial.budget.seeds;
            jobs.extend(seeds.map(|seed| job(structure, strategy, None, seed..=seed)));
        }
    }
    let with_workers = |structure: Structure| {
        let tried = trial.budget.schedules > 0 && structure.takes_workers();
        tried.then_some(Search::Workers(WORKERS))
    };
    for &structure in &trial.structures {
        let search = with_workers(structure);
        jobs.extend(search.map(|strategy| job(structure, strategy, None, 1..=1)));
    }
    for (structure, entry) in catalogue() {
        if trial.structures.contains(&structure) {
            let seeds = 1..=trial.budget.seeds;
            if is_planned(&entry) {
                let by = Search::Workers(PLANNED_WORKERS);
                jobs.push(job(structure, by, Some(entry), seeds));
                continue;
            }
            let searches = strategies.iter().copied().chain(with_workers(structure));
            jobs.extend(searches.map(|by| job(structure, by, Some(entry), seeds.clone())));
        }
    }
    for (structure, entry) in concurrent_catalogue() {
        if trial.structures.contains(&structure) {
            jobs.extend(with_workers(structure).map(|strategy| Job {
                schedules: 60 * schedules,
                ..job(structure, strategy, Some(entry), 1..=1)
            }));
        }
    }

    let outcomes: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::default()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..trial.threads.max(1) {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed))
                    && let Some(job) = jobs.get(index)
                    && !stop.is_raised()
                {
                    let outcome = job.run(trial.budget);
                    let is_whole = !stop.is_raised() || !outcome.violations.is_empty();
                    *outcomes[index].lock() = is_whole.then_some(outcome);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });

    let mut report = MutantReport {
        mutants: Vec::new(),
        unmutated: Vec::new(),
        unmutated_violations: 0,
        stopped: stop.is_raised(),
    };
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let Some(Outcome { images, seconds, violations }) = outcome.into_inner() else { continue };
        let (structure, strategy) = (job.structure.name(), job.strategy);
        if let Some(entry) = job.entry {
            let by = violations.into_iter().next();
            let (name, killed) = (entry.mutant.0, by.is_some());
            let row = MutantRow { name, structure, strategy, killed, images, seconds, by };
            report.mutants.push(row);
            continue;
        }
        report.unmutated_violations += violations.len() as u64;
        match report.unmutated.last_mut() {
            Some(row) if (row.structure, row.strategy) == (structure, strategy) => {
                row.images += images;
                row.seconds += seconds;
                row.violations.extend(violations);
            }
            _ => report.unmutated.push(UnmutatedRow {
                structure,
                strategy,
                images,
                seconds,
                violations,
            }),
        }
    }
    report
}

/// The catalogue and the outcome as tables in Markdown. Without times, so that the same code gives
/// the same text everywhere.
pub fn markdown(report: &MutantReport) -> String {
    let mut text =
        String::from("| mutant | what is wrong | published | where |\n|---|---|---|---|\n");
    let tried = |name| report.mutants.iter().any(|row| row.name == name);
    // Writing to a string cannot fail.
    let all = catalogue().into_iter().chain(concurrent_catalogue());
    for (_, entry) in all.filter(|(_, entry)| tried(entry.mutant.0)) {
        let MutantEntry { what, published, place, .. } = entry;
        let _ = writeln!(text, "| `{}` | {what} | {published} | `{place}` |", entry.mutant.0);
    }
    text.push_str("\n| mutant | strategy | outcome | images |\n|---|---|---|---:|\n");
    for row in &report.mutants {
        let outcome = if row.killed { "killed" } else { "survived" };
        let MutantRow { name, strategy, images, .. } = row;
        let _ = writeln!(text, "| `{name}` | {strategy} | {outcome} | {images} |");
    }
    text.push_str("\n| without mutants | strategy | violations | images |\n|---|---|---:|---:|\n");
    for row in &report.unmutated {
        let UnmutatedRow { structure, strategy, images, violations, .. } = row;
        let _ = writeln!(text, "| {structure} | {strategy} | {} | {images} |", violations.len());
    }
    text
}
