//! Showing that every flush and every fence is necessary.
//!
//! A point that the run passes is switched off for the run and for the recoveries from the crashes in
//! it. One that only recoveries pass makes no difference to the run, and is found out by cutting the
//! power twice: first so that the recovery passes the point, and then in that recovery or in what is
//! done after it.

use std::collections::{BTreeMap, BTreeSet};

use lapis_device::{CrashPoints, Image, ImageBudget, PersistPoint, PowerFailDomain};

use crate::erased::AnySubject;
use crate::explore::explore_any;
use crate::image_check::{FirstCrash, ImageChecker};
use crate::markers::Markers;
use crate::options::ExploreOptions;
use crate::report::PersistPointRow;
use crate::run::Run;
use crate::strategy::Strategy;
use crate::structure::Progress;
use crate::subject::Subject;

/// Images of each crash point that are recovered to find the persist points on the way.
const SEARCHED_IMAGES: u32 = 12;
/// One in so many of them is used further after the recovery.
const SEARCHED_WHOLE_EVERY: u64 = 4;
/// How often, with other probes, the power is cut again on the images that lead to a point.
const ROUNDS: u64 = 16;

/// Switches off each persist point in the subject's own source files in turn: those that the run
/// passes, and those that recoveries from crashes in it pass. `seeds` are tried one after the other
/// until one kills.
///
/// # Errors
/// What went wrong without any crash, or with nothing switched off.
pub fn persist_points<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, String> {
    let mut rows = Vec::new();
    for &seed in seeds {
        let options = ExploreOptions { seed, ..options.clone() };
        try_points(subject, &options, &mut rows, progress)?;
    }
    rows.sort_by(|a, b| a.order.cmp(&b.order));
    Ok(rows)
}

/// Switches off in turn each point that one run passes, or recoveries from crashes in it, and that
/// no run has been found out without so far.
pub(crate) fn try_points(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    rows: &mut Vec<PersistPointRow>,
    progress: &Progress<'_>,
) -> Result<(), String> {
    let run = Run::record(subject, &ExploreOptions { suppress: None, ..options.clone() })?;
    let own = run.points.iter().copied().filter(|point| subject.owns_source(point.file));
    let in_run: BTreeSet<_> = own.collect();
    let recoveries = Recoveries::of(subject, run, options)?;
    for point in in_run.iter().chain(recoveries.passing.keys()).copied() {
        if options.stop.is_raised() {
            break;
        }
        let only_after_crashes = !in_run.contains(&point);
        let name = name(&point);
        let known = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            rows.push(PersistPointRow {
                name,
                killed: false,
                images: 0,
                by: None,
                only_after_crashes,
                order: (point.file.to_owned(), point.line, point.column, point.kind.name()),
            });
            rows.len() - 1
        });
        let row = &mut rows[known];
        row.only_after_crashes &= only_after_crashes;
        if row.killed {
            continue;
        }
        let options =
            ExploreOptions { violation_limit: 1, suppress: Some(point), ..options.clone() };
        if only_after_crashes {
            recoveries.crash_again(subject, &options, point, row)?;
        }
        // Also of those that only recoveries pass: some take the death of a process to show.
        if row.by.is_none() {
            match explore_any(subject, &options, &|_| {}) {
                Ok(report) => {
                    row.images += report.images;
                    row.by = report.violations.first().map(|violation| violation.what.clone());
                }
                // Without the point the structure does not even work without a crash.
                Err(what) => row.by = Some(what),
            }
        }
        row.killed = row.by.is_some();
        if !row.killed && options.stop.is_raised() {
            // Not tried to its end: nothing is known of it.
            rows.remove(known);
            break;
        }
        progress(rows.len() as u64);
    }
    Ok(())
}

/// A run, and which crashes in it lead a recovery, or what is done after it, to which points.
struct Recoveries {
    run: Run,
    /// By point, then by position in the trace.
    passing: BTreeMap<PersistPoint, BTreeMap<usize, Vec<Image>>>,
}

impl Recoveries {
    /// Recovers on a sample of the images of each crash point.
    fn of(subject: &dyn AnySubject, run: Run, options: &ExploreOptions) -> Result<Self, String> {
        let options =
            ExploreOptions { strategy: Strategy::Sampled, suppress: None, ..options.clone() };
        let in_run: BTreeSet<_> = run.points.iter().copied().collect();
        let mut checker = ImageChecker::new(subject, &run.base, &options)?;
        let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
        let mut markers = Markers::default();
        let mut passing: BTreeMap<PersistPoint, BTreeMap<usize, Vec<Image>>> = BTreeMap::new();
        let mut passed_before = BTreeMap::new();
        while let Some(point) = points.advance() {
            if options.stop.is_raised() {
                break;
            }
            checker.bring_up_to_date(&points).map_err(|e| e.to_string())?;
            checker.region.grow_to(run.storage_bytes(point.position)).map_err(|e| e.to_string())?;
            markers.read(&run.trace.events, point.position);
            let expectation = markers.expectation(&run);
            let crash_states = points.states();
            let seed = seed_of(&options, point.position);
            let budget = ImageBudget { exhaustive_limit: 0, samples: SEARCHED_IMAGES, seed };
            for image in crash_states.sampled_images(budget).take(SEARCHED_IMAGES as usize) {
                checker.apply(&crash_states, &image).map_err(|e| e.to_string())?;
                let outcome = checker.check(subject, expectation, seed, SEARCHED_WHOLE_EVERY);
                checker.revert(&crash_states, &image).map_err(|e| e.to_string())?;
                outcome.map_err(|failure| failure.to_string())?;
                for found in checker.persist_points() {
                    let before = passed_before.insert(found.point, found.passed);
                    let now = before.is_none_or(|before| before < found.passed);
                    if now
                        && subject.owns_source(found.point.file)
                        && !in_run.contains(&found.point)
                    {
                        let images = passing.entry(found.point).or_default();
                        images.entry(point.position).or_default().push(image.clone());
                    }
                }
            }
        }
        Ok(Self { run, passing })
    }

    /// Cuts the power twice, the first time so that `point` is passed after it, until something is
    /// found wrong without the point.
    fn crash_again(
        &self,
        subject: &dyn AnySubject,
        options: &ExploreOptions,
        point: PersistPoint,
        row: &mut PersistPointRow,
    ) -> Result<(), String> {
        let Some(positions) = self.passing.get(&point) else { return Ok(()) };
        let run = &self.run;
        for round in 0..ROUNDS {
            let mut checker = ImageChecker::new(subject, &run.base, options)?;
            let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
            let mut markers = Markers::default();
            while let Some(point) = points.advance() {
                checker.bring_up_to_date(&points).map_err(|e| e.to_string())?;
                let storage_bytes = run.storage_bytes(point.position);
                checker.region.grow_to(storage_bytes).map_err(|e| e.to_string())?;
                markers.read(&run.trace.events, point.position);
                let Some(images) = positions.get(&point.position) else { continue };
                // An image each round: others of the same crash point are much like it.
                let image = &images[round as usize % images.len()];
                let expectation = markers.expectation(run);
                let crash_states = points.states();
                let seed = seed_of(options, point.position) ^ round << 48;
                checker.apply(&crash_states, image).map_err(|e| e.to_string())?;
                let budget = ImageBudget { exhaustive_limit: 64, samples: 16, seed };
                let first = FirstCrash::PowerCut;
                let outcome = checker.check_second_crash(subject, first, expectation, seed, budget);
                checker.revert(&crash_states, image).map_err(|e| e.to_string())?;
                match outcome {
                    Ok(second) => row.images += second.images,
                    Err(failure) => {
                        row.images += 1;
                        row.by = Some(failure.to_string());
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

fn seed_of(options: &ExploreOptions, position: usize) -> u64 {
    options.seed ^ (position as u64) << 20
}

fn name(point: &PersistPoint) -> String {
    format!("{}:{}:{} {}", point.file, point.line, point.column, point.kind.name())
}
