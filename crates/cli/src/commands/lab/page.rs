//! `lapis lab page`: ways to write pages side by side.

use std::path::PathBuf;

use clap::Args;
use lapis_blocks::page::{CostModel, PageScheme};
use lapis_lab::page_experiment::{
    Options, PageExperimentError, PageResults, calibrate, calibration_options, figure, markdown,
    put_into_profile, run as run_page,
};
use serde::Serialize;

use super::sides::{Seed, Sides, with_progress};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, right_align, table};

/// The command that a document's section names.
const COMMAND: &str = "lapis lab page";

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

--calibrate prints what the hybrid needs to know to choose, as a section of a device profile (of this
machine with --measured-only); --into puts it into a profile's file.",
    mut_arg("plot", |plot| plot.conflicts_with("calibrate")),
    mut_arg("write", |write| write.conflicts_with("calibrate")))]
pub struct Arguments {
    /// The ways, separated by commas: page-cow, page-cow-load, page-mulog, page-checksum, page-hybrid [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_variant)]
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

fn parse_variant(name: &str) -> Result<PageScheme, String> {
    name.parse().map_err(|error: lapis_blocks::page::UnknownScheme| error.to_string())
}

/// Runs `lapis lab page`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let mut options = Options {
        page_bytes: arguments.page_bytes,
        profile: arguments.sides.profile.clone(),
        measure: arguments.sides.measure(),
        model: arguments.sides.model(),
        seed: arguments.seed.seed,
        ..Options::default()
    };
    if !arguments.variant.is_empty() {
        options.variants.clone_from(&arguments.variant);
    }
    if arguments.dirty_lines.is_empty() {
        options.dirty_lines.retain(|&dirty| dirty <= arguments.page_bytes / 64);
    } else {
        options.dirty_lines.clone_from(&arguments.dirty_lines);
    }
    if !arguments.threads.is_empty() {
        options.threads.clone_from(&arguments.threads);
    }
    if arguments.calibrate {
        return calibration(arguments, &options, output);
    }
    let results = run_with_progress(&options)?;
    output.json(&results)?;
    print(&results, output)?;
    arguments.sides.save(|| figure(&results), || vec![(COMMAND, markdown(&results))])?;
    Ok(Verdict::Good)
}

fn run_with_progress(options: &Options) -> Result<PageResults, Failure> {
    let results = with_progress("rows", |progress| run_page(options, progress));
    results.map_err(|error| match error {
        PageExperimentError::WrongContents { .. } => Failure::NotThere(error.to_string()),
        _ => Failure::refused(error.to_string()),
    })
}

fn calibration(
    arguments: &Arguments,
    options: &Options,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let of_this_machine = arguments.sides.measured_only;
    let mut options = calibration_options(options);
    (options.measure, options.model) = (of_this_machine, !of_this_machine);
    let results = run_with_progress(&options)?;
    let refused = |error: &dyn std::error::Error| Failure::refused(error.to_string());
    let page = calibrate(&results, of_this_machine).map_err(|error| refused(&error))?;
    let crossovers: Result<Vec<Crossover>, Failure> = page
        .points
        .iter()
        .map(|point| {
            let dirty_lines = page
                .crossover_lines(options.page_bytes, point.writers)
                .map_err(|error| refused(&error))?;
            Ok(Crossover { writers: point.writers, dirty_lines })
        })
        .collect();
    let of = if of_this_machine { "this machine".to_owned() } else { options.profile.clone() };
    let calibration = Calibration { of, page, crossovers: crossovers? };
    if let Some(path) = &arguments.into {
        let profile =
            std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
        let file = path.display().to_string();
        let text = put_into_profile(&file, &profile, &calibration.page)
            .map_err(|error| refused(&error))?;
        std::fs::write(path, text).map_err(|error| Failure::file("write", path, &error))?;
    }
    output.json(&calibration)?;
    output.line(format_args!("of {}, pages of {} bytes:", calibration.of, options.page_bytes))?;
    let mut rows = table(["writers", "copy ns", "log ns", "and per line", "log up to lines"]);
    for (point, crossover) in calibration.page.points.iter().zip(&calibration.crossovers) {
        rows.add_row([
            point.writers.to_string(),
            format!("{:.0}", point.copy_ns),
            format!("{:.0}", point.log_ns),
            format!("{:.1}", point.log_line_ns),
            format!("{:.0}", crossover.dirty_lines),
        ]);
    }
    right_align(&mut rows, 0);
    output.table(&rows)?;
    Ok(Verdict::Good)
}

fn print(results: &PageResults, output: &mut Output) -> Result<(), Failure> {
    let mut rows = table([
        "variant",
        "dirty lines",
        "threads",
        "barriers",
        "pages/s here",
        "pages/s modelled",
        "WPQ",
        "media w",
        "media r",
    ]);
    let none = || "-".to_owned();
    for row in &results.rows {
        let mut cells = vec![
            row.variant.to_string(),
            row.dirty_lines.to_string(),
            row.threads.to_string(),
            row.barriers.to_string(),
            row.measured.map_or_else(none, |measured| grouped(measured.pages_per_s as u64)),
        ];
        match &row.modelled {
            Some(modelled) => {
                cells.push(grouped(modelled.pages_per_s as u64));
                let counts = [modelled.wpq_inserts, modelled.media_writes, modelled.media_reads];
                cells.extend(counts.map(|count| format!("{count:.1}")));
            }
            None => cells.extend([none(), none(), none(), none()]),
        }
        rows.add_row(cells);
    }
    right_align(&mut rows, 1);
    output.table(&rows)?;
    output.line("pages/s here: measured on this machine, in anonymous memory.")?;
    if let Some(modelled) = results.rows.iter().find_map(|row| row.modelled.as_ref()) {
        output.line(format_args!(
            "pages/s modelled to media r: virtual time and counts per page, modelled for {}; WPQ in \
             lines, media in units of 64 bytes.",
            modelled.profile
        ))?;
    }
    for crossover in &results.crossovers {
        let lines =
            |lines: Option<f64>| lines.map_or_else(|| "-".into(), |lines| format!("{lines:.0}"));
        output.line(format_args!(
            "a log is faster than a copy with {} {} up to: {} dirty lines measured here, {} modelled, \
             {} published.",
            crossover.threads,
            if crossover.threads == 1 { "thread" } else { "threads" },
            lines(crossover.measured_lines),
            lines(crossover.modelled_lines),
            lines(crossover.published_lines),
        ))?;
    }
    Ok(())
}
