//! `lapis lab inplace`: updates of small values where they lie.

use clap::Args;
use lapis_lab::inplace_experiment::{Options, run as run_all};

use super::frame::{Destinations, Seed, Sides};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

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
    #[command(flatten)]
    destinations: Destinations,
}

/// Runs `lapis lab inplace`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let seed = arguments.seed.seed;
    let options = Options {
        sizes_bytes: arguments.size.clone(),
        operations: arguments.operations,
        modelled_operations: arguments.modelled_operations,
        sides: arguments.sides.wanted(),
        seed,
        ..Options::default()
    };
    arguments.destinations.run("runs", Some(seed), output, |progress| run_all(&options, progress))
}
