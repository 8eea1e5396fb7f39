//! `lapis crash --all`: every structure, for a given time.

use std::time::{Duration, Instant};

use clap::Args;
use lapis_crash::{ExploreOptions, Structure, TimedExploration, explore_for};
use lapis_lab::experiment::table::Table;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::time_argument;
use crate::{progress, stop};

/// Operations from each seed: so few that many seeds have their turn.
const OPERATIONS: usize = 120;
/// [`ExploreOptions::exhaustive_limit`], likewise.
const IMAGES_PER_CRASH_POINT: u64 = 64;
/// [`ExploreOptions::samples`], likewise.
const SAMPLES_PER_CRASH_POINT: u32 = 16;

/// Arguments of `lapis crash --all`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// Explore every structure, 120 operations from each seed, and what they do after a power cut in one of them
    #[arg(long, conflicts_with_all = ["structure", "mutants", "ops", "images", "strategy",
          "cut_in", "every_store", "optimisations", "whole_check_every", "keep", "without", "no_shrink", "html", "persist_points", "at",
          "workers", "record", "performance", "trace"])]
    pub all: bool,
    /// How long, all structures together: a number and ms, s, m or h. Exceeded at most by what one
    /// structure needs for its operations and one image; what there was no time for is named
    /// [default: 60s]
    #[arg(long, value_name = "TIME", requires = "all", value_parser = time_argument::parse)]
    pub budget: Option<Duration>,
}

/// What all structures together have unless it is said otherwise.
const BUDGET: Duration = Duration::from_secs(60);

/// What was found, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    budget_s: f64,
    structures: Vec<TimedExploration>,
    violations: usize,
    stopped: bool,
}

/// Runs `lapis crash --all`.
pub fn run(
    arguments: &Arguments,
    seed: u64,
    threads: Option<u16>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let mut options = ExploreOptions {
        ops: OPERATIONS,
        seed,
        exhaustive_limit: IMAGES_PER_CRASH_POINT,
        samples: SAMPLES_PER_CRASH_POINT,
        stop: stop::on_signals(),
        ..ExploreOptions::default()
    };
    if let Some(threads) = threads {
        options.threads = usize::from(threads);
    }
    let budget = arguments.budget.unwrap_or(BUDGET);
    let started = Instant::now();
    let bar = progress::spinner("images");
    let mut structures: Vec<TimedExploration> = Vec::new();
    for (index, structure) in Structure::all().enumerate() {
        let left = budget.saturating_sub(started.elapsed());
        if left.is_zero() || options.stop.is_raised() {
            structures.push(TimedExploration::not_begun(structure, seed));
            continue;
        }
        // One half in equal shares, the other where most was never passed.
        let half = left.saturating_sub(budget / 2);
        let share = half / (Structure::all().count() - index) as u32;
        let base: u64 = structures.iter().map(|found| found.images).sum();
        let found =
            explore_for(structure, share, &options, &|images| bar.set_position(base + images))?;
        structures.push(found);
    }
    for (index, structure) in Structure::all().enumerate() {
        let left = budget.saturating_sub(started.elapsed());
        let weight = |found: &TimedExploration| 1 + found.coverage.missed() as u32;
        let weights: u32 = structures[index..].iter().map(weight).sum();
        let found = &structures[index];
        let is_over = left.is_zero() || options.stop.is_raised();
        if is_over || found.crash_points == 0 || !found.violations.is_empty() {
            continue;
        }
        let share = left * weight(found) / weights;
        let options = ExploreOptions { seed: seed.wrapping_add(found.seeds), ..options.clone() };
        let base: u64 = structures.iter().map(|found| found.images).sum();
        let more =
            explore_for(structure, share, &options, &|images| bar.set_position(base + images))?;
        structures[index].add(more);
    }
    bar.finish_and_clear();
    let violations = structures.iter().map(|found| found.violations.len()).sum();
    let stopped = options.stop.is_raised();
    let report = Report { budget_s: budget.as_secs_f64(), structures, violations, stopped };
    output.json(&report)?;
    print(&report, output)?;
    Ok(super::verdict(violations, stopped))
}

/// So many of so many.
fn share(all: usize, missed: usize) -> String {
    format!("{}/{all}", all - missed)
}

fn print(report: &Report, output: &mut Output) -> Result<(), Failure> {
    let mut rows = Table::new(
        1,
        "structure | seeds | runs after a cut | crash points | images | images/s | passed | events | violations",
    );
    for found in &report.structures {
        rows.push([
            found.structure.to_owned(),
            grouped(found.seeds),
            grouped(found.after_a_cut),
            grouped(found.crash_points),
            grouped(found.images),
            grouped(found.images_per_s as u64),
            share(found.coverage.persist_points(), found.coverage.missed_points().count()),
            share(found.coverage.events(), found.coverage.missed_events().count()),
            grouped(found.violations.len() as u64),
        ]);
    }
    output.table(&rows)?;
    for violation in report.structures.iter().flat_map(|found| &found.violations) {
        output.line(format_args!(
            "! {}, after {} events: {}\n  again: {}",
            violation.subject,
            grouped(violation.position as u64),
            violation.what,
            violation.replay
        ))?;
    }
    let missed: Vec<_> = report.structures.iter().filter(|found| found.crash_points == 0).collect();
    if report.stopped {
        output.line("stopped early: this is what was found until then")?;
    }
    if !missed.is_empty() {
        let names: Vec<_> = missed.iter().map(|found| found.structure).collect();
        output.line(format_args!("no time was left for {}", names.join(", ")))?;
    }
    let unfinished: Vec<_> = report
        .structures
        .iter()
        .filter(|found| found.seeds == 0 && found.crash_points > 0)
        .map(|found| found.structure)
        .collect();
    if !unfinished.is_empty() {
        output.line(format_args!("not one seed to its end of {}", unfinished.join(", ")))?;
    }
    let images: u64 = report.structures.iter().map(|found| found.images).sum();
    output.line(match report.violations {
        0 if missed.is_empty() && unfinished.is_empty() => "no violation".to_owned(),
        0 if missed.is_empty() => format!("nothing found in {} images", grouped(images)),
        0 => format!(
            "no violation in the {} of {} structures that there was time for{}",
            report.structures.len() - missed.len(),
            report.structures.len(),
            if report.stopped { "" } else { ": raise --budget" }
        ),
        count => format!("{count} violations"),
    })
}
