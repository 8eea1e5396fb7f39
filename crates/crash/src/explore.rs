//! Exploring the crash states of one subject.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use lapis_device::{
    CrashPoint, CrashPoints, Event, Image, ImageBudget, Marker, PersistPoint, PowerFailDomain,
};
use parking_lot::Mutex;

use crate::image_check::{Bench, Expectation, FirstCrash};
use crate::oracle::Failure;
use crate::report::{ExploreReport, Violation};
use crate::run::Run;
use crate::structure::Progress;
use crate::subject::Subject;

/// How to explore.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Operations to run.
    pub ops: usize,
    /// Determines the operations and the sampled images.
    pub seed: u64,
    /// Images to stop after; 0 for no limit.
    pub image_limit: u64,
    /// At a crash point with up to this many images, all are tried.
    pub exhaustive_limit: u64,
    /// Beyond that, this many sampled ones besides the extremes.
    pub samples: u32,
    /// One in so many images is crashed again during its recovery; 0 for none.
    pub crash_in_recovery_every: u64,
    /// Threads.
    pub threads: usize,
    /// Stop at this many violations.
    pub violation_limit: usize,
    /// A flush or fence to switch off.
    pub suppress: Option<PersistPoint>,
    /// Only this image.
    pub replay: Option<Replay>,
}

/// One image of one crash point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Events before the crash.
    pub position: usize,
    /// The state chosen for each uncertain line; or none: the process is killed there while the
    /// machine runs on, and the power is cut during the recovery.
    pub image: Option<Vec<u32>>,
}

impl Default for ExploreOptions {
    fn default() -> Self {
        Self {
            ops: 300,
            seed: 1,
            image_limit: 0,
            exhaustive_limit: 1 << 12,
            samples: 256,
            crash_in_recovery_every: 256,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            violation_limit: 10,
            suppress: None,
            replay: None,
        }
    }
}

struct Shared<'o> {
    options: &'o ExploreOptions,
    images: AtomicU64,
    in_recovery: AtomicU64,
    points: AtomicU64,
    exhaustive: AtomicU64,
    states: Mutex<HashSet<u64>>,
    violations: Mutex<Vec<Violation>>,
    stop: AtomicBool,
    progress: &'o Progress<'o>,
}

/// Runs the subject's operations and tries the crashes in them.
///
/// # Errors
/// What went wrong without any crash, for a person.
pub fn explore<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    let started = Instant::now();
    let run = Run::record(subject, options.ops, options.seed, options.suppress)?;
    let shared = Shared {
        options,
        images: AtomicU64::new(0),
        in_recovery: AtomicU64::new(0),
        points: AtomicU64::new(0),
        exhaustive: AtomicU64::new(0),
        states: Mutex::default(),
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
        ops: options.ops,
        crash_points: shared.points.into_inner(),
        exhaustive_points: shared.exhaustive.into_inner(),
        images,
        images_in_recovery: shared.in_recovery.into_inner(),
        distinct_states: shared.states.into_inner().len() as u64,
        images_per_s: images as f64 / seconds.max(1e-9),
        seconds,
        violations,
        persist_points: Vec::new(),
    })
}

/// One thread's share: every crash point is passed, every `threads`-th explored.
fn walk<S: Subject>(
    subject: &S,
    run: &Run<S>,
    shared: &Shared<'_>,
    thread: usize,
    threads: usize,
) -> Result<(), String> {
    let options = shared.options;
    let mut bench = Bench::new(&run.base, options.suppress)?;
    let mut nested = Bench::new(&run.base, options.suppress)?;
    let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
    let mut states = HashSet::new();
    let mut markers = Markers::default();
    let mut index = 0;
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut bench.region).map_err(|e| e.to_string())?;
        markers.read(&run.trace.events, point.position);
        index += 1;
        if index % threads != thread {
            continue;
        }
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let expectation = markers.expectation(run);
        let crash_states = points.states();
        let budget = ImageBudget {
            exhaustive_limit: options.exhaustive_limit,
            samples: options.samples,
            seed: options.seed ^ (point.position as u64) << 20,
        };
        let given: Box<dyn Iterator<Item = Image>> = match &options.replay {
            None => {
                let images = crash_states.images(budget);
                shared.exhaustive.fetch_add(u64::from(images.is_exhaustive()), Ordering::Relaxed);
                Box::new(images)
            }
            Some(replay) if replay.position == point.position => {
                let image = replay.image.clone().map(Image::from_choices);
                if image.as_ref().is_some_and(|i| i.choices().len() != crash_states.site_count()) {
                    return Err("the image to replay is not one of that crash point".to_owned());
                }
                Box::new(image.into_iter())
            }
            Some(_) => continue,
        };
        shared.points.fetch_add(1, Ordering::Relaxed);
        let every = options.crash_in_recovery_every / 32;
        let due = every > 0 && (index as u64 / threads as u64).is_multiple_of(every);
        let kill = match &options.replay {
            None => subject.outlives_kills() && due,
            Some(replay) => replay.image.is_none(),
        };
        if kill {
            let image = crash_states.everything();
            let seed = options.seed ^ point.position as u64;
            crash_states.apply(&image, &mut bench.region).map_err(|e| e.to_string())?;
            let first =
                FirstCrash::Killed { trace: &run.trace, position: point.position, base: &run.base };
            let failure =
                second_crash(subject, shared, &mut bench, &mut nested, first, expectation, seed);
            crash_states.revert(&image, &mut bench.region).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                report(subject, shared, &point, &markers, expectation, None, failure);
            }
        }
        for image in given {
            let number = shared.images.fetch_add(1, Ordering::Relaxed) + 1;
            let seed = options.seed ^ image_hash(&point, &image);
            crash_states.apply(&image, &mut bench.region).map_err(|e| e.to_string())?;
            let mut failure = match bench.check(subject, expectation, seed) {
                Ok(state) => {
                    let mut hasher = std::hash::DefaultHasher::new();
                    state.hash(&mut hasher);
                    states.insert(hasher.finish());
                    None
                }
                Err(failure) => Some(failure),
            };
            let every = options.crash_in_recovery_every;
            let again = every > 0 && (seed.is_multiple_of(every) || options.replay.is_some());
            if failure.is_none() && again {
                let first = FirstCrash::PowerCut;
                failure = second_crash(
                    subject,
                    shared,
                    &mut bench,
                    &mut nested,
                    first,
                    expectation,
                    seed,
                );
            }
            crash_states.revert(&image, &mut bench.region).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                report(subject, shared, &point, &markers, expectation, Some(&image), failure);
            }
            if number.is_multiple_of(256) {
                (shared.progress)(number);
            }
            let enough = options.image_limit > 0 && number >= options.image_limit;
            if enough || shared.violations.lock().len() >= options.violation_limit {
                shared.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
    }
    shared.states.lock().extend(states);
    Ok(())
}

/// Cuts the power a second time; returns what was not survived.
fn second_crash<S: Subject>(
    subject: &S,
    shared: &Shared<'_>,
    bench: &mut Bench,
    nested: &mut Bench,
    first: FirstCrash<'_>,
    expectation: Expectation<'_, S>,
    seed: u64,
) -> Option<Failure> {
    let budget = ImageBudget { exhaustive_limit: 16, samples: 4, seed };
    match bench.check_second_crash(subject, first, expectation, seed, budget, nested) {
        Ok(tried) => {
            shared.images.fetch_add(tried, Ordering::Relaxed);
            shared.in_recovery.fetch_add(tried, Ordering::Relaxed);
            None
        }
        Err(found) => Some(found),
    }
}

fn report<S: Subject>(
    subject: &S,
    shared: &Shared<'_>,
    point: &CrashPoint,
    markers: &Markers,
    expectation: Expectation<'_, S>,
    image: Option<&Image>,
    failure: Failure,
) {
    let options = shared.options;
    let choices = image.map_or(&[][..], Image::choices);
    let image_text = match image {
        None => "killed".to_owned(),
        Some(_) if choices.is_empty() => "-".to_owned(),
        Some(_) => choices.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    shared.violations.lock().push(Violation {
        subject: subject.name().to_owned(),
        position: point.position,
        point: format!("{:?}", point.cause),
        operation: markers.begun.filter(|&begun| Some(begun) != markers.ended).map(|begun| {
            match expectation.interrupted {
                Some(operation) => format!("{begun}: {operation:?}"),
                None => format!("{begun}: creation or shutdown"),
            }
        }),
        acknowledged: markers.ended,
        image: choices.to_vec(),
        what: failure.to_string(),
        failure,
        replay: format!(
            "lapis crash {} --ops {} --seed {} --at {} --image {image_text}",
            subject.name(),
            options.ops,
            options.seed,
            point.position,
        ),
    });
}

/// How far the operations have come.
#[derive(Debug, Default)]
struct Markers {
    begun: Option<u32>,
    ended: Option<u32>,
    read: usize,
}

impl Markers {
    fn read(&mut self, events: &[Event], position: usize) {
        for event in &events[self.read..position] {
            match event {
                Event::Marker { marker: Marker::Begin(number), .. } => self.begun = Some(*number),
                Event::Marker { marker: Marker::End(number), .. } => self.ended = Some(*number),
                _ => {}
            }
        }
        self.read = position;
    }

    fn expectation<'r, S: Subject>(&self, run: &'r Run<S>) -> Expectation<'r, S> {
        let in_flight = self.begun.filter(|&begun| Some(begun) != self.ended);
        Expectation {
            acknowledged: self.ended.map(|ended| &run.states[ended as usize]),
            in_flight: in_flight.map(|begun| &run.states[begun as usize]),
            interrupted: in_flight
                .and_then(|begun| run.operations.get((begun as usize).checked_sub(1)?)),
            shut_down: self.ended.is_some_and(|ended| ended as usize > run.operations.len()),
        }
    }
}

fn image_hash(point: &CrashPoint, image: &Image) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    point.position.hash(&mut hasher);
    image.choices().hash(&mut hasher);
    hasher.digest()
}
