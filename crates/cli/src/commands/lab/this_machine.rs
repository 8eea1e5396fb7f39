//! `lapis lab device --this-machine`: what this machine's memory does, beside the modelled one.

use std::path::PathBuf;

use clap::Args;
use lapis_device::Profile;
use lapis_lab::device_experiment::point::{Experiment, Figures};
use lapis_lab::device_experiment::this_machine::{
    Characterisation, CharacteriseError, Options, Row, characterise,
};
use serde::Serialize;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, human_bytes, right_align, table};
use crate::progress;

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
    /// Work on a new file at this path, on a DAX file system for instance; it is removed afterwards
    #[arg(long, value_name = "PATH", requires = "this_machine", help_heading = "This machine")]
    memory_file: Option<PathBuf>,
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
    Experiment::from_name(name).ok_or_else(|| {
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        format!("there is no such experiment; use {names}")
    })
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
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let options = Options {
        bytes: arguments.mebibytes.saturating_mul(1 << 20),
        file: arguments.memory_file.clone(),
        measured_ns: arguments.milliseconds * 1_000_000,
        experiments: match arguments.experiment.as_slice() {
            [] => Experiment::ALL.to_vec(),
            some => some.to_vec(),
        },
        measure: true,
        model: (!arguments.measured_only).then(|| profile.clone()),
        seed: arguments.seed,
    };
    let bar = progress::count(0, "points");
    let found = characterise(&options, &|progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    if let (Ok(_), Some(path)) = (&found, &options.file) {
        std::fs::remove_file(path).map_err(|error| Failure::file("remove", path, &error))?;
    }
    let found = found.map_err(|error: CharacteriseError| Failure::refused(error.to_string()))?;
    output.json(&ThisMachine { profile: &profile.name, this_machine: &found })?;
    print(&found, output)?;
    Ok(Verdict::Good)
}

/// Writes a characterisation for people: measured and modelled side by side, never mixed.
fn print(found: &Characterisation, output: &mut Output) -> Result<(), Failure> {
    let mut rows = table([
        "experiment",
        "figure",
        "method",
        "pattern",
        "bytes",
        "threads",
        "beside",
        "measured here",
        "modelled",
    ]);
    for row in &found.rows {
        rows.add_row(cells(row));
    }
    right_align(&mut rows, 7);
    output.table(&rows)?;
    output.line(format_args!(
        "measured here: {} of {}, {} cores; {}.",
        human_bytes(found.bytes as u64),
        found.memory,
        found.cores,
        found.remark
    ))?;
    if let Some(load) = found.load_average_before.filter(|&load| load > 0.5) {
        output.line(format_args!(
            "The load average was {load:.1} before: other processes disturbed what was measured."
        ))?;
    }
    if let Some(profile) = &found.profile {
        output.line(format_args!("modelled: {profile}, in virtual time."))?;
        output.line("-: too few cores or no such instruction here, or not modelled.")?;
    }
    output.line(
        "figure: of van Renen et al., Building blocks for persistent memory, VLDB Journal 29, 2020.",
    )
}

fn cells(row: &Row) -> [String; 9] {
    let method = match row.task {
        Some(task) => format!("{task} ({})", row.method),
        None => row.method.to_owned(),
    };
    let beside = match (row.beside, row.beside_threads) {
        (Some(task), Some(threads)) => format!("{threads} × {task}"),
        _ => String::new(),
    };
    [
        row.experiment.to_owned(),
        row.figure.to_owned(),
        method,
        row.pattern.to_owned(),
        row.granularity_bytes.to_string(),
        row.threads.to_string(),
        beside,
        words(row.measured.as_ref()),
        words(row.modelled.as_ref()),
    ]
}

/// A latency, or a bandwidth and what it lost.
fn words(figures: Option<&Figures>) -> String {
    let Some(figures) = figures else { return "-".to_owned() };
    let mut parts = Vec::new();
    if let Some(latency_ns) = figures.latency_ns {
        parts.push(format!("{latency_ns:.1} ns"));
    }
    if let Some(gb_s) = figures.gb_s {
        parts.push(format!("{gb_s:.2} GB/s"));
    }
    if let Some(slowdown_percent) = figures.slowdown_percent {
        // Adding zero turns a negative zero into a positive one.
        parts.push(format!("({:.0} % lost)", slowdown_percent.round() + 0.0));
    }
    parts.join(" ")
}
