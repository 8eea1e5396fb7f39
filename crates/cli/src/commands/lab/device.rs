//! `lapis lab device`: what a memory does, modelled and measured.

use clap::Args;
use lapis_device::Profile;

use super::this_machine;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Characterise a memory: this machine's, and the modelled one of a profile beside it
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab device --this-machine
  lapis lab device --this-machine --experiment read-latency,persist-latency --profile dram
  lapis lab device --this-machine --measured-only --milliseconds 500 --json
  lapis lab device --this-machine --memory-file /mnt/pmem/lapis.characterise

Measured and modelled are separate columns and never mixed. What is measured without persistent
memory is DRAM, and the output says so.")]
pub struct Arguments {
    /// The device profile that is modelled: a name or a file
    #[arg(long, value_name = "P", default_value = "optane-100")]
    profile: String,
    #[command(flatten)]
    this_machine: this_machine::Arguments,
}

/// Runs `lapis lab device`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let profile =
        Profile::find(&arguments.profile).map_err(|error| Failure::refused(error.to_string()))?;
    if !arguments.this_machine.this_machine {
        return Err(Failure::refused("nothing to do; ask for --this-machine"));
    }
    this_machine::run(&arguments.this_machine, &profile, output)
}
