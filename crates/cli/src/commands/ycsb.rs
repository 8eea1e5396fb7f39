//! `lapis ycsb`: the core workloads of YCSB against a store.

use clap::Args;
use lapis_lab::modelled_store::{CountError, count_ycsb};
use lapis_lab::report::Report;
use lapis_lab::ycsb::{Driver, Options, RequestDistribution, Workload, WorkloadError};
use serde::Serialize;

use crate::commands::lab::frame::{self, Figures};
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::progress;
use crate::workload_arguments::WorkloadArguments;

/// Run workloads of YCSB against a store and check every answer
#[derive(Debug, Args)]
#[command(mut_arg("table", |table| table.default_value("ycsb")), after_long_help = "\
Examples:
  lapis ycsb
  lapis ycsb --workload load,a,b,c,d,e,f --records 1000000 --threads 2
  lapis ycsb --workload load,a --dir /tmp/store --durability eventual
  lapis ycsb --workload c --dir /tmp/store        uses what an earlier load left there
  lapis ycsb --workload a,b,c,d,e,f --plot ycsb.svg --csv ycsb.csv

Workloads run one after the other over the same records; without --dir in memory, where nothing
waits for a disk. A wrong answer of the store ends the run with exit code 1. Hardware does not
count, so the counts per operation are from a smaller run by one thread on the modelled machine.
With --json the fields at the top are those of the last workload, `runs` has them all.")]
pub struct Arguments {
    /// The workloads, separated by commas: load, a, b, c, d, e, f
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "load,a", value_parser = parse_workload)]
    workload: Vec<Workload>,
    /// Records to load
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// Operations of each workload
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    operations: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Which records are asked for [default: as each workload defines]
    #[arg(long, value_name = "D", value_parser = ["zipfian", "uniform", "latest"])]
    distribution: Option<String>,
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    store: WorkloadArguments,
    #[command(flatten)]
    figures: Figures,
}

fn parse_workload(name: &str) -> Result<Workload, String> {
    Workload::from_name(name).ok_or_else(|| {
        format!("there is no such workload; use {}", Workload::ALL.map(Workload::name).join(", "))
    })
}

#[derive(Serialize)]
struct Runs<'a> {
    #[serde(flatten)]
    last: &'a Report,
    durability: &'static str,
    runs: &'a [Report],
}

/// Runs `lapis ycsb`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    arguments.figures.check()?;
    let (store, table) = arguments.store.open()?;
    let options = Options {
        records: arguments.records,
        operations: arguments.operations,
        threads: arguments.threads,
        requests: arguments.distribution.as_deref().and_then(RequestDistribution::from_name),
        seed: arguments.seed,
        ..Options::default()
    };
    let counted = options.clone();
    let is_empty = table.iter()?.next().is_none();
    let driver =
        if is_empty { Driver::new(&table, options) } else { Driver::attach(&table, options) };
    let mut driver = driver.map_err(failed)?;
    let mut runs = Vec::new();
    for &workload in &arguments.workload {
        let total =
            if workload == Workload::Load { arguments.records } else { arguments.operations };
        let bar = progress::count(total, "operations");
        bar.set_message(workload.name());
        let report = driver.run(workload, &|progress| bar.set_position(progress.done));
        bar.finish_and_clear();
        runs.push(report.map_err(failed)?);
    }
    if !arguments.store.measured_only {
        for (report, &workload) in runs.iter_mut().zip(&arguments.workload) {
            report.per_op =
                count_ycsb(&arguments.store.profile, workload, &counted).map_err(not_counted)?;
        }
    }
    driver.verify().map_err(failed)?;
    if let Some(last) = runs.last() {
        let durability = store.info(false)?.durability;
        let result = Runs { last, durability, runs: &runs };
        arguments.figures.save(runs.as_slice(), &result)?;
        frame::json(output, Some(arguments.seed), &result)?;
    }
    output.findings(runs.as_slice())?;
    Ok(Verdict::Good)
}

/// Why nothing could be counted. Wrong answers are failed checks here too.
pub fn not_counted(error: CountError) -> Failure {
    match error {
        CountError::Workload(error) => failed(error),
        CountError::Mismatches { .. } => Failure::NotThere(error.to_string()),
        error => Failure::refused(error.to_string()),
    }
}

/// A wrong answer is a failed check; anything else could not be done.
fn failed<E: std::error::Error>(error: WorkloadError<E>) -> Failure {
    match &error {
        WorkloadError::Missing { .. } | WorkloadError::Wrong { .. } => {
            Failure::NotThere(format!("{error}; run `lapis check` on the store"))
        }
        _ => Failure::refused(error.to_string()),
    }
}
