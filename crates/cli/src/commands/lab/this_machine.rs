//! `lapis lab device --this-machine`: what this machine's memory does, beside the modelled one.

use std::path::PathBuf;

use clap::Args;
use lapis_device::Profile;
use lapis_lab::device_experiment::point::Experiment;
use lapis_lab::device_experiment::this_machine::{Characterisation, Options, characterise};
use serde::Serialize;

use super::frame::{Destinations, one_of, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// What a characterisation of this machine can be told. Everything requires `--this-machine`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// Characterise this machine's own memory: latency, bandwidth, interference
    #[arg(long, help_heading = "This machine")]
    pub this_machine: bool,
    /// The experiments, separated by commas: read-latency, persist-latency,
    /// bandwidth-by-granularity, bandwidth-by-threads, interference [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_experiment, requires = "this_machine", help_heading = "This machine")]
    experiment: Vec<Experiment>,
    /// Memory to work on; much more than the caches hold
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 256,
        requires = "this_machine",
        help_heading = "This machine"
    )]
    mebibytes: usize,
    /// Work on persistent memory: a file to make, or a directory for it, on a DAX file system for instance, which is removed
    /// afterwards; or a device-DAX device, which is overwritten
    #[arg(long, value_name = "PATH", requires = "this_machine", help_heading = "This machine")]
    pmem: Option<PathBuf>,
    /// How long each point is measured
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000), requires = "this_machine", help_heading = "This machine")]
    milliseconds: u64,
    /// Only measure here
    #[arg(long, requires = "this_machine", help_heading = "This machine")]
    measured_only: bool,
    /// What the random numbers start from
    #[arg(
        long,
        value_name = "S",
        default_value_t = 42,
        requires = "this_machine",
        help_heading = "This machine"
    )]
    seed: u64,
}

fn parse_experiment(name: &str) -> Result<Experiment, String> {
    one_of(&Experiment::ALL, Experiment::name, name)
        .map_err(|names| format!("there is no such experiment; {names}"))
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct ThisMachine<'a> {
    profile: &'a str,
    this_machine: &'a Characterisation,
}

/// Characterises this machine, and the machine of `profile` beside it.
pub fn run(
    arguments: &Arguments,
    profile: &Profile,
    destinations: &Destinations,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let options = Options {
        bytes: arguments.mebibytes.saturating_mul(1 << 20),
        file: arguments.pmem.clone(),
        measured_ns: arguments.milliseconds * 1_000_000,
        experiments: match arguments.experiment.as_slice() {
            [] => Experiment::ALL.to_vec(),
            some => some.to_vec(),
        },
        measure: true,
        model: (!arguments.measured_only).then(|| profile.clone()),
        seed: arguments.seed,
    };
    destinations.check()?;
    let found = with_progress("points", |progress| characterise(&options, progress))?;
    let result = ThisMachine { profile: &profile.name, this_machine: &found };
    destinations.put(&found, &result, Some(options.seed), output)
}
