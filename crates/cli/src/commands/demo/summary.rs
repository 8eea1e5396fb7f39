//! What the demo reports, as JSON and for people.

use lapis_lab::experiment::meter::CountsPerOperation;
use lapis_lab::experiment::table::Table;
use lapis_lab::report::{PerOperation, SsdPerOperation};
use serde::Serialize;

use super::ledger::Verification;
use crate::failure::Failure;
use crate::output::{Output, grouped};

/// What the demo found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Records loaded.
    pub records: u64,
    /// What they are.
    pub sources: Vec<String>,
    /// Pages that made room for others in DRAM while they were loaded.
    pub evictions: u64,
    /// Seconds that loading took.
    pub load_seconds: f64,
    /// Puts and deletes that the store had acknowledged before a kill.
    pub acknowledged: u64,
    /// Acknowledged writes that were not there afterwards, or not as they should be.
    pub lost: u64,
    /// Entries that should not have been there.
    pub unexpected: u64,
    /// Keys compared, over all rounds.
    pub compared: u64,
    /// Writes under way at a kill that took effect, and that did not: either is right.
    pub in_flight_done: u64,
    pub in_flight_undone: u64,
    /// Kills.
    pub kills: u64,
    /// What `check` had to say after the kills.
    pub problems: Vec<String>,
    /// Milliseconds until the store was open again, the longest of all kills.
    pub slowest_reopen_ms: f64,
    /// Operations of the killed processes, reads included.
    pub operations: u64,
    /// The same per second, measured here.
    pub ops_per_s: f64,
    #[serde(skip)]
    pub work_seconds: f64,
    /// What the crash checker found on the modelled machine.
    pub crash: CrashSummary,
    /// What a put costs on the modelled machine with persistent memory.
    pub per_put: PerPut,
    /// And without.
    pub per_put_on_ssd: PerPut,
    /// What an acknowledged write survives on the medium of the demo's store, and why.
    pub durability: String,
    pub why: String,
    /// What the random numbers started from.
    pub seed: u64,
    /// Seconds that everything took.
    pub seconds: f64,
    /// Whether a signal ended it early: the rest is what was found until then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Where the store was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// What the crash checker found.
#[derive(Debug, Default, Serialize)]
pub struct CrashSummary {
    pub images: u64,
    pub violations: u64,
    pub crash_points: u64,
    pub distinct_states: u64,
    pub seconds: f64,
    /// The commands that show the violations again.
    pub replays: Vec<String>,
}

/// Mean counts of a put on the modelled machine; media in units of 64 bytes.
#[derive(Debug, Default, Serialize)]
pub struct PerPut {
    /// Puts counted.
    pub puts: u64,
    #[serde(flatten)]
    pub counts: PerOperation,
}

impl Report {
    pub fn new(seed: u64) -> Self {
        Self {
            records: 0,
            sources: Vec::new(),
            evictions: 0,
            load_seconds: 0.0,
            acknowledged: 0,
            lost: 0,
            unexpected: 0,
            compared: 0,
            in_flight_done: 0,
            in_flight_undone: 0,
            kills: 0,
            problems: Vec::new(),
            slowest_reopen_ms: 0.0,
            operations: 0,
            ops_per_s: 0.0,
            work_seconds: 0.0,
            crash: CrashSummary::default(),
            per_put: PerPut::default(),
            per_put_on_ssd: PerPut::default(),
            durability: String::new(),
            why: String::new(),
            seed,
            seconds: 0.0,
            stopped: false,
            kept: None,
        }
    }

    /// Enters what came of a kill.
    pub fn enter(&mut self, verification: Verification, problems: Vec<String>, open_ms: f64) {
        self.lost += verification.lost;
        self.unexpected += verification.unexpected;
        self.compared += verification.checked;
        self.in_flight_done += verification.in_flight_done;
        self.in_flight_undone += verification.in_flight_undone;
        self.problems.extend(problems);
        self.slowest_reopen_ms = self.slowest_reopen_ms.max(open_ms);
        if self.work_seconds > 0.0 {
            self.ops_per_s = self.operations as f64 / self.work_seconds;
        }
    }

    /// Whether nothing was lost or violated.
    pub fn is_good(&self) -> bool {
        self.lost == 0
            && self.unexpected == 0
            && self.problems.is_empty()
            && self.crash.violations == 0
    }
}

/// Prints the summary for people.
pub fn print(report: &Report, output: &mut Output) -> Result<(), Failure> {
    output.line("")?;
    let mut rows = Table::new(1, "measured here | ");
    for (what, figure) in [
        ("records loaded", grouped(report.records)),
        (
            "loading, records/s",
            grouped((report.records as f64 / report.load_seconds.max(1e-9)) as u64),
        ),
        ("mixed workload, ops/s", grouped(report.ops_per_s as u64)),
        ("kills", grouped(report.kills)),
        ("acknowledged writes", grouped(report.acknowledged)),
        ("lost", grouped(report.lost)),
        ("entries that should not be", grouped(report.unexpected)),
        ("broken invariants", grouped(report.problems.len())),
        ("slowest reopening, ms", format!("{:.1}", report.slowest_reopen_ms)),
    ] {
        rows.push([what.to_owned(), figure]);
    }
    output.table(&rows)?;
    let mut rows = Table::new(1, "on the modelled machine | ");
    for (what, figure) in
        [("images after a power cut", report.crash.images), ("violations", report.crash.violations)]
    {
        rows.push([what.to_owned(), grouped(figure)]);
    }
    output.table(&rows)?;
    let mut rows = Table::new(1, "modelled, per put | on an SSD | with persistent memory");
    let cells = [&report.per_put_on_ssd, &report.per_put]
        .map(|put| (put.counts.counts.unwrap_or_default(), put.counts.ssd.unwrap_or_default()));
    let mut push = |what: &str, of: fn(&(CountsPerOperation, SsdPerOperation)) -> f64| {
        let [ssd, memory] = cells.each_ref().map(|cell| format!("{:.2}", of(cell)));
        rows.push([what.to_owned(), ssd, memory]);
    };
    push("flushes of the SSD", |it| it.1.ssd_flushes);
    push("bytes to the SSD", |it| it.1.ssd_written_bytes);
    push("flushes", |it| it.0.flushes);
    push("fences", |it| it.0.fences);
    push("WPQ inserts (64 B)", |it| it.0.wpq_inserts);
    push("media writes (64 B)", |it| it.0.media_writes);
    push("media reads (64 B)", |it| it.0.media_reads);
    output.table(&rows)?;
    output.line(format_args!(
        "durability of this store's medium: {}: {}",
        report.durability, report.why
    ))?;
    output.line(if report.is_good() {
        "Nothing that was acknowledged is missing, and no power cut was found that Lapis does not survive."
    } else {
        "NOT GOOD: something that was acknowledged is missing, or a power cut is not survived; see above."
    })?;
    output.line(format_args!("{:.0} s, seed {}", report.seconds, report.seed))?;
    output.line("\nWhere to go next:")?;
    match &report.kept {
        Some(path) => {
            output.line(format_args!(
                "  lapis scan --dir {path} --table records --prefix clap --limit 5"
            ))?;
        }
        None => {
            output.line("  lapis import --dir ./my-store FILE.tsv        load data of your own")?
        }
    }
    output.line(
        "  lapis crash wort                              explore the power cuts of one index",
    )?;
    output.line(
        "  lapis lab index --index wort,fast-fair,p-clht compare indexes, measured and modelled",
    )
}
