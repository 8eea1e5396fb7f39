//! Asking the program itself: its own check sees the images that a power cut may leave.
//!
//! Every thread walks through all crash points and images, in one order, and they share out the asking: so the images
//! are the same whatever their number. A command that is run for each image is asked by one thread, unless it is said
//! how many, because two of its runs may get in each other's way.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashCause, CrashPoint, CrashStates, Image};
use lapis_pmem::{LINE_BYTES, Region};
use parking_lot::Mutex;

use super::budget::Plan;
use super::checker::{Checker, Verdict};
use super::{
    Progressing, RECOVER_SECONDS, RecordedError, RecordedFailure, RecordedOptions, RecordedReport,
    RecordedViolation, RecoverCommand, crash_points, memory_before,
};
use crate::structure::Progress;

/// What the threads have in common.
struct Shared<'s> {
    recorded: &'s RecordedTrace,
    options: &'s RecordedOptions,
    command: &'s RecoverCommand,
    plan: Plan,
    progress: &'s Progress<'s>,
    /// The number of the next image that nobody asks about.
    next: AtomicU64,
    enough: AtomicBool,
    /// Whether the command stays to be asked again, once that is known.
    stays: OnceLock<bool>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    images: u64,
    did_not_end: u64,
    /// Positions of crash points, and of those at which all images were tried.
    points: BTreeSet<usize>,
    exhaustive_points: BTreeSet<usize>,
    kinds: HashSet<usize>,
    /// What the command said of images it took.
    words: HashSet<Vec<u8>>,
    /// With the number of the image.
    violations: Vec<(u64, RecordedViolation)>,
}

/// Runs the command on the images of a trace.
pub(super) fn check(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    command: &RecoverCommand,
    report: &mut RecordedReport,
    progress: &Progress<'_>,
) -> Result<(), RecordedError> {
    let plan = Plan::of(recorded, &memory_before(recorded)?, options);
    let (next, enough, stays, found) = Default::default();
    let shared = Shared { recorded, options, command, plan, progress, next, enough, stays, found };
    let threads = match (&options.replay, options.threads) {
        (Some(_), _) => 1,
        (None, threads) => threads.unwrap_or_else(available_threads).max(1),
    };
    let outcomes: Vec<Result<(), RecordedError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let shared = &shared;
                    move || shared.work(thread)
                })
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|it| it.unwrap_or(Err(RecordedError::Panicked))).collect()
    });
    outcomes.into_iter().collect::<Result<(), _>>()?;
    let found = shared.found.into_inner();
    report.crash_points = found.points.len() as u64;
    report.crash_points_in_trace = shared.plan.points();
    report.kinds_of_crash_points = shared.plan.kinds;
    report.kinds_tried = found.kinds.len() as u64;
    report.exhaustive_points = found.exhaustive_points.len() as u64;
    report.images = found.images;
    report.did_not_end = found.did_not_end;
    report.distinct_states = found.words.len() as u64;
    let mut violations = found.violations;
    violations.sort_by_key(|(number, _)| *number);
    // What the trace alone shows has a limit of its own.
    let first = violations.into_iter().take(options.violation_limit);
    report.violations.extend(first.map(|(_, violation)| violation));
    Ok(())
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Shared<'_> {
    fn work(&self, thread: usize) -> Result<(), RecordedError> {
        if thread > 0 && self.options.threads.is_none() && !*self.stays.wait() {
            return Ok(());
        }
        let outcome = self.walk();
        if outcome.is_err() {
            self.enough.store(true, Ordering::Relaxed);
        }
        // Nobody waits for a thread that has asked nothing.
        self.stays.get_or_init(|| false);
        outcome
    }

    fn is_over(&self) -> bool {
        self.enough.load(Ordering::Relaxed) || self.options.stop.is_raised()
    }

    /// Goes through all images and asks about those that nobody else asks about.
    fn walk(&self) -> Result<(), RecordedError> {
        let (recorded, options, plan) = (self.recorded, self.options, &self.plan);
        let mut region = memory_before(recorded)?;
        let mut points = crash_points(&recorded.trace, &region, options);
        let mut checker = Checker::new(recorded, self.command, options.stop, &region)?;
        let mut seen = Seen::default();
        let mut progressing = Progressing::default();
        let (mut number, mut left_over, mut is_there) = (0, 0, false);
        for at in 0.. {
            let Some(point) = points.advance() else { break };
            for (line, bytes) in points.newly_durable() {
                seen.contents ^= line_hash(line, bytes) ^ line_hash(line, line_of(&region, line));
                checker.line_changes(line);
            }
            points.bring_up_to_date(&mut region)?;
            progressing.read(&recorded.trace.events, point.position);
            let wanted = options.replay.as_ref();
            if self.is_over() {
                break;
            }
            let planned = plan.images(at, left_over);
            let left_out = match wanted {
                Some((position, _)) => *position != point.position,
                None => planned == 0,
            };
            if left_out {
                continue;
            }
            let states = points.states();
            let (images, all): (Box<dyn Iterator<Item = Image>>, bool) = match wanted {
                Some((_, choices)) => {
                    let image = Image::from_choices(choices.clone());
                    if !states.includes(&image) {
                        return Err(RecordedError::NoSuchImage);
                    }
                    (Box::new(std::iter::once(image)), false)
                }
                None => {
                    let seed = options.seed ^ (point.position as u64) << 20;
                    plan.candidates(at, &states, planned, seed)
                }
            };
            is_there = true;
            let mut tried = 0;
            for image in images {
                if tried >= planned && options.replay.is_none() {
                    break;
                }
                if !seen.is_new(&region, &states, &image, &progressing) {
                    continue;
                }
                tried += 1;
                number += 1;
                if self.is_over() || options.image_limit > 0 && number > options.image_limit {
                    return Ok(());
                }
                let mine = self.next.compare_exchange(
                    number - 1,
                    number,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if mine.is_err() {
                    continue;
                }
                states.apply(&image, &mut region)?;
                let lines: Vec<u32> = states.overrides(&image).into_iter().map(|it| it.0).collect();
                let verdict = checker.ask(&region, &lines, &progressing);
                states.revert(&image, &mut region)?;
                let verdict = verdict?;
                self.stays.get_or_init(|| checker.stays());
                self.take(number, at, &point, &image, &progressing, verdict);
            }
            left_over = plan.left_over(at, left_over, tried);
            if all {
                // Also where all of them had been tried before.
                let mut found = self.found.lock();
                found.exhaustive_points.insert(point.position);
                found.points.insert(point.position);
                found.kinds.insert(plan.kind(at));
            }
        }
        match &options.replay {
            Some(_) if !is_there && !options.stop.is_raised() => Err(RecordedError::NoSuchImage),
            _ => Ok(()),
        }
    }

    /// Takes note of a verdict.
    fn take(
        &self,
        number: u64,
        at: usize,
        point: &CrashPoint,
        image: &Image,
        progressing: &Progressing,
        verdict: Verdict,
    ) {
        let mut found = self.found.lock();
        let failure = match verdict {
            Verdict::Unknown => return,
            Verdict::Taken(words) => {
                found.words.insert(words);
                None
            }
            Verdict::Refused(failure) => Some(failure),
        };
        found.images += 1;
        (self.progress)(found.images);
        found.points.insert(point.position);
        found.kinds.insert(self.plan.kind(at));
        let Some(failure) = failure else { return };
        found.did_not_end += u64::from(matches!(failure, RecordedFailure::DidNotEnd { .. }));
        let new = violation(self.recorded, self.options, point, progressing, image, failure);
        // Once per place in the source and verdict: what is wrong there is wrong each time.
        let kind = |it: &RecordedViolation| std::mem::discriminant(&it.failure);
        let same = found
            .violations
            .iter_mut()
            .find(|(_, it)| it.point == new.point && kind(it) == kind(&new));
        match same {
            Some((first, known)) => {
                let times = known.times + 1;
                if number < *first {
                    (*first, *known) = (number, new);
                }
                known.times = times;
            }
            None => found.violations.push((number, new)),
        }
        if found.violations.len() >= self.options.violation_limit {
            self.enough.store(true, Ordering::Relaxed);
        }
    }
}

/// The images that were tried, with what was promised of them.
#[derive(Default)]
struct Seen {
    /// Changes with the durable contents.
    contents: u64,
    images: HashSet<(u64, Option<u32>, Option<String>)>,
}

impl Seen {
    /// Whether the same memory has not been judged with the same operations acknowledged and in
    /// flight: many images of neighbouring crash points are one.
    fn is_new(
        &mut self,
        region: &Region,
        states: &CrashStates<'_>,
        image: &Image,
        progressing: &Progressing,
    ) -> bool {
        let changed = states.overrides(image).into_iter().fold(self.contents, |hash, it| {
            let (line, bytes) = it;
            hash ^ line_hash(line, &bytes) ^ line_hash(line, line_of(region, line))
        });
        self.images.insert((changed, progressing.acknowledged, progressing.operation()))
    }
}

/// The contents of a line of a region that the trace is of.
fn line_of(region: &Region, line: u32) -> &[u8; LINE_BYTES] {
    let offset = line as usize * LINE_BYTES;
    assert!(offset + LINE_BYTES <= region.mapped_bytes(), "a line that is not mapped");
    // SAFETY: mapped (checked above), any bytes are an array of bytes, and nobody writes to the
    // region while it is borrowed.
    unsafe { &*region.base().add(offset).cast() }
}

fn line_hash(line: u32, bytes: &[u8; LINE_BYTES]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.write_u32(line);
    hasher.write(bytes);
    hasher.finish()
}

fn violation(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    point: &CrashPoint,
    progressing: &Progressing,
    image: &Image,
    failure: RecordedFailure,
) -> RecordedViolation {
    let point_text = match point.cause {
        CrashCause::OperationEnd(_) => match recorded.event_location(point.position - 1) {
            Some(location) => format!("just after {location}"),
            None => "the end of an operation".to_owned(),
        },
        CrashCause::TraceEnd => "the end of the trace".to_owned(),
        CrashCause::BeforeOperation(number) => match recorded.event_location(point.position) {
            Some(location) => format!("just before {location}"),
            None => format!("just before operation {number} begins"),
        },
        _ => match recorded.event_location(point.position) {
            Some(location) => format!("just before {location}"),
            None => "just before a fence or locked store".to_owned(),
        },
    };
    RecordedViolation {
        position: point.position,
        point: point_text,
        operation: progressing.operation(),
        acknowledged: progressing.acknowledged,
        image: image.choices().to_vec(),
        what: failure.to_string(),
        failure,
        times: 1,
        replay: replay_command(options, point.position, image),
        shrunk: None,
        stores: Vec::new(),
    }
}

/// The command that shows an image to the program's own check again.
pub(super) fn replay_command(options: &RecordedOptions, position: usize, image: &Image) -> String {
    let choices = image.choices().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let choices = if choices.is_empty() { "-".to_owned() } else { choices };
    let (mut command, mut seconds) = ("", String::new());
    if let Some(recover) = &options.recover {
        command = &recover.command;
        if recover.time_limit != Duration::from_secs(RECOVER_SECONDS) {
            seconds = format!(" --recover-seconds {}", recover.time_limit.as_secs().max(1));
        }
    }
    format!(
        "lapis crash --trace {} --recover {}{seconds} --at {position} --image {choices}",
        quoted(&options.file),
        quoted(command),
    )
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a/b.trace"), "a/b.trace");
        assert_eq!(quoted("./ring check"), "'./ring check'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
