//! `lapis crash --rates`: how many images per second are recovered and checked.

use std::path::Path;

use clap::Args;
use lapis_crash::image_rate::{RateRow, RateTrial, image_rates, markdown};
use lapis_lab::document::put_into_file;
use lapis_lab::experiment::table::Table;
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// The command whose section of a document the tables are (module [`lapis_lab::document`]).
const COMMAND: &str = "lapis crash --rates";

/// Arguments of `lapis crash --rates`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// Measure how many images per second of one core are recovered and checked
    #[arg(long, group = "tables", conflicts_with_all = ["mutants", "all", "structure", "ops", "seed",
          "images", "strategy", "cut_in", "every_store", "optimisations", "whole_check_every", "keep", "without", "no_shrink",
          "html", "persist_points", "at", "threads", "workers", "record", "performance", "trace"])]
    pub rates: bool,
    /// Only the rows whose name contains this
    #[arg(long, value_name = "TEXT", requires = "rates", conflicts_with = "write")]
    pub row: Option<String>,
}

/// The rows, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<RateRow>,
    stopped: bool,
}

/// Runs `lapis crash --rates`.
pub fn run(
    arguments: &Arguments,
    write: Option<&Path>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let stop = stop::on_signals();
    let trial = RateTrial { only: arguments.row.clone(), stop, ..RateTrial::default() };
    let bar = progress::spinner("rows measured");
    let measured = image_rates(&trial, &|rows| bar.set_position(rows));
    bar.finish_and_clear();
    let rows = measured.map_err(|error| Failure::refused(error.to_string()))?;
    let stopped = stop.is_raised();
    if rows.is_empty() && !stopped {
        return Err(Failure::refused("there is no such row".to_owned()));
    }
    let report = Report { rows, stopped };
    output.json(&report)?;
    if let Some(path) = write.filter(|_| !stopped) {
        put_into_file(path, COMMAND, &markdown(&report.rows))
            .map_err(|error| Failure::refused(error.to_string()))?;
    }
    print(&report.rows, output)?;
    if stopped {
        output.line("stopped early: these are the rows measured until then")?;
    }
    Ok(super::verdict(0, stopped))
}

fn print(found: &[RateRow], output: &mut Output) -> Result<(), Failure> {
    let mut rows = Table::new(
        1,
        "structure | pool | images | verdicts/s | run | run/s | lines copied per image",
    );
    for row in found {
        rows.push([
            row.name.clone(),
            row.pool_mib.map_or_else(String::new, |mib| format!("{mib} MiB")),
            grouped(row.images),
            grouped(row.verdicts_per_s() as u64),
            grouped(row.run),
            grouped(row.run_per_s() as u64),
            format!("{:.1}", row.lines_per_image),
        ]);
    }
    output.table(&rows)
}
