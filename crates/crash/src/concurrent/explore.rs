//! Running histories and cutting the power in the middle of them.

use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::time::Instant;

use lapis_device::{
    BoundedSearch, Config, CrashPoint, CrashPoints, Image, ImageBudget, InterleavedRun, Marker,
    Modelled, PersistPoint, PowerFailDomain, RunEnd, Schedule, SchedulePolicy, Trace,
    WorkerProgram, set_current_worker,
};
use lapis_pmem::{Mutant, Pool, Region};
use parking_lot::Mutex;

use super::history::History;
use super::subject::{ConcurrentSubject, Plan};
use crate::image_check::guarded;
use crate::oracle::Failure;
use crate::structure::Progress;

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
            schedules: 200,
            most_deviations: None,
            exhaustive_limit: 64,
            samples: 16,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            violation_limit: 10,
            suppress: None,
            mutant: None,
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
    /// What went wrong, in a sentence.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
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
                            let mut bench = Bench::new(subject, options)?;
                            for number in (first..schedules).step_by(threads) {
                                let seed = options.seed.wrapping_add(number);
                                bench.prepare(seed)?;
                                let policy = match &options.replay.schedule {
                                    Some(schedule) => SchedulePolicy::Replay(schedule.clone()),
                                    None => policy_of(seed),
                                };
                                bench.try_schedule(&policy, found)?;
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
    report.seconds = started.elapsed().as_secs_f64();
    report.images_per_s = report.images as f64 / report.seconds.max(1e-9);
    Ok(report)
}

/// Most histories run on random schedules, every fourth by priorities.
fn policy_of(seed: u64) -> SchedulePolicy {
    if seed % 4 == 3 {
        SchedulePolicy::Priorities { seed, changes: 1 + (seed / 4 % 4) as u32, events: 300 }
    } else {
        SchedulePolicy::Random { seed }
    }
}

fn search_bounded<S: ConcurrentSubject>(
    subject: &S,
    options: &ConcurrentOptions,
    most_deviations: usize,
    found: &Mutex<ConcurrentReport>,
    progress: &Progress<'_>,
) -> Result<(), String> {
    let mut search = BoundedSearch::new(most_deviations, options.schedules);
    let mut bench = Bench::new(subject, options)?;
    bench.prepare(options.seed)?;
    while let Some(policy) = search.next_policy() {
        let run = bench.try_schedule(&policy, found)?;
        search.ran(&run);
        if found.lock().violations.len() >= options.violation_limit {
            break;
        }
        progress(found.lock().images);
    }
    found.lock().complete = Some(search.is_complete());
    Ok(())
}

/// Two regions: one to run on, one to recover on.
struct Bench<'b, S: ConcurrentSubject> {
    subject: &'b S,
    options: &'b ConcurrentOptions,
    region: Region,
    scratch: Region,
    recovering: Modelled,
    /// What is done by whom, and where it starts from.
    seed: u64,
    plan: Plan<S::Operation>,
    prepared: Vec<u8>,
    initial: Option<S::State>,
}

impl<'b, S: ConcurrentSubject> Bench<'b, S> {
    fn new(subject: &'b S, options: &'b ConcurrentOptions) -> Result<Self, String> {
        let bytes = subject.pool_bytes();
        let region = Region::anonymous(bytes, bytes).map_err(text)?;
        let scratch = Region::anonymous(bytes, bytes).map_err(text)?;
        let (suppress, mutant) = (options.suppress, options.mutant);
        let config = Config { suppress, mutant, ..Config::tracking() };
        let recovering = Modelled::over(&scratch, config);
        Ok(Self {
            subject,
            options,
            region,
            scratch,
            recovering,
            seed: 0,
            plan: Plan { before: Vec::new(), workers: Vec::new() },
            prepared: Vec::new(),
            initial: None,
        })
    }

    /// Makes the structure from which histories of this seed start.
    fn prepare(&mut self, seed: u64) -> Result<(), String> {
        self.seed = seed;
        self.plan = self.subject.plan(self.options.workers, self.options.ops, seed);
        let domain = Modelled::over(&self.region, Config::default());
        set_current_worker(0);
        // SAFETY: the pool is dropped before the region is used again.
        let pool = Pool::create(unsafe { self.region.alias() }, domain).map_err(text)?;
        let live = self.subject.create(pool)?;
        for operation in &self.plan.before {
            self.subject.perform(&live, operation)?;
        }
        self.initial = Some(self.subject.observe(&live)?);
        drop(live);
        self.prepared = self.contents();
        Ok(())
    }

    fn contents(&self) -> Vec<u8> {
        // SAFETY: mapped, and nothing else touches the region during this call.
        unsafe { std::slice::from_raw_parts(self.region.base(), self.region.mapped_bytes()) }
            .to_vec()
    }

    /// Runs the history on one schedule, and cuts the power in it.
    fn try_schedule(
        &mut self,
        policy: &SchedulePolicy,
        found: &Mutex<ConcurrentReport>,
    ) -> Result<InterleavedRun, String> {
        let subject = self.subject;
        fill(&self.region, &self.prepared);
        let (suppress, mutant) = (self.options.suppress, self.options.mutant);
        let config = Config { concurrent: true, suppress, mutant, ..Config::default() };
        let domain = Modelled::over(&self.region, config);
        // SAFETY: the pool is dropped before the region is used again.
        let pool = Pool::open(unsafe { self.region.alias() }, domain.clone()).map_err(text)?;
        let live = subject.open(pool)?;
        subject.pool(&live).abandon();
        let base = self.contents();
        domain.set_tracing(true);
        let returned: Vec<Mutex<Vec<S::Returned>>> =
            self.plan.workers.iter().map(|_| Mutex::default()).collect();
        let mut number = 0;
        let mut programs: Vec<WorkerProgram<'_>> = Vec::new();
        for (operations, returned) in self.plan.workers.iter().zip(&returned) {
            let first = number + 1;
            number += operations.len() as u32;
            let (live, domain) = (&live, &domain);
            programs.push(Box::new(move || {
                for (operation, number) in operations.iter().zip(first..) {
                    domain.mark(Marker::Begin(number));
                    match subject.perform(live, operation) {
                        Ok(answer) => returned.lock().push(answer),
                        Err(what) => std::panic::resume_unwind(Box::new(what)),
                    }
                    domain.mark(Marker::End(number));
                }
            }));
        }
        let run = domain.run_workers(policy, programs);
        let trace = domain.take_trace();
        domain.set_tracing(false);
        let passed: Vec<_> = domain.persist_points().iter().map(|it| it.point).collect();
        let returned: Vec<Vec<S::Returned>> = returned.into_iter().map(Mutex::into_inner).collect();
        let history = History::of(&trace, &self.plan.workers, &returned);
        let mut tally = Tally { events: trace.events.len() as u64, ..Tally::default() };
        let wrong = match &run.end {
            RunEnd::Completed => self.judge_without_crash(&live, &history),
            RunEnd::Deadlock => Some((None, "the workers wait for each other".to_owned())),
            RunEnd::TooLong => Some((None, "the workers come to no end".to_owned())),
            RunEnd::Panicked { worker, message } => {
                Some((None, format!("worker {worker} panicked: {message}")))
            }
        };
        drop(live);
        let violation = match wrong {
            Some((operation, what)) => Some(Found { at: None, operation, what }),
            None => self.cut_power(&trace, &base, &history, &mut tally)?,
        };
        let mut report = found.lock();
        report.schedules += 1;
        report.events += tally.events;
        report.crash_points += tally.crash_points;
        report.images += tally.images;
        report.distinct_states += tally.distinct_states;
        report.persist_points.extend(passed);
        if let Some(violation) = violation {
            report.violations.push(self.describe(violation, &run));
        }
        Ok(run)
    }

    fn judge_without_crash(
        &self,
        live: &S::Live,
        history: &History<S::Operation, S::Returned>,
    ) -> Option<(Option<String>, String)> {
        let observed = guarded(|| {
            let state = self.subject.observe(live).map_err(|what| Failure::Contents { what })?;
            match self.subject.problems(live).into_iter().next() {
                Some(what) => Err(Failure::Invariant { what }),
                None => Ok(state),
            }
        });
        let state = match observed {
            Ok(state) => state,
            Err(failure) => return Some((None, format!("without any crash {failure}"))),
        };
        let initial = self.initial.as_ref()?;
        let judged = self.subject.judge(initial, history.calls(), &state);
        judged.err().map(|it| (it.operation, format!("without any crash {}", it.what)))
    }

    /// Tries the crash points of a run; returns the first violation.
    fn cut_power(
        &mut self,
        trace: &Trace,
        base: &[u8],
        history: &History<S::Operation, S::Returned>,
        tally: &mut Tally,
    ) -> Result<Option<Found>, String> {
        let Some(initial) = self.initial.clone() else { return Ok(None) };
        fill(&self.scratch, base);
        let replay = &self.options.replay;
        let mut points = CrashPoints::new(trace, base, PowerFailDomain::AdrPortable);
        let mut states = HashSet::new();
        while let Some(point) = points.advance() {
            points.bring_up_to_date(&mut self.scratch).map_err(text)?;
            if replay.position.is_some_and(|position| position != point.position) {
                continue;
            }
            tally.crash_points += 1;
            let calls = history.until(point.position);
            let crash_states = points.states();
            let budget = ImageBudget {
                exhaustive_limit: self.options.exhaustive_limit,
                samples: self.options.samples,
                seed: self.seed ^ (point.position as u64) << 20,
            };
            let given: Box<dyn Iterator<Item = Image>> = match &replay.image {
                None => Box::new(crash_states.images(budget)),
                Some(choices) if choices.len() == crash_states.site_count() => {
                    Box::new(std::iter::once(Image::from_choices(choices.clone())))
                }
                Some(_) => return Err("the image is not one of that crash point".to_owned()),
            };
            // States that the calls explain; histories do not change between images.
            let mut explained = HashSet::new();
            for image in given {
                tally.images += 1;
                crash_states.apply(&image, &mut self.scratch).map_err(text)?;
                let recovered = self.recover(image_is_audited(&point, &image));
                self.recovering.revert(&mut self.scratch);
                crash_states.revert(&image, &mut self.scratch).map_err(text)?;
                let (operation, what) = match recovered {
                    Ok(state) => {
                        if !explained.insert(state.clone()) {
                            continue;
                        }
                        let judged = self.subject.judge(&initial, &calls, &state);
                        states.insert(state);
                        match judged {
                            Ok(()) => continue,
                            Err(offence) => (offence.operation, offence.what),
                        }
                    }
                    Err(failure) => (None, failure.to_string()),
                };
                tally.distinct_states += states.len() as u64;
                return Ok(Some(Found { at: Some((point, image)), operation, what }));
            }
        }
        tally.distinct_states += states.len() as u64;
        Ok(None)
    }

    fn recover(&self, audited: bool) -> Result<S::State, Failure> {
        let subject = self.subject;
        guarded(|| {
            // SAFETY: the pool is dropped before the region is used again.
            let pool = Pool::open(unsafe { self.scratch.alias() }, self.recovering.clone())
                .map_err(|error| Failure::Open { what: error.to_string() })?;
            pool.abandon();
            let live = subject.open(pool).map_err(|what| Failure::Open { what })?;
            let state = subject.observe(&live).map_err(|what| Failure::Contents { what })?;
            if let Some(what) = subject.problems(&live).into_iter().next() {
                return Err(Failure::Invariant { what });
            }
            if audited {
                let audit = subject.audit(&live);
                if !audit.is_clean() {
                    return Err(Failure::Space { what: format!("{audit:?}") });
                }
            }
            Ok(state)
        })
    }

    fn describe(&self, found: Found, run: &InterleavedRun) -> ConcurrentViolation {
        let (name, options) = (self.subject.name(), self.options);
        let schedule = run.schedule.to_string();
        let mut replay = format!(
            "lapis crash {name} --workers {} --ops {} --seed {}",
            options.workers, options.ops, self.seed
        );
        if let Some(point) = options.suppress {
            replay.push_str(&format!(" --without '{point}'"));
        }
        if let Some(mutant) = options.mutant {
            replay.push_str(&format!(" --mutant {}", mutant.0));
        }
        let mut image = Vec::new();
        if let Some((point, chosen)) = &found.at {
            image = chosen.choices().to_vec();
            let choices: Vec<String> = image.iter().map(ToString::to_string).collect();
            let choices = if choices.is_empty() { "-".to_owned() } else { choices.join(",") };
            replay.push_str(&format!(" --at {} --image {choices}", point.position));
        }
        // The seed gives the schedule again, unless it was one of many for one seed.
        if options.most_deviations.is_some() || options.replay.schedule.is_some() {
            replay.push_str(&format!(" --schedule {schedule}"));
        } else if found.at.is_none() {
            replay.push_str(" --schedules 1");
        }
        ConcurrentViolation {
            subject: name.to_owned(),
            seed: self.seed,
            schedule,
            position: found.at.as_ref().map(|(point, _)| point.position),
            point: found.at.as_ref().map(|(point, _)| format!("{:?}", point.cause)),
            image,
            operation: found.operation,
            what: found.what,
            replay,
        }
    }
}

/// A violation before it is put into words.
struct Found {
    at: Option<(CrashPoint, Image)>,
    operation: Option<String>,
    what: String,
}

#[derive(Default)]
struct Tally {
    events: u64,
    crash_points: u64,
    images: u64,
    distinct_states: u64,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Writes the first bytes of a region nobody uses.
fn fill(region: &Region, contents: &[u8]) {
    assert!(contents.len() <= region.mapped_bytes());
    // SAFETY: mapped for that long, and no pool is open on the region.
    unsafe { region.base().copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
}

/// The audit walks everything; one image in four is enough to find what leaks.
fn image_is_audited(point: &CrashPoint, image: &Image) -> bool {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    point.position.hash(&mut hasher);
    image.choices().hash(&mut hasher);
    hasher.finish().is_multiple_of(4)
}
