//! `lapis lab log`: logs side by side.

use clap::Args;
use lapis_blocks::log::Placement;
use lapis_lab::log_experiment::{
    COMMAND, LogExperimentError, LogVariant, Options, figure, markdown, run as run_logs,
};
use lapis_lab::report::Progress;

use super::sides::{Sides, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Compare logs: appends per second by the size of entries, measured here and modelled
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab log
  lapis lab log --log rawl,pop-log --size 8,64,1000 --threads 1
  lapis lab log --placement padded --plot logs.svg
  lapis lab log --modelled-only --json
  lapis lab log --write docs/logs.md

Measured and modelled are separate tables and never mixed: measured is this machine's time, in
anonymous memory; modelled is the virtual time of the machine of the profile, the same on every run
and every machine. Only appends are timed. The counterpart of Fig. 8 of van Renen et al., Building
blocks for persistent memory (VLDB Journal 29, 2020).")]
pub struct Arguments {
    /// The logs: classic-log, header-log, header-log:dancing, rawl, pop-log, pop-ring [default: all]
    #[arg(long = "log", value_name = "LIST", value_delimiter = ',', value_parser = parse_variant)]
    logs: Vec<LogVariant>,
    /// How entries lie: dense, padded, streamed [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_placement)]
    placement: Vec<Placement>,
    /// Bytes of entries
    #[arg(long = "size", value_name = "LIST", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Numbers of threads [default: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Vec<usize>,
    /// How long each row is measured, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30)]
    measure_ms: u64,
    #[command(flatten)]
    sides: Sides,
}

fn parse_variant(name: &str) -> Result<LogVariant, String> {
    LogVariant::from_name(name).ok_or_else(|| {
        let names = LogVariant::ALL.map(LogVariant::name).join(", ");
        format!("there is no such log; use {names}")
    })
}

fn parse_placement(name: &str) -> Result<Placement, String> {
    Placement::ALL.into_iter().find(|placement| placement.name() == name).ok_or_else(|| {
        let names = Placement::ALL.map(Placement::name).join(", ");
        format!("entries cannot lie like that; use {names}")
    })
}

fn failed(error: LogExperimentError) -> Failure {
    Failure::refused(error.to_string())
}

/// Runs `lapis lab log`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let default = Options::default();
    let or = |given: &Vec<usize>, default| if given.is_empty() { default } else { given.clone() };
    let options = Options {
        variants: if arguments.logs.is_empty() { default.variants } else { arguments.logs.clone() },
        placements: if arguments.placement.is_empty() {
            default.placements
        } else {
            arguments.placement.clone()
        },
        sizes: or(&arguments.sizes, default.sizes),
        threads: or(&arguments.threads, default.threads),
        profile: arguments.sides.profile.clone(),
        measure: arguments.sides.measure(),
        model: arguments.sides.model(),
        measure_ms: arguments.measure_ms,
    };
    let results = with_progress("rows", |progress| {
        run_logs(&options, &|done, total| progress(Progress { done, total }))
    });
    let results = results.map_err(failed)?;
    output.json(&results)?;
    let tables = markdown(&results);
    if !output.is_json() && arguments.sides.write.is_none() {
        output.bytes(tables.as_bytes())?;
    }
    arguments.sides.save(|| figure(&results), || vec![(COMMAND, tables)])?;
    Ok(Verdict::Good)
}
