//! Going through the crash points of a run and trying the images of each.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lapis_device::{CrashCause, CrashPoint, CrashStates, Image, ImageBudget};

use crate::coverage::Coverage;
use crate::erased::{AnySubject, hash_of};
use crate::first_violations::FirstViolations;
use crate::image_check::{Expectation, FirstCrash, ImageChecker, SecondCrash};
use crate::markers::Markers;
use crate::options::ExploreOptions;
use crate::oracle::Failure;
use crate::report::{ExploreReport, PointOutcomes, Violation};
use crate::reuse::{Proof, Question, Reuse};
use crate::run::{RecordError, Run};
use crate::spread::Spread;
use crate::strategy::Candidates;
use crate::structure::Progress;
use crate::subject::Kills;

/// What the threads of an exploration have in common.
struct Shared<'o> {
    options: &'o ExploreOptions,
    spread: Spread,
    images: AtomicU64,
    points: AtomicU64,
    violations: FirstViolations,
    stop: AtomicBool,
    progress: &'o Progress<'o>,
}

/// [`explore`](crate::explore()) without shrinking.
pub(crate) fn explore_once(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, RecordError> {
    Ok(explore_run(subject, options, &Run::record(subject, options)?, progress)?)
}

/// [`explore_once`], of a run that is recorded already.
pub(crate) fn explore_run(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    run: &Run,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    let from_subject = options.first_operation.max(subject.first_operation());
    // Second crashes of the run before are those in the recovery from its first.
    let first_operation = from_subject.max(usize::from(run.first_cut.is_some()));
    let spread = Spread::of(run, first_operation, options);
    let options = &ExploreOptions { first_operation, ..spread.within(options) };
    let (images, points, stop) = Default::default();
    let violations = FirstViolations::new(options.violation_limit);
    let shared = Shared { options, spread, images, points, violations, stop, progress };
    let threads = if options.replay.is_some() { 1 } else { options.threads.max(1) };
    let shares: Vec<Result<_, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || walk(subject, run, shared, thread, threads))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a worker panicked".to_owned())))
            .collect()
    });
    let mut total = ExploreReport {
        one_crash_point_in: spread.stride,
        events: run.events.clone(),
        stopped: options.stop.is_raised(),
        ..ExploreReport::of(subject, options)
    };
    let own = run.points.iter().filter(|point| subject.owns_source(point.file));
    total.coverage.pass_run(own.copied(), &run.events);
    let mut states = HashSet::new();
    for share in shares {
        let (found, states_found) = share?;
        total.add(found);
        states.extend(states_found);
    }
    shared.violations.keep(&mut total.violations, |violation| violation.position as u64);
    total.distinct_states = states.len() as u64;
    total.seconds = run.begun.elapsed().as_secs_f64();
    total.images_per_s = total.images as f64 / total.seconds.max(1e-9);
    Ok(total)
}

/// Tells a state that was recovered from one that never was there.
const RECOVERED: u64 = 0x9E37_79B9_7F4A_7C15;

/// One thread's share, and the states in it: every crash point is passed, every `threads`-th explored.
fn walk(
    subject: &dyn AnySubject,
    run: &Run,
    shared: &Shared<'_>,
    thread: usize,
    threads: usize,
) -> Result<(ExploreReport, HashSet<u64>), String> {
    let coverage = Coverage::none_of(|file| subject.owns_source(file));
    let (options, mut found) =
        (shared.options, ExploreReport { coverage, ..ExploreReport::default() });
    let mut checker = run.checker(subject, options)?;
    let mut points = run.crash_points(options);
    let mut states = HashSet::new();
    let mut markers = Markers::default();
    let walks = if options.remember_walks { subject.walk_memory() } else { None };
    let mut reuse = Reuse::with_walks(walks);
    let mut index = 0;
    let stride = shared.spread.stride as usize;
    while let Some(point) = points.advance() {
        reuse.lines_change(points.newly_durable(), &checker.region);
        checker.bring_up_to_date(&points).map_err(|e| e.to_string())?;
        let storage_bytes = run.storage_bytes(point.position);
        let mapped = checker.region.mapped_bytes();
        checker.region.grow_to(storage_bytes).map_err(|e| e.to_string())?;
        if checker.region.mapped_bytes() != mapped {
            reuse.forget();
        }
        markers.read(&run.trace.events, point.position);
        index += 1;
        if !shared.spread.takes(index) || index / stride % threads != thread {
            continue;
        }
        let begun = markers.begun.map_or(0, |begun| run.number(begun));
        if begun < options.first_operation && options.replay.is_none() {
            continue;
        }
        if shared.stop.load(Ordering::Relaxed)
            || shared.violations.are_before(point.position as u64)
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
        found.crash_points += 1;
        *found.crash_points_in.entry(run.phase(point.position)).or_default() += 1;
        if let CrashCause::BeforeFence(fence) = point.cause {
            *found.fences.entry(fence).or_default() += 1;
        }
        // What the pool writes back it writes back alike wherever the process dies.
        let rarely = if subject.kills() == Kills::WrittenBack { 2 } else { 1 };
        let every = options.crash_in_recovery_every.div_ceil(32) * rarely;
        let due = every > 0 && hash_of(&seed).is_multiple_of(every);
        let kill = match &options.replay {
            // Before the creation is acknowledged, what the first process left in the caches is the
            // pool's to make durable.
            None => {
                let outlives = subject.kills() != Kills::Untried && !checker.has_devices();
                outlives && due && markers.ended.is_some()
            }
            Some(replay) => replay.image.is_none(),
        };
        if kill {
            let image = crash_states.everything();
            checker.apply(&crash_states, &image).map_err(|e| e.to_string())?;
            let first =
                FirstCrash::Killed { trace: &run.trace, position: point.position, base: &run.base };
            let found = &mut found;
            let failure =
                second_crash(subject, shared, &mut checker, first, expectation, seed, found);
            checker.revert(&crash_states, &image).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                let at =
                    At { subject, run, point: &point, states: &crash_states, markers: &markers };
                found.violations.push(at.violation(options, None, failure));
                shared.violations.add(point.position as u64);
            }
        }
        let mut outcomes = PointOutcomes::default();
        let check_seed = markers.check_seed(options);
        let pruned = candidates.needs_reads();
        if pruned {
            reuse.look_ahead(&checker, &crash_states, &run.trace.events[point.position..]);
        }
        while let Some(image) = candidates.next_image() {
            let number = shared.images.fetch_add(1, Ordering::Relaxed) + 1;
            found.images += 1;
            if pruned {
                reuse.take_image(&checker, &crash_states, &image);
            }
            let pruning = candidates.needs_reads();
            // Of block devices it is not known what has changed since another image was run.
            let comparable = pruning && !checker.has_devices();
            let known = if comparable { reuse.find(&checker, markers.begun) } else { None };
            checker.watch_sectors(&crash_states);
            checker.apply(&crash_states, &image).map_err(|e| e.to_string())?;
            checker.lines_copied += 2 * crash_states.changed_sites(&image) as u64;
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
                let (outcome, proof) = reuse.check(&mut checker, known, question);
                let (entire, partial) = (proof == Proof::Entire, proof == Proof::Partial);
                found.images_by_proof += u64::from(entire);
                found.images_partly_by_proof += u64::from(partial);
                checker.add_sector_reads(&crash_states, &mut reuse.reads);
                candidates.learn(&reuse.reads);
                outcome
            } else if pruned {
                reuse.remembering(&mut checker, |checker| {
                    checker.check(subject, expectation, check_seed, whole_check_every)
                })
            } else {
                checker.check(subject, expectation, check_seed, whole_check_every)
            };
            let outcome = outcome.map(|recovered| recovered.map(|known| known.hash));
            let hash = match &outcome {
                Ok(recovered) => recovered.map_or(0, |state| state ^ RECOVERED),
                Err(failure) => hash_of(&failure.to_string()),
            };
            outcomes.images += 1;
            outcomes.hashes.insert(hash);
            let mut failure = outcome.map(|_| states.insert(hash)).err();
            if failure.is_none()
                && let Some(bytes) = run.durable_storage_bytes(point.position)
            {
                found.images += 1;
                let shorter = checker.check_shortened(subject, bytes, expectation, check_seed);
                failure = shorter.err();
                checker.take_reads(&mut reuse.taken);
            }
            let every = options.crash_in_recovery_every;
            let chosen = || hash_of(&(seed, image.choices())).is_multiple_of(every);
            let again = every > 0 && (options.replay.is_some() || chosen());
            if failure.is_none() && again {
                let first = FirstCrash::PowerCut;
                let found = &mut found;
                failure =
                    second_crash(subject, shared, &mut checker, first, expectation, seed, found);
                // What the recoveries of those images have read is not this one's.
                checker.take_reads(&mut reuse.taken);
            }
            checker.revert(&crash_states, &image).map_err(|e| e.to_string())?;
            if let Some(failure) = failure {
                let at =
                    At { subject, run, point: &point, states: &crash_states, markers: &markers };
                found.violations.push(at.violation(options, Some(&image), failure));
                shared.violations.add(point.position as u64);
            }
            if number.is_multiple_of(256) {
                (shared.progress)(number);
            }
            if outcomes.images >= shared.spread.per_point {
                break;
            }
            let enough =
                options.image_limit > 0 && number >= options.image_limit || options.is_over();
            if enough {
                shared.stop.store(true, Ordering::Relaxed);
            }
            if enough || shared.violations.are_before(point.position as u64) {
                break;
            }
        }
        outcomes.complete = candidates.is_complete();
        found.exhaustive_points += u64::from(outcomes.complete);
        found.outcomes.insert((subject.name().to_owned(), point.position), outcomes);
        found.images_covered = found.images_covered.saturating_add(candidates.covered());
    }
    checker.passed(|points, events| {
        let own = points.iter().filter(|found| subject.owns_source(found.point.file));
        let own: Vec<_> = own.copied().collect();
        found.coverage.pass_after_crashes(&own, events);
    });
    found.lines_copied = checker.lines_copied;
    found.parts_passed = reuse.parts_passed();
    Ok((found, states))
}

/// Cuts the power a second time; returns what was not survived.
fn second_crash(
    subject: &dyn AnySubject,
    shared: &Shared<'_>,
    checker: &mut ImageChecker,
    first: FirstCrash<'_>,
    expectation: Expectation<'_>,
    seed: u64,
    found: &mut ExploreReport,
) -> Option<Failure> {
    let budget = ImageBudget { exhaustive_limit: 16, samples: 4, seed };
    match checker.check_second_crash(subject, first, expectation, seed, budget) {
        Ok(SecondCrash { images, grew }) => {
            shared.images.fetch_add(images, Ordering::Relaxed);
            found.images += images;
            found.images_in_recovery += images;
            found.grown_recoveries += u64::from(grew);
            None
        }
        Err(failure) => Some(failure),
    }
}

/// Where an image was not survived.
struct At<'a> {
    subject: &'a dyn AnySubject,
    run: &'a Run,
    point: &'a CrashPoint,
    states: &'a CrashStates<'a>,
    markers: &'a Markers,
}

impl At<'_> {
    fn violation(
        &self,
        options: &ExploreOptions,
        image: Option<&Image>,
        failure: Failure,
    ) -> Violation {
        Violation {
            subject: self.subject.name().to_owned(),
            position: self.point.position,
            point: format!("{:?}", self.point.cause),
            operation: self.markers.begun.filter(|&begun| Some(begun) != self.markers.ended).map(
                |begun| match self.markers.expectation(self.run).interrupted {
                    Some(operation) => format!("{}: {operation:?}", self.run.number(begun)),
                    None => format!("{}: creation or shutdown", self.run.number(begun)),
                },
            ),
            acknowledged: self.markers.ended.map(|ended| self.run.number(ended) as u32),
            image: image.map_or(Vec::new(), |image| image.choices().to_vec()),
            newest: self.states.everything().choices().to_vec(),
            killed: image.is_none(),
            what: failure.to_string(),
            failure,
            replay: options.replay_command(self.subject.name(), self.point.position, image),
            shrunk: None,
        }
    }
}
