//! Checking recorded traces: of programs in C and C++ (`include/lapis_trace.h`), or saved by
//! `lapis crash --record`.
//!
//! There is no recovery code here for such a program, so what is asked is what can be asked from
//! outside:
//!
//! * of the trace alone: what an operation stored is durable when it is acknowledged
//!   ([`DurableOnEnd`]), and what the program asserted of itself holds
//!   ([`Claim`](lapis_device::trace_file::Claim)), in the manner of PMTest (Liu, Wei, Zhao, Kolli,
//!   Khan, ASPLOS 2019);
//! * of its own recovery: a command is asked about the images that a power cut may leave, and says of each
//!   whether it is one to go on from ([`RecoverCommand`]);
//! * of its costs: see [`crate::performance_bugs`].

mod budget;
mod checker;
mod claims;
mod image_file;
mod recovery;
mod timeline;

use std::time::{Duration, Instant};

use lapis_device::trace_file::{Ending, RecordedTrace};
use lapis_device::{CrashPoints, Event, Marker, PowerFailDomain, Trace};
use lapis_pmem::{EXTENT_BYTES, Region};
use serde::Serialize;

use crate::performance_bugs::{PerformanceReport, performance_bugs};
use crate::report::Shrunk;
use crate::stop_flag::StopFlag;
use crate::structure::{CrashError, Progress, Structure, each_run};

/// A region that is checked has at most so many bytes: it is mapped, if not touched.
pub const REGION_BYTES_LIMIT: u64 = 64 << 30;

/// Seconds for which a command that judges images may run, unless it is said otherwise.
pub const RECOVER_SECONDS: u64 = 10;

/// What has to be durable when an operation is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DurableOnEnd {
    /// Everything that its worker stored since it began, but what was declared volatile.
    #[default]
    Everything,
    /// What the program asserts to be durable.
    Asserted,
}

/// A command that judges images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoverCommand {
    /// For `sh`; the path of the image is appended. Exit code 0 says that the image is one to go on
    /// from. It may change the file. The environment says in `LAPIS_ACKNOWLEDGED` which operation
    /// was acknowledged last, and in `LAPIS_IN_FLIGHT` which are in flight, separated by commas;
    /// both are empty if there is none. `LAPIS_BASE_ADDRESS` is where the memory lay when it was traced.
    /// A command that connects to the socket `LAPIS_CHECKER` is started once and asked about image after
    /// image; the head of `recorded/checker.rs` has the lines.
    pub command: String,
    /// It is killed, and the image counts as one with which it did not end, after so long.
    pub time_limit: Duration,
}

/// How to check a recorded trace.
#[derive(Clone, Debug)]
pub struct RecordedOptions {
    /// The file, for the commands that show a violation again.
    pub file: String,
    /// What has to be durable when an operation is acknowledged.
    pub durable_on_end: DurableOnEnd,
    /// Whether a locked instruction completes flushes and stores past the caches, as on x86-64 it does.
    pub locked_completes: bool,
    /// A command that judges images.
    pub recover: Option<RecoverCommand>,
    /// Images to judge at most, spread over all crash points; 0 for no limit.
    pub image_limit: u64,
    /// At a crash point with up to this many images, all are tried, within the limit.
    pub exhaustive_limit: u64,
    /// Threads that ask the command; without a number as many as there are processors, if the command
    /// stays to be asked again, else one.
    pub threads: Option<usize>,
    /// Determines the sampled images.
    pub seed: u64,
    /// Stop at this many violations.
    pub violation_limit: usize,
    /// Stop as soon as it is raised.
    pub stop: StopFlag,
    /// Only this image: events before the crash, and the state of each uncertain line.
    pub replay: Option<(usize, Vec<u32>)>,
    /// Tell the first violation of each check step by step, of an image with as few lines as show it.
    pub shrink: bool,
}

impl Default for RecordedOptions {
    fn default() -> Self {
        Self {
            file: String::new(),
            durable_on_end: DurableOnEnd::default(),
            locked_completes: true,
            recover: None,
            image_limit: 1000,
            exhaustive_limit: 64,
            threads: None,
            seed: 1,
            violation_limit: 10,
            stop: StopFlag::default(),
            replay: None,
            shrink: false,
        }
    }
}

/// Why a recorded trace could not be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// The region cannot be mapped.
    #[error("the trace is of {bytes} bytes of memory, more than can be checked here")]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
    /// Memory for it was refused.
    #[error(transparent)]
    Region(#[from] lapis_pmem::RegionError),
    /// An image could not be written or the command not be started.
    #[error("{doing}: {error}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the operating system answered.
        error: std::io::Error,
    },
    /// The shell found no such command.
    #[error("the command to recover with cannot be run: {said}")]
    NoCommand {
        /// What the shell said.
        said: String,
    },
    /// It connected, and then said something else than it should.
    #[error(
        "the command said {line:?} where it should have said `lapis checker 1` or how it judges an image"
    )]
    Greeting {
        /// What it said.
        line: String,
    },
    /// A thread that asks it panicked.
    #[error("a thread that asks the command panicked")]
    Panicked,
    /// There is nothing that could be judged.
    #[error(
        "nothing in {file} can be judged: no operation ends in it and nothing is asserted; give \
         --recover CMD, or record operations (LAPIS_OP_BEGIN, LAPIS_OP_END) or assertions"
    )]
    NothingToJudge {
        /// The file.
        file: String,
    },
    /// Only what is asserted was to be judged, and nothing is.
    #[error(
        "nothing in {file} is judged: only what it asserts would be, and it asserts nothing; give \
         --recover CMD or --durable-on-end everything, or look at it with --performance"
    )]
    NothingAsserted {
        /// The file.
        file: String,
    },
    /// The image to replay is not one of the trace.
    #[error("the image to replay is not one of this trace")]
    NoSuchImage,
}

/// What checking a recorded trace came to. The names are those of
/// [`ExploreReport`](crate::ExploreReport).
#[derive(Clone, Debug, Serialize)]
pub struct RecordedReport {
    /// The file.
    pub structure: String,
    /// The seed of the sampled images.
    pub seed: u64,
    /// Operations that were begun.
    pub ops: usize,
    /// Events in the trace.
    pub events: usize,
    /// Whether the trace is whole.
    pub ending: Ending,
    /// Assertions of the program that were judged.
    pub assertions: u64,
    /// Acknowledgements that were judged.
    pub acknowledgements: u64,
    /// Instants at which the power was cut.
    pub crash_points: u64,
    /// Instants at which it could have been.
    pub crash_points_in_trace: u64,
    /// How many kinds of them there are: cut at the same place of the source, while stores of the same places
    /// may be lost.
    pub kinds_of_crash_points: u64,
    /// Of how many kinds one was tried.
    pub kinds_tried: u64,
    /// Of those, at how many every image was tried.
    pub exhaustive_points: u64,
    /// Images judged.
    pub images: u64,
    /// Of those, images with which the command did not end in time.
    pub did_not_end: u64,
    /// Different words of the command about images that it took.
    pub distinct_states: u64,
    /// Images per second of this machine.
    pub images_per_s: f64,
    /// Seconds of this machine.
    pub seconds: f64,
    /// It ended early, because somebody asked for that.
    pub stopped: bool,
    /// What does not hold.
    pub violations: Vec<RecordedViolation>,
    /// Wasted flushes and fences.
    pub performance: PerformanceReport,
}

/// Something that does not hold. The names are those of [`Violation`](crate::Violation).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedViolation {
    /// Events before it.
    pub position: usize,
    /// What happened there.
    pub point: String,
    /// The operation in flight, or none between operations.
    pub operation: Option<String>,
    /// The number of the last acknowledged operation.
    pub acknowledged: Option<u32>,
    /// The state chosen for each uncertain line; 0 is the durable one. Empty for what shows in the
    /// trace alone.
    pub image: Vec<u32>,
    /// What failed.
    pub failure: RecordedFailure,
    /// The same in a sentence.
    pub what: String,
    /// How often the same failed at the same place of the source.
    pub times: u64,
    /// The command that shows it again.
    pub replay: String,
    /// The violation told step by step, if it is the first of its check and that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrunk: Option<Shrunk>,
    /// Of what the trace alone shows: the events of the store that may be missing, and of the one
    /// that may be there without it.
    #[serde(skip)]
    pub(crate) stores: Vec<usize>,
}

/// What a program failed to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordedFailure {
    /// A store that has to be durable may be lost.
    NotDurable {
        /// Where in memory it went.
        offset: u64,
        /// Where it stands in the source.
        stored_at: Option<String>,
        /// Where it has to be durable.
        asserted_at: Option<String>,
        /// What is missing: a flush after it, or a fence after the flush.
        missing: Missing,
    },
    /// A store may survive without another that it needs.
    NotInOrder {
        /// Where the store that may be missing stands in the source.
        first_stored_at: Option<String>,
        /// Where the store that may be there without it stands.
        second_stored_at: Option<String>,
        /// Where the order was asserted.
        asserted_at: Option<String>,
    },
    /// The command did not take the image.
    Refused {
        /// How it ended.
        ended: String,
        /// The first of what it said.
        said: String,
    },
    /// The command did not come to an end with the image, and was killed.
    DidNotEnd {
        /// After so long.
        after_s: f64,
        /// The first of what it had said.
        said: String,
    },
}

/// What a store lacks to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// A flush of its line.
    Flush,
    /// A fence, of the worker that flushed.
    Fence,
}

impl std::fmt::Display for RecordedFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = |at: &Option<String>| at.clone().unwrap_or_else(|| "an unknown place".into());
        let words = |said: &str| match said {
            "" => String::new(),
            said => format!(": {said}"),
        };
        match self {
            Self::NotDurable { offset, stored_at, asserted_at, missing } => {
                let missing = match missing {
                    Missing::Flush => "it has not been flushed",
                    Missing::Fence => "it has been flushed and not fenced",
                };
                write!(
                    f,
                    "the store at {} to byte {offset:#x} is not durable at {}: {missing}",
                    place(stored_at),
                    place(asserted_at)
                )
            }
            Self::NotInOrder { first_stored_at, second_stored_at, asserted_at } => write!(
                f,
                "the store at {} may persist before the one at {}, against what {} asserts",
                place(second_stored_at),
                place(first_stored_at),
                place(asserted_at)
            ),
            Self::Refused { ended, said } => write!(f, "the command {ended}{}", words(said)),
            Self::DidNotEnd { after_s, said } => {
                write!(f, "the command did not end within {after_s} s{}", words(said))
            }
        }
    }
}

/// Checks a recorded trace.
///
/// # Errors
/// [`RecordedError`] if it cannot be checked; what does not hold is in the report.
pub fn check_recorded(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    progress: &Progress<'_>,
) -> Result<RecordedReport, RecordedError> {
    let started = Instant::now();
    let mut report = RecordedReport {
        structure: options.file.clone(),
        seed: options.seed,
        ops: 0,
        events: recorded.trace.events.len(),
        ending: recorded.ending,
        assertions: 0,
        acknowledgements: 0,
        crash_points: 0,
        crash_points_in_trace: 0,
        kinds_of_crash_points: 0,
        kinds_tried: 0,
        exhaustive_points: 0,
        images: 0,
        did_not_end: 0,
        distinct_states: 0,
        images_per_s: 0.0,
        seconds: 0.0,
        stopped: false,
        violations: Vec::new(),
        performance: performance_bugs(recorded, &|_| "operation".to_owned()),
    };
    report.ops = report.performance.operations as usize;
    if options.replay.is_none() {
        claims::check(recorded, options, &mut report);
    }
    if let Some(command) = &options.recover {
        recovery::check(recorded, options, command, &mut report, progress)?;
    }
    report.stopped = options.stop.is_raised();
    let judged = report.assertions + report.acknowledgements + report.images;
    if judged == 0 && report.violations.is_empty() && !report.stopped {
        let file = options.file.clone();
        return Err(match options.durable_on_end {
            DurableOnEnd::Asserted if report.ops > 0 => RecordedError::NothingAsserted { file },
            _ => RecordedError::NothingToJudge { file },
        });
    }
    report.violations.sort_by_key(|violation| violation.position);
    if options.shrink {
        timeline::tell_first(recorded, options, &mut report.violations, progress)?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    report.images_per_s = report.images as f64 / report.seconds.max(1e-9);
    Ok(report)
}

/// Runs a structure once, or the one subject of it that `only` names, and keeps the trace. Of a
/// structure that is several subjects, the first.
///
/// # Errors
/// [`CrashError`].
pub fn record_structure(
    structure: Structure,
    only: Option<&str>,
    ops: usize,
    seed: u64,
) -> Result<(&'static str, RecordedTrace), CrashError> {
    let mut first = None;
    each_run(structure, only, ops, seed, &mut |run| {
        first.get_or_insert((run.subject, run.recorded));
    })?;
    first.ok_or_else(|| CrashError::UnknownStructure { name: only.unwrap_or_default().to_owned() })
}

/// A region that holds what the memory of a trace held before the first event.
fn memory_before(recorded: &RecordedTrace) -> Result<Region, RecordedError> {
    let bytes = recorded.header.region_bytes;
    if bytes > REGION_BYTES_LIMIT {
        return Err(RecordedError::TooLarge { bytes });
    }
    let mapped = (bytes as usize).next_multiple_of(EXTENT_BYTES);
    let region = Region::anonymous(mapped, mapped)?;
    // SAFETY: freshly mapped, that long, and nobody else's.
    recorded.lay_base(unsafe { std::slice::from_raw_parts_mut(region.base(), mapped) });
    Ok(region)
}

/// The crash points of a trace whose memory held what `region` does.
fn crash_points<'t>(
    trace: &'t Trace,
    region: &Region,
    options: &RecordedOptions,
) -> CrashPoints<'t> {
    let domain =
        if options.locked_completes { PowerFailDomain::Adr } else { PowerFailDomain::AdrPortable };
    // SAFETY: mapped, and not written as long as the slice is used, which is in this call.
    let base = unsafe { std::slice::from_raw_parts(region.base(), region.mapped_bytes()) };
    CrashPoints::new(trace, base, domain)
}

/// Which operations are in flight and which was acknowledged last, as a trace goes on.
#[derive(Debug, Default)]
struct Progressing {
    /// Worker and operation.
    in_flight: Vec<(u8, u32)>,
    acknowledged: Option<u32>,
    read: usize,
}

impl Progressing {
    /// Reads on to `position`.
    fn read(&mut self, events: &[Event], position: usize) {
        for event in &events[self.read..position] {
            if let Event::Marker { worker, marker } = *event {
                self.mark(worker, marker);
            }
        }
        self.read = position;
    }

    fn mark(&mut self, worker: u8, marker: Marker) {
        match marker {
            Marker::Begin(number) => {
                self.in_flight.retain(|(other, _)| *other != worker);
                self.in_flight.push((worker, number));
            }
            Marker::End(number) => {
                self.in_flight.retain(|(other, _)| *other != worker);
                self.acknowledged = Some(number);
            }
            Marker::Note(_) => {}
        }
    }

    fn operation(&self) -> Option<String> {
        let numbers: Vec<_> = self.in_flight.iter().map(|(_, number)| number.to_string()).collect();
        (!numbers.is_empty()).then(|| numbers.join(","))
    }
}
