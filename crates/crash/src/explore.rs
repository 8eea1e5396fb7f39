//! Exploring the crash states of one subject.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use lapis_device::{
    CrashCause, CrashPoint, CrashPoints, CrashStates, Event, Image, ImageBudget, Marker,
    PersistPoint, PowerFailDomain,
};
use parking_lot::Mutex;

use crate::erased::AnySubject;
use crate::image_check::{Bench, Expectation, FirstCrash, SecondCrash, hash_of};
use crate::options::ExploreOptions;
use crate::oracle::Failure;
use crate::report::{ExploreReport, PointOutcomes, Violation};
use crate::reuse::{Proof, Question, Reuse};
use crate::run::{Phase, Run};
use crate::shrink::shrink;
use crate::strategy::Candidates;
use crate::structure::Progress;
use crate::subject::Subject;
use crate::timeline::draw;

struct Shared<'o> {
    options: &'o ExploreOptions,
    spread: Spread,
    images: AtomicU64,
    in_recovery: AtomicU64,
    by_proof: AtomicU64,
    partly_by_proof: AtomicU64,
    grown_recoveries: AtomicU64,
    lines_copied: AtomicU64,
    parts_passed: AtomicU64,
    points: AtomicU64,
    phases: Mutex<BTreeMap<Phase, u64>>,
    fences: Mutex<BTreeMap<PersistPoint, u64>>,
    exhaustive: AtomicU64,
    covered: Mutex<u128>,
    states: Mutex<HashSet<u64>>,
    outcomes: Mutex<BTreeMap<(String, usize), PointOutcomes>>,
    violations: Mutex<Vec<Violation>>,
    stop: AtomicBool,
    progress: &'o Progress<'o>,
}

/// Runs the subject's operations and tries the crashes in them.
///
/// # Errors
/// What went wrong without any crash, for a person; or that there is no such crash as the one to
/// replay.
pub fn explore<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    explore_any(subject, options, progress)
}

/// [`explore`], of a subject of any types.
pub(crate) fn explore_any(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    let report = explore_and_tell(subject, options, progress)?;
    match &options.replay {
        Some(replay) if report.crash_points == 0 => Err(format!(
            "no power cut after {} events leaves such an image of {}",
            replay.position,
            subject.name()
        )),
        _ => Ok(report),
    }
}

/// [`explore`], in which there may be no such crash as the one to replay.
pub(crate) fn explore_and_tell(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    let mut report = explore_once(subject, options, progress)?;
    if options.shrink
        && let Some(violation) = report.violations.first()
    {
        // One that was asked for by its image is told as it is.
        let shrunk = match options.replay {
            Some(_) => draw(subject, options, violation).ok(),
            None => {
                let options = ExploreOptions { whole_check_every: 1, ..options.clone() };
                shrink(subject, &options, violation)
            }
        };
        report.violations[0].shrunk = shrunk;
    }
    Ok(report)
}

/// [`explore`] without shrinking.
pub(crate) fn explore_once(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    let started = Instant::now();
    let run = Run::record(subject, options)?;
    let spread = Spread::of(&run, options);
    let options = &spread.within(options);
    let shared = Shared {
        options,
        spread,
        images: AtomicU64::new(0),
        in_recovery: AtomicU64::new(0),
        by_proof: AtomicU64::new(0),
        partly_by_proof: AtomicU64::new(0),
        grown_recoveries: AtomicU64::new(0),
        lines_copied: AtomicU64::new(0),
        parts_passed: AtomicU64::new(0),
        points: AtomicU64::new(0),
        phases: Mutex::default(),
        fences: Mutex::default(),
        exhaustive: AtomicU64::new(0),
        covered: Mutex::default(),
        states: Mutex::default(),
        outcomes: Mutex::default(),
        violations: Mutex::default(),
        stop: AtomicBool::new(false),
        progress,
    };
    let threads = if options.replay.is_some() { 1 } else { options.threads.max(1) };
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (run, shared) = (&run, &shared);
                scope.spawn(move || walk(subject, run, shared, thread, threads))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".to_owned())))
            .collect()
    });
    outcomes.into_iter().collect::<Result<Vec<()>, String>>()?;
    let seconds = started.elapsed().as_secs_f64();
    let images = shared.images.into_inner();
    let mut violations = shared.violations.into_inner();
    violations.sort_by_key(|violation| violation.position);
    Ok(ExploreReport {
        structure: subject.name().to_owned(),
        seed: options.seed,
        strategy: options.strategy,
        ops: options.ops,
        crash_points: shared.points.into_inner(),
        one_crash_point_in: spread.stride,
        crash_points_in: shared.phases.into_inner(),
        fences: shared.fences.into_inner(),
        exhaustive_points: shared.exhaustive.into_inner(),
        images,
        grown_recoveries: shared.grown_recoveries.into_inner(),
        lines_copied: shared.lines_copied.into_inner(),
        parts_passed: shared.parts_passed.into_inner(),
        images_in_recovery: shared.in_recovery.into_inner(),
        images_by_proof: shared.by_proof.into_inner(),
        images_partly_by_proof: shared.partly_by_proof.into_inner(),
        images_covered: u64::try_from(shared.covered.into_inner()).unwrap_or(u64::MAX),
        outcomes: shared.outcomes.into_inner(),
        distinct_states: shared.states.into_inner().len() as u64,
        images_per_s: images as f64 / seconds.max(1e-9),
        seconds,
        violations,
        persist_points: Vec::new(),
    })
}

/// How a number of images is spread over the crash points of a run: the same whoever explores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spread {
    /// One crash point in so many is tried.
    stride: u64,
    /// Images at each of them, at most.
    per_point: u64,
}

impl Spread {
    /// Fewer images of a crash point are hardly worth it: nothing and everything.
    const LEAST: u64 = 4;

    fn of(run: &Run, options: &ExploreOptions) -> Self {
        if options.spread_images == 0 || options.replay.is_some() {
            return Self { stride: 1, per_point: u64::MAX };
        }
        let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
        if options.every_store {
            points = points.at_every_store();
        }
        let count = std::iter::from_fn(|| points.advance()).count() as u64;
        Self::over(count, options.spread_images)
    }

    fn over(points: u64, images: u64) -> Self {
        let stride = (points * Self::LEAST).div_ceil(images).clamp(1, points.max(1));
        let per_point = images / points.div_ceil(stride).max(1);
        Self { stride, per_point: per_point.max(Self::LEAST) }
    }

    fn takes(&self, index: usize) -> bool {
        (index as u64).is_multiple_of(self.stride)
    }

    /// Half of the images at a crash point are left for the extremes and the random ones.
    fn within(&self, options: &ExploreOptions) -> ExploreOptions {
        let samples = u32::try_from(self.per_point).unwrap_or(u32::MAX);
        ExploreOptions {
            exhaustive_limit: options.exhaustive_limit.min(self.per_point.div_ceil(2)),
            samples: options.samples.min(samples),
            ..options.clone()
        }
    }
}

/// Tells a state that was recovered from one that never was there.
const RECOVERED: u64 = 0x9E37_79B9_7F4A_7C15;

/// One thread's share: every crash point is passed, every `threads`-th explored.
fn walk(
    subject: &dyn AnySubject,
    run: &Run,
    shared: &Shared<'_>,
    thread: usize,
    threads: usize,
) -> Result<(), String> {
    let options = shared.options;
    let mut bench = Bench::new(subject, &run.base, options)?;
    let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
    if options.every_store {
        points = points.at_every_store();
    }
    let mut states = HashSet::new();
    let mut markers = Markers::default();
    let walks = if options.remember_walks { subject.walk_memory() } else { None };
    let mut reuse = Reuse::with_walks(walks);
    let mut index = 0;
    let stride = shared.spread.stride as usize;
    while let Some(point) = points.advance() {
        reuse.lines_change(points.newly_durable(), &bench.region);
        bench.bring_up_to_date(&points).map_err(|e| e.to_string())?;
        let storage_bytes = run.storage_bytes(point.position);
        let mapped = bench.region.mapped_bytes();
        bench.region.grow_to(storage_bytes).map_err(|e| e.to_string())?;
        if bench.region.mapped_bytes() != mapped {
            reuse.forget();
        }
        markers.read(&run.trace.events, point.position);
        index += 1;
        if !shared.spread.takes(index) || index / stride % threads != thread {
            continue;
        }
        let begun = markers.begun.map_or(0, |begun| run.number(begun));
        if begun < options.first_operation {
            continue;
        }
        if shared.stop.load(Ordering::Relaxed)
            || options.is_over() && shared.points.load(Ordering::Relaxed) > 0
        {
            break;
        }
        let expectation = markers.expectation(run);
        let crash_states = points.states();
        let seed = options.seed ^ (point.position as u64) << 20;
        let mut candidates = match &options.replay {
            None => {
                let (exhaustive_limit, samples) = (options.exhaustive_limit, options.samples);
                let budget = ImageBudget { exhaustive_limit, samples, seed };
                Candidates::new(&crash_states, options.strategy, budget)
            }
            Some(replay) if replay.position == point.position => {
                let image = replay.image.clone().map(Image::from_choices);
                if image.as_ref().is_some_and(|image| !crash_states.includes(image)) {
                    continue;
                }
                Candidates::only(&crash_states, image)
            }
            Some(_) => continue,
        };
        shared.points.fetch_add(1, Ordering::Relaxed);
        *shared.phases.lock().entry(run.phase(point.position)).or_default() += 1;
        if let CrashCause::BeforeFence(fence) = point.cause {
            *shared.fences.lock().entry(fence).or_default() += 1;
        }
        let every = options.crash_in_recovery_every / 32;
        let due = every > 0 && (index as u64 / threads as u64).is_multiple_of(every);
        let kill = match &options.replay {
            // Before the creation is acknowledged, what the first process left in the caches is the
            // pool's to make durable.
            None => {
                let outlives = subject.outlives_kills() && !bench.has_devices();
                outlives && due && markers.ended.is_some()
            }
            Some(replay) => replay.image.is_none(),
        };
        if kill {
            let image = crash_states.everything();
            bench.apply(&crash_states, &image).map_err(|e| e.to_string())?;
            let first =
                FirstCrash::Killed { trace: &run.trace, position: point.position, base: &run.base };
            let failure = second_crash(subject, shared, &mut bench, first, expectation, seed);
            bench.revert(&crash_states, &image).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                report(subject, run, shared, &point, &crash_states, &markers, None, failure);
            }
        }
        let mut outcomes = PointOutcomes::default();
        let check_seed = markers.check_seed(options);
        let pruned = candidates.needs_reads();
        if pruned {
            reuse.look_ahead(&bench, &crash_states, &run.trace.events[point.position..]);
        }
        while let Some(image) = candidates.next_image() {
            let number = shared.images.fetch_add(1, Ordering::Relaxed) + 1;
            if pruned {
                reuse.take_image(&bench, &crash_states, &image);
            }
            let pruning = candidates.needs_reads();
            // Of block devices it is not known what has changed since another image was run.
            let comparable = pruning && !bench.has_devices();
            let found = if comparable { reuse.find(&bench, markers.begun) } else { None };
            bench.watch_sectors(&crash_states);
            bench.apply(&crash_states, &image).map_err(|e| e.to_string())?;
            bench.lines_copied += 2 * crash_states.changed_sites(&image) as u64;
            let first = outcomes.images == 0 && options.whole_check_at_each_point;
            let whole = first || options.replay.is_some();
            let whole_check_every = if whole { 1 } else { options.whole_check_every };
            let outcome = if pruning {
                let question = Question {
                    subject,
                    expectation,
                    operation: markers.begun,
                    seed: check_seed,
                    whole_check_every,
                };
                let (outcome, proof) = reuse.check(&mut bench, found, question);
                let (entire, partial) = (proof == Proof::Entire, proof == Proof::Partial);
                shared.by_proof.fetch_add(u64::from(entire), Ordering::Relaxed);
                shared.partly_by_proof.fetch_add(u64::from(partial), Ordering::Relaxed);
                bench.add_sector_reads(&crash_states, &mut reuse.reads);
                candidates.learn(&reuse.reads);
                outcome
            } else if pruned {
                reuse.remembering(&mut bench, |bench| {
                    bench.check(subject, expectation, check_seed, whole_check_every)
                })
            } else {
                bench.check(subject, expectation, check_seed, whole_check_every)
            };
            let outcome = outcome.map(|recovered| recovered.map(|known| known.hash));
            let hash = match &outcome {
                Ok(recovered) => recovered.map_or(0, |state| state ^ RECOVERED),
                Err(failure) => hash_of(&failure.to_string()),
            };
            outcomes.images += 1;
            outcomes.hashes.insert(hash);
            let mut failure = outcome.map(|_| states.insert(hash)).err();
            let every = options.crash_in_recovery_every;
            let chosen = || hash_of(&(seed, image.choices())).is_multiple_of(every);
            let again = every > 0 && (options.replay.is_some() || chosen());
            if failure.is_none() && again {
                let first = FirstCrash::PowerCut;
                failure = second_crash(subject, shared, &mut bench, first, expectation, seed);
                // What the recoveries of those images have read is not this one's.
                bench.take_reads(&mut reuse.taken);
            }
            bench.revert(&crash_states, &image).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                let image = Some(&image);
                report(subject, run, shared, &point, &crash_states, &markers, image, failure);
            }
            if number.is_multiple_of(256) {
                (shared.progress)(number);
            }
            if outcomes.images >= shared.spread.per_point {
                break;
            }
            let enough =
                options.image_limit > 0 && number >= options.image_limit || options.is_over();
            if enough || shared.violations.lock().len() >= options.violation_limit {
                shared.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        outcomes.complete = candidates.is_complete();
        shared.exhaustive.fetch_add(u64::from(outcomes.complete), Ordering::Relaxed);
        shared.outcomes.lock().insert((subject.name().to_owned(), point.position), outcomes);
        *shared.covered.lock() += u128::from(candidates.covered());
    }
    shared.lines_copied.fetch_add(bench.lines_copied, Ordering::Relaxed);
    shared.parts_passed.fetch_add(reuse.parts_passed(), Ordering::Relaxed);
    shared.states.lock().extend(states);
    Ok(())
}

/// Cuts the power a second time; returns what was not survived.
fn second_crash(
    subject: &dyn AnySubject,
    shared: &Shared<'_>,
    bench: &mut Bench,
    first: FirstCrash<'_>,
    expectation: Expectation<'_>,
    seed: u64,
) -> Option<Failure> {
    let budget = ImageBudget { exhaustive_limit: 16, samples: 4, seed };
    match bench.check_second_crash(subject, first, expectation, seed, budget) {
        Ok(SecondCrash { images, grew }) => {
            shared.images.fetch_add(images, Ordering::Relaxed);
            shared.in_recovery.fetch_add(images, Ordering::Relaxed);
            shared.grown_recoveries.fetch_add(u64::from(grew), Ordering::Relaxed);
            None
        }
        Err(found) => Some(found),
    }
}

#[allow(clippy::too_many_arguments)]
fn report(
    subject: &dyn AnySubject,
    run: &Run,
    shared: &Shared<'_>,
    point: &CrashPoint,
    states: &CrashStates<'_>,
    markers: &Markers,
    image: Option<&Image>,
    failure: Failure,
) {
    shared.violations.lock().push(Violation {
        subject: subject.name().to_owned(),
        position: point.position,
        point: format!("{:?}", point.cause),
        operation: markers.begun.filter(|&begun| Some(begun) != markers.ended).map(|begun| {
            match markers.expectation(run).interrupted {
                Some(operation) => format!("{}: {operation:?}", run.number(begun)),
                None => format!("{}: creation or shutdown", run.number(begun)),
            }
        }),
        acknowledged: markers.ended.map(|ended| run.number(ended) as u32),
        image: image.map_or(Vec::new(), |image| image.choices().to_vec()),
        newest: states.everything().choices().to_vec(),
        killed: image.is_none(),
        what: failure.to_string(),
        failure,
        replay: replay_command(subject.name(), shared.options, point.position, image),
        shrunk: None,
    });
}

/// The command that shows an image again; none: the process is killed there.
pub(crate) fn replay_command(
    subject: &str,
    options: &ExploreOptions,
    position: usize,
    image: Option<&Image>,
) -> String {
    let join = |numbers: Vec<String>| numbers.join(",");
    let image = match image.map(Image::choices) {
        None => "killed".to_owned(),
        Some([]) => "-".to_owned(),
        Some(choices) => join(choices.iter().map(ToString::to_string).collect()),
    };
    let keep = options.keep.as_ref().map_or(String::new(), |keep| {
        let numbers = join(keep.iter().map(ToString::to_string).collect());
        format!(" --keep {}", if keep.is_empty() { "-" } else { &numbers })
    });
    let every_store = if options.every_store { " --every-store" } else { "" };
    let without = options.suppress.map_or(String::new(), |point| format!(" --without '{point}'"));
    let mutant = options.mutant.map_or(String::new(), |mutant| format!(" --mutant {}", mutant.0));
    format!(
        "lapis crash {subject} --ops {} --seed {}{keep}{without}{mutant}{every_store} --at {position} \
         --image {image}",
        options.ops, options.seed,
    )
}

/// How far the operations have come.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    pub(crate) begun: Option<u32>,
    ended: Option<u32>,
    read: usize,
}

impl Markers {
    pub(crate) fn read(&mut self, events: &[Event], position: usize) {
        for event in &events[self.read..position] {
            match event {
                Event::Marker { marker: Marker::Begin(number), .. } => self.begun = Some(*number),
                Event::Marker { marker: Marker::End(number), .. } => self.ended = Some(*number),
                _ => {}
            }
        }
        self.read = position;
    }

    /// What the random choices of a check start from: the same at all crash points of an operation,
    /// and after it until the next begins.
    pub(crate) fn check_seed(&self, options: &ExploreOptions) -> u64 {
        options.seed ^ self.begun.map_or(0, |begun| u64::from(begun) + 1) << 20
    }

    pub(crate) fn expectation<'r>(&self, run: &'r Run) -> Expectation<'r> {
        let in_flight = self.begun.filter(|&begun| Some(begun) != self.ended);
        let latest = self.begun.and_then(|begun| (begun as usize).checked_sub(1));
        Expectation {
            acknowledged: self.ended.map(|ended| run.known(ended)),
            in_flight: in_flight.map(|begun| run.known(begun)),
            interrupted: latest.and_then(|index| run.operations.get(index)),
            shut_down: self.ended.is_some_and(|ended| ended as usize > run.operations.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use super::*;
    use crate::structure::Structure;

    #[test]
    fn few_images_are_spread_over_all_crash_points() {
        assert_eq!(Spread::over(1000, 100), Spread { stride: 40, per_point: 4 });
        assert_eq!(Spread::over(10, 100), Spread { stride: 1, per_point: 10 });
        assert_eq!(Spread::over(10, 1), Spread { stride: 10, per_point: 4 });
    }

    #[test]
    fn few_images_reach_the_last_operations_on_any_number_of_threads() {
        let with = |threads| {
            let options =
                ExploreOptions { ops: 130, spread_images: 200, threads, ..Default::default() };
            let only = Some("wort:u64");
            crate::explore_structure(Structure::Index(IndexKind::Wort), only, &options, &|_| {})
                .unwrap()
        };
        let report = with(1);
        assert!(report.one_crash_point_in > 4, "{report:?}");
        let first = report.images - report.images_in_recovery;
        assert!((100..=220).contains(&first), "{first}");
        // The pool is closed and opened in the middle and closed at the end.
        let last = report.outcomes.keys().map(|(_, position)| *position).max();
        let whole = ExploreOptions {
            ops: 130,
            threads: 1,
            samples: 1,
            exhaustive_limit: 1,
            ..Default::default()
        };
        let whole = crate::explore_structure(
            Structure::Index(IndexKind::Wort),
            Some("wort:u64"),
            &whole,
            &|_| {},
        )
        .unwrap();
        let end = whole.outcomes.keys().map(|(_, position)| *position).max();
        assert!(last.unwrap() * 20 > end.unwrap() * 19, "{last:?} of {end:?}");
        assert_eq!(with(2).outcomes, report.outcomes);
    }
}
