//! `lapis lab page`: ways to write pages side by side.

use std::path::PathBuf;

use clap::Args;
use lapis_blocks::page::{CostModel, PageScheme};
use lapis_lab::experiment::table::Table;
use lapis_lab::page_experiment::{
    Options, calibrate, calibration_options, put_into_profile, run as run_page,
};
use serde::Serialize;

use super::frame::{self, Destinations, Seed, Sides, named, or_default, refused, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Compare ways to write pages: speed measured here and modelled, by dirty lines and threads
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab page
  lapis lab page --variant page-cow,page-mulog --dirty-lines 1,28,40 --threads 1,7 --json
  lapis lab page --plot page.svg --write docs/page-propagation.md
  lapis lab page --calibrate
  lapis lab page --calibrate --profile my.toml --into my.toml

Measured and modelled are separate columns and never mixed: measured is this machine's time, in
anonymous memory, for no more threads than it has processors; modelled is the virtual time of the
profile's machine, the same on every run. The crossover is the number of dirty lines up to which a
log of them is faster than a copy of the page.

--calibrate prints what the hybrid needs to know to choose, as a section of a device profile (of
this machine with --measured-only); --into puts it into a profile's file.",
    mut_arg("plot", |plot| plot.conflicts_with("calibrate")),
    mut_arg("csv", |csv| csv.conflicts_with("calibrate")),
    mut_arg("write", |write| write.conflicts_with("calibrate")))]
pub struct Arguments {
    /// The ways, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = named(PageScheme::all(), |scheme| scheme.name))]
    variant: Vec<PageScheme>,
    /// How many lines of each page are dirty [default: 1,2,4,8,16,28,40,64,96,128,192,256]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    dirty_lines: Vec<usize>,
    /// Threads [default: 1,2,4,7]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Bytes of a page: a power of two from 4096 to 65536
    #[arg(long, value_name = "N", default_value_t = Options::default().page_bytes)]
    page_bytes: usize,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    destinations: Destinations,
    /// Find the costs that the hybrid chooses by
    #[arg(long, conflicts_with = "variant")]
    calibrate: bool,
    /// Put them into this device profile
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    into: Option<PathBuf>,
}

/// A cost model as JSON, with what it comes to.
#[derive(Debug, Serialize)]
struct Calibration {
    /// What it was found on: a profile, or this machine.
    of: String,
    page: CostModel,
    crossovers: Vec<Crossover>,
}

#[derive(Debug, Serialize)]
struct Crossover {
    writers: usize,
    dirty_lines: f64,
}

/// Runs `lapis lab page`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let mut default = Options::default();
    default.dirty_lines.retain(|&dirty| dirty <= arguments.page_bytes / 64);
    let options = Options {
        variants: or_default(&arguments.variant, default.variants),
        dirty_lines: or_default(&arguments.dirty_lines, default.dirty_lines),
        threads: or_default(&arguments.threads, default.threads),
        page_bytes: arguments.page_bytes,
        sides: arguments.sides.wanted(),
        seed: arguments.seed.seed,
        ..default
    };
    if arguments.calibrate {
        return calibration(arguments, &options, output);
    }
    let seed = Some(options.seed);
    arguments.destinations.run("rows", seed, output, |progress| run_page(&options, progress))
}

fn calibration(
    arguments: &Arguments,
    options: &Options,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let of_this_machine = arguments.sides.measured_only;
    let mut options = calibration_options(options);
    (options.sides.measure, options.sides.model) = (of_this_machine, !of_this_machine);
    let results = with_progress("rows", |progress| run_page(&options, progress))?;
    let page = calibrate(&results, of_this_machine).map_err(refused)?;
    let crossovers: Result<Vec<Crossover>, Failure> = page
        .points
        .iter()
        .map(|point| {
            let dirty_lines =
                page.crossover_lines(options.page_bytes, point.writers).map_err(refused)?;
            Ok(Crossover { writers: point.writers, dirty_lines })
        })
        .collect();
    let of =
        if of_this_machine { "this machine".to_owned() } else { options.sides.profile.clone() };
    let calibration = Calibration { of, page, crossovers: crossovers? };
    if let Some(path) = &arguments.into {
        frame::change_profile(path, |file, text| put_into_profile(file, text, &calibration.page))?;
    }
    frame::json(output, Some(options.seed), &calibration)?;
    output.line(format_args!("of {}, pages of {} bytes:", calibration.of, options.page_bytes))?;
    let mut rows = Table::new(0, "writers | copy ns | log ns | and per line | log up to lines");
    for (point, crossover) in calibration.page.points.iter().zip(&calibration.crossovers) {
        rows.push([
            point.writers.to_string(),
            format!("{:.0}", point.copy_ns),
            format!("{:.0}", point.log_ns),
            format!("{:.1}", point.log_line_ns),
            format!("{:.0}", crossover.dirty_lines),
        ]);
    }
    output.table(&rows)?;
    Ok(Verdict::Good)
}
