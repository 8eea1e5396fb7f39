//! `lapis lab coroutine`: operations interleaved on one thread.

use std::path::PathBuf;

use clap::Args;
use lapis_device::Profile;
use lapis_lab::coroutine_experiment::{Options, calibrate, put_into_profile, run as run_all};
use lapis_lab::experiment::table::Table;

use super::frame::{self, Destinations, Seed, Sides, refused};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Interleave operations on one thread, and see what is gained
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab coroutine
  lapis lab coroutine --group 8,16,32 --plot coroutine.html
  lapis lab coroutine --modelled-only --profile dram --json
  lapis lab coroutine --calibrate
  lapis lab coroutine --calibrate --profile my.toml --into my.toml

Lookups and inserts on leaves as FPTree has them, more than the caches hold, with groups of tasks
in flight on one thread: they prefetch and give way (reads), and share one fence (writes).
Speed-ups are against one operation at a time that does neither. After Fig. 12 of van Renen et al.
(VLDB Journal 2020).

--calibrate measures what this machine's core does for an operation and for giving way, beside the
memory accesses that the profile charges: with all lines in L1; and how much of a page walk a group
does not hide. It prints a section of a device profile; --into puts it into a profile's file.",
    mut_arg("plot", |plot| plot.conflicts_with("calibrate")),
    mut_arg("csv", |csv| csv.conflicts_with("calibrate")),
    mut_arg("write", |write| write.conflicts_with("calibrate")))]
pub struct Arguments {
    /// Sizes of groups, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Options::default().groups)]
    group: Vec<usize>,
    /// Operations of each measured row, and as many leaves
    #[arg(long, value_name = "N", default_value_t = Options::default().operations)]
    operations: usize,
    /// Operations of each modelled row
    #[arg(long, value_name = "N", default_value_t = Options::default().modelled_operations)]
    modelled_operations: usize,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    destinations: Destinations,
    /// Find what interleaving costs the core
    #[arg(long, conflicts_with_all = ["modelled_only", "measured_only"])]
    calibrate: bool,
    /// Put it into this device profile
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    into: Option<PathBuf>,
}

/// Runs `lapis lab coroutine`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    if arguments.calibrate {
        return calibration(arguments, output);
    }
    let defaults = Options::default();
    let options = Options {
        groups: arguments.group.clone(),
        leaves: defaults.leaves.max(arguments.operations),
        operations: arguments.operations,
        modelled_leaves: defaults.modelled_leaves.max(arguments.modelled_operations),
        modelled_operations: arguments.modelled_operations,
        sides: arguments.sides.wanted(),
        seed: arguments.seed.seed,
    };
    let seed = Some(options.seed);
    arguments.destinations.run("runs", seed, output, |progress| run_all(&options, progress))
}

fn calibration(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let profile = Profile::find(&arguments.sides.profile).map_err(refused)?;
    let costs = calibrate(&profile)?;
    if let Some(path) = &arguments.into {
        frame::change_profile(path, |file, text| put_into_profile(file, text, &costs))?;
    }
    frame::json(output, None, &costs)?;
    output.line(format_args!("measured on {}, with all lines in L1:", costs.processor))?;
    let mut rows =
        Table::new(1, "operation | alone ns | of it modelled | among twenty ns | of it modelled");
    for (operation, found) in [("lookup", costs.lookup), ("insert", costs.insert)] {
        let alone = [found.alone_ns, found.alone_accesses_ns];
        let in_group = [found.in_group_ns, found.in_group_accesses_ns];
        let figures = [alone, in_group].concat().into_iter().map(|ns| format!("{ns:.1}"));
        rows.push(std::iter::once(operation.to_owned()).chain(figures));
    }
    output.table(&rows)?;
    output.line("lookups in leaves on many pages:")?;
    let mut rows = Table::new(1, "pages | alone ns | among twenty ns");
    for (at, pages) in ["4 KiB", "2 MiB"].into_iter().enumerate() {
        let figure = |ns: [f64; 2]| format!("{:.1}", ns[at]);
        let walks = costs.page_walks;
        rows.push([pages.to_owned(), figure(walks.alone_ns), figure(walks.in_group_ns)]);
    }
    output.table(&rows)?;
    output.line(costs.section().trim_end())?;
    Ok(Verdict::Good)
}
