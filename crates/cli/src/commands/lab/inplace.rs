//! `lapis lab inplace`: updates of small values where they lie.

use clap::Args;
use lapis_lab::inplace_experiment::{Operation, Options, Results, markdown, plot, run as run_all};

use super::sides::{Seed, Sides, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, right_align, table};

/// The command whose section of a document the table is.
const COMMAND: &str = "lapis lab inplace";

/// Compare in-place updates: copy-on-write, log and failure-atomic memory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab inplace
  lapis lab inplace --size 16,64 --plot inplace.svg
  lapis lab inplace --modelled-only --profile optane-200 --json

Cells of 8 to 256 bytes are updated and read, in order and at random, in an array larger than the
caches. Measured is this machine's time on ordinary memory; modelled is virtual time, and counts, on
the machine of the profile. After Fig. 10 of van Renen et al. (VLDB Journal 2020).")]
pub struct Arguments {
    /// Sizes of values in bytes, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Options::default().sizes_bytes)]
    size: Vec<usize>,
    /// Operations of each measured row
    #[arg(long, value_name = "N", default_value_t = Options::default().operations)]
    operations: usize,
    /// Operations of each modelled row
    #[arg(long, value_name = "N", default_value_t = Options::default().modelled_operations)]
    modelled_operations: usize,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    sides: Sides,
}

/// Runs `lapis lab inplace`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let options = Options {
        sizes_bytes: arguments.size.clone(),
        operations: arguments.operations,
        modelled_operations: arguments.modelled_operations,
        profile: arguments.sides.profile.clone(),
        measure: arguments.sides.measure(),
        model: arguments.sides.model(),
        seed: arguments.seed.seed,
        ..Options::default()
    };
    let results = with_progress("runs", |progress| run_all(&options, progress));
    let results = results.map_err(|error| Failure::refused(error.to_string()))?;
    arguments.sides.save(|| plot(&results), || vec![(COMMAND, markdown(&results))])?;
    output.json(&results)?;
    print(&results, &options.profile, output)?;
    Ok(Verdict::Good)
}

fn print(results: &Results, profile: &str, output: &mut Output) -> Result<(), Failure> {
    let mut rows = table([
        "cells",
        "operation",
        "order",
        "bytes",
        "here Mop/s",
        "model Mop/s",
        "barriers",
        "flushes",
        "WPQ",
        "media w",
    ]);
    for row in &results.rows {
        let figure = |number: Option<f64>| number.map_or("-".into(), |n| format!("{n:.2}"));
        let modelled = row.modelled.as_ref();
        let updates = row.operation == Operation::Update;
        let count = |number: Option<f64>| figure(number.filter(|_| updates));
        rows.add_row([
            row.variant.to_owned(),
            row.operation.name().to_owned(),
            row.pattern.name().to_owned(),
            row.size_bytes.to_string(),
            figure(row.measured.map(|found| found.mops)),
            figure(modelled.map(|found| found.mops)),
            row.barriers.to_string(),
            count(modelled.map(|found| found.flushes)),
            count(modelled.map(|found| found.wpq_inserts)),
            count(modelled.map(|found| found.media_writes)),
        ]);
    }
    right_align(&mut rows, 3);
    output.table(&rows)?;
    output.line("here: measured on this machine, in ordinary memory.")?;
    output.line(format_args!("model, and counts per operation: modelled for {profile}."))
}
