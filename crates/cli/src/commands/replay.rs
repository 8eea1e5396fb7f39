//! `lapis replay`: a block trace against a store, every answer compared.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use lapis_lab::modelled_store::count_replay;
use lapis_lab::replay::{ReplayError, ReplayReport, read_trace, replay};
use serde::Serialize;

use crate::commands::lab::frame::{self, Figures};
use crate::commands::ycsb;
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::progress;
use crate::workload_arguments::WorkloadArguments;

/// Replay a block trace: writes become puts, reads become gets, and every answer is compared
#[derive(Debug, Args)]
#[command(mut_arg("table", |table| table.default_value("replay")), after_long_help = "\
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
    #[command(flatten)]
    store: WorkloadArguments,
    #[command(flatten)]
    figures: Figures,
}

/// Rows for other programs: a replay is one run.
#[derive(Serialize)]
struct Runs<'a> {
    runs: [&'a ReplayReport; 1],
}

/// Runs `lapis replay`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    arguments.figures.check()?;
    let file = File::open(&arguments.file)
        .map_err(|error| Failure::file("read", &arguments.file, &error))?;
    let name = arguments.file.display();
    let requests = read_trace(BufReader::new(file), arguments.limit.unwrap_or(usize::MAX))
        .map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    let (_store, table) = arguments.store.open()?;
    let bar = progress::count(requests.len() as u64, "requests");
    let report = replay(&table, &requests, &|progress| bar.set_position(progress.done));
    bar.finish_and_clear();
    let mut report = report.map_err(|error| {
        Failure::refused(match error {
            ReplayError::Empty => format!("{name}: the trace has no requests; name another"),
            ReplayError::NotEmpty => format!(
                "the table `{}` is not empty, which it must be; name another with --table",
                table.name()
            ),
            other => format!("{name}: {other}"),
        })
    })?;
    if !arguments.store.measured_only {
        report.report.per_op =
            count_replay(&arguments.store.profile, &requests).map_err(ycsb::not_counted)?;
    }
    arguments.figures.save(&report, &Runs { runs: [&report] })?;
    frame::json(output, None, &report)?;
    output.findings(&report)?;
    Ok(if report.mismatches == 0 { Verdict::Good } else { Verdict::Bad })
}
