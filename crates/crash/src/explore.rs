//! Exploring the crash states of one subject.

use crate::crash_walk::{explore_once, explore_run};
use crate::erased::AnySubject;
use crate::options::ExploreOptions;
use crate::report::ExploreReport;
use crate::run::{RecordError, Run};
use crate::shrink::shrink;
use crate::structure::Progress;
use crate::subject::Subject;
use crate::timeline::draw;

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
    explore_recorded(subject, options, Run::record(subject, options), progress)
}

/// [`explore_and_tell`], of a run that is recorded already, or what went wrong in it.
pub(crate) fn explore_recorded(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    run: Result<Run, RecordError>,
    progress: &Progress<'_>,
) -> Result<ExploreReport, String> {
    match run {
        // As if that were all that is explored.
        Err(RecordError::FirstCut(replay)) => {
            let options = options.up_to_the_first_cut();
            let replaying = ExploreOptions { replay: Some(replay), ..options.clone() };
            let report = explore_once(subject, &replaying, progress)?;
            Ok(with_the_first_shrunk(subject, &options, report))
        }
        Err(RecordError::AfterCut(cut, failure)) => {
            let violations = vec![cut.violation(subject, options, failure)];
            Ok(ExploreReport { violations, ..ExploreReport::of(subject, options) })
        }
        run => {
            let report = explore_run(subject, options, &run?, progress)?;
            Ok(with_the_first_shrunk(subject, options, report))
        }
    }
}

/// Shrinks and tells the first violation, if that is asked for.
fn with_the_first_shrunk(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    mut report: ExploreReport,
) -> ExploreReport {
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
    report
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use super::*;
    use crate::structure::Structure;

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

    #[test]
    fn processes_are_killed_in_the_same_places_on_any_number_of_threads() {
        let images = [1, 2, 3].map(|threads| {
            let options = ExploreOptions {
                ops: 40,
                spread_images: 400,
                crash_in_recovery_every: 64,
                threads,
                ..Default::default()
            };
            let report =
                crate::explore_structure(Structure::Allocator, None, &options, &|_| {}).unwrap();
            (report.images, report.images_in_recovery)
        });
        assert!(images[0].1 > 0, "{images:?}");
        assert_eq!([images[0]; 3], images);
    }
}
