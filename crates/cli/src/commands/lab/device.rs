//! `lapis lab device`: the modelled machine beside what was published about the real one.

use clap::Args;
use lapis_device::Profile;
use lapis_lab::device_experiment::{calibrate, fit};
use lapis_lab::experiment::OPTANE_100;
use lapis_lab::experiment::table::Table;
use lapis_lab::progress::OnProgress;

use super::frame::{self, Destinations, refused};
use super::this_machine;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Put a modelled device beside the measurements of the real one
#[derive(Debug, Args)]
#[command(
    mut_arg("write", |write| write.conflicts_with("this_machine")),
    after_long_help = "\
Examples:
  lapis lab device
  lapis lab device --profile dram --json
  lapis lab device --profile ./my-machine.toml
  lapis lab device --fields
  lapis lab device --fit
  lapis lab device --write docs/calibration.md
  lapis lab device --this-machine
  lapis lab device --this-machine --experiment read-latency,persist-latency --profile dram
  lapis lab device --this-machine --measured-only --milliseconds 500 --json

Every modelled figure comes out of running the access pattern of the published measurement through
the model, in virtual time, the same on every run and every machine; nothing here is measured on
this machine unless --this-machine is given, which prints what is measured and what is modelled in
separate columns. Trust: M measured on hardware and published, D derived from such data, A stated
by a vendor or a secondary source. Role: figures that a field was computed from (derived) or
fitted to (fitted), and those that the model was not made from (independent). Figures that nobody
published say so. A profile is a file; `--fields` prints where each of its figures comes from.")]
pub struct Arguments {
    /// The device profile: a built-in one, or the path of a file
    #[arg(long, value_name = "P", default_value = OPTANE_100)]
    profile: String,
    /// Print the fields of the profile with their trust and source instead
    #[arg(long, conflicts_with_all = ["write", "csv", "plot", "this_machine"])]
    fields: bool,
    /// Show what the fitted fields of the profile are fitted to, and the error with less and with more of
    /// each, instead
    #[arg(long, conflicts_with_all = ["fields", "write", "plot", "this_machine"])]
    fit: bool,
    #[command(flatten)]
    destinations: Destinations,
    #[command(flatten)]
    this_machine: this_machine::Arguments,
}

/// Runs `lapis lab device`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let profile = Profile::find(&arguments.profile).map_err(refused)?;
    if arguments.fields {
        return fields(&profile, output);
    }
    if arguments.this_machine.this_machine {
        return this_machine::run(
            &arguments.this_machine,
            &profile,
            &arguments.destinations,
            output,
        );
    }
    if arguments.fit {
        let run = |progress: OnProgress<'_>| fit(&profile, progress);
        return arguments.destinations.run("fields", None, output, run);
    }
    arguments.destinations.check_without_figure()?;
    let run = |progress: OnProgress<'_>| calibrate(&profile, progress);
    arguments.destinations.run("experiments", None, output, run)
}

fn fields(profile: &Profile, output: &mut Output) -> Result<Verdict, Failure> {
    frame::json(output, None, profile)?;
    let mut rows = Table::new(4, "field | value | trust | source");
    for field in profile.listing() {
        let trust = format!("{} ({})", field.trust, field.trust.word());
        rows.push([field.field, field.value, trust, field.source]);
    }
    output.table(&rows)?;
    Ok(Verdict::Good)
}
