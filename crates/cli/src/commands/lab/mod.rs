//! `lapis lab`: the experiments, one file each.

mod capabilities;
mod index;
mod page;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Run an experiment of the laboratory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab index --index wort,fast-fair --operation insert,get
  lapis lab page --plot page.svg
  lapis lab capabilities")]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Index(index::Arguments),
    Page(page::Arguments),
    Capabilities(capabilities::Arguments),
}

/// Runs `lapis lab`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    match &arguments.experiment {
        Experiment::Index(arguments) => index::run(arguments, output),
        Experiment::Page(arguments) => page::run(arguments, output),
        Experiment::Capabilities(arguments) => capabilities::run(arguments, output),
    }
}
