//! `lapis lab index`: index structures side by side.

use std::path::PathBuf;

use clap::Args;
use lapis::IndexKind;
use lapis_lab::document::put_those_there;
use lapis_lab::index_experiment::{
    ExperimentError, IndexResults, Operation, Options, PEERS_IN_SHORT_SECTION, PEERS_KEYS,
    PEERS_SECTION, PeerComparison, Row, TRAFFIC_SECTION, compare_with_peers, peer_differences,
    peers_in_short, peers_table, run as run_index, traffic_table,
};
use lapis_lab::keys::Distribution;

use super::sides::with_progress;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, right_align, table};
use crate::store_arguments::index_kinds;

/// Compare index structures: speed measured here, traffic counted on the modelled machine
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis lab index
  lapis lab index --index wort,fast-fair --operation insert,get --distribution dense,zipf
  lapis lab index --keys 10000 --operation ycsb-a,ycsb-e --json
  lapis lab index --operation insert --modelled-only --write README.md
  lapis lab index --peers --keys 4000000
  lapis lab index --peers --keys 4000000 --write docs/wort-study.md --write README.md

Measured and modelled are separate columns and never mixed: measured is this machine's time, in
anonymous memory; modelled are counts per operation and virtual time on the machine of the profile,
the same on every run and every machine; --threads are its logical workers. Operations that need order are left out for hash tables.")]
pub struct Arguments {
    /// The structures, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = index_kinds())]
    index: Vec<IndexKind>,
    /// The operations: load, insert, get, update, delete, range, ycsb-a to ycsb-f [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_operation)]
    operation: Vec<Operation>,
    /// Where keys lie and which are asked for: dense, sparse, clustered, uniform, zipf
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "uniform", value_parser = parse_distribution)]
    distribution: Vec<Distribution>,
    /// Keys to load
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: usize,
    /// How often each operation is done [default: once per key, at most 250,000 times]
    #[arg(long, value_name = "N")]
    repetitions: Option<usize>,
    /// Threads of the measured runs, logical workers of the modelled ones
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: usize,
    /// The device profile that is modelled: a built-in one, or the path of a file
    #[arg(long, value_name = "P", default_value = lapis_lab::index_experiment::OPTANE_100)]
    profile: String,
    /// Give hash tables room for all keys at once
    #[arg(long)]
    presized: bool,
    /// Only count on the modelled machine
    #[arg(long, conflicts_with = "measured_only")]
    modelled_only: bool,
    /// Only measure here
    #[arg(long)]
    measured_only: bool,
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 42)]
    seed: u64,
    /// Put ours beside the published implementations instead
    #[arg(long, conflicts_with_all = ["index", "operation", "threads", "presized", "modelled_only", "measured_only"])]
    peers: bool,
    /// Put the modelled counts, or the comparison, into this document, in place of those there; may be
    /// given several times
    #[arg(long, value_name = "FILE", conflicts_with = "measured_only")]
    write: Vec<PathBuf>,
}

fn parse_operation(name: &str) -> Result<Operation, String> {
    Operation::from_name(name).ok_or_else(|| {
        let names = Operation::ALL.map(Operation::name).join(", ");
        format!("there is no such operation; use {names}")
    })
}

fn parse_distribution(name: &str) -> Result<Distribution, String> {
    Distribution::from_name(name).ok_or_else(|| {
        let names = Distribution::ALL.map(Distribution::name).join(", ");
        format!("there is no such distribution; use {names}")
    })
}

/// Runs `lapis lab index`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    if arguments.peers { peers(arguments, output) } else { index(arguments, output) }
}

fn failed(error: ExperimentError) -> Failure {
    match error {
        ExperimentError::WrongAnswers { .. } => Failure::NotThere(error.to_string()),
        _ => Failure::refused(error.to_string()),
    }
}

fn index(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let mut options = Options {
        distributions: arguments.distribution.clone(),
        keys: arguments.keys,
        threads: arguments.threads,
        presized: arguments.presized,
        profile: arguments.profile.clone(),
        measure: !arguments.modelled_only,
        model: !arguments.measured_only,
        seed: arguments.seed,
        ..Options::default()
    };
    if !arguments.index.is_empty() {
        options.indexes.clone_from(&arguments.index);
    }
    if !arguments.operation.is_empty() {
        options.operations.clone_from(&arguments.operation);
    }
    if let Some(repetitions) = arguments.repetitions {
        options.repetitions = repetitions;
    }
    let results = with_progress("operations", |progress| run_index(&options, progress));
    let results = results.map_err(failed)?;
    output.json(&results)?;
    print_index(&results, &arguments.profile, output)?;
    write(arguments, &[(TRAFFIC_SECTION, traffic_table(&results))])?;
    Ok(Verdict::Good)
}

fn print_index(results: &IndexResults, profile: &str, output: &mut Output) -> Result<(), Failure> {
    let mut rows = table([
        "index",
        "operation",
        "keys",
        "Mop/s",
        "p50 ns",
        "p99 ns",
        "Mop/s*",
        "flushes",
        "fences",
        "WPQ",
        "media w",
        "media r",
        "misses",
        "depth",
        "B/key",
    ]);
    for row in &results.rows {
        rows.add_row(index_row(row));
    }
    right_align(&mut rows, 3);
    output.table(&rows)?;
    output.line("Mop/s to p99: measured here, in anonymous memory, the time of this machine.")?;
    output.line(format_args!(
        "Mop/s* to misses: modelled for {profile}, in virtual time and per operation; WPQ in lines, media in units of 64 bytes."
    ))
}

fn index_row(row: &Row) -> Vec<String> {
    let none = || "-".to_owned();
    let mut cells = vec![
        row.index.to_string(),
        row.operation.to_string(),
        format!("{} {}", grouped(row.keys as u64), row.distribution),
    ];
    match &row.measured {
        Some(measured) => cells.extend([
            format!("{:.3}", measured.mops),
            grouped(measured.p50_ns),
            grouped(measured.p99_ns),
        ]),
        None => cells.extend([none(), none(), none()]),
    }
    match &row.modelled {
        Some(counts) => {
            cells.push(counts.mops.map_or_else(none, |mops| format!("{mops:.3}")));
            cells.extend(
                [
                    counts.flushes,
                    counts.fences,
                    counts.wpq_inserts,
                    counts.media_writes,
                    counts.media_reads,
                    counts.llc_misses,
                ]
                .map(|count| format!("{count:.2}")),
            );
        }
        None => cells.extend(std::iter::repeat_with(none).take(7)),
    }
    cells.extend([format!("{:.2}", row.depth), format!("{:.1}", row.bytes_per_key)]);
    cells
}

fn published(mops: Option<f64>) -> String {
    mops.map_or_else(|| "-".to_owned(), |mops| format!("{mops:.2}"))
}

fn peers(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let comparison = with_progress("implementations", |progress| {
        compare_with_peers(arguments.keys, arguments.seed, progress)
    });
    let comparison: PeerComparison = comparison.map_err(failed)?;
    output.json(&comparison)?;
    let mut rows = table([
        "index",
        "published",
        "threads",
        "insert Mop/s",
        "get Mop/s",
        "ours, insert",
        "ours, get",
    ]);
    for row in &comparison.rows {
        rows.add_row([
            row.peer.index.to_string(),
            row.peer.source.to_owned(),
            row.peer.threads.to_string(),
            published(row.peer.insert_mops),
            published(row.peer.get_mops),
            format!("{:.2}", row.insert_mops),
            format!("{:.2}", row.get_mops),
        ]);
    }
    right_align(&mut rows, 2);
    output.table(&rows)?;
    output.line(format_args!(
        "published: {} at {} keys; ours: measured here at {} keys.",
        comparison.note,
        grouped(PEERS_KEYS as u64),
        grouped(comparison.keys as u64)
    ))?;
    output.line(peer_differences())?;
    let sections = [
        (PEERS_SECTION, peers_table(&comparison)),
        (PEERS_IN_SHORT_SECTION, peers_in_short(&comparison)),
    ];
    write(arguments, &sections)?;
    Ok(Verdict::Good)
}

/// Puts into each document that was named those of `sections` that it has.
fn write(arguments: &Arguments, sections: &[(&str, String)]) -> Result<(), Failure> {
    arguments.write.iter().try_for_each(|path| {
        put_those_there(path, sections).map_err(|error| Failure::refused(error.to_string()))
    })
}
