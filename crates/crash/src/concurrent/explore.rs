//! Running histories and cutting the power in the middle of them.

use std::collections::BTreeSet;
use std::time::Instant;

use lapis_device::{BoundedSearch, InterleavedRun, PersistPoint, Schedule, SchedulePolicy};
use lapis_pmem::Mutant;
use parking_lot::Mutex;

use super::bench::{Bench, Found, Tally, Wanted};
use super::rule::BrokenRule;
use super::shrink::{Case, Selection, shrink};
use super::subject::ConcurrentSubject;
use super::timeline::draw;
use crate::erased::AnyConcurrentSubject;
use crate::report::Shrunk;
use crate::structure::Progress;
use crate::subject::text;

/// How to explore a structure with several workers.
#[derive(Clone, Debug)]
pub struct ConcurrentOptions {
    /// Workers.
    pub workers: usize,
    /// Calls of one history, all workers together.
    pub ops: usize,
    /// Determines the calls, the schedules and the sampled images: the first history has this seed,
    /// the next the next.
    pub seed: u64,
    /// Only these of the calls, by number from 1 on, in ascending order.
    pub keep: Option<Vec<u32>>,
    /// Only these of the operations that make what there is beforehand, likewise.
    pub keep_before: Option<Vec<u32>>,
    /// Histories to run.
    pub schedules: u64,
    /// Instead of random schedules of many histories, all schedules of one with up to so many
    /// deviations from running worker after worker, and no more than `schedules` of them.
    pub most_deviations: Option<usize>,
    /// At a crash point with up to this many images, all are tried.
    pub exhaustive_limit: u64,
    /// Beyond that, this many sampled ones besides the extremes.
    pub samples: u32,
    /// Threads of this machine.
    pub threads: usize,
    /// Stop at this many violations.
    pub violation_limit: usize,
    /// A flush or fence to switch off.
    pub suppress: Option<PersistPoint>,
    /// A known error to commit.
    pub mutant: Option<Mutant>,
    /// Shrink the first violation, and tell it step by step.
    pub shrink: bool,
    /// Only this.
    pub replay: ConcurrentReplay,
}

/// What of an exploration to show again; everything where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConcurrentReplay {
    /// The schedule, instead of that of the seed.
    pub schedule: Option<Schedule>,
    /// Events before the crash.
    pub position: Option<usize>,
    /// The state chosen for each uncertain line.
    pub image: Option<Vec<u32>>,
}

impl Default for ConcurrentOptions {
    fn default() -> Self {
        Self {
            workers: 3,
            ops: 12,
            seed: 1,
            keep: None,
            keep_before: None,
            schedules: 200,
            most_deviations: None,
            exhaustive_limit: 64,
            samples: 16,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            violation_limit: 10,
            suppress: None,
            mutant: None,
            shrink: false,
            replay: ConcurrentReplay::default(),
        }
    }
}

/// The result of an exploration with several workers.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ConcurrentReport {
    /// What was explored.
    pub structure: String,
    /// Workers.
    pub workers: usize,
    /// The first seed.
    pub seed: u64,
    /// Calls of one history.
    pub ops: usize,
    /// Histories run, each on a schedule of its own.
    pub schedules: u64,
    /// Events traced in them.
    pub events: u64,
    /// Instants at which the power was cut.
    pub crash_points: u64,
    /// Images recovered and judged.
    pub images: u64,
    /// Different contents that were recovered to, counted for each history.
    pub distinct_states: u64,
    /// Images per second of this machine.
    pub images_per_s: f64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// With bounded deviations: whether all schedules within the bound were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// What has no linearization, or was not survived.
    pub violations: Vec<ConcurrentViolation>,
    /// Every flush and fence that was passed in a history.
    #[serde(skip)]
    pub persist_points: BTreeSet<PersistPoint>,
}

/// A history that is not durably linearizable, or that went wrong otherwise.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ConcurrentViolation {
    /// Which part of the structure.
    pub subject: String,
    /// The seed of the history.
    pub seed: u64,
    /// The schedule; replays the run.
    pub schedule: String,
    /// Events before the crash; none if it went wrong without one.
    pub position: Option<usize>,
    /// Why the power was cut there.
    pub point: Option<String>,
    /// The state chosen for each uncertain line; 0 is the durable one.
    pub image: Vec<u32>,
    /// The call that does not fit.
    pub operation: Option<String>,
    /// What of durable linearizability, or of what must hold besides, does not.
    pub rule: BrokenRule,
    /// What went wrong, in a sentence.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
    /// The shortest case of its kind that was found, if it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
}

/// Runs histories and cuts the power in them.
///
/// # Errors
/// What could not be done at all, for a person.
pub fn explore_concurrent<S: ConcurrentSubject>(
    subject: &S,
    options: &ConcurrentOptions,
    progress: &Progress<'_>,
) -> Result<ConcurrentReport, String> {
    explore_any(subject, options, progress)
}

/// [`explore_concurrent`], of a subject of any types.
pub(super) fn explore_any(
    subject: &dyn AnyConcurrentSubject,
    options: &ConcurrentOptions,
    progress: &Progress<'_>,
) -> Result<ConcurrentReport, String> {
    let started = Instant::now();
    let found = Mutex::new(ConcurrentReport {
        structure: subject.name().to_owned(),
        workers: options.workers,
        seed: options.seed,
        ops: options.ops,
        ..ConcurrentReport::default()
    });
    let replays = options.replay.schedule.is_some() || options.replay.position.is_some();
    match options.most_deviations {
        Some(most) if !replays => search_bounded(subject, options, most, &found, progress)?,
        _ => {
            let threads = if replays { 1 } else { options.threads.max(1) };
            let schedules = if replays { 1 } else { options.schedules };
            let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads as u64)
                    .map(|first| {
                        let found = &found;
                        scope.spawn(move || {
                            let mut bench = Bench::new(subject, options, false)?;
                            let selection = Selection::of(options);
                            for number in (first..schedules).step_by(threads) {
                                let seed = options.seed.wrapping_add(number);
                                bench.prepare(seed, &selection)?;
                                let policy = match &options.replay.schedule {
                                    Some(schedule) => SchedulePolicy::Replay(schedule.clone()),
                                    None => policy_of(seed),
                                };
                                try_schedule(&mut bench, &policy, found)?;
                                if found.lock().violations.len() >= options.violation_limit {
                                    break;
                                }
                                progress(found.lock().images);
                            }
                            Ok(())
                        })
                    })
                    .collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .map(|it| it.unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                    .collect()
            });
            outcomes.into_iter().collect::<Result<Vec<()>, String>>()?;
        }
    }
    let mut report = found.into_inner();
    report.violations.sort_by_key(|violation| (violation.seed, violation.position));
    if options.shrink
        && let Some(violation) = report.violations.first()
    {
        report.violations[0].shrunk = told(subject, options, violation)?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    report.images_per_s = report.images as f64 / report.seconds.max(1e-9);
    Ok(report)
}

/// Most histories run on random schedules, every fourth by priorities.
pub(super) fn policy_of(seed: u64) -> SchedulePolicy {
    if seed % 4 == 3 {
        SchedulePolicy::Priorities { seed, changes: 1 + (seed / 4 % 4) as u32, events: 300 }
    } else {
        SchedulePolicy::Random { seed }
    }
}

fn search_bounded(
    subject: &dyn AnyConcurrentSubject,
    options: &ConcurrentOptions,
    most_deviations: usize,
    found: &Mutex<ConcurrentReport>,
    progress: &Progress<'_>,
) -> Result<(), String> {
    let mut search = BoundedSearch::new(most_deviations, options.schedules);
    let mut bench = Bench::new(subject, options, false)?;
    bench.prepare(options.seed, &Selection::of(options))?;
    while let Some(policy) = search.next_policy() {
        let run = try_schedule(&mut bench, &policy, found)?;
        search.ran(&run);
        if found.lock().violations.len() >= options.violation_limit {
            break;
        }
        progress(found.lock().images);
    }
    found.lock().complete = Some(search.is_complete());
    Ok(())
}

/// Runs the history on one schedule, cuts the power in it, and adds up what came of it.
fn try_schedule(
    bench: &mut Bench<'_>,
    policy: &SchedulePolicy,
    found: &Mutex<ConcurrentReport>,
) -> Result<InterleavedRun, String> {
    let ran = bench.run(policy)?;
    let mut tally = Tally::default();
    let replay = &bench.options.replay;
    let wanted = Wanted { position: replay.position, image: replay.image.as_deref() };
    let violation = match &ran.wrong {
        Some(wrong) => Some(wrong.clone()),
        None => bench.cut_power(&ran, wanted, &mut tally)?,
    };
    let mut report = found.lock();
    report.schedules += 1;
    report.events += ran.trace.events.len() as u64;
    report.crash_points += tally.crash_points;
    report.images += tally.images;
    report.distinct_states += tally.distinct_states;
    report.persist_points.extend(ran.passed);
    if let Some(violation) = violation {
        report.violations.push(describe(bench, violation, &ran.run));
    }
    Ok(ran.run)
}

/// The violation in as little as it takes; one that was asked for by its image as it is.
fn told(
    subject: &dyn AnyConcurrentSubject,
    options: &ConcurrentOptions,
    violation: &ConcurrentViolation,
) -> Result<Option<Shrunk>, String> {
    if options.replay.position.is_none() && options.replay.schedule.is_none() {
        return shrink(subject, options, violation);
    }
    let mut bench = Bench::new(subject, options, true)?;
    bench.prepare(violation.seed, &Selection::of(options))?;
    let schedule = match &options.replay.schedule {
        Some(schedule) => schedule.clone(),
        None => violation.schedule.parse().map_err(text)?,
    };
    let ran = bench.run(&SchedulePolicy::Replay(schedule.clone()))?;
    let image = options.replay.image.as_deref().unwrap_or(&violation.image);
    let wanted = Wanted { position: violation.position, image: Some(image) };
    let found = match &ran.wrong {
        Some(wrong) => Some(wrong.clone()),
        None => bench.cut_power(&ran, wanted, &mut Tally::default())?,
    };
    let Some(found) = found else { return Ok(None) };
    let mut case = Case::of(&bench, &ran, found);
    case.schedule = schedule;
    draw(&mut bench, &ran, &case).map(Some)
}

fn describe(bench: &Bench<'_>, found: Found, run: &InterleavedRun) -> ConcurrentViolation {
    let (name, options) = (bench.subject.name(), bench.options);
    // The seed gives the schedule again, unless it was one of many for one seed.
    let one_of_many = options.most_deviations.is_some() || options.replay.schedule.is_some();
    let schedule = run.schedule.to_string();
    ConcurrentViolation {
        subject: name.to_owned(),
        seed: bench.seed,
        position: found.position(),
        point: found.at.as_ref().map(|(point, _)| format!("{:?}", point.cause)),
        image: found.image().to_vec(),
        replay: replay_command(
            name,
            options,
            bench.seed,
            &Selection::of(options),
            &found,
            one_of_many.then_some(&run.schedule),
        ),
        schedule,
        operation: found.operation,
        rule: found.rule,
        what: found.what,
        shrunk: None,
    }
}

/// The command that shows a violation again.
pub(super) fn replay_command(
    subject: &str,
    options: &ConcurrentOptions,
    seed: u64,
    selection: &Selection,
    found: &Found,
    schedule: Option<&Schedule>,
) -> String {
    let (workers, ops) = (options.workers, options.ops);
    let mut replay = format!("lapis crash {subject} --workers {workers} --ops {ops} --seed {seed}");
    let list = |numbers: &[u32]| match numbers {
        [] => "-".to_owned(),
        _ => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    if let Some(calls) = &selection.calls {
        replay.push_str(&format!(" --keep {}", list(calls)));
    }
    if let Some(before) = &selection.before {
        replay.push_str(&format!(" --keep-before {}", list(before)));
    }
    if let Some(point) = options.suppress {
        replay.push_str(&format!(" --without '{point}'"));
    }
    if let Some(mutant) = options.mutant {
        replay.push_str(&format!(" --mutant {}", mutant.0));
    }
    if let Some(position) = found.position() {
        replay.push_str(&format!(" --at {position} --image {}", list(found.image())));
    }
    match schedule {
        Some(schedule) => replay.push_str(&format!(" --schedule {schedule}")),
        None if found.at.is_none() => replay.push_str(" --schedules 1"),
        None => {}
    }
    replay
}
