//! `lapis lab`: the experiments, one file each.

mod capabilities;
mod coroutine;
mod index;
mod inplace;
mod sides;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Run an experiment of the laboratory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab index --index wort,fast-fair --operation insert,get
  lapis lab capabilities")]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Index(index::Arguments),
    Inplace(inplace::Arguments),
    Coroutine(coroutine::Arguments),
    Capabilities(capabilities::Arguments),
}

/// Runs `lapis lab`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    match &arguments.experiment {
        Experiment::Index(arguments) => index::run(arguments, output),
        Experiment::Inplace(arguments) => inplace::run(arguments, output),
        Experiment::Coroutine(arguments) => coroutine::run(arguments, output),
        Experiment::Capabilities(arguments) => capabilities::run(arguments, output),
    }
}
