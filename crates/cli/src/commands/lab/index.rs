//! `lapis lab index`: index structures side by side.

use std::path::PathBuf;

use clap::Args;
use lapis_index::IndexKind;
use lapis_lab::index_experiment::{
    Operation, Options, Pages, compare_with_peers, run as run_index,
};
use lapis_lab::keys::Distribution;

use super::frame::{Destinations, Seed, Sides, one_of, or_default};
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::store_arguments::index_kinds;

/// Compare index structures: speed measured here, traffic counted on the modelled machine
#[derive(Debug, Args)]
#[command(
    mut_arg("write", |write| write.conflicts_with("measured_only")),
    after_long_help = "\
Examples:
  lapis lab index
  lapis lab index --index wort,fast-fair --operation insert,get --distribution dense,zipf
  lapis lab index --keys 10000 --operation ycsb-a,ycsb-e --json
  lapis lab index --operation insert --modelled-only --write README.md
  lapis lab index --index p-clht --operation insert --modelled-only \\
      --keys 2000000 --caches-for-keys 64000000
  lapis lab index --measured-only --pmem /mnt/dax
  lapis lab index --measured-only --keys 4000000 --operation load,get \\
      --each-key-once --runs 5 --pages small
  lapis lab index --peers --keys 4000000
  lapis lab index --peers --keys 4000000 --runs 3 --write docs/wort-study.md --write README.md

Measured and modelled are separate columns and never mixed: measured is this machine's time, in
anonymous memory or that of --pmem; modelled are counts per operation and virtual time on the
machine of the profile, the same on every run and every machine; --threads are its logical
workers. Operations that need order are left out for hash tables.")]
pub struct Arguments {
    /// The structures, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = index_kinds())]
    index: Vec<IndexKind>,
    /// The operations: load, insert, get, update, delete, range, ycsb-a to ycsb-f, and get-many and insert-many, which do
    /// what get and insert do by calls of 64 [default: all but these two]
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
    /// Look different keys up, in random order, whatever the distribution asks for [every key, unless
    /// --repetitions says how many]
    #[arg(long)]
    each_key_once: bool,
    /// Measure everything so often, each time on a new index; tell the run with the median throughput,
    /// the least and the most
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
    /// What is measured in ordinary memory lies in: huge pages, where the kernel gives them, or small
    #[arg(long, value_name = "PAGES", default_value = "huge", value_parser = parse_pages)]
    pages: Pages,
    /// Keys of the modelled index, at most
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    modelled_keys: usize,
    /// How often each operation is done on it, at most
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    modelled_repetitions: usize,
    /// Give the modelled machine caches that are to its keys what those of the profile are to so many
    #[arg(long, value_name = "N")]
    caches_for_keys: Option<usize>,
    /// Threads of the measured runs, logical workers of the modelled ones
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: usize,
    /// Measure on persistent memory: a file to make, or a directory for it, which is removed; or a device-DAX
    /// device, which is overwritten [default: anonymous memory]
    #[arg(long, value_name = "PATH")]
    pmem: Option<PathBuf>,
    /// Give hash tables room for all keys at once
    #[arg(long)]
    presized: bool,
    /// Print what published implementations and ours did in turn on another machine, and measure all of ours
    /// here, by one thread and by two, --runs times in turn: the median of each figure, and how far apart they are
    #[arg(long, conflicts_with_all = [
        "index", "operation", "distribution", "repetitions", "each_key_once", "pages", "modelled_keys", "modelled_repetitions",
        "caches_for_keys", "threads", "pmem", "presized", "profile", "modelled_only", "measured_only", "plot",
    ])]
    peers: bool,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    destinations: Destinations,
}

fn parse_operation(name: &str) -> Result<Operation, String> {
    one_of(&Operation::ALL, Operation::name, name)
        .map_err(|names| format!("there is no such operation; {names}"))
}

fn parse_pages(name: &str) -> Result<Pages, String> {
    one_of(&Pages::ALL, Pages::name, name)
        .map_err(|names| format!("there are no such pages; {names}"))
}

fn parse_distribution(name: &str) -> Result<Distribution, String> {
    one_of(&Distribution::ALL, Distribution::name, name)
        .map_err(|names| format!("there is no such distribution; {names}"))
}

/// Runs `lapis lab index`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let (destinations, seed) = (&arguments.destinations, arguments.seed.seed);
    if arguments.peers {
        return destinations.run("implementations", Some(seed), output, |progress| {
            compare_with_peers(arguments.keys, arguments.runs, seed, progress)
        });
    }
    let default = Options::default();
    let options = Options {
        indexes: or_default(&arguments.index, default.indexes),
        own: default.own,
        operations: or_default(&arguments.operation, default.operations),
        distributions: arguments.distribution.clone(),
        keys: arguments.keys,
        repetitions: arguments.repetitions.unwrap_or(match arguments.each_key_once {
            true => arguments.keys,
            false => default.repetitions,
        }),
        each_key_once: arguments.each_key_once,
        runs: arguments.runs,
        pages: arguments.pages,
        threads: arguments.threads,
        memory: arguments.pmem.clone(),
        presized: arguments.presized,
        sides: arguments.sides.wanted(),
        modelled_keys: arguments.modelled_keys,
        modelled_repetitions: arguments.modelled_repetitions,
        caches_for_keys: arguments.caches_for_keys,
        seed,
    };
    destinations.run("operations", Some(seed), output, |progress| run_index(&options, progress))
}
