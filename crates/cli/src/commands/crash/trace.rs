//! `lapis crash --trace` and `--record`: recorded traces.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use lapis_crash::recorded::{DurableOnEnd, RECOVER_SECONDS, RecoverCommand};
use lapis_crash::{RecordedOptions, RecordedReport, Structure, check_recorded, record_structure};
use lapis_device::trace_file::{Ending, RecordedTrace, TraceFileError};
use serde::Serialize;

use super::performance::{self, Findings};
use crate::failure::{Failure, Verdict, reason};
use crate::output::{Output, grouped};
use crate::{progress, stop};

/// Images judged by a command unless the user says how many.
const IMAGES: u64 = 1000;

/// What a recorded trace and its checks are asked for with.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// Check this recorded trace instead of a structure
    #[arg(long, value_name = "FILE", conflicts_with_all = ["structure", "persist_points", "record", "cut_in", "every_store", "optimisations",
          "keep", "without", "ops", "strategy", "whole_check_every", "workers"])]
    pub trace: Option<PathBuf>,
    /// Run CMD on crash images of the trace, the path of each as its last argument; exit code 0
    /// says that the image is sound. A CMD that is made with include/lapis_check.h is started once for each of
    /// --threads and asked about image after image
    #[arg(long, value_name = "CMD", requires = "trace")]
    pub recover: Option<String>,
    /// Give CMD so long for an image; one with which it does not end is a violation of its own
    #[arg(long, value_name = "SECONDS", default_value_t = RECOVER_SECONDS, requires = "recover",
          value_parser = clap::value_parser!(u64).range(1..))]
    recover_seconds: u64,
    /// What must be durable when an operation of the trace ends [default: everything that it
    /// stored; what is asserted, for a trace of --record]
    #[arg(long, value_name = "WHAT", requires = "trace")]
    pub durable_on_end: Option<Policy>,
    /// Save the trace of one run of the structure, without cutting the power
    #[arg(long, value_name = "FILE", conflicts_with_all = ["persist_points", "performance", "at",
          "images", "strategy", "cut_in", "every_store", "optimisations", "whole_check_every", "keep", "without", "no_shrink",
          "html", "threads", "workers"])]
    pub record: Option<PathBuf>,
    /// Look for wasted flushes and fences, without cutting the power
    #[arg(long, conflicts_with_all = ["persist_points", "recover", "at", "images", "strategy",
          "cut_in", "every_store", "optimisations", "whole_check_every", "keep", "without", "no_shrink", "html", "threads",
          "workers"])]
    pub performance: bool,
}

/// What must be durable when an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// All that its thread stored in it, but what it declared volatile
    Everything,
    /// What the program asserts to be durable
    Asserted,
}

/// What the other arguments of `lapis crash` say.
pub struct Request<'a> {
    /// Images at most; 0 for the default.
    pub images: Option<u64>,
    /// Threads that ask the command.
    pub threads: Option<u16>,
    /// Determines the sampled images.
    pub seed: u64,
    /// Only this image of this crash point.
    pub replay: Option<(usize, Vec<u32>)>,
    /// Tell the first violations step by step.
    pub shrink: bool,
    /// Where to write the page of the first.
    pub html: Option<&'a Path>,
}

/// Checks a recorded trace.
pub fn run(
    file: &Path,
    arguments: &TraceArguments,
    request: Request<'_>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let opened = File::open(file).map_err(|error| Failure::file("read", file, &error))?;
    let recorded = RecordedTrace::read(BufReader::new(opened)).map_err(|error| match error {
        TraceFileError::Io(error) => Failure::file("read", file, &error),
        error => Failure::refused(format!("{}: {error}", file.display())),
    })?;
    if arguments.performance {
        let mut report = lapis_crash::performance_bugs(&recorded, &|_| "operation".to_owned());
        report.subject = file.display().to_string();
        let findings =
            Findings { structure: &report.subject.clone(), seed: None, performance: vec![report] };
        return performance::print(&findings, output);
    }
    if request.replay.is_some() && arguments.recover.is_none() {
        return Err(Failure::refused("--at needs --recover: the command that judges the image"));
    }
    let own = recorded.is_of_our_own();
    let durable_on_end = match arguments.durable_on_end {
        Some(Policy::Asserted) => DurableOnEnd::Asserted,
        Some(Policy::Everything) => DurableOnEnd::Everything,
        // Our structures have locks in persistent lines, of which nothing has to be durable.
        None if own => DurableOnEnd::Asserted,
        None => DurableOnEnd::Everything,
    };
    let options = RecordedOptions {
        file: file.display().to_string(),
        durable_on_end,
        locked_completes: !own,
        recover: arguments.recover.clone().map(|command| RecoverCommand {
            command,
            time_limit: Duration::from_secs(arguments.recover_seconds),
        }),
        image_limit: request.images.unwrap_or(IMAGES),
        threads: request.threads.map(usize::from),
        seed: request.seed,
        replay: request.replay,
        shrink: request.shrink,
        stop: stop::on_signals(),
        ..RecordedOptions::default()
    };
    let bar = progress::spinner("images");
    let report = check_recorded(&recorded, &options, &|images| bar.set_position(images))
        .map_err(|error| Failure::refused(error.to_string()))?;
    bar.finish_and_clear();
    output.json(&report)?;
    let verdict = print(&report, options.recover.is_some(), output)?;
    if let Some(path) = request.html {
        let mut shrunk = report.violations.iter().filter_map(|found| found.shrunk.as_ref());
        super::write_page(path, shrunk.next(), output)?;
    }
    Ok(verdict)
}

fn print(report: &RecordedReport, asked: bool, output: &mut Output) -> Result<Verdict, Failure> {
    output.line(format_args!(
        "{}: {} operations, {} events; {} assertions and {} acknowledgements judged",
        report.structure,
        grouped(report.ops as u64),
        grouped(report.events as u64),
        grouped(report.assertions),
        grouped(report.acknowledgements),
    ))?;
    if let Ending::Cut { whole_bytes, torn_bytes } = report.ending {
        output.line(format_args!(
            "the trace has no end: {} bytes of it are whole, {} of a torn block were left out",
            grouped(whole_bytes),
            grouped(torn_bytes)
        ))?;
    }
    if asked {
        output.line(format_args!(
            "{} of {} crash points ({} with every image), of {} of {} kinds, {} images{}, {} distinct states, \
             {:.1} s, {} images/s",
            grouped(report.crash_points),
            grouped(report.crash_points_in_trace),
            grouped(report.exhaustive_points),
            grouped(report.kinds_tried),
            grouped(report.kinds_of_crash_points),
            grouped(report.images),
            match report.did_not_end {
                0 => String::new(),
                images => format!(" (with {} of them the command did not end)", grouped(images)),
            },
            grouped(report.distinct_states),
            report.seconds,
            grouped(report.images_per_s as u64)
        ))?;
    }
    for violation in &report.violations {
        let times = match violation.times {
            1 => String::new(),
            times => format!(" ({} times)", grouped(times)),
        };
        output.line(format_args!(
            "! {}, {}, after {} events{times}: {}\n  again: {}",
            violation
                .operation
                .as_deref()
                .map_or_else(|| "between operations".into(), |n| format!("in operation {n}")),
            violation.point,
            grouped(violation.position as u64),
            violation.what,
            violation.replay
        ))?;
    }
    let wasted = report.performance.wasted_total();
    if wasted > 0 {
        output.line(format_args!(
            "{} wasted flushes and fences; --performance lists them",
            grouped(wasted)
        ))?;
    }
    let violations = report.violations.iter().map(|found| found.shrunk.as_ref());
    let tried_all = report.exhaustive_points == report.crash_points_in_trace;
    let none = match asked && (report.stopped || !tried_all) {
        true => format!(
            "nothing found in {} images at {} of {} crash points",
            grouped(report.images),
            grouped(report.crash_points),
            grouped(report.crash_points_in_trace)
        ),
        false => "no violation".to_owned(),
    };
    super::conclude(violations, &none, report.stopped, output)
}

/// What was recorded, as JSON.
#[derive(Serialize)]
struct Recorded<'r> {
    structure: &'r str,
    seed: u64,
    ops: usize,
    events: usize,
    file: String,
    bytes: u64,
}

/// Runs a structure once and saves what it did.
pub fn record(
    structure: Structure,
    only: &str,
    (ops, seed): (usize, u64),
    file: &Path,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let (subject, recorded) = record_structure(structure, Some(only), ops, seed)?;
    let failed = |error: std::io::Error| {
        Failure::refused(format!("cannot write {}: {}", file.display(), reason(&error)))
    };
    let sink = BufWriter::new(File::create(file).map_err(failed)?);
    let mut sink = recorded.write(sink).map_err(failed)?;
    sink.flush().map_err(failed)?;
    let bytes = sink.get_ref().metadata().map_err(failed)?.len();
    let events = recorded.trace.events.len();
    let path = file.display().to_string();
    output.json(&Recorded { structure: subject, seed, ops, events, file: path, bytes })?;
    output.line(format_args!(
        "{subject}: {} operations from seed {seed}, {} events in {} bytes, saved as {}",
        grouped(ops as u64),
        grouped(events as u64),
        grouped(bytes),
        file.display()
    ))?;
    Ok(Verdict::Good)
}
