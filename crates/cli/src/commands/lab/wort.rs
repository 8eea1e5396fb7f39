//! `lapis lab wort`: the experiments of the WORT study.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lapis_index::IndexKind;
use lapis_lab::keys::Distribution;
use lapis_lab::wort_study::{
    Contestant, DISTRIBUTIONS, Experiment, Latency, Options, PROFILE, Plan, StringSource, depths,
    run as run_study,
};

use super::frame::{Destinations, Seed, Sides, one_of, or_default};
use crate::failure::{Failure, Verdict};
use crate::output::Output;

/// Repeat the WORT study: radix trees and B+-trees for persistent memory side by side
#[derive(Debug, Args)]
#[command(
    mut_arg("profile", |profile| profile.default_value(PROFILE)),
    after_long_help = "\
Examples:
  lapis lab wort
  lapis lab wort --index wort,fast-fair --distribution dense --keys 1M
  lapis lab wort --modelled-only --modelled-keys 16M --modelled-operations 1M
  lapis lab wort --modelled-only --modelled-keys 512Ki --modelled-operations 512Ki
  lapis lab wort --experiment recovery --keys 16M --threads 1,2
  lapis lab wort --experiment strings --string-file names.tsv
  lapis lab wort --depths --keys 128Mi
  lapis lab wort --depths --keys 128Mi --index fptree --distribution sparse
  lapis lab wort --write docs/wort-study.md --plot wort.html

Inserts and searches, their traffic, range queries, recovery and byte-string keys, of the
structures of Lee et al., WORT (FAST 2017), Figs. 7 to 10, Table 1 and section 5.4. Measured and
modelled are separate tables and never mixed: measured is this machine's time, in anonymous
memory, with real flushes; modelled are counts, and virtual time by latency of persistent memory,
on the machine of the profile (wort-study is the paper's: 15 MB of last-level cache, every clflush
counted and delayed), the same on every run and every machine. M is a million, Mi 1,048,576. Keys
that do not fit into the memory that is free are refused.

With --depths one structure is built at a time and given back before the next is begun; what each
needs is said beforehand, and one that does not fit is left out. With --write its rows take their
place among those of earlier runs. A model of another size than the default one is written into
sections that name its size."
)]
pub struct Arguments {
    /// The structures, separated by commas [default: all of the study]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = contestants())]
    index: Vec<IndexKind>,
    /// Where keys lie: dense, sparse, clustered [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_distribution)]
    distribution: Vec<Distribution>,
    /// What to run: operations, ranges, recovery, strings, radix-depths [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_experiment)]
    experiment: Vec<Experiment>,
    /// Keys of a measured index, up to 128Mi
    #[arg(long, value_name = "N", default_value = "4M", value_parser = parse_number)]
    keys: usize,
    /// Keys of a modelled index, up to 128Mi
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_number)]
    modelled_keys: usize,
    /// Byte-string keys, generated: web and mail addresses, so many of each
    #[arg(long, value_name = "N", default_value = "200k", value_parser = parse_number)]
    string_keys: usize,
    /// Take byte-string keys from this file instead: the first field of each line, up to a tab
    #[arg(long, value_name = "FILE", conflicts_with = "string_keys")]
    string_file: Option<PathBuf>,
    /// Inserts that are counted: the last ones, at most the whole load; a quarter as many searches
    #[arg(long, value_name = "N", default_value = "500k", value_parser = parse_number)]
    modelled_operations: usize,
    /// Latencies of persistent memory that are modelled, read/write in nanoseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = Latency::STUDY)]
    latency: Vec<Latency>,
    /// Threads with which indexes are opened after a crash
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Only build each structure and say how deep it is
    #[arg(long, conflicts_with_all = ["experiment", "modelled_only", "plot"])]
    depths: bool,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    sides: Sides,
    #[command(flatten)]
    destinations: Destinations,
}

fn contestants() -> impl TypedValueParser<Value = IndexKind> {
    PossibleValuesParser::new(Contestant::KINDS.map(IndexKind::name))
        .map(|name| IndexKind::from_name(&name).unwrap_or(IndexKind::Wort))
}

fn parse_distribution(name: &str) -> Result<Distribution, String> {
    one_of(&DISTRIBUTIONS, Distribution::name, name)
        .map_err(|names| format!("the study has no such keys; {names}"))
}

fn parse_experiment(name: &str) -> Result<Experiment, String> {
    one_of(&Experiment::ALL, Experiment::name, name)
        .map_err(|names| format!("there is no such experiment; {names}"))
}

/// A whole number, in thousands (k), millions (M), 1,024 (Ki) or 1,048,576 (Mi) if it says so.
fn parse_number(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, usize); 4] =
        [("Ki", 1 << 10), ("Mi", 1 << 20), ("k", 1000), ("M", 1_000_000)];
    let unit = UNITS.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, *of)));
    let (digits, of) = unit.unwrap_or((text, 1));
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(of));
    number.ok_or_else(|| "a number is written as 4000000, 500k, 4M or 128Mi".to_owned())
}

/// Runs `lapis lab wort`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let default = Options::default();
    let options = Options {
        indexes: or_default(&arguments.index, default.indexes),
        distributions: or_default(&arguments.distribution, default.distributions),
        experiments: or_default(&arguments.experiment, default.experiments),
        keys: arguments.keys,
        modelled_keys: arguments.modelled_keys,
        strings: match &arguments.string_file {
            Some(path) => StringSource::File(path.clone()),
            None => StringSource::Generated(arguments.string_keys),
        },
        modelled_operations: arguments.modelled_operations,
        latencies: arguments.latency.clone(),
        radix_keys: default.radix_keys,
        sides: arguments.sides.wanted(),
        recovery_threads: arguments.threads.clone(),
        seed: arguments.seed.seed,
    };
    let (destinations, seed) = (&arguments.destinations, Some(options.seed));
    if arguments.depths {
        let announce = |plan: &Plan| eprintln!("{plan}");
        return destinations
            .run("structures", seed, output, |progress| depths(&options, &announce, progress));
    }
    destinations.run("sessions", seed, output, |progress| run_study(&options, progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_keys_are_read_with_their_units() {
        let read = ["4000000", "500k", "4M", "128Mi", "2Ki"].map(parse_number);
        let expected = [4_000_000, 500_000, 4_000_000, 134_217_728, 2048].map(Ok);
        assert_eq!(read, expected);
        for wrong in ["", "M", "4G", "-1", "4.5M", "99999999999999999999", "9999999999999999999M"] {
            assert!(parse_number(wrong).is_err(), "{wrong}");
        }
    }
}
