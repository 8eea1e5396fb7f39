//! `lapis lab device`: the modelled machine beside what was published about the real one.

use std::path::PathBuf;

use clap::Args;
use lapis_device::Profile;
use lapis_lab::device_experiment::{COMMAND, DeviceResults, calibrate, calibration_table, shown};
use lapis_lab::document::put_into_file;

use super::this_machine;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, right_align, table};
use crate::progress;

/// Put a modelled device beside the measurements of the real one
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab device
  lapis lab device --profile dram --json
  lapis lab device --profile ./my-machine.toml
  lapis lab device --fields
  lapis lab device --write docs/calibration.md
  lapis lab device --this-machine
  lapis lab device --this-machine --experiment read-latency,persist-latency --profile dram
  lapis lab device --this-machine --measured-only --milliseconds 500 --json

Every modelled figure comes out of running the access pattern of the published measurement through
the model, in virtual time, the same on every run and every machine; nothing here is measured on
this machine unless --this-machine is given, which prints what is measured and what is modelled in
separate columns. Trust: M measured on hardware and published, D derived from such data, A stated by a
vendor or a secondary source. Figures that nobody published say so. A profile is a file; `--fields`
prints where each of its figures comes from.")]
pub struct Arguments {
    /// The device profile: a built-in one, or the path of a file
    #[arg(long, value_name = "P", default_value = lapis_lab::index_experiment::OPTANE_100)]
    profile: String,
    /// Print the fields of the profile with their trust and source instead
    #[arg(long, conflicts_with_all = ["write", "this_machine"])]
    fields: bool,
    /// Put the table into this document, in place of the one there
    #[arg(long, value_name = "FILE", conflicts_with = "this_machine")]
    write: Option<PathBuf>,
    #[command(flatten)]
    this_machine: this_machine::Arguments,
}

/// Runs `lapis lab device`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::refused(error.to_string());
    let profile = Profile::find(&arguments.profile).map_err(|error| refused(&error))?;
    if arguments.fields {
        return fields(&profile, output);
    }
    if arguments.this_machine.this_machine {
        return this_machine::run(&arguments.this_machine, &profile, output);
    }
    let bar = progress::count(0, "experiments");
    let results = calibrate(&profile, &|progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    let results = results.map_err(|error| refused(&error))?;
    output.json(&results)?;
    match &arguments.write {
        Some(path) => put_into_file(path, COMMAND, &calibration_table(&results))
            .map_err(|error| refused(&error))?,
        None => print(&results, output)?,
    }
    Ok(Verdict::Good)
}

fn fields(profile: &Profile, output: &mut Output) -> Result<Verdict, Failure> {
    output.json(profile)?;
    let mut rows = table(["field", "value", "trust", "source"]);
    for field in profile.listing() {
        let trust = format!("{} ({})", field.trust, field.trust.word());
        rows.add_row([field.field, field.value, trust, field.source]);
    }
    output.table(&rows)?;
    Ok(Verdict::Good)
}

fn print(results: &DeviceResults, output: &mut Output) -> Result<(), Failure> {
    let mut rows = table(["quantity", "unit", "trust", "published", "modelled", "error"]);
    for row in &results.rows {
        rows.add_row([
            row.quantity.clone(),
            row.unit.to_owned(),
            row.trust.map_or("-".to_owned(), |trust| trust.to_string()),
            row.published_in_words(),
            shown(row.modelled),
            row.error_in_words(),
        ]);
    }
    right_align(&mut rows, 3);
    output.table(&rows)?;
    output.line(format_args!("modelled: {} ({}).", results.profile, results.description))?;
    output.line("Nothing here was measured on this machine.")
}
