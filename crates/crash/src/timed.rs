//! Exploring a structure for a given time.

use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::options::ExploreOptions;
use crate::report::{ExploreReport, Violation};
use crate::structure::{CrashError, Progress, Structure, explore_after_cuts, explore_structure};

/// What the exploration of one structure came to.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TimedExploration {
    /// The structure.
    pub structure: &'static str,
    /// The first seed.
    pub first_seed: u64,
    /// Seeds explored to their end. The one after them is perhaps explored in part.
    pub seeds: u64,
    /// Runs that began with what a power cut had left.
    pub after_a_cut: u64,
    /// Instants at which the power was cut.
    pub crash_points: u64,
    /// Images recovered and checked.
    pub images: u64,
    /// Images per second of this machine.
    pub images_per_s: f64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// What of the structure's sources was passed, and what never.
    pub coverage: Coverage,
    /// It ended early, because somebody asked for that.
    pub stopped: bool,
    /// What was not survived.
    pub violations: Vec<Violation>,
}

/// Images that are spread over a run at first; so many times as many next, until there are all.
const FIRST_IMAGES: u64 = 100;
const NEXT_TIMES: u64 = 6;
/// One in so many of them is for each of the runs that begin with a power cut, of which there are several.
const ONE_IN_AFTER_CUT: u64 = 4;

impl TimedExploration {
    /// With what more time has come to, from the seed on at which this ended.
    pub fn add(&mut self, more: Self) {
        self.seeds += more.seeds;
        self.after_a_cut += more.after_a_cut;
        self.crash_points += more.crash_points;
        self.images += more.images;
        self.seconds += more.seconds;
        self.images_per_s = self.images as f64 / self.seconds.max(1e-9);
        self.coverage.add(more.coverage);
        self.stopped |= more.stopped;
        self.violations.extend(more.violations);
    }

    fn take(&mut self, report: ExploreReport) {
        self.crash_points += report.crash_points;
        self.images += report.images;
        self.coverage.add(report.coverage);
        self.violations.extend(report.violations);
        self.stopped |= report.stopped;
    }

    fn is_enough(&self, options: &ExploreOptions) -> bool {
        self.violations.len() >= options.violation_limit || options.is_over()
    }

    /// Of a structure for which no time was left.
    pub fn not_begun(structure: Structure, first_seed: u64) -> Self {
        Self {
            structure: structure.name(),
            first_seed,
            seeds: 0,
            after_a_cut: 0,
            crash_points: 0,
            images: 0,
            images_per_s: 0.0,
            seconds: 0.0,
            coverage: Coverage::default(),
            stopped: false,
            violations: Vec::new(),
        }
    }
}

/// Explores `structure` with one seed after the other, from that of `options` on, until `time` is
/// used up or there are as many violations as `options` asks for. Of each seed a few images all over its run
/// come first, and of runs that begin with a power cut ([`ExploreOptions::cut_in`]), and then more. However little time
/// there is, the operations of one seed are run and one image is tried.
///
/// # Errors
/// [`CrashError::Failed`].
pub fn explore_for(
    structure: Structure,
    time: Duration,
    options: &ExploreOptions,
    progress: &Progress<'_>,
) -> Result<TimedExploration, CrashError> {
    let started = Instant::now();
    let deadline = started + time;
    let mut found = TimedExploration::not_begun(structure, options.seed);
    let mut spread_images = FIRST_IMAGES;
    'time: loop {
        let seed = options.seed.wrapping_add(found.seeds);
        let mut is_whole = true;
        for subject in structure.subjects() {
            let options =
                ExploreOptions { seed, spread_images, deadline: Some(deadline), ..options.clone() };
            let base = found.images;
            let progress = |images| progress(base + images);
            let report = explore_structure(structure, Some(subject), &options, &progress)?;
            is_whole &= report.one_crash_point_in <= 1;
            found.take(report);
            if found.is_enough(&options) {
                break 'time;
            }
            let base = found.images;
            let progress = |images| progress(base + images);
            let spread_images = spread_images / ONE_IN_AFTER_CUT;
            let options = ExploreOptions { spread_images, ..options };
            let report = explore_after_cuts(structure, Some(subject), &options, &progress)?;
            found.after_a_cut += report.further_runs;
            found.take(report);
            if found.is_enough(&options) {
                break 'time;
            }
        }
        // First all over the run, however long it is, and then ever closer.
        if is_whole {
            found.seeds += 1;
            spread_images = FIRST_IMAGES;
        } else {
            spread_images *= NEXT_TIMES;
        }
    }
    found.seconds = started.elapsed().as_secs_f64();
    found.images_per_s = found.images as f64 / found.seconds.max(1e-9);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use lapis_index::IndexKind;

    use lapis_blocks::LogKind;

    use super::*;

    #[test]
    fn seeds_advance_until_the_time_is_used_up() {
        let options = ExploreOptions {
            ops: 2,
            seed: 5,
            exhaustive_limit: 2,
            samples: 1,
            ..ExploreOptions::default()
        };
        let found =
            explore_for(Structure::Log(LogKind::PopLog), Duration::from_secs(2), &options, &|_| {})
                .unwrap();
        assert!(found.seeds > 1, "{found:?}");
        assert_eq!((found.first_seed, found.violations.len()), (5, 0));
    }

    #[test]
    fn runs_that_begin_with_a_power_cut_are_among_them() {
        let options = ExploreOptions { ops: 20, threads: 1, ..ExploreOptions::default() };
        let structure = Structure::Index(IndexKind::Wort);
        let found = explore_for(structure, Duration::from_secs(2), &options, &|_| {}).unwrap();
        assert!(found.after_a_cut > 0 && found.violations.is_empty(), "{found:?}");
    }

    #[test]
    fn a_second_crash_does_not_outlast_the_time() {
        let options = ExploreOptions {
            threads: 1,
            first_operation: 1,
            crash_in_recovery_every: 1,
            ..ExploreOptions::default()
        };
        let found = explore_for(Structure::Log(LogKind::PopLog), Duration::ZERO, &options, &|_| {})
            .unwrap();
        assert_eq!((found.seeds, found.crash_points), (0, 1), "{found:?}");
        assert_eq!(
            found.images, 3,
            "one, and one of a second crash, and of one after a kill: {found:?}"
        );
    }

    #[test]
    fn time_that_has_run_out_ends_an_exploration_in_its_middle() {
        let options = ExploreOptions { threads: 1, ..ExploreOptions::default() };
        let found =
            explore_for(Structure::Index(IndexKind::Wort), Duration::ZERO, &options, &|_| {})
                .unwrap();
        assert_eq!((found.seeds, found.images), (0, 1));
    }
}
