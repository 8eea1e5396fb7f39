//! `lapis lab`: the experiments, one file each.

mod amplification;
mod capabilities;
mod compare;
mod coroutine;
mod device;
pub mod frame;
mod index;
mod inplace;
mod log;
mod page;
mod this_machine;
mod wort;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Run an experiment of the laboratory
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab index --index wort,fast-fair --operation insert,get
  lapis lab device --this-machine
  lapis lab log --plot logs.svg
  lapis lab page --plot page.svg
  lapis lab wort --write docs/wort-study.md
  lapis lab amplification
  lapis lab compare
  lapis lab capabilities")]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Index(index::Arguments),
    Amplification(amplification::Arguments),
    Inplace(inplace::Arguments),
    Coroutine(coroutine::Arguments),
    Device(device::Arguments),
    Page(page::Arguments),
    Capabilities(capabilities::Arguments),
    Compare(compare::Arguments),
    Log(log::Arguments),
    Wort(wort::Arguments),
}

/// Runs `lapis lab`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    match &arguments.experiment {
        Experiment::Index(arguments) => index::run(arguments, output),
        Experiment::Amplification(arguments) => amplification::run(arguments, output),
        Experiment::Inplace(arguments) => inplace::run(arguments, output),
        Experiment::Coroutine(arguments) => coroutine::run(arguments, output),
        Experiment::Device(arguments) => device::run(arguments, output),
        Experiment::Page(arguments) => page::run(arguments, output),
        Experiment::Capabilities(arguments) => capabilities::run(arguments, output),
        Experiment::Compare(arguments) => compare::run(arguments, output),
        Experiment::Log(arguments) => log::run(arguments, output),
        Experiment::Wort(arguments) => wort::run(arguments, output),
    }
}
