//! Showing that every flush and every fence is necessary.
//!
//! A point that the run passes is switched off for the run and for the recoveries from the crashes in
//! it. One that only recoveries pass makes no difference to the run, and is found out by cutting the
//! power twice: first so that the recovery passes the point, and then in that recovery or in what is
//! done after it.

use std::collections::{BTreeMap, BTreeSet};

use lapis_device::{Image, ImageBudget, PersistPoint};

use crate::erased::AnySubject;
use crate::explore::explore_any;
use crate::image_check::FirstCrash;
use crate::markers::Markers;
use crate::options::ExploreOptions;
use crate::report::PersistPointRow;
use crate::run::Run;
use crate::spread::Spread;
use crate::strategy::Strategy;
use crate::structure::Progress;
use crate::subject::{Kills, Subject};

/// Images of each crash point that are recovered to find the persist points on the way.
const SEARCHED_IMAGES: u32 = 12;
/// One in so many of them is used further after the recovery.
const SEARCHED_WHOLE_EVERY: u64 = 4;
/// How often, with other probes, the power is cut again on the images that lead to a point.
const ROUNDS: u64 = 16;
/// In how many of these the process is killed there, too, before the power is cut.
const ROUNDS_WITH_KILLS: u64 = 2;
/// Operations after a first power cut that shows what others hardly do, and [`ExploreOptions::spread_images`] of it.
const AFTER_RARE_CUT: (usize, u64) = (40, 60_000);
/// [`ExploreOptions::spread_images`] of the first pass over all seeds: what all images of one run are needed for, a few of
/// another often show.
const FEW_IMAGES: u64 = 300;

/// Switches off each persist point in the subject's own source files in turn: those that the run
/// passes, and those that recoveries from crashes in it pass. `seeds` are tried one after the other
/// until one kills: by few images first, then by more, then by all.
///
/// # Errors
/// What went wrong without any crash, or with nothing switched off.
pub fn persist_points<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, String> {
    persist_points_of(&[subject], options, seeds, progress).map_err(|(_, what)| what)
}

/// [`persist_points`] of several subjects: what one kills with one seed is not tried with others. An error says which
/// subject's it is.
pub(crate) fn persist_points_of(
    subjects: &[&dyn AnySubject],
    options: &ExploreOptions,
    seeds: &[u64],
    progress: &Progress<'_>,
) -> Result<Vec<PersistPointRow>, (usize, String)> {
    let mut trials =
        Trials { subjects, options, crash_points: BTreeMap::new(), trials: Vec::new() };
    let runs = || seeds.iter().flat_map(|&seed| (0..subjects.len()).map(move |it| (it, seed)));
    for id in runs() {
        trials.find_and_try(id, progress).map_err(|what| (id.0, what))?;
    }
    // A run without a point has a few more or fewer crash points.
    runs().for_each(|id| trials.try_further(id, |crash_points| crash_points * (Spread::LEAST + 1)));
    runs().for_each(|id| trials.try_further(id, |_| 0));
    if options.stop.is_raised() {
        // Of what was not tried to its end nothing is known.
        trials.trials.retain(|trial| trial.row.killed);
    }
    trials
        .trials
        .sort_by_key(|it| (it.point.file, it.point.line, it.point.column, it.point.kind.name()));
    Ok(trials.trials.into_iter().map(|trial| trial.row).collect())
}

/// A subject and a seed.
type RunId = (usize, u64);

/// A persist point, and what is known of it.
struct Trial {
    point: PersistPoint,
    /// The runs that pass it, or whose recoveries do.
    passed_by: Vec<RunId>,
    row: PersistPointRow,
}

struct Trials<'a> {
    subjects: &'a [&'a dyn AnySubject],
    options: &'a ExploreOptions,
    /// How many each run has.
    crash_points: BTreeMap<RunId, u64>,
    trials: Vec<Trial>,
}

impl Trials<'_> {
    /// Tries each point that one run passes, or recoveries from crashes in it, and that no run has been found out without
    /// so far: with a few images, and where only recoveries pass it.
    fn find_and_try(&mut self, id: RunId, progress: &Progress<'_>) -> Result<(), String> {
        if self.options.stop.is_raised() {
            return Ok(());
        }
        let subject = self.subjects[id.0];
        let options =
            ExploreOptions { seed: id.1, spread_images: FEW_IMAGES, ..self.options.clone() };
        let run = Run::record(subject, &ExploreOptions { suppress: None, ..options.clone() })?;
        let own = run.points.iter().copied().filter(|point| subject.owns_source(point.file));
        let in_run: BTreeSet<_> = own.collect();
        let mut points = run.crash_points(&options);
        let crash_points = std::iter::from_fn(|| points.advance()).count();
        self.crash_points.insert(id, crash_points as u64);
        let recoveries = Recoveries::of(subject, run, &options)?;
        for point in in_run.iter().chain(recoveries.passing.keys()).copied() {
            if options.stop.is_raised() {
                break;
            }
            let only_after_crashes = !in_run.contains(&point);
            let at = self.trials.iter().position(|it| it.point == point).unwrap_or_else(|| {
                let row = PersistPointRow {
                    name: name(&point),
                    killed: false,
                    images: 0,
                    by: None,
                    only_after_crashes,
                };
                self.trials.push(Trial { point, passed_by: Vec::new(), row });
                self.trials.len() - 1
            });
            let Trial { passed_by, row, .. } = &mut self.trials[at];
            let is_new = passed_by.is_empty();
            passed_by.push(id);
            row.only_after_crashes &= only_after_crashes;
            if row.killed {
                continue;
            }
            if only_after_crashes && is_new {
                explore_after_rare_cuts(self.subjects, &without(&options, point), row);
            }
            if only_after_crashes && row.by.is_none() {
                recoveries.crash_again(subject, &without(&options, point), point, row)?;
            }
            // Also of those that only recoveries pass: some take the death of a process to show.
            if row.by.is_none() {
                explore_without(subject, &without(&options, point), row);
            }
            row.killed = row.by.is_some();
            progress(self.trials.len() as u64);
        }
        Ok(())
    }

    /// Tries each point that this run passes, or recoveries from crashes in it, and that has not been found out, with so
    /// many images of so many crash points ([`ExploreOptions::spread_images`]).
    fn try_further(&mut self, id: RunId, images: impl Fn(u64) -> u64) {
        let spread_images =
            self.crash_points.get(&id).map_or(0, |&crash_points| images(crash_points));
        let options = ExploreOptions { seed: id.1, spread_images, ..self.options.clone() };
        for Trial { point, passed_by, row } in &mut self.trials {
            if !row.killed && passed_by.contains(&id) && !options.stop.is_raised() {
                explore_without(self.subjects[id.0], &without(&options, *point), row);
                row.killed = row.by.is_some();
            }
        }
    }
}

fn without(options: &ExploreOptions, point: PersistPoint) -> ExploreOptions {
    ExploreOptions { violation_limit: 1, suppress: Some(point), ..options.clone() }
}

/// Explores what comes after the power cuts that subjects name for what others hardly show ([`Subject::rare_cut`]).
fn explore_after_rare_cuts(
    subjects: &[&dyn AnySubject],
    without: &ExploreOptions,
    row: &mut PersistPointRow,
) {
    for subject in subjects {
        let Some((seed, cut_in)) = subject.rare_cut() else { continue };
        let options = ExploreOptions {
            ops: cut_in + AFTER_RARE_CUT.0,
            seed,
            cut_in,
            spread_images: AFTER_RARE_CUT.1,
            violation_limit: 1,
            suppress: without.suppress,
            optimisations: without.optimisations,
            stop: without.stop,
            ..ExploreOptions::default()
        };
        explore_without(*subject, &options, row);
        if row.by.is_some() {
            return;
        }
    }
}

fn explore_without(subject: &dyn AnySubject, options: &ExploreOptions, row: &mut PersistPointRow) {
    match explore_any(subject, options, &|_| {}) {
        Ok(report) => {
            row.images += report.images;
            row.by = report.violations.first().map(|violation| violation.what.clone());
        }
        // Without the point the structure does not even work without a crash.
        Err(what) => row.by = Some(what),
    }
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
        let mut checker = run.checker(subject, &options)?;
        let mut points = run.crash_points(&options);
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
            let mut checker = run.checker(subject, options)?;
            let mut points = run.crash_points(options);
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
                let budget = ImageBudget { exhaustive_limit: 64, samples: 16, seed };
                let killed = FirstCrash::Killed {
                    trace: &run.trace,
                    position: point.position,
                    base: &run.base,
                };
                let kills = round < ROUNDS_WITH_KILLS
                    && subject.kills() != Kills::Untried
                    && !checker.has_devices()
                    && markers.ended.is_some();
                let everything = crash_states.everything();
                let crashes = [(FirstCrash::PowerCut, image), (killed, &everything)];
                for (first, image) in crashes.into_iter().take(1 + usize::from(kills)) {
                    checker.apply(&crash_states, image).map_err(|e| e.to_string())?;
                    let outcome =
                        checker.check_second_crash(subject, first, expectation, seed, budget);
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
