//! Running histories and cutting the power in the middle of them.

use std::collections::BTreeSet;
use std::time::Instant;

use lapis_device::{BoundedSearch, Event, InterleavedRun, PersistPoint, SchedulePolicy, Trace};
use parking_lot::Mutex;

use super::case::Case;
use super::machines::{Found, Machines, Tally, Wanted};
use super::options::{ConcurrentOptions, Selection, policy_of, replay_command};
use super::pairs::FlushPairs;
use super::report::{ConcurrentReport, ConcurrentViolation};
use super::shrink::shrink;
use super::subject::ConcurrentSubject;
use super::timeline::draw;
use crate::coverage::Coverage;
use crate::erased::AnyConcurrentSubject;
use crate::first_violations::FirstViolations;
use crate::report::Shrunk;
use crate::structure::Progress;
use crate::subject::text;

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
        coverage: Coverage::none_of(|file| subject.owns_source(file)),
        ..ConcurrentReport::default()
    });
    let first_violations = FirstViolations::new(options.violation_limit);
    let replays = options.replay.schedule.is_some() || options.replay.position.is_some();
    match options.most_deviations {
        Some(most) if !replays => {
            search_bounded(subject, options, most, &found, &first_violations, progress)?;
        }
        _ => {
            let threads = if replays { 1 } else { options.threads.max(1) };
            let schedules = if replays { 1 } else { options.schedules };
            let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..threads as u64)
                    .map(|first| {
                        let (found, first_violations) = (&found, &first_violations);
                        scope.spawn(move || {
                            let mut machines = Machines::new(subject, options, false)?;
                            let selection = Selection::of(options);
                            for number in (first..schedules).step_by(threads) {
                                let seed = options.seed.wrapping_add(number);
                                machines.prepare(seed, &selection)?;
                                let policy = match &options.replay.schedule {
                                    Some(schedule) => SchedulePolicy::Replay(schedule.clone()),
                                    None => policy_of(seed),
                                };
                                try_schedule(&mut machines, &policy, found, first_violations)?;
                                if first_violations.are_before(seed) || options.stop.is_raised() {
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
    report.stopped = options.stop.is_raised();
    first_violations.keep(&mut report.violations, |violation| violation.seed);
    if options.shrink
        && let Some(violation) = report.violations.first()
    {
        report.violations[0].shrunk = told(subject, options, violation)?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    report.images_per_s = report.images as f64 / report.seconds.max(1e-9);
    Ok(report)
}

fn search_bounded(
    subject: &dyn AnyConcurrentSubject,
    options: &ConcurrentOptions,
    most_deviations: usize,
    found: &Mutex<ConcurrentReport>,
    first_violations: &FirstViolations,
    progress: &Progress<'_>,
) -> Result<(), String> {
    let mut search = BoundedSearch::new(most_deviations, options.schedules);
    let mut machines = Machines::new(subject, options, false)?;
    machines.prepare(options.seed, &Selection::of(options))?;
    while let Some(policy) = search.next_policy() {
        let run = try_schedule(&mut machines, &policy, found, first_violations)?;
        search.ran(&run);
        if first_violations.are_before(options.seed) || options.stop.is_raised() {
            break;
        }
        progress(found.lock().images);
    }
    found.lock().complete = Some(search.is_complete());
    Ok(())
}

/// Runs the history on one schedule, cuts the power in it, and adds up what came of it.
fn try_schedule(
    machines: &mut Machines<'_>,
    policy: &SchedulePolicy,
    found: &Mutex<ConcurrentReport>,
    first_violations: &FirstViolations,
) -> Result<InterleavedRun, String> {
    let ran = machines.run(policy)?;
    let mut tally = Tally::default();
    let replay = &machines.options.replay;
    let wanted = Wanted { position: replay.position, image: replay.image.as_deref() };
    let violation = match &ran.wrong {
        Some(wrong) => Some(wrong.clone()),
        None => machines.cut_power(&ran, wanted, &mut tally)?,
    };
    let mut report = found.lock();
    report.schedules += 1;
    report.after_a_cut += u64::from(machines.first_cut.is_some());
    report.events += ran.trace.events.len() as u64;
    report.crash_points += tally.crash_points;
    report.images += tally.images;
    report.distinct_states += tally.distinct_states;
    let owns = |file: &str| machines.subject.owns_source(file);
    let own = ran.passed.iter().filter(|point| owns(point.file));
    report.coverage.pass_run(own.copied(), &ran.events);
    report.interrupted.extend(interrupted(&ran.trace).filter(|point| owns(point.file)));
    report.flush_pairs.add(FlushPairs::of(&ran.trace, owns));
    report.persist_points.extend(ran.passed);
    if let Some(violation) = violation {
        let violation = describe(machines, violation, &ran.run);
        first_violations.add(violation.seed);
        report.violations.push(violation);
    }
    Ok(ran.run)
}

/// The flushes and fences before which, since their worker had stored something, another did something.
fn interrupted(trace: &Trace) -> impl Iterator<Item = PersistPoint> {
    // By worker: whether others have done something since it last stored.
    let (mut seen, mut found) = (Vec::new(), BTreeSet::new());
    for event in &trace.events {
        let me = usize::from(event.worker());
        if seen.len() <= me {
            seen.resize(me + 1, false);
        }
        match event {
            Event::Flush { point, .. }
            | Event::FlushLines { point, .. }
            | Event::Fence { point, .. } => {
                if seen[me] {
                    found.insert(trace.points[usize::from(*point)]);
                }
            }
            _ => seen[me] = false,
        }
        let others = seen.iter_mut().enumerate().filter(|(worker, _)| *worker != me);
        others.for_each(|(_, seen)| *seen = true);
    }
    found.into_iter()
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
    let mut machines = Machines::new(subject, options, true)?;
    machines.prepare(violation.seed, &Selection::of(options))?;
    let schedule = match &options.replay.schedule {
        Some(schedule) => schedule.clone(),
        None => violation.schedule.parse().map_err(text)?,
    };
    let ran = machines.run(&SchedulePolicy::Replay(schedule.clone()))?;
    let image = options.replay.image.as_deref().unwrap_or(&violation.image);
    let wanted = Wanted { position: violation.position, image: Some(image) };
    let found = match &ran.wrong {
        Some(wrong) => Some(wrong.clone()),
        None => machines.cut_power(&ran, wanted, &mut Tally::default())?,
    };
    let Some(found) = found else { return Ok(None) };
    let mut case = Case::of(&machines, &ran, found);
    case.schedule = schedule;
    draw(&mut machines, &ran, &case).map(Some)
}

fn describe(machines: &Machines<'_>, found: Found, run: &InterleavedRun) -> ConcurrentViolation {
    let (name, options) = (machines.subject.name(), machines.options);
    // The seed gives the schedule again, unless it was one of many for one seed.
    let one_of_many = options.most_deviations.is_some() || options.replay.schedule.is_some();
    let schedule = run.schedule.to_string();
    ConcurrentViolation {
        subject: name.to_owned(),
        seed: machines.seed,
        position: found.position(),
        point: found.at.as_ref().map(|(point, _)| format!("{:?}", point.cause)),
        image: found.image().to_vec(),
        replay: replay_command(
            name,
            options,
            machines.seed,
            &Selection::of(options),
            found.crash(),
            one_of_many.then_some(&run.schedule),
        ),
        schedule,
        operation: found.operation,
        rule: found.rule,
        what: found.what,
        shrunk: None,
    }
}
