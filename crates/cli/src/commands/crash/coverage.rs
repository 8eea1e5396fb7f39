//! Where an exploration has been, in words; and `lapis crash --coverage`, of all structures.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use lapis_crash::{Coverage, ExploreOptions, ExploreReport, Structure, explore_further};
use lapis_lab::document::put_into_file;
use lapis_lab::experiment::table::Table;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// The command whose section of a document the table is (module [`lapis_lab::document`]).
const COMMAND: &str = "lapis crash --coverage";
/// Images of each run: enough for recoveries of all kinds.
const IMAGES: u64 = 3000;

/// Arguments of `lapis crash --coverage`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// List what of every structure is never passed, in runs of the default length and further ones
    #[arg(long, group = "tables", conflicts_with_all = ["mutants", "all", "structure", "ops", "seed",
          "images", "filled", "cut_in", "strategy", "every_store", "optimisations", "whole_check_every", "keep", "without",
          "no_shrink", "html", "persist_points", "at", "workers", "record", "performance", "trace"])]
    pub coverage: bool,
}

/// What of a structure was passed.
#[derive(Debug, Serialize)]
struct Row {
    structure: &'static str,
    coverage: Coverage,
    violations: usize,
}

/// Runs `lapis crash --coverage`.
pub fn run(
    threads: Option<u16>,
    write: Option<&Path>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let mut options = ExploreOptions {
        spread_images: IMAGES,
        long_runs: true,
        stop: stop::on_signals(),
        ..ExploreOptions::default()
    };
    if let Some(threads) = threads {
        options.threads = usize::from(threads);
    }
    let bar = progress::spinner("structures explored");
    let mut rows = Vec::new();
    for structure in Structure::all() {
        let report = explore_further(structure, None, &options, 0, &|_| {})?;
        if report.stopped {
            // Of this one it is not known what would have been passed.
            break;
        }
        let violations = report.violations.len();
        rows.push(Row { structure: structure.name(), coverage: report.coverage, violations });
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.json(&rows)?;
    if let Some(path) = write.filter(|_| !options.stop.is_raised()) {
        put_into_file(path, COMMAND, &markdown(&rows))
            .map_err(|error| Failure::refused(error.to_string()))?;
    }
    let mut table = Table::new(1, "structure | flushes and fences | events | never");
    for row in &rows {
        let [points, events] = shares(&row.coverage);
        table.push([row.structure.to_owned(), points, events, missed(&row.coverage).join(", ")]);
    }
    output.table(&table)?;
    let violations: usize = rows.iter().map(|row| row.violations).sum();
    if violations > 0 {
        output.line(format_args!("{violations} violations: explore the structure to see them"))?;
    }
    let stopped = options.stop.is_raised();
    if stopped {
        output.line("stopped early: these are the structures explored until then")?;
    }
    Ok(super::verdict(violations, stopped))
}

/// How many of how many flushes and fences were passed, and events happened.
fn shares(coverage: &Coverage) -> [String; 2] {
    let points = coverage.persist_points();
    let events = coverage.events();
    [
        format!("{} of {points}", points - coverage.missed_points().count()),
        format!("{} of {events}", events - coverage.missed_events().count()),
    ]
}

/// What was never passed: events, then places in `crates`.
fn missed(coverage: &Coverage) -> Vec<String> {
    let points = coverage.missed_points().map(|point| point.to_string());
    let points = points.map(|name| name.trim_start_matches("crates/").to_owned());
    coverage.missed_events().map(str::to_owned).chain(points).collect()
}

/// Events, and how many places in which files, since the places themselves change with each edit.
fn by_file(coverage: &Coverage) -> String {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for point in coverage.missed_points() {
        *files.entry(point.file.trim_start_matches("crates/")).or_default() += 1;
    }
    let places = files.into_iter().map(|(file, count)| format!("{count} in {file}"));
    coverage.missed_events().map(str::to_owned).chain(places).collect::<Vec<_>>().join(", ")
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| structure | flushes and fences passed | events happened | never |\n|---|---:|---:|---|\n",
    );
    for row in rows {
        let [points, events] = shares(&row.coverage);
        let missed = by_file(&row.coverage);
        text.push_str(&format!("| {} | {points} | {events} | {missed} |\n", row.structure));
    }
    let mut all = Coverage::default();
    rows.iter().for_each(|row| all.add(row.coverage.clone()));
    text.push_str(&format!("\nOf all of this no structure at all passes: {}.\n", by_file(&all)));
    text
}

/// The events of a run, and what was never passed.
pub fn print(report: &ExploreReport, output: &mut Output) -> Result<(), Failure> {
    let counted = report.events.iter().filter(|(_, count)| **count > 0);
    let events: Vec<_> =
        counted.map(|(event, count)| format!("{event} {}", grouped(*count))).collect();
    if !events.is_empty() {
        output.line(format_args!("in the run: {}", events.join(", ")))?;
    }
    let coverage = &report.coverage;
    let after: Vec<_> = coverage.events_after_crashes().collect();
    if !after.is_empty() {
        output.line(format_args!("after crashes: {}", after.join(", ")))?;
    }
    let missed: Vec<_> = coverage.missed_events().collect();
    if !missed.is_empty() {
        output.line(format_args!("never: {}", missed.join(", ")))?;
    }
    for point in coverage.missed_points() {
        output.line(format_args!("never passed: {point}"))?;
    }
    Ok(())
}

/// What it means that there is no violation.
pub fn nothing_found(report: &ExploreReport) -> String {
    let tried = match report.one_crash_point_in {
        _ if report.stopped => format!("nothing found in {} images", grouped(report.images)),
        0 | 1 => "no violation".to_owned(),
        stride => format!(
            "nothing found in {} images, at one crash point in {}",
            grouped(report.images),
            grouped(stride)
        ),
    };
    let coverage = &report.coverage;
    let passed = |all: usize, missed: usize, what: &str| {
        (all > 0).then(|| format!("{} of {all} {what}", all - missed))
    };
    let points = passed(
        coverage.persist_points(),
        coverage.missed_points().count(),
        "flushes and fences passed",
    );
    let events = passed(coverage.events(), coverage.missed_events().count(), "events happened");
    let partly = report.exhaustive_points < report.crash_points;
    let images = partly.then(|| {
        let [whole, all] = [report.exhaustive_points, report.crash_points].map(grouped);
        format!("every image at {whole} of {all} crash points")
    });
    let known: Vec<_> = [points, events, images].into_iter().flatten().collect();
    if known.is_empty() { tried } else { format!("{tried}; {}", known.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_images_are_not_said_to_show_that_there_is_no_violation() {
        let few = ExploreReport { images: 4, one_crash_point_in: 1234, ..Default::default() };
        assert_eq!(nothing_found(&few), "nothing found in 4 images, at one crash point in 1,234");
        let stopped = ExploreReport { images: 9000, stopped: true, ..Default::default() };
        assert_eq!(nothing_found(&stopped), "nothing found in 9,000 images");
        assert_eq!(nothing_found(&ExploreReport::default()), "no violation");
        let sampled = ExploreReport { crash_points: 9, exhaustive_points: 7, ..Default::default() };
        assert_eq!(nothing_found(&sampled), "no violation; every image at 7 of 9 crash points");
    }
}
