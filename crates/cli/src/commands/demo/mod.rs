//! `lapis demo`: the guided run. Real records are loaded, more than DRAM has room for, a process whose threads
//! run transactions is killed again and again, nothing acknowledged may be missing; then the same operations are taken to the modelled
//! machine, where the power is cut instead, and where what they write is counted.

mod kills;
mod ledger;
mod modelled;
mod operations;
mod records;
mod summary;
mod worker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use lapis::{Config, Durability, Store};
use lapis_crash::StopFlag;
use lapis_engine::Placement;
use tempfile::TempDir;

use self::kills::Plan;
use self::ledger::{Ledger, Verification};
use self::operations::{Keys, SplitMix};
use self::records::Records;
use self::summary::Report;
use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped, human_bytes};
use crate::{progress, stop};

pub use self::worker::{Arguments as WorkerArguments, run as run_worker};

/// The demo's tables: what the records are, and how long. Each transaction changes both.
pub const TABLES: [&str; 2] = ["records", "lengths"];

/// DRAM for pages: less than the records take.
const CACHE_BYTES: usize = 16 << 20;

/// Records at most: the demo has all of them in memory, several times, to compare them.
const MOST_RECORDS: u64 = 10_000_000;

/// Records per transaction while loading.
const LOAD_BATCH: usize = 1000;

/// The kill comes between these two after the beginning of the work.
const EARLIEST_KILL_MS: u64 = 200;
const LATEST_KILL_MS: u64 = 2500;

/// Show the main job in about a minute: load, kill, recover, cut the power, count
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  lapis demo
  lapis demo --json
  lapis demo --keep --dir .        leave the store for a look at it

The records are source lines of the crates that lapis was built from, found in cargo's registry
directory; where that is missing, other text of this machine. The store lies in a temporary
directory, which is removed at the end. Exit code 1 if an acknowledged write was lost or the crash
checker found a state that Lapis does not survive. SIGINT (Ctrl-C) and SIGTERM end it early, with
exit code 130 or 143 if nothing was wrong until then; the store is removed then, too.")]
pub struct Arguments {
    /// Records to load
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=MOST_RECORDS))]
    records: u64,
    /// How often the process that writes is killed
    #[arg(long, value_name = "N", default_value_t = 5)]
    kills: u32,
    /// Threads of the process that writes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=128))]
    threads: u8,
    /// Images of the modelled machine to recover from; second crashes, in recovery, come besides
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    images: u64,
    /// What the random numbers start from
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Where to make the store's directory [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the store instead of removing it at the end
    #[arg(long)]
    keep: bool,
}

/// Runs `lapis demo`.
pub fn run(arguments: &Arguments, output: &mut Output) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let stop = stop::on_signals();
    let directory = make_directory(arguments.dir.as_deref())?;
    let mut report = Report::new(arguments.seed);
    let shown = show(arguments, directory.path(), stop, &mut report, output);
    report.stopped = stop.is_raised();
    match shown {
        // The signal may have ended the other process, too.
        Err(Failure::Refused(_)) if report.stopped => {}
        shown => shown?,
    }
    report.seconds = started.elapsed().as_secs_f64();
    if arguments.keep {
        report.kept = Some(directory.keep().join("store").display().to_string());
    }
    output.json(&report)?;
    if report.stopped {
        output.line("stopped early: what would have come next is left out")?;
    } else {
        summary::print(&report, output)?;
    }
    Ok(match report.is_good() {
        true if report.stopped => Verdict::Stopped,
        true => Verdict::Good,
        false => Verdict::Bad,
    })
}

/// Shows all of it, or as much as there is time for before it is stopped.
fn show(
    arguments: &Arguments,
    directory: &Path,
    stop: StopFlag,
    report: &mut Report,
    output: &mut Output,
) -> Result<(), Failure> {
    let seed = report.seed;
    let store_path = directory.join("store");
    output.announce(format_args!("1  a store in {}", store_path.display()))?;

    let records = collect(arguments, output)?;
    report.sources = records.sources;
    let loaded = records.entries.len();
    report.records = loaded as u64;
    let keys = Keys::of(records.entries);
    let load_began = Instant::now();
    let evictions = load(&store_path, &keys, loaded, stop)?;
    if stop.is_raised() {
        return Ok(());
    }
    report.load_seconds = load_began.elapsed().as_secs_f64();
    output.announce(format_args!(
        "   loaded in {:.2} s, {} records/s, {LOAD_BATCH} to a transaction",
        report.load_seconds,
        grouped((loaded as f64 / report.load_seconds) as u64)
    ))?;
    let info = open(&store_path)?.info(false)?;
    output.announce(format_args!(
        "   {} of pages over {} of DRAM: {} pages made room for others",
        human_bytes(info.bytes.allocated),
        human_bytes(CACHE_BYTES as u64),
        grouped(evictions)
    ))?;
    report.evictions = evictions;

    output.announce(format_args!(
        "3  {} times: {} threads of another process run transactions, and it is killed without warning",
        arguments.kills, arguments.threads
    ))?;
    let mut ledger = Ledger::new(&keys, loaded);
    let killing = Killing { arguments, seed, directory, store: &store_path, stop };
    killing.run(&keys, &mut ledger, report, output)?;
    if stop.is_raised() {
        return Ok(());
    }

    output
        .announce("4  transactions on the modelled machine, the power cut between any two steps")?;
    report.crash = modelled::explore(seed, arguments.images, stop, output)?;
    if stop.is_raised() {
        return Ok(());
    }
    output.announce("5  what a put costs on the modelled machine")?;
    report.per_put = modelled::count_puts(&keys, loaded, Placement::ThreeTier)?;
    report.per_put_on_ssd = modelled::count_puts(&keys, loaded, Placement::Ssd)?;

    let info = open(&store_path)?.info(false)?;
    report.durability = info.durability.to_owned();
    report.why = info.why.to_owned();
    Ok(())
}

fn make_directory(parent: Option<&Path>) -> Result<TempDir, Failure> {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("lapis-demo-");
        builder
    };
    match parent {
        Some(parent) => builder()
            .tempdir_in(parent)
            .map_err(|error| Failure::file("make a directory in", parent, &error)),
        None => builder()
            .tempdir()
            .map_err(|error| Failure::file("make a directory in", &std::env::temp_dir(), &error)),
    }
}

fn collect(arguments: &Arguments, output: &mut Output) -> Result<Records, Failure> {
    let wanted = usize::try_from(arguments.records).unwrap_or(usize::MAX);
    let records = Records::collect(wanted);
    let found = records.entries.len();
    output.announce(format_args!("2  {} records of real data:", grouped(found as u64)))?;
    for source in &records.sources {
        output.announce(format_args!("   {source}"))?;
    }
    Ok(records)
}

fn open(path: &Path) -> Result<Store, Failure> {
    Ok(Store::open(config(path))?)
}

/// How both processes open the store.
pub fn config(path: &Path) -> Config {
    Config::new(path).cache_bytes(CACHE_BYTES)
}

/// The value of the second table.
pub fn length_of(value: &[u8]) -> [u8; 4] {
    (value.len() as u32).to_le_bytes()
}

/// Loads the records, until it is stopped. Returns how many pages had to make room for others.
fn load(path: &Path, keys: &Keys, loaded: usize, stop: StopFlag) -> Result<u64, Failure> {
    let store = open(path)?;
    let [records, lengths] = TABLES.map(|name| store.table_or_create(name));
    let (records, lengths) = (records?, lengths?);
    let bar = progress::count(loaded as u64, "records");
    for start in (0..loaded).step_by(LOAD_BATCH).take_while(|_| !stop.is_raised()) {
        let mut transaction = store.transaction()?;
        for index in start..(start + LOAD_BATCH).min(loaded) {
            let (key, text) = (keys.key(index), keys.text(index));
            transaction.put(&records, key, text)?;
            transaction.put(&lengths, key, &length_of(text))?;
        }
        transaction.commit_with(Durability::Eventual)?;
        bar.set_position(start as u64);
    }
    bar.finish_and_clear();
    let evictions = store.metrics().evictions_from_dram;
    store.close()?;
    Ok(evictions)
}

/// The rounds of killing and checking.
struct Killing<'a> {
    arguments: &'a Arguments,
    seed: u64,
    directory: &'a Path,
    store: &'a Path,
    stop: StopFlag,
}

impl Killing<'_> {
    fn run(
        &self,
        keys: &Keys,
        ledger: &mut Ledger<'_>,
        report: &mut Report,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let keys_path = self.directory.join("keys");
        keys.save(&keys_path).map_err(|error| Failure::file("write", &keys_path, &error))?;
        let mut moments = SplitMix(self.seed ^ 0x6b69_6c6c);
        for round in 1..=self.arguments.kills {
            let wait = EARLIEST_KILL_MS + moments.below(LATEST_KILL_MS - EARLIEST_KILL_MS);
            let killed = kills::run(Plan {
                store: self.store,
                keys: &keys_path,
                seed: self.seed,
                round,
                threads: self.arguments.threads,
                kill_after: Duration::from_millis(wait),
                stop: self.stop,
            })?;
            if self.stop.is_raised() {
                break;
            }
            let threads = usize::from(self.arguments.threads);
            let summary = ledger.enter_round(self.seed, round, threads, &killed.reports)?;
            report.kills += 1;
            report.acknowledged += summary.writes;
            report.operations += summary.operations;
            report.work_seconds += killed.worked.as_secs_f64();

            let began = Instant::now();
            let store = open(self.store)?;
            let open_ms = began.elapsed().as_secs_f64() * 1e3;
            let (verification, problems) = check(&store, ledger)?;
            output.announce(format_args!(
                "   killed after {:.2} s and {} acknowledged writes; reopened in {open_ms:.1} ms; \
                 {} keys compared, {} lost, check {}",
                killed.worked.as_secs_f64(),
                grouped(summary.writes),
                grouped(verification.checked),
                verification.lost,
                if problems.is_empty() { "clean" } else { "NOT clean" }
            ))?;
            for line in verification.examples.iter().chain(&problems) {
                output.announce(format_args!("   ! {line}"))?;
            }
            report.enter(verification, problems, open_ms);
        }
        Ok(())
    }
}

/// Compares the reopened store with the ledger, and its tables with each other, and checks its invariants.
fn check(store: &Store, ledger: &mut Ledger<'_>) -> Result<(Verification, Vec<String>), Failure> {
    let (snapshot, [records, lengths]) = (store.snapshot()?, TABLES.map(|name| store.table(name)));
    let entries: Result<Vec<_>, _> = snapshot.iter(&records?)?.collect();
    let records: HashMap<_, _> = entries?.into_iter().collect();
    let (mut disagreements, mut compared) = (0_usize, 0);
    for entry in snapshot.iter(&lengths?)? {
        let (key, length) = entry?;
        compared += 1;
        disagreements += usize::from(records.get(&key).is_none_or(|it| length_of(it) != *length));
    }
    disagreements += records.len().abs_diff(compared);
    let verification = ledger.verify(records.len() as u64, |key| Ok(records.get(key)))?;
    let mut problems = store.check().problems;
    if disagreements > 0 {
        problems.push(format!("{disagreements} transactions took effect in one of two tables"));
    }
    Ok((verification, problems))
}
