//! Further runs of a structure: for what one run has never passed, and until it has had its share of images.

use std::collections::BTreeSet;

use super::each_subject::subjects_of;
use super::runs::{explore_structure, failed};
use super::{CrashError, Progress, Structure};
use crate::coverage::Coverage;
use crate::erased::AnySubject;
use crate::explore::{explore_and_tell, explore_recorded};
use crate::options::ExploreOptions;
use crate::report::ExploreReport;
use crate::run::Run;

/// Seeds that are looked at for what is missed. Their operations run without crashes, which is cheap.
const CANDIDATES: u64 = 16;
/// After so many in which nothing was found no more are looked at: some of what is missed belongs to others that share
/// the source.
const MOST_FRUITLESS: u32 = 4;
/// Every other one has so many times the operations.
const LONGER: usize = 4;
/// In so many operations of a run the power is cut first; what follows runs without crashes, which is cheap.
const CUTS: usize = 24;
/// So many of them are explored whatever they come to, and so many at most.
const CUTS_EXPLORED: std::ops::RangeInclusive<usize> = 3..=8;
/// Of those that leave the same to be repaired so many are explored besides.
const CUTS_REPAIRED: usize = 4;
/// Images spread over what comes after a first power cut, unless a run has fewer.
const IMAGES_AFTER_CUT: u64 = 500;

/// [`explore_structure`], and then what it has missed. Operations of further seeds, and those of an index built with
/// none or all of the amplification study's optimisations, are run without crashes; where one passes a flush or fence,
/// or leads to an event, that was never passed, the power is cut in that operation. If there are to be
/// `least_images`, then come runs that begin with a power cut ([`ExploreOptions::cut_in`]), and whole runs of further
/// seeds until there are so many. Ends with the first violation.
///
/// # Errors
/// As for [`explore_structure`].
pub fn explore_further(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    least_images: u64,
    progress: &Progress<'_>,
) -> Result<ExploreReport, CrashError> {
    let mut total = explore_structure(structure, only, options, progress)?;
    let subjects = subjects_of(structure, only, options)?;
    let mut fruitless = 0;
    'seeds: for number in 1..=CANDIDATES {
        let missed = total.coverage.missed();
        let ops = options.ops * if number.is_multiple_of(2) { LONGER } else { 1 };
        let seed = options.seed.wrapping_add(number);
        let candidate = ExploreOptions { seed, ops, ..options.clone() };
        for subject in &subjects {
            let found = !total.violations.is_empty() || total.stopped;
            if found || total.coverage.missed() == 0 {
                break 'seeds;
            }
            explore_what_is_missed(&**subject, &candidate, &mut total, progress)
                .map_err(failed(&**subject))?;
        }
        fruitless = if total.coverage.missed() < missed { 0 } else { fruitless + 1 };
        if fruitless == MOST_FRUITLESS {
            break;
        }
    }
    for optimisations in structure.sets_of_optimisations() {
        let candidate = ExploreOptions { optimisations, ..options.clone() };
        for subject in &subjects_of(structure, only, &candidate)? {
            if total.violations.is_empty() && !total.stopped && total.coverage.missed() > 0 {
                explore_what_is_missed(&**subject, &candidate, &mut total, progress)
                    .map_err(failed(&**subject))?;
            }
        }
    }
    if total.violations.is_empty() && !total.stopped && least_images > 0 {
        let few = match options.spread_images {
            0 => IMAGES_AFTER_CUT,
            images => images.min(IMAGES_AFTER_CUT),
        };
        let options = ExploreOptions { spread_images: few, ..options.clone() };
        let before = total.images;
        let progress = |images| progress(before + images);
        total.add(explore_after_cuts(structure, only, &options, &progress)?);
    }
    let mut seed = options.seed.wrapping_add(CANDIDATES);
    while total.violations.is_empty() && !total.stopped && total.images < least_images {
        seed = seed.wrapping_add(1);
        let before = total.images;
        let next = ExploreOptions { seed, ..options.clone() };
        let progress = |images| progress(before + images);
        total.add(explore_structure(structure, only, &next, &progress)?);
        total.further_runs += 1;
        if total.images == before {
            break;
        }
    }
    // It may have been raised where nothing was explored.
    total.stopped |= options.stop.is_raised();
    Ok(total)
}

/// Runs that begin with a power cut: in some operations for each thing that a recovery repairs; and in some of the longest,
/// and those that pass, or come to, what a run from the creation on does not, such as repairs by whoever changes something
/// next. Ends with the first violation.
///
/// # Errors
/// As for [`explore_structure`].
pub(crate) fn explore_after_cuts(
    structure: Structure,
    only: Option<&str>,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<ExploreReport, CrashError> {
    let mut total = ExploreReport::default();
    for subject in &subjects_of(structure, only, options)? {
        total.stopped |= options.stop.is_raised();
        if options.is_over() {
            return Ok(total);
        }
        let run = Run::record(&**subject, options).map_err(failed(&**subject))?;
        let from = subject.first_operation();
        let mut cuts = run.cuts(&**subject, options, from).map_err(failed(&**subject))?;
        let repaired: BTreeSet<_> = cuts
            .repaired()
            .values()
            .flat_map(|cuts| cuts.iter().take(CUTS_REPAIRED))
            .copied()
            .collect();
        let longest = run.longest_operations(from, CUTS);
        let mut explored = 0;
        for &cut_in in longest.union(&repaired) {
            total.stopped |= options.stop.is_raised();
            if options.is_over() || !total.violations.is_empty() {
                return Ok(total);
            }
            let before = total.images;
            let is_repaired = repaired.contains(&cut_in);
            if !is_repaired && explored == *CUTS_EXPLORED.end() {
                continue;
            }
            let after = cuts.run_on(cut_in);
            if !is_repaired {
                let adds = after.as_ref().map_or(true, |after| after.adds_to(&run));
                if !adds && explored >= *CUTS_EXPLORED.start() {
                    continue;
                }
                explored += 1;
            }
            let options = ExploreOptions { cut_in, ..options.clone() };
            let progress = |images| progress(before + images);
            let report = explore_recorded(&**subject, &options, after, &progress);
            total.add(report.map_err(failed(&**subject))?);
            total.further_runs += 1;
        }
    }
    Ok(total)
}

/// Cuts the power in the first operations of a run that pass what `total` has never passed.
fn explore_what_is_missed(
    subject: &dyn AnySubject,
    candidate: &ExploreOptions,
    total: &mut ExploreReport,
    progress: &Progress<'_>,
) -> Result<(), String> {
    let run = Run::record(subject, candidate)?;
    for number in first_operations(&run, &total.coverage) {
        if total.stopped {
            break;
        }
        let before = total.images;
        let options = ExploreOptions {
            keep: Some((1..=number).collect()),
            first_operation: number,
            spread_images: 0,
            ..candidate.clone()
        };
        let report = explore_and_tell(subject, &options, &|images| progress(before + images))?;
        total.add(report);
        total.further_runs += 1;
    }
    Ok(())
}

/// The operations in which something is passed for the first time that never was before.
fn first_operations(run: &Run, coverage: &Coverage) -> BTreeSet<usize> {
    let mut positions: Vec<usize> =
        coverage.missed_events().filter_map(|event| run.first_events.get(event).copied()).collect();
    let points = &run.trace.points;
    let mut missed: BTreeSet<_> = coverage.missed_points().collect();
    missed.retain(|point| run.points.contains(point));
    for (position, event) in run.trace.events.iter().enumerate() {
        if missed.is_empty() {
            break;
        }
        let point = event.point().and_then(|point| points.get(usize::from(point)));
        positions.extend(point.filter(|point| missed.remove(point)).map(|_| position));
    }
    let last = run.numbers.last().copied().unwrap_or(0);
    let numbers = positions.into_iter().map(|position| run.operation_at(position));
    numbers.filter(|number| (1..=last).contains(number)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use lapis_index::IndexKind;

    use super::*;
    use crate::stop_flag::StopFlag;

    #[test]
    fn what_a_short_run_misses_is_found_in_others() {
        let options = ExploreOptions { ops: 5, threads: 1, ..ExploreOptions::default() };
        let (structure, run) = (Structure::Index(IndexKind::Wort), Some("wort:u64"));
        let alone = explore_structure(structure, run, &options, &|_| {}).unwrap();
        let further = explore_further(structure, run, &options, 0, &|_| {}).unwrap();
        assert!(alone.coverage.missed() > 0, "{:?}", alone.coverage);
        assert!(further.coverage.missed() < alone.coverage.missed());
        assert!(further.further_runs > 0 && further.violations.is_empty());
    }

    #[test]
    fn a_raised_flag_ends_an_exploration_in_its_middle() {
        static RAISED: AtomicBool = AtomicBool::new(true);
        let stop = StopFlag::at(&RAISED);
        let options = ExploreOptions { threads: 1, stop, ..ExploreOptions::default() };
        let structure = Structure::Index(IndexKind::Wort);
        let report = explore_further(structure, None, &options, 2000, &|_| {}).unwrap();
        assert_eq!((report.images, report.further_runs, report.stopped), (1, 0, true));
        assert!(report.coverage.persist_points() > 0, "what was passed is told all the same");
    }

    #[test]
    fn runs_after_a_cut_that_a_raised_flag_leaves_out_are_not_passed_over_in_silence() {
        static RAISED: AtomicBool = AtomicBool::new(true);
        let stop = StopFlag::at(&RAISED);
        let options = ExploreOptions { stop, ..ExploreOptions::default() };
        let structure = Structure::Index(IndexKind::Wort);
        let report = explore_after_cuts(structure, Some("wort:u64"), &options, &|_| {}).unwrap();
        assert_eq!((report.further_runs, report.stopped), (0, true));
    }

    #[test]
    fn seeds_follow_until_there_are_images_enough() {
        let options = ExploreOptions { ops: 5, threads: 1, ..ExploreOptions::default() };
        let structure = Structure::Index(IndexKind::Wort);
        let report = explore_further(structure, Some("wort:u64"), &options, 2000, &|_| {}).unwrap();
        assert!(report.images >= 2000 && report.further_runs > 1, "{}", report.images);
    }
}
