//! `lapis lab coroutine`: operations interleaved on one thread.

use clap::Args;
use lapis_lab::coroutine_experiment::{Options, Results, markdown, plot, run as run_all};

use super::sides::{Seed, Sides, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, right_align, table};

/// The command whose section of a document the table is.
const COMMAND: &str = "lapis lab coroutine";

/// Interleave operations on one thread, and see what is gained
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab coroutine
  lapis lab coroutine --group 8,16,32 --plot coroutine.html
  lapis lab coroutine --modelled-only --profile dram --json

Lookups and inserts on leaves as FPTree has them, more than the caches hold, with groups of tasks in
flight on one thread: they prefetch and give way (reads), and share one fence (writes). Speed-ups are
against one task at a time. After Fig. 12 of van Renen et al. (VLDB Journal 2020).")]
pub struct Arguments {
    /// Sizes of groups, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Options::default().groups)]
    group: Vec<usize>,
    /// Operations of each measured row, and as many leaves
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

/// Runs `lapis lab coroutine`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let defaults = Options::default();
    let options = Options {
        groups: arguments.group.clone(),
        leaves: defaults.leaves.max(arguments.operations),
        operations: arguments.operations,
        modelled_leaves: defaults.modelled_leaves.max(arguments.modelled_operations),
        modelled_operations: arguments.modelled_operations,
        profile: arguments.sides.profile.clone(),
        measure: arguments.sides.measure(),
        model: arguments.sides.model(),
        seed: arguments.seed.seed,
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
        "operation",
        "in flight",
        "here Mop/s",
        "speed-up",
        "model Mop/s",
        "speed-up",
        "fences",
        "flushes",
    ]);
    for row in &results.rows {
        let figure = |number: Option<f64>| number.map_or("-".into(), |n| format!("{n:.2}"));
        let (measured, modelled) = (row.measured, row.modelled.as_ref());
        rows.add_row([
            row.variant.to_owned(),
            row.group.to_string(),
            figure(measured.map(|found| found.mops)),
            figure(measured.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.mops)),
            figure(modelled.map(|found| found.speed_up)),
            figure(modelled.map(|found| found.fences)),
            figure(modelled.map(|found| found.flushes)),
        ]);
    }
    right_align(&mut rows, 1);
    output.table(&rows)?;
    output.line("here: measured on this machine, in ordinary memory.")?;
    output.line(format_args!("model, fences and flushes per operation: modelled for {profile}."))
}
