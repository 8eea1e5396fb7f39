//! `lapis lab log`: logs side by side.

use clap::Args;
use lapis_blocks::log::Placement;
use lapis_lab::log_experiment::{LogVariant, Options, run as run_logs};

use super::frame::{Destinations, Sides, named, one_of, or_default};
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
    /// The logs [default: all]
    #[arg(long = "log", value_name = "LIST", value_delimiter = ',', value_parser = named(LogVariant::all(), |log| log.name))]
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
    #[command(flatten)]
    destinations: Destinations,
}

fn parse_placement(name: &str) -> Result<Placement, String> {
    let refused = |names| format!("entries cannot lie like that; {names}");
    one_of(&Placement::ALL, Placement::name, name).map_err(refused)
}

/// Runs `lapis lab log`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let default = Options::default();
    let options = Options {
        variants: or_default(&arguments.logs, default.variants),
        placements: or_default(&arguments.placement, default.placements),
        sizes: or_default(&arguments.sizes, default.sizes),
        threads: or_default(&arguments.threads, default.threads),
        sides: arguments.sides.wanted(),
        measure_ms: arguments.measure_ms,
    };
    arguments.destinations.run("rows", None, output, |progress| run_logs(&options, progress))
}
