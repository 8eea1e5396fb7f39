//! `lapis crash --workers`: several workers on one structure, crashed in their interleavings.

use std::path::Path;

use clap::Args;
use lapis_crash::concurrent::{
    ConcurrentOptions, ConcurrentReplay, ConcurrentReport, Schedule, explore_structure_concurrently,
};
use lapis_crash::{Shrunk, Structure};
use lapis_pmem::Mutant;

use crate::failure::{Failure, Verdict};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// Options that mean something with several workers only.
#[derive(Debug, Args)]
pub struct Workers {
    /// So many workers at the same time, their events interleaved; each history must be durably
    /// linearizable
    #[arg(long, value_name = "N", conflicts_with_all = ["persist_points", "strategy", "every_store"],
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: Option<u8>,
    /// Histories to run of each kind of keys, each on a schedule of its own [default: 1500, and then those that are made
    /// for one error each]
    #[arg(long, value_name = "N", requires = "workers", value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: Option<u64>,
    /// Of what there is before a history, make only what these operations make, by number from 1 on,
    /// separated by commas; `-` for none
    #[arg(long, value_name = "NUMBERS", requires = "workers", value_parser = super::parse_numbers)]
    pub keep_before: Option<super::Numbers>,
    /// Instead of random schedules all with so many deviations from worker after worker, at most
    /// --schedules of them
    #[arg(long, value_name = "N", requires = "workers")]
    pub deviations: Option<usize>,
    /// Only this schedule (from a violation's replay command)
    #[arg(long, value_name = "STEPS", requires = "workers")]
    pub schedule: Option<Schedule>,
}

/// Calls of one history at most: whether a longer one has a linearization is not decided.
const MOST_CALLS: usize = 128;

/// What the options of any exploration say.
pub struct Common<'a> {
    pub structure: Structure,
    pub subject: &'a str,
    pub ops: Option<usize>,
    pub seed: u64,
    pub images: u64,
    pub threads: Option<u16>,
    /// The calls to keep.
    pub keep: Option<&'a [usize]>,
    pub shrink: bool,
    /// Where to write the page of the first violation.
    pub html: Option<&'a Path>,
    pub mutant: Option<Mutant>,
    /// The name of a flush or fence to switch off.
    pub without: Option<&'a str>,
    pub position: Option<usize>,
    /// The choices of the only image; the inner none is a killed process.
    pub image: Option<Option<Vec<u32>>>,
}

/// Explores with `count` workers.
pub fn run(
    count: u8,
    arguments: &Workers,
    common: Common<'_>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let defaults = ConcurrentOptions::default();
    if common.image == Some(None) {
        return Err(Failure::refused(
            "`--image killed` is of an exploration without --workers".to_owned(),
        ));
    }
    let calls = common.ops.unwrap_or(defaults.ops);
    if !(1..=MOST_CALLS).contains(&calls) {
        return Err(Failure::refused(format!(
            "with --workers, --ops is the calls of one history: give 1 to {MOST_CALLS}"
        )));
    }
    let named = arguments.schedule.as_ref().map_or(0, Schedule::workers);
    if named > usize::from(count) {
        return Err(Failure::refused(format!(
            "--schedule names worker {}, and of {count} workers the last is {}",
            named - 1,
            count - 1
        )));
    }
    let is_whole = arguments.deviations.is_none()
        && arguments.schedule.is_none()
        && arguments.schedules.is_none()
        && arguments.keep_before.is_none()
        && common.keep.is_none()
        && common.position.is_none();
    let mut options = ConcurrentOptions {
        workers: usize::from(count),
        planned: is_whole,
        ops: calls,
        seed: common.seed,
        keep: common.keep.map(numbers),
        keep_before: arguments.keep_before.as_ref().map(|kept| numbers(&kept.0)),
        mutant: common.mutant,
        shrink: common.shrink,
        stop: stop::on_signals(),
        schedules: arguments.schedules.unwrap_or(SCHEDULES),
        most_deviations: arguments.deviations,
        threads: common.threads.map_or(defaults.threads, usize::from),
        replay: ConcurrentReplay {
            schedule: arguments.schedule.clone(),
            position: common.position,
            image: common.image.flatten(),
        },
        ..defaults
    };
    if common.images > 0 {
        let points = CRASH_POINTS_PER_SCHEDULE.saturating_mul(options.schedules.max(1));
        let each = (common.images / points).max(2);
        options.exhaustive_limit = options.exhaustive_limit.min(each);
        options.samples = options.samples.min(u32::try_from(each).unwrap_or(u32::MAX));
    }
    let subject = Some(common.subject);
    if let Some(name) = common.without {
        let passing = ConcurrentOptions {
            exhaustive_limit: 0,
            samples: 0,
            replay: ConcurrentReplay::default(),
            most_deviations: None,
            keep: None,
            keep_before: None,
            shrink: false,
            schedules: PASSING_SCHEDULES,
            ..options.clone()
        };
        let passed = explore_structure_concurrently(common.structure, subject, &passing, &|_| ())?
            .persist_points;
        let point = passed.iter().find(|point| point.to_string() == name);
        options.suppress = Some(*point.ok_or_else(|| {
            let names: Vec<String> = passed.iter().map(ToString::to_string).collect();
            Failure::refused(format!(
                "no flush or fence is called `{name}`; there are: {}",
                names.join(", ")
            ))
        })?);
    }
    let bar = progress::spinner("images");
    let report = explore_structure_concurrently(common.structure, subject, &options, &|images| {
        bar.set_position(images);
    })?;
    bar.finish_and_clear();
    if report.images == 0 && report.violations.is_empty() {
        return Err(super::nothing_explored());
    }
    output.json(&report)?;
    let verdict = print(&report, output)?;
    if let Some(path) = common.html {
        super::write_page(path, shrunk(&report).next(), output)?;
    }
    Ok(verdict)
}

fn numbers(kept: &[usize]) -> Vec<u32> {
    kept.iter().filter_map(|&number| u32::try_from(number).ok()).collect()
}

/// The violations that were shrunk.
fn shrunk(report: &ConcurrentReport) -> impl Iterator<Item = &Shrunk> {
    report.violations.iter().filter_map(|violation| violation.shrunk.as_ref())
}

/// Histories of each subject, unless the user says how many.
const SCHEDULES: u64 = 1500;

/// Histories in which every flush and fence is passed that has a name.
const PASSING_SCHEDULES: u64 = 100;

/// Of the pairs that were never interleaved: there are many, most of which locks keep apart.
const PAIRS_PRINTED: usize = 10;

/// Crash points of a history of the default length, in a rough mean over the structures.
const CRASH_POINTS_PER_SCHEDULE: u64 = 25;

fn print(report: &ConcurrentReport, output: &mut Output) -> Result<Verdict, Failure> {
    output.line(format_args!(
        "{}: {} workers, {} histories ({} after a power cut) of {} calls from seed {}, {} events, {} \
         crash points, {} images, {} distinct states, {:.1} s, {} images/s",
        report.structure,
        report.workers,
        grouped(report.schedules),
        grouped(report.after_a_cut),
        report.ops,
        report.seed,
        grouped(report.events),
        grouped(report.crash_points),
        grouped(report.images),
        grouped(report.distinct_states),
        report.seconds,
        grouped(report.images_per_s as u64)
    ))?;
    if let Some(complete) = report.complete {
        output.line(if complete {
            "every schedule within the bound"
        } else if !report.violations.is_empty() {
            "not every schedule within the bound"
        } else {
            "not every schedule within the bound: raise --schedules"
        })?;
    }
    let uninterrupted: Vec<_> = report.never_interrupted().collect();
    for point in &uninterrupted {
        output.line(format_args!("no other worker came before this: {point}"))?;
    }
    let passed = report.interrupted.len() + uninterrupted.len();
    output.line(format_args!(
        "{} of {} flushes and fences passed, {} of them interrupted by another worker",
        passed,
        report.coverage.persist_points(),
        report.interrupted.len(),
    ))?;
    let (met, interleaved) = report.flush_pairs();
    output.line(format_args!(
        "{} pairs of flushes of one line by two workers, {} with the one between a store and the other",
        grouped(met as u64),
        grouped(interleaved as u64),
    ))?;
    for (flush, other) in report.never_interleaved().take(PAIRS_PRINTED) {
        output.line(format_args!("never between a store and {flush}: {other}"))?;
    }
    if met - interleaved > PAIRS_PRINTED {
        let more = met - interleaved - PAIRS_PRINTED;
        output.line(format_args!("and {} more, which --json lists", grouped(more as u64)))?;
    }
    for violation in &report.violations {
        output.line(format_args!(
            "! {}, {}: {}\n  again: {}",
            violation.subject,
            violation.position.map_or_else(
                || "without a crash".to_owned(),
                |position| format!("after {} events", grouped(position as u64))
            ),
            violation.what,
            violation.replay
        ))?;
    }
    let violations = report.violations.iter().map(|found| found.shrunk.as_ref());
    let none = match report.stopped {
        true => format!("nothing found in {} histories", grouped(report.schedules)),
        false => format!(
            "no violation of durable linearizability in {} images of {} histories",
            grouped(report.images),
            grouped(report.schedules)
        ),
    };
    super::conclude(violations, &none, report.stopped, output)
}
