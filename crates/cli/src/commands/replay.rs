//! `lapis replay`: a block trace against a store, every answer compared.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use lapis::{IndexKind, TableOptions};
use lapis_lab::index_experiment::OPTANE_100;
use lapis_lab::modelled_store::count_replay;
use lapis_lab::replay::{ReplayError, ReplayReport, read_trace, replay};
use lapis_lab::target::TableTarget;

use crate::commands::ycsb;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, human_bytes};
use crate::progress;
use crate::store_arguments::{Durability, index_kinds};

/// Replay a block trace: writes become puts, reads become gets, and every answer is compared
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis replay cloudphysics-io.csv
  lapis replay trace.csv --dir /tmp/store --limit 10000 --json

The trace has lines `version,time_us,op,size,lbn` as CloudPhysics traces have: op 28 is a read, 2a a
write, size in bytes, lbn the block. The table must be empty. Without --dir the store is in memory.
The counts per request are those of the beginning of the trace on the modelled machine. Exit code 1
if an answer was wrong.")]
pub struct Arguments {
    /// The trace
    file: PathBuf,
    /// At most N requests
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The store's directory [default: none, in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What an acknowledged write survives (with --dir)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t, requires = "dir")]
    durability: Durability,
    /// The device profile that the counts per request are modelled for
    #[arg(long, value_name = "P", default_value = OPTANE_100)]
    profile: String,
    /// Leave the counts out
    #[arg(long)]
    measured_only: bool,
    /// The table
    #[arg(long, value_name = "NAME", default_value = "replay")]
    table: String,
    /// The index of a table that has to be created
    #[arg(long, value_name = "KIND", default_value = "wort", value_parser = index_kinds())]
    index: IndexKind,
}

/// Runs `lapis replay`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let file = File::open(&arguments.file)
        .map_err(|error| Failure::file("read", &arguments.file, &error))?;
    let name = arguments.file.display();
    let requests = read_trace(BufReader::new(file), arguments.limit.unwrap_or(usize::MAX))
        .map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    let (store, table) = ycsb::open(
        arguments.dir.as_ref(),
        arguments.durability,
        &arguments.table,
        arguments.index,
    )?;
    let target = TableTarget::new(&store, &table);
    let bar = progress::count(requests.len() as u64, "requests");
    let report = replay(&target, &requests, &|progress| bar.set_position(progress.done));
    bar.finish_and_clear();
    let mut report = report.map_err(|error| {
        Failure::refused(match error {
            ReplayError::Empty => format!("{name}: the trace has no requests; name another"),
            ReplayError::NotEmpty => format!(
                "the table `{}` is not empty, which it must be; name another with --table",
                arguments.table
            ),
            other => format!("{name}: {other}"),
        })
    })?;
    if !arguments.measured_only {
        let options = TableOptions::with_index(table.index_kind());
        report.report.per_op =
            count_replay(&arguments.profile, &options, &requests).map_err(ycsb::not_counted)?;
    }
    output.json(&report)?;
    print(&report, output)
}

fn print(report: &ReplayReport, output: &mut Output) -> Result<Verdict, Failure> {
    let runs = std::slice::from_ref(&report.report);
    ycsb::print(runs, output)?;
    ycsb::print_counts(runs, output)?;
    output.line(format_args!(
        "{} values compared and right, {} wrong; {} reads of blocks never written, {} written",
        grouped(report.verified),
        grouped(report.mismatches),
        grouped(report.cold_reads),
        human_bytes(report.written_bytes)
    ))?;
    for mismatch in &report.first_mismatches {
        output.line(format_args!("! {mismatch}"))?;
    }
    Ok(if report.mismatches == 0 { Verdict::Good } else { Verdict::Bad })
}
