//! `lapis lab amplification`: what indexes write for an insert.

use clap::Args;
use lapis_index::IndexKind;
use lapis_lab::amplification::{Options, run as run_all};
use lapis_pmem::Optimisations;

use super::frame::{Destinations, Seed, or_default};
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::store_arguments::index_kinds;

/// Count what index structures write to persistent memory for an insert
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab amplification
  lapis lab amplification --index p-clht,fast-fair --threads 1,4,16,32 --plot amplification.svg
  lapis lab amplification --keys 1000000 --csv amplification.csv

Each index is loaded (load), then asked: a is half inserts and half lookups, b one insert in
twenty, c lookups. Everything is modelled, with the caches and modules of the study (IEEE Access
2021), the caches scaled to the number of keys.")]
pub struct Arguments {
    /// The structures, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = index_kinds())]
    index: Vec<IndexKind>,
    /// Numbers of logical workers, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Options::default().threads)]
    threads: Vec<usize>,
    /// Keys to load
    #[arg(long, value_name = "N", default_value_t = Options::default().keys)]
    keys: usize,
    /// Operations of each other workload
    #[arg(long, value_name = "N", default_value_t = Options::default().operations)]
    operations: usize,
    /// With which of the study's optimisations: sets, separated by commas, each none, all, or some of
    /// removal-of-bloat, flush-coalescing, early-eviction and xpline-units, joined by + [default: of each
    /// index as it is built, with one switched over, without any and with all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    optimisation: Vec<Optimisations>,
    /// The device profile: a built-in one, or the path of a file
    #[arg(long, value_name = "P", default_value_t = Options::default().profile)]
    profile: String,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    destinations: Destinations,
}

/// Runs `lapis lab amplification`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let seed = arguments.seed.seed;
    let options = Options {
        indexes: or_default(&arguments.index, Options::default().indexes),
        threads: arguments.threads.clone(),
        keys: arguments.keys,
        operations: arguments.operations,
        optimisations: arguments.optimisation.clone(),
        profile: arguments.profile.clone(),
        seed,
    };
    let run = |progress: lapis_lab::progress::OnProgress<'_>| run_all(&options, progress);
    arguments.destinations.run("sessions", Some(seed), output, run)
}
