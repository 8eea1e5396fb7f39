//! `lapis crash --mutants`: whether the checker finds known errors.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lapis_crash::mutants::{
    MutantReport, MutantTrial, PLANNED_WORKERS, Search, WORKERS, catalogue, concurrent_catalogue,
    markdown, try_mutants,
};
use lapis_crash::{Strategy, Structure};
use lapis_lab::document::put_into_file;
use lapis_lab::experiment::table::Table;
use lapis_pmem::Mutant;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// The command whose section of a document the tables are (module [`lapis_lab::document`]).
const COMMAND: &str = "lapis crash --mutants";

/// Arguments of `lapis crash --mutants`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Arguments {
    /// Commit each known error on purpose and see whether it is found
    #[arg(long, group = "tables", conflicts_with_all = ["structure", "ops", "seed", "images", "strategy",
          "cut_in", "every_store", "optimisations", "whole_check_every", "keep", "without", "no_shrink", "html", "persist_points", "at", "workers",
          "record", "performance", "trace"])]
    pub mutants: bool,
    /// Only the mutants of this structure
    #[arg(long = "structure", id = "of", value_name = "STRUCTURE", requires = "mutants",
          value_parser = structures())]
    pub of: Option<Structure>,
    /// Put the tables into this document, in place of those there
    #[arg(long, value_name = "FILE", requires = "tables", conflicts_with = "of")]
    pub write: Option<PathBuf>,
    /// Explore the structure while it commits this known error (docs/mutants.md says what each is; some
    /// show with `--workers` only)
    #[arg(long, value_name = "MUTANT", conflicts_with_all = ["mutants", "all", "persist_points",
          "record", "performance", "trace"], value_parser = names())]
    pub mutant: Option<Mutant>,
}

fn names() -> impl TypedValueParser<Value = Mutant> {
    let all = || {
        let entries = catalogue().into_iter().chain(concurrent_catalogue());
        entries.map(|(_, entry)| entry.mutant)
    };
    PossibleValuesParser::new(all().map(|mutant| mutant.0)).try_map(move |name| {
        all().find(|mutant| mutant.0 == name).ok_or("there is no mutant of that name")
    })
}

fn structures() -> impl TypedValueParser<Value = Structure> {
    PossibleValuesParser::new(Structure::all().map(Structure::name))
        .try_map(|name| name.parse::<Structure>())
}

/// Runs `lapis crash --mutants`.
pub fn run(
    arguments: &Arguments,
    threads: Option<u16>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let mut trial = MutantTrial { stop: stop::on_signals(), ..MutantTrial::default() };
    if let Some(structure) = arguments.of {
        trial.structures = vec![structure];
    }
    if let Some(threads) = threads {
        trial.threads = usize::from(threads);
    }
    let bar = progress::spinner("explorations");
    let report = try_mutants(&trial, &|done| bar.set_position(done));
    bar.finish_and_clear();
    output.json(&report)?;
    if let Some(path) = arguments.write.as_ref().filter(|_| !report.stopped) {
        put_into_file(path, COMMAND, &markdown(&report))
            .map_err(|error| Failure::refused(error.to_string()))?;
    }
    print(&report, output)?;
    if report.stopped {
        output.line("stopped early: what was not tried to its end is left out")?;
        return Ok(super::verdict(report.unmutated_violations as usize, true));
    }
    Ok(if report.is_good() { Verdict::Good } else { Verdict::Bad })
}

fn print(report: &MutantReport, output: &mut Output) -> Result<(), Failure> {
    let mut rows = Table::new(3, "mutant | strategy | outcome | images | seconds");
    for row in &report.mutants {
        rows.push([
            row.name.to_owned(),
            row.strategy.to_string(),
            if row.killed { "killed" } else { "SURVIVED" }.to_owned(),
            grouped(row.images),
            format!("{:.2}", row.seconds),
        ]);
    }
    output.table(&rows)?;
    let mut rows = Table::new(2, "without mutants | strategy | violations | images | seconds");
    for row in &report.unmutated {
        rows.push([
            row.structure.to_owned(),
            row.strategy.to_string(),
            row.violations.len().to_string(),
            grouped(row.images),
            format!("{:.2}", row.seconds),
        ]);
    }
    output.table(&rows)?;
    for row in &report.unmutated {
        for violation in &row.violations {
            output.line(format_args!("! {} by {}: {violation}", row.structure, row.strategy))?;
        }
    }
    let strategies = Strategy::ALL.map(Search::Strategy).into_iter();
    for strategy in strategies.chain([PLANNED_WORKERS, WORKERS].map(Search::Workers)) {
        let of_it = report.mutants.iter().filter(|row| row.strategy == strategy);
        let (killed, all) = (of_it.clone().filter(|row| row.killed).count(), of_it.count());
        if all == 0 {
            continue;
        }
        output.line(format_args!("{strategy}: {killed} of {all} mutants killed"))?;
    }
    let survivors = report.survivors();
    if !survivors.is_empty() {
        output.line(format_args!("killed by no strategy: {}", survivors.join(", ")))?;
    }
    output.line(format_args!("{} violations without mutants", report.unmutated_violations))
}
