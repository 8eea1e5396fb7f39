//! How many images per second of one core are recovered and checked, for each structure.
//!
//! Seconds are those that the processor works for this process, which has one thread at work, so
//! that whatever else the machine does changes little. What there is to do before the first image
//! (running and recording the operations, the crash points before those asked about) is measured on
//! its own and taken off. Each row is the best of several runs, of which all explore the same.
//!
//! An image counts when its verdict is established: by running it, or because it agrees with one that
//! was run in every byte that was read of that one. How many were run is given too, of how many of
//! these only the operations that follow a recovery, and the rate of what was run.

use std::fmt::Write;

use lapis_index::{IndexKind, IndexOptions};
use rustix::time::{ClockId, clock_gettime};

use crate::explore::explore_any;
use crate::options::ExploreOptions;
use crate::report::ExploreReport;
use crate::stop_flag::StopFlag;
use crate::structure::{Progress, Structure, explore_structure};
use crate::subjects::IndexSubject;

/// Keys of the indexes that are filled beforehand, by number: a thousand of them are different.
const KEYS: u64 = 1251;
/// Operations from creation on, of the other rows.
const OPERATIONS_FROM_CREATION: usize = 100;
/// Runs that take less processor time than this for their images get more operations, up to so many.
const SHORTEST_S: f64 = 0.02;
const MOST_OPERATIONS: usize = 2_000;
/// One image in so many is checked whole, in the last column.
const WHOLE_CHECK_EVERY: u64 = 8;

/// What to measure.
#[derive(Clone, Debug)]
pub struct RateTrial {
    /// Only the rows whose name contains this.
    pub only: Option<String>,
    /// Runs of each row, of which the best counts.
    pub runs: usize,
    /// Stop as soon as it is raised; a row that was not measured to its end is left out.
    pub stop: StopFlag,
}

impl Default for RateTrial {
    fn default() -> Self {
        Self { only: None, runs: 3, stop: StopFlag::default() }
    }
}

/// What came of one row.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RateRow {
    /// The structure.
    pub name: String,
    /// MiB of the pool, where it is the same structure in pools of several sizes.
    pub pool_mib: Option<usize>,
    /// Processor seconds before the first image.
    pub set_up_s: f64,
    /// Images, every one checked whole.
    pub images: u64,
    /// Of those, images that were run.
    pub run: u64,
    /// Of those, images of which only operations were run.
    pub run_in_part: u64,
    /// Processor seconds for them.
    pub images_s: f64,
    /// Lines copied to make an image and to take it back, in the mean.
    pub lines_per_image: f64,
    /// Images that get a verdict per second where one in eight is checked whole.
    pub per_s_in_part: f64,
}

impl RateRow {
    /// Images that get a verdict per second.
    pub fn verdicts_per_s(&self) -> f64 {
        self.images as f64 / self.images_s
    }

    /// Images run per second.
    pub fn run_per_s(&self) -> f64 {
        self.run as f64 / self.images_s
    }
}

/// Why a rate could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{row}: {what}")]
pub struct RateError {
    /// The row.
    pub row: String,
    /// What went wrong, or what was not survived.
    pub what: String,
}

/// Measures the rows of every structure; `progress` is told how many there are.
///
/// # Errors
/// [`RateError`].
pub fn image_rates(trial: &RateTrial, progress: &Progress<'_>) -> Result<Vec<RateRow>, RateError> {
    let mut rows = Rates { trial, rows: Vec::new(), progress };
    // Crashes in the operations after the index was filled: so many of them that the figures mean
    // something, and not so many that they take long.
    for kind in IndexKind::ALL {
        let operations = kind.declaration().exploration.rate_operations;
        rows.filled(kind, operations, None)?;
    }
    for structure in Structure::all() {
        rows.measure(
            format!("`lapis crash {structure}`"),
            None,
            &options(OPERATIONS_FROM_CREATION),
            &|options| {
                let found = explore_structure(structure, None, options, &|_| {});
                found.map_err(|error| error.to_string())
            },
        )?;
    }
    for mib in [4, 256] {
        rows.filled(IndexKind::Wort, 3000, Some(mib))?;
    }
    Ok(rows.rows)
}

fn options(ops: usize) -> ExploreOptions {
    ExploreOptions {
        ops,
        threads: 1,
        samples: 16,
        exhaustive_limit: 64,
        crash_in_recovery_every: 0,
        ..ExploreOptions::default()
    }
}

/// Seconds that the processor has worked for this process.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

type Explore<'e> = &'e dyn Fn(&ExploreOptions) -> Result<ExploreReport, String>;

/// The processor time of exploring, and what it came to.
fn timed(explore: Explore<'_>, options: &ExploreOptions) -> Result<(f64, ExploreReport), String> {
    let before = processor_seconds();
    let report = explore(options)?;
    let seconds = processor_seconds() - before;
    match report.violations.first() {
        Some(violation) => Err(violation.what.clone()),
        None => Ok((seconds, report)),
    }
}

struct Rates<'t> {
    trial: &'t RateTrial,
    rows: Vec<RateRow>,
    progress: &'t Progress<'t>,
}

impl Rates<'_> {
    fn filled(
        &mut self,
        kind: IndexKind,
        operations: usize,
        pool_mib: Option<usize>,
    ) -> Result<(), RateError> {
        let title = kind.declaration().title;
        let options_of_index = IndexOptions::default();
        let mut subject =
            IndexSubject::<u64>::new(kind, title, &[], options_of_index, KEYS).filled(KEYS);
        if let Some(mib) = pool_mib {
            subject = subject.in_pool_of(mib << 20);
        }
        let filled = ExploreOptions { first_operation: KEYS as usize + 1, ..options(operations) };
        self.measure(format!("{title}, 1,000 keys"), pool_mib, &filled, &|options| {
            explore_any(&subject, options, &|_| {})
        })
    }

    fn measure(
        &mut self,
        name: String,
        pool_mib: Option<usize>,
        options: &ExploreOptions,
        explore: Explore<'_>,
    ) -> Result<(), RateError> {
        if self.trial.only.as_ref().is_some_and(|only| !name.contains(only)) {
            return Ok(());
        }
        let failed = |what| RateError { row: name.clone(), what };
        let best = |options: &ExploreOptions| {
            let runs = (0..self.trial.runs.max(1)).map(|_| timed(explore, options));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            let best = runs.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
            best.ok_or_else(|| "nothing was run".to_owned())
        };
        let stop = self.trial.stop;
        if stop.is_raised() {
            return Ok(());
        }
        let mut options = ExploreOptions { stop, ..options.clone() };
        let (set_up_s, seconds, report) = loop {
            // Nothing is that late, so that everything but the images is done.
            let no_images = ExploreOptions { first_operation: usize::MAX, ..options.clone() };
            let (set_up_s, _) = best(&no_images).map_err(failed)?;
            let (seconds, report) = best(&options).map_err(failed)?;
            if seconds - set_up_s >= SHORTEST_S || options.ops >= MOST_OPERATIONS {
                break (set_up_s, seconds, report);
            }
            options.ops *= 4;
        };
        let in_part = ExploreOptions {
            whole_check_every: WHOLE_CHECK_EVERY,
            whole_check_at_each_point: false,
            ..options.clone()
        };
        let (seconds_in_part, report_in_part) = best(&in_part).map_err(failed)?;
        if stop.is_raised() {
            return Ok(());
        }
        // Whatever is too quick for the clock all the same counts as a microsecond.
        let images_s = (seconds - set_up_s).max(1e-6);
        self.rows.push(RateRow {
            name,
            pool_mib,
            set_up_s,
            images: report.images,
            run: report.images - report.images_by_proof,
            run_in_part: report.images_partly_by_proof,
            images_s,
            lines_per_image: report.lines_copied as f64 / report.images.max(1) as f64,
            per_s_in_part: report_in_part.images as f64 / (seconds_in_part - set_up_s).max(1e-6),
        });
        (self.progress)(self.rows.len() as u64);
        Ok(())
    }
}

/// The rows as tables in Markdown: of the structures, and of one in pools of several sizes.
pub fn markdown(rows: &[RateRow]) -> String {
    let mut text = String::from(
        "| structure | set-up s | images | verdicts/s | of them run | in part | run/s | lines copied \
         per image | verdicts/s, 1 in 8 whole |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    // Writing to a string cannot fail.
    for row in rows.iter().filter(|row| row.pool_mib.is_none()) {
        let _ = writeln!(
            text,
            "| {} | {:.3} | {} | {:.0} | {} | {} | {:.0} | {:.1} | {:.0} |",
            row.name,
            row.set_up_s,
            row.images,
            row.verdicts_per_s(),
            row.run,
            row.run_in_part,
            row.run_per_s(),
            row.lines_per_image,
            row.per_s_in_part,
        );
    }
    text.push_str(
        "\n| structure | pool | images | of them run | run/s | lines copied per image |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Some(mib) = row.pool_mib else { continue };
        let (name, images, run, per_s) = (&row.name, row.images, row.run, row.run_per_s());
        let lines = row.lines_per_image;
        let _ =
            writeln!(text, "| {name} | {mib} MiB | {images} | {run} | {per_s:.0} | {lines:.1} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::subjects::KeySpace;

    #[test]
    fn the_indexes_have_a_thousand_keys() {
        let keys: HashSet<u64> = (0..KEYS).map(<u64 as KeySpace>::key).collect();
        assert_eq!(keys.len(), 1000);
    }

    #[test]
    fn a_row_says_how_many_images_were_run_and_tables_are_by_kind_of_row() {
        let trial =
            RateTrial { only: Some("header-log".to_owned()), runs: 1, ..RateTrial::default() };
        let rows = image_rates(&trial, &|_| {}).unwrap();
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert!(row.run > 0 && row.run < row.images && row.run_in_part <= row.run);
        assert!(row.verdicts_per_s() > row.run_per_s() && row.lines_per_image > 1.0);
        let large = RateRow { pool_mib: Some(256), ..row.clone() };
        let text = markdown(&[row.clone(), large]);
        let (first, second) = text.split_once("\n\n").unwrap();
        assert_eq!(first.lines().count(), 3, "{text}");
        assert!(second.lines().count() == 3 && second.contains("| 256 MiB |"), "{text}");
    }
}
