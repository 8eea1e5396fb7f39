//! `lapis crash`: explores the states that a power cut may leave of a structure.

mod all;
mod coverage;
mod mutants;
mod performance;
mod rates;
mod trace;
mod workers;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use indicatif::ProgressBar;
use lapis_crash::{
    CrashError, ExploreOptions, ExploreReport, PersistPoint, Replay, Shrunk, Strategy, Structure,
};
use lapis_crash::{
    explore_further, explore_structure, persist_point_called, points_of_sources,
    structure_persist_points,
};
use lapis_lab::experiment::table::Table;
use lapis_pmem::Optimisations;

use crate::commands::lab::frame::{Csv, check_writable};
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// Seeds that a flush or fence is tried with before it counts as unnecessary.
const PERSIST_POINT_SEEDS: u64 = 3;

/// Operations at most: more would fill the memory with their states.
const MOST_OPERATIONS: i64 = 1_000_000;

/// Images of a structure at most, and at least, unless it is said how many: some have a thousand times as many
/// in a run as others.
const MOST_IMAGES: u64 = 150_000;
const LEAST_IMAGES: u64 = 15_000;

/// Keys beforehand at most.
const MOST_KEYS: u64 = 50_000;

/// Most characters of what found out a flush or fence, in the table.
const COLUMN_CHARACTERS: usize = 100;

/// Cut the power at every moment of a structure's work and check what is left
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis crash wort
  lapis crash store --ops 1000 --images 10000 --json
  lapis crash fast-fair --persist-points
  lapis crash p-clht --workers 3 --schedules 1000
  lapis crash p-clht --workers 3 --mutant p-clht/unflushed-remove --html p-clht.html
  lapis crash p-clht --ops 40 --every-store --strategy exhaustive
  lapis crash wort --without 'crates/index/src/wort/change.rs:LINE:COLUMN flush' --html wort.html
  lapis crash --all --budget 60s
  lapis crash --mutants --structure wort
  lapis crash --rates --row WORT
  lapis crash --coverage
  lapis crash wort --performance
  lapis crash --trace ring.trace --recover './ring check'
  lapis crash wort:u64 --record wort.trace

Operations run once on the modelled machine. At every moment the power is cut; all states that the
caches and queues may then leave are recovered from (a seeded sample where there are too many),
and each is checked: acknowledged operations are there, the one in flight is whole or not at all,
the invariants hold, nothing leaks, a second recovery changes nothing, and it goes on working,
every second one opened once more meanwhile. Unless one run is asked for, some runs begin with a
power cut (--cut-in). The same seed tries the same images on any machine. A violation ends with
exit code 1 and prints the command that shows it again. SIGINT (Ctrl-C) and SIGTERM stop a run
early: it prints what it has found, and says so; the exit code is 1 if that is a violation, else
130 or 143. A second one ends it at once.

--persist-points switches off each flush and each fence of the structure in turn; the checker must
then find a violation, else that flush or fence is not needed (exit code 1).

--all explores every structure, each for its share of the time, with one seed after the other.

--mutants makes the structures commit known errors of published implementations, one at a time, and
shows after how many images each strategy finds it out; the structures as they are are explored at
the same budget and must be silent. Exit code 1 if a mutant survives every strategy.

--rates measures how many images per second of one core get their verdict, and how many are run, for
each structure (docs/crash-checker.md has the table).

--coverage explores every structure with few images and lists what of its flushes, fences and
events is never passed.

--trace checks what another program recorded, in C or C++ with the macros of include/lapis_trace.h:
that operations are durable when they end, that what the program asserts holds, and, with --recover,
that the program's own check takes the images that a power cut may leave (1,000 unless --images says
otherwise). The first violation of each is told step by step, and drawn by --html FILE.
docs/bring-your-own.md shows how. --performance lists flushes and fences that were wasted; they are
no failure.

--workers runs short histories of several workers, whose events a scheduler interleaves and whose
stores wait in store buffers; after every crash there must be an order of the completed calls, and
of some of those in flight, that explains every answer and the recovered contents. Indexes are
read key by key, by many keys at once, and by scans. One history in four begins with what a power
cut has left, but not with --deviations. A violation is shrunk to few calls and a schedule with
few deviations, as far as there is one.")]
pub struct Arguments {
    /// A structure with all its runs, or one of them as NAME:RUN; an unknown RUN lists them
    #[arg(value_name = "STRUCTURE", value_parser = StructureNames,
          required_unless_present_any = ["mutants", "all", "trace", "rates", "coverage"])]
    structure: Option<String>,
    #[command(flatten)]
    mutants: mutants::Arguments,
    #[command(flatten)]
    rates: rates::Arguments,
    #[command(flatten)]
    coverage: coverage::Arguments,
    #[command(flatten)]
    all: all::Arguments,
    /// Operations to run; with --workers, calls of one history [default: 300, or 12]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=MOST_OPERATIONS))]
    ops: Option<u32>,
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = ExploreOptions::default().seed)]
    seed: u64,
    /// Run one seed, and spread about so many images over all crash points, of which one in so many is tried then;
    /// second crashes come besides. 0: no limit [default: 15000 to 150000 of a structure, with further
    /// seeds for what the first has not passed]
    #[arg(long, value_name = "N")]
    images: Option<u64>,
    /// Insert so many keys into an index first, and cut the power in what comes after
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["workers", "persist_points", "all",
          "performance", "record", "trace", "mutants", "rates"],
          value_parser = clap::value_parser!(u64).range(1..=MOST_KEYS))]
    filled: Option<u64>,
    /// Cut the power in this operation first, at a moment and with an image that the seed determines, and explore the
    /// operations after it, which begin with what that left
    #[arg(long, value_name = "OPERATION", conflicts_with_all = ["workers", "persist_points"],
          value_parser = clap::value_parser!(u32).range(1..))]
    cut_in: Option<u32>,
    /// How images are chosen: `pruned` to those that recovery can tell apart by what it reads,
    /// `exhaustive` (up to 4096 at each crash point), or `sampled`
    #[arg(long, value_name = "STRATEGY", default_value = Strategy::default().name(),
          value_parser = strategies())]
    strategy: Strategy,
    /// Cut the power after every store and every flush, not only where something becomes durable
    #[arg(long)]
    every_store: bool,
    /// An index with these of the amplification study's optimisations (docs/amplification.md): none, all, or
    /// some of removal-of-bloat, flush-coalescing, early-eviction and xpline-units, joined by +
    #[arg(long, value_name = "SET", default_value_t = Optimisations::AS_BUILT, conflicts_with = "workers")]
    optimisations: Optimisations,
    /// Check one image in so many whole, and the first of each crash point; of the others only that
    /// they open and hold what they should. Faster, and weaker: what shows only in the invariants,
    /// in allocated and unreachable space, at a second opening or in operations after it is then
    /// missed where the image is not among those. docs/crash-checker.md has the rates
    #[arg(long, value_name = "N", default_value_t = ExploreOptions::default().whole_check_every,
          value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "workers")]
    whole_check_every: u64,
    /// Run only these of the operations (with --workers, of the calls), by number from 1 on, separated
    /// by commas; `-` for none
    #[arg(long, value_name = "NUMBERS", value_parser = parse_numbers)]
    keep: Option<Numbers>,
    /// Switch off this flush or fence, named as `--persist-points` names it; a wrong LINE lists those of the file
    #[arg(long, value_name = "POINT", conflicts_with = "persist_points")]
    without: Option<String>,
    /// Do not look for the shortest case of a violation
    #[arg(long)]
    no_shrink: bool,
    /// Write the timeline of the first violation to this file, as a page for a browser
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_shrink", "persist_points"])]
    html: Option<PathBuf>,
    /// Threads that recover and check; with --recover, that many checks at a time [default: all processors; one, for
    /// a CMD that is run for each image]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Switch off each flush and fence in turn
    #[arg(long, conflicts_with_all = ["at", "image", "images"])]
    persist_points: bool,
    /// Only the crash after this many events (from a violation's replay command)
    #[arg(long, value_name = "EVENTS", requires = "image")]
    at: Option<usize>,
    /// Only this image: the choice for each uncertain line, separated by commas; or `killed`: the
    /// process dies there and the machine runs on
    #[arg(long, value_name = "CHOICES", requires = "at", value_parser = parse_image)]
    image: Option<Image>,
    #[command(flatten)]
    csv: Csv,
    #[command(flatten)]
    recorded: trace::TraceArguments,
    #[command(flatten)]
    several: workers::Workers,
}

fn strategies() -> impl TypedValueParser<Value = Strategy> {
    clap::builder::PossibleValuesParser::new(Strategy::ALL.map(Strategy::name))
        .try_map(|name| Strategy::from_str(&name))
}

/// Numbers of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers(Vec<usize>);

fn parse_numbers(text: &str) -> Result<Numbers, String> {
    list(text).map(Numbers)
}

/// The choices of an image; none if the process is killed and the machine runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image(Option<Vec<u32>>);

fn parse_image(text: &str) -> Result<Image, String> {
    if text == "killed" {
        return Ok(Image(None));
    }
    list(text).map(|choices| Image(Some(choices)))
}

/// Numbers between commas, or `-` for none.
fn list<N: FromStr>(text: &str) -> Result<Vec<N>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "-");
    parts.map(|part| part.parse().map_err(|_| format!("`{part}` is not a number"))).collect()
}

/// Takes the name of a structure, with or without the kind of its keys.
#[derive(Clone)]
struct StructureNames;

impl TypedValueParser for StructureNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let name = value.to_string_lossy().into_owned();
        let names: Vec<_> = match Structure::from_str(&name) {
            Ok(_) => return Ok(name),
            Err(CrashError::UnknownSubject { structure, known, .. }) => {
                let histories = Structure::from_str(structure).map(Structure::histories);
                let histories = histories.unwrap_or_default();
                std::iter::once(structure).chain(known).chain(histories).collect()
            }
            Err(_) => Structure::all().map(Structure::name).collect(),
        };
        clap::builder::PossibleValuesParser::new(names).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Structure::all().map(|s| PossibleValue::new(s.name()))))
    }
}

/// Runs `lapis crash`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    refuse_what_would_be_ignored(arguments)?;
    // Not after minutes of work.
    arguments.csv.check()?;
    arguments.html.as_deref().map_or(Ok(()), check_writable)?;
    output.rows_to(&arguments.csv);
    if let Some(file) = &arguments.recorded.trace {
        let image = arguments.image.clone().map(|Image(choices)| choices.unwrap_or_default());
        let request = trace::Request {
            images: arguments.images,
            threads: arguments.threads,
            seed: arguments.seed,
            replay: arguments.at.zip(image),
            shrink: !arguments.no_shrink,
            html: arguments.html.as_deref(),
        };
        return trace::run(file, &arguments.recorded, request, output);
    }
    if arguments.mutants.mutants {
        return mutants::run(&arguments.mutants, arguments.threads, output);
    }
    if arguments.rates.rates {
        return rates::run(&arguments.rates, arguments.mutants.write.as_deref(), output);
    }
    if arguments.coverage.coverage {
        return coverage::run(arguments.threads, arguments.mutants.write.as_deref(), output);
    }
    let Some(name) = arguments.structure.as_deref().filter(|_| !arguments.all.all) else {
        return all::run(&arguments.all, arguments.seed, arguments.threads, output);
    };
    let structure = Structure::from_str(name)?;
    refuse_what_is_of_others(arguments, structure)?;
    if let Some(count) = arguments.several.workers {
        let common = workers::Common {
            structure,
            subject: name,
            ops: arguments.ops.map(|ops| ops as usize),
            seed: arguments.seed,
            images: arguments.images.unwrap_or(0),
            threads: arguments.threads,
            keep: arguments.keep.as_ref().map(|numbers| numbers.0.as_slice()),
            shrink: !arguments.no_shrink,
            html: arguments.html.as_deref(),
            mutant: arguments.mutants.mutant,
            without: arguments.without.as_deref(),
            position: arguments.at,
            image: arguments.image.as_ref().map(|Image(image)| image.clone()),
        };
        return workers::run(count, &arguments.several, common, output);
    }
    let ops = arguments.ops.map_or(ExploreOptions::default().ops, |ops| ops as usize);
    if arguments.recorded.performance {
        return performance::run(structure, name, ops, arguments.seed, output);
    }
    if let Some(file) = &arguments.recorded.record {
        return trace::record(structure, name, (ops, arguments.seed), file, output);
    }
    let mut options = ExploreOptions {
        ops,
        seed: arguments.seed,
        spread_images: arguments.images.unwrap_or(0),
        strategy: arguments.strategy,
        every_store: arguments.every_store,
        optimisations: arguments.optimisations,
        whole_check_every: arguments.whole_check_every,
        mutant: arguments.mutants.mutant,
        keep: arguments.keep.clone().map(|numbers| numbers.0),
        filled: arguments.filled.unwrap_or(0),
        cut_in: arguments.cut_in.map_or(0, |number| number as usize),
        long_runs: !arguments.persist_points,
        stop: stop::on_signals(),
        ..ExploreOptions::default()
    };
    if let Some(threads) = arguments.threads {
        options.threads = usize::from(threads);
    }
    if let (Some(position), Some(Image(image))) = (arguments.at, &arguments.image) {
        options.replay = Some(Replay { position, image: image.clone() });
    }
    options.shrink = !arguments.no_shrink;
    if let Some(name) = &arguments.without {
        options.suppress = Some(persist_point(structure, arguments, &options, name)?);
    }
    if arguments.persist_points {
        let seeds: Vec<_> =
            (0..PERSIST_POINT_SEEDS).map(|n| arguments.seed.wrapping_add(n)).collect();
        let started = Instant::now();
        let bar = progress::spinner("flushes and fences switched off");
        let rows = structure_persist_points(structure, Some(name), &options, &seeds, &|count| {
            bar.set_position(count);
        })?;
        bar.finish_and_clear();
        let stopped = options.stop.is_raised();
        if rows.is_empty() && !stopped {
            return Err(nothing_explored());
        }
        let mut never = points_of_sources(structure, Some(name), &options)?;
        let row_of = |point: &PersistPoint| rows.iter().any(|row| row.name == point.to_string());
        never.retain(|point| !row_of(point));
        let report = ExploreReport {
            structure: structure.name().to_owned(),
            seed: arguments.seed,
            strategy: arguments.strategy,
            ops,
            seconds: started.elapsed().as_secs_f64(),
            // What is left out of a run that was stopped was not tried to its end, or was never passed.
            never_passed: if stopped { Vec::new() } else { never },
            images: rows.iter().map(|row| row.images).sum(),
            persist_points: rows,
            stopped,
            ..ExploreReport::default()
        };
        output.json(&report)?;
        return print_persist_points(&report, output);
    }
    let bar: ProgressBar = progress::spinner("images");
    let progress = |images| bar.set_position(images);
    let report = if is_asked_for_exactly(arguments) {
        explore_structure(structure, Some(name), &options, &progress)?
    } else {
        let subjects = structure.subjects().len() as u64;
        options.spread_images = MOST_IMAGES / subjects.max(1);
        explore_further(structure, Some(name), &options, LEAST_IMAGES, &progress)?
    };
    bar.finish_and_clear();
    if report.images == 0 && report.violations.is_empty() {
        return Err(nothing_explored());
    }
    output.json(&report)?;
    let verdict = print_exploration(&report, options.replay.is_some(), output)?;
    if let Some(path) = &arguments.html {
        let mut shrunk = report.violations.iter().filter_map(|found| found.shrunk.as_ref());
        write_page(path, shrunk.next(), output)?;
    }
    Ok(verdict)
}

/// Whether this run and no other is meant.
fn is_asked_for_exactly(arguments: &Arguments) -> bool {
    arguments.images.is_some()
        || arguments.keep.is_some()
        || arguments.without.is_some()
        || arguments.at.is_some()
        || arguments.cut_in.is_some()
        || arguments.every_store
}

/// What is said instead of "no violation" where nothing was tried.
fn nothing_explored() -> Failure {
    Failure::refused("nothing was explored: with these options there is no power cut to try")
}

/// The grammar cannot say all of it: an option that requires another is let pass where something
/// that excludes the other is given too.
fn refuse_what_would_be_ignored(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { recorded, several, mutants, all, rates, .. } = arguments;
    let (trace, workers) = (recorded.trace.is_some(), several.workers.is_some());
    let options = [
        ("--budget", all.budget.is_some(), "--all", all.all),
        ("--structure", mutants.of.is_some(), "--mutants", mutants.mutants),
        ("--row", rates.row.is_some(), "--rates", rates.rates),
        ("--recover", recorded.recover.is_some(), "--trace FILE", trace),
        ("--durable-on-end", recorded.durable_on_end.is_some(), "--trace FILE", trace),
        ("--schedules", several.schedules.is_some(), "--workers N", workers),
        ("--deviations", several.deviations.is_some(), "--workers N", workers),
        ("--schedule", several.schedule.is_some(), "--workers N", workers),
        ("--keep-before", several.keep_before.is_some(), "--workers N", workers),
    ];
    match options.into_iter().find(|(_, given, _, asked)| *given && !*asked) {
        Some((option, _, other, _)) => {
            Err(Failure::refused(format!("{option} means something with {other} only; add that")))
        }
        None => Ok(()),
    }
}

/// What no run of the structure would take notice of.
fn refuse_what_is_of_others(arguments: &Arguments, structure: Structure) -> Result<(), Failure> {
    let optimised = arguments.optimisations != ExploreOptions::default().optimisations;
    let options = [("--filled", arguments.filled.is_some()), ("--optimisations", optimised)];
    let is_index = matches!(structure, Structure::Index(_));
    if let Some((option, _)) = options.into_iter().find(|(_, given)| *given && !is_index) {
        return Err(Failure::refused(format!("{option} is of indexes, and {structure} is none")));
    }
    let Some(mutant) = arguments.mutants.mutant else { return Ok(()) };
    let has = |of: &Structure| of.mutants().entries.iter().any(|entry| entry.mutant == mutant);
    match Structure::all().find(has) {
        Some(owner) if !structure.passes_code_of(owner) => Err(Failure::refused(format!(
            "{} is an error of {owner}, which {structure} cannot commit; explore {owner}, or choose one of \
             {structure}",
            mutant.0
        ))),
        _ => Ok(()),
    }
}

/// The flush or fence of that name.
fn persist_point(
    structure: Structure,
    arguments: &Arguments,
    options: &ExploreOptions,
    name: &str,
) -> Result<PersistPoint, Failure> {
    let only = arguments.structure.as_deref();
    if let Some(point) = persist_point_called(structure, only, options, name)? {
        return Ok(point);
    }
    let file_of = |name: &str| name.split(':').next().map(str::to_owned);
    let known = points_of_sources(structure, only, options)?;
    let names = known.iter().map(ToString::to_string);
    let names: Vec<_> = names.filter(|it| file_of(it) == file_of(name)).collect();
    Err(Failure::refused(match names.is_empty() {
        true => format!(
            "{structure} has no flush or fence called `{name}`; `lapis crash {structure} \
             --persist-points` lists them"
        ),
        false => format!(
            "{structure} has no flush or fence called `{name}`; there are {}",
            names.join(", ")
        ),
    }))
}

/// Writes the page of the first violation that was shrunk.
fn write_page(path: &Path, shrunk: Option<&Shrunk>, output: &mut Output) -> Result<(), Failure> {
    let Some(shrunk) = shrunk else {
        return output.line("no timeline to write: there is no violation");
    };
    std::fs::write(path, shrunk.page()).map_err(|error| Failure::file("write", path, &error))
}

/// What was found, in the only case that was `replayed` or in many.
fn print_exploration(
    report: &ExploreReport,
    replayed: bool,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    output.line(format_args!(
        "{}: {} operations from seed {}, {} crash points{} ({} of them with every image), {} images \
         ({} by proof, {} of a second crash), {} distinct states{}, {:.1} s, {} images/s",
        report.structure,
        grouped(report.ops as u64),
        report.seed,
        grouped(report.crash_points),
        match report.one_crash_point_in {
            0 | 1 => String::new(),
            stride => format!(", one in {}", grouped(stride)),
        },
        grouped(report.exhaustive_points),
        grouped(report.images),
        grouped(report.images_by_proof),
        grouped(report.images_in_recovery),
        grouped(report.distinct_states),
        match report.further_runs {
            0 => String::new(),
            runs => format!(", {} further runs", grouped(runs)),
        },
        report.seconds,
        grouped(report.images_per_s as u64)
    ))?;
    coverage::print(report, output)?;
    for violation in &report.violations {
        // The operation is a number and, for those who read the source, its contents: see --json.
        let number = violation.operation.as_deref().and_then(|name| name.split(':').next());
        output.line(format_args!(
            "! {}, {}, after {} events: {}\n  again: {}",
            violation.subject,
            number.map_or_else(|| "between operations".into(), |n| format!("in operation {n}")),
            grouped(violation.position as u64),
            violation.what,
            violation.replay
        ))?;
    }
    let violations = report.violations.iter().map(|found| found.shrunk.as_ref());
    let none = match replayed {
        true => "this case is survived".to_owned(),
        false => coverage::nothing_found(report),
    };
    conclude(violations, &none, report.stopped, output)
}

/// The violations step by step, as far as they were shrunk, and the last line: how many there are, or what
/// it means that there is none; and above it, if so, that the run ended early.
fn conclude<'r>(
    violations: impl ExactSizeIterator<Item = Option<&'r Shrunk>>,
    none: &str,
    stopped: bool,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let count = violations.len();
    violations.flatten().try_for_each(|shrunk| output.line(shrunk))?;
    if stopped {
        output.line("stopped early: this is what was found until then")?;
    }
    match count {
        0 => output.line(none)?,
        _ => output.line(format_args!("{count} violations"))?,
    }
    Ok(verdict(count, stopped))
}

/// How a run ends: a violation is one, however short the run was.
fn verdict(violations: usize, stopped: bool) -> Verdict {
    match violations {
        0 if stopped => Verdict::Stopped,
        0 => Verdict::Good,
        _ => Verdict::Bad,
    }
}

/// What fits a column; `--json` has all of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(COLUMN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn print_persist_points(report: &ExploreReport, output: &mut Output) -> Result<Verdict, Failure> {
    let mut rows = Table::new(3, "flush or fence | found out | by | images");
    for row in &report.persist_points {
        rows.push([
            row.name.clone(),
            if row.killed { "yes" } else { "NO" }.to_owned(),
            row.by.as_deref().map(shortened).unwrap_or_default(),
            grouped(row.images),
        ]);
    }
    output.table(&rows)?;
    let survivors = report.persist_points.iter().filter(|row| !row.killed).count();
    output.line(format_args!(
        "{}: {} of {} flushes and fences shown to be necessary",
        report.structure,
        report.persist_points.len() - survivors,
        report.persist_points.len() + report.never_passed.len()
    ))?;
    for point in &report.never_passed {
        output.line(format_args!("never passed, so not tried: {point}"))?;
    }
    if report.stopped {
        output.line("stopped early: what was not tried to its end is left out")?;
        return Ok(Verdict::Stopped);
    }
    Ok(verdict(survivors, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shortened_between_characters() {
        assert_eq!(shortened("lost: 1 → 2"), "lost: 1 → 2");
        let long = shortened(&"→".repeat(COLUMN_CHARACTERS + 1));
        assert_eq!(long, format!("{}…", "→".repeat(COLUMN_CHARACTERS)));
    }

    #[test]
    fn images_are_numbers_between_commas() {
        assert_eq!(parse_image("1,0, 2"), Ok(Image(Some(vec![1, 0, 2]))));
        assert_eq!(parse_image("-"), Ok(Image(Some(vec![]))));
        assert_eq!(parse_image("killed"), Ok(Image(None)));
        assert_eq!(parse_image("1,x"), Err("`x` is not a number".into()));
    }
}
