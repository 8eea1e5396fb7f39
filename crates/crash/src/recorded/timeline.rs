//! Telling a violation of a recorded trace step by step, with the code that tells those of our own
//! structures.
//!
//! What the trace alone shows is told of one image that shows it: the store that may be missing is,
//! and everything else made it. Of an image that the program's own check refused, lines are first
//! moved to their oldest or newest state as long as it is refused in the same way. Operations are
//! left as they are: without one of them, the program would have done something else after it.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashCause, CrashStates, Event, Image, Marker, Trace, differing_bytes};
use lapis_pmem::Region;

use super::checker::{Checker, Verdict};
use super::recovery::replay_command;
use super::{
    Progressing, RecordedError, RecordedFailure, RecordedOptions, RecordedViolation,
    RecoverCommand, crash_points, memory_before,
};
use crate::fewer::nearest;
use crate::report::{KeptOperation, Shrunk};
use crate::structure::Progress;
use crate::timeline::byte;
use crate::timeline::{Told, tell};

/// Images that the program's own check is asked about to make one smaller.
const MOST_IMAGES: u64 = 10_000;
/// The same where each is a process.
const MOST_PROCESSES: u64 = 400;
/// So long is waited for checks that do not end, to make an image smaller with which they do not.
const MOST_WAITING: Duration = Duration::from_secs(30);
/// The number of a marker that no program writes: the end of what is told.
const END: u32 = u32::MAX;

/// Tells the first violation that the trace shows of itself, and the first of the program's check.
pub(super) fn tell_first(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    violations: &mut [RecordedViolation],
    progress: &Progress<'_>,
) -> Result<(), RecordedError> {
    let refused = |it: &RecordedViolation| {
        matches!(it.failure, RecordedFailure::Refused { .. } | RecordedFailure::DidNotEnd { .. })
    };
    if let Some(claim) = violations.iter_mut().find(|it| !refused(it)) {
        claim.shrunk = Some(of_claim(recorded, options, claim)?);
    }
    let first = violations.iter_mut().find(|it| refused(it));
    if let (Some(found), Some(command)) = (first, &options.recover) {
        found.shrunk = of_refusal(recorded, options, command, found, progress)?;
    }
    Ok(())
}

/// What a trace shows of itself.
fn of_claim(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    violation: &RecordedViolation,
) -> Result<Shrunk, RecordedError> {
    let events = &recorded.trace.events;
    let acknowledges = matches!(
        events.get(violation.position),
        Some(Event::Marker { marker: Marker::End(_), .. })
    ) && violation.point != ASSERTION;
    let (end, cut) = match *violation.stores {
        // Both stores may be durable where their order is asserted: the power is cut before.
        [_, after] => (after + 1, Some("the power is cut just after this store")),
        _ if acknowledges => (violation.position + 1, None),
        _ => (violation.position, Some("the power is cut where this is asserted")),
    };
    let region = memory_before(recorded)?;
    let points = recorded.trace.points.clone();
    let mut trace = Trace::of(events[..end].to_vec(), points);
    trace.events.push(Event::Marker { worker: 0, marker: Marker::End(END) });
    let mut points = crash_points(&trace, &region, options);
    while let Some(point) = points.advance() {
        if point.cause == CrashCause::OperationEnd(END) {
            break;
        }
    }
    let states = points.states();
    let image = without_store(events, &violation.stores, &states);
    let told = Tale {
        recorded,
        end,
        cause: CrashCause::OperationEnd(END),
        cut,
        violation,
        file: &options.file,
    };
    Ok(told.tell(&states, &image, violation.replay.clone(), 0))
}

/// What [`RecordedViolation::point`] says where something is asserted.
pub(super) const ASSERTION: &str = "an assertion";

/// The image in which the first of `stores` is missing, the second is there, and so is the rest.
fn without_store(events: &[Event], stores: &[usize], states: &CrashStates<'_>) -> Image {
    let mut choices = states.everything().choices().to_vec();
    let (Some(&missing), Some(lines), Some(of_line)) =
        (stores.first(), states.uncertain_lines(), states.line_states())
    else {
        return Image::from_choices(choices);
    };
    let there = stores.get(1).copied();
    for ((line, states), choice) in lines.zip(of_line).zip(&mut choices) {
        let of_this = |at: usize| events[at].stored().filter(|stored| stored.line == line);
        let Some(missing) = of_this(missing) else { continue };
        let there = there.and_then(of_this);
        let shows = |held: &[u8; 64]| {
            there.is_none_or(|there| there.is_held_by(held)) && !missing.is_held_by(held)
        };
        if let Some(found) = states.iter().position(shows) {
            *choice = found as u32;
        }
    }
    Image::from_choices(choices)
}

/// An image that the program's own check has refused, with as few lines as it takes.
fn of_refusal(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    command: &RecoverCommand,
    violation: &RecordedViolation,
    progress: &Progress<'_>,
) -> Result<Option<Shrunk>, RecordedError> {
    let mut region = memory_before(recorded)?;
    let mut points = crash_points(&recorded.trace, &region, options);
    let mut progressing = Progressing::default();
    let mut explorations = 0;
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut region)?;
        if point.position != violation.position {
            continue;
        }
        progressing.read(&recorded.trace.events, point.position);
        let states = points.states();
        let found = Found { image: violation.image.clone(), failure: violation.failure.clone() };
        let found = match options.replay {
            // One that was asked for is told as it is.
            Some(_) => found,
            None => {
                let checker = Checker::new(recorded, command, options.stop, &region)?;
                let asked = Cell::new(0);
                let mut search = Search {
                    checker,
                    region,
                    states: &states,
                    progressing,
                    like: &violation.failure,
                    time_limit: command.time_limit,
                    asked: &asked,
                    progress,
                };
                let found = search.smaller(found)?;
                explorations = asked.get();
                found
            }
        };
        let image = Image::from_choices(found.image);
        let replay = replay_command(options, point.position, &image);
        let violation = &RecordedViolation { what: found.failure.to_string(), ..violation.clone() };
        let end = point.position;
        let told =
            Tale { recorded, end, cause: point.cause, cut: None, violation, file: &options.file };
        return Ok(Some(told.tell(&states, &image, replay, explorations)));
    }
    Ok(None)
}

/// An image that is refused, and how.
#[derive(Clone)]
struct Found {
    image: Vec<u32>,
    failure: RecordedFailure,
}

/// Looks for an image that is refused like another and is nearer to the oldest or the newest.
struct Search<'s, 'j> {
    checker: Checker<'j>,
    region: Region,
    states: &'s CrashStates<'s>,
    progressing: Progressing,
    like: &'s RecordedFailure,
    time_limit: Duration,
    asked: &'s Cell<u64>,
    progress: &'s Progress<'s>,
}

impl Search<'_, '_> {
    /// Without any line that could be as in the oldest or the newest image, as that one is; and of the others, none
    /// that could differ from it in fewer bytes, or by fewer stores.
    fn smaller(&mut self, found: Found) -> Result<Found, RecordedError> {
        let ends = [self.states.nothing(), self.states.everything()];
        let ends = ends.map(|image| image.choices().to_vec());
        let distance = |image: &[u32], end: &[u32]| {
            image.iter().zip(end).filter(|(choice, of_end)| choice != of_end).count()
        };
        let of_ends = ends.clone();
        let mut at =
            nearest(&found, |found| found.image.clone(), ends, |image| self.refused(image))?;
        let end = of_ends.iter().min_by_key(|end| distance(&at.image, end));
        let (Some(end), Some(of_lines)) = (end, self.states.line_states()) else { return Ok(at) };
        for (line, states) in of_lines.into_iter().enumerate() {
            // States come in the order of the stores, as far as these have one.
            let away = |choice: u32| {
                let of_end = &states[end[line] as usize];
                let bytes = differing_bytes(&states[choice as usize], of_end).count_ones();
                (bytes, choice.abs_diff(end[line]))
            };
            let mut nearer: Vec<u32> = (0..states.len() as u32)
                .filter(|&choice| choice != end[line] && away(choice) < away(at.image[line]))
                .collect();
            nearer.sort_by_key(|&choice| away(choice));
            for choice in nearer {
                let mut image = at.image.clone();
                image[line] = choice;
                if let Some(there) = self.refused(image)? {
                    at = there;
                    break;
                }
            }
        }
        Ok(at)
    }

    /// Images to ask about: fewer where each is a process, or a time limit that runs out.
    fn most_images(&self) -> u64 {
        match self.like {
            RecordedFailure::DidNotEnd { .. } => {
                (MOST_WAITING.as_secs_f64() / self.time_limit.as_secs_f64()) as u64
            }
            _ if self.checker.stays() => MOST_IMAGES,
            _ => MOST_PROCESSES,
        }
    }

    /// How the check refuses an image, if in the same way; it does not, when it has been asked often enough.
    fn refused(&mut self, image: Vec<u32>) -> Result<Option<Found>, RecordedError> {
        if self.asked.get() >= self.most_images() {
            return Ok(None);
        }
        self.asked.set(self.asked.get() + 1);
        (self.progress)(self.asked.get());
        let applied = Image::from_choices(image.clone());
        let lines: Vec<u32> = self.states.overrides(&applied).into_iter().map(|it| it.0).collect();
        self.states.apply(&applied, &mut self.region)?;
        let verdict = self.checker.ask(&self.region, &lines, &self.progressing);
        self.states.revert(&applied, &mut self.region)?;
        Ok(match verdict? {
            Verdict::Refused(failure) if is_like(&failure, self.like) => {
                Some(Found { image, failure })
            }
            _ => None,
        })
    }
}

/// Whether the command ended in the same way.
fn is_like(one: &RecordedFailure, other: &RecordedFailure) -> bool {
    use RecordedFailure::{DidNotEnd, Refused};
    match (one, other) {
        (Refused { ended: one, .. }, Refused { ended: other, .. }) => one == other,
        (DidNotEnd { .. }, DidNotEnd { .. }) => true,
        _ => false,
    }
}

struct Tale<'t> {
    recorded: &'t RecordedTrace,
    /// Events before the crash.
    end: usize,
    cause: CrashCause,
    cut: Option<&'t str>,
    violation: &'t RecordedViolation,
    file: &'t str,
}

impl Tale<'_> {
    fn tell(&self, states: &CrashStates<'_>, image: &Image, replay: String, asked: u64) -> Shrunk {
        let events = &self.recorded.trace.events[..self.end];
        // The operations that were in flight, and the one that the last event acknowledges.
        let mut begun: HashMap<u8, (usize, u32)> = HashMap::new();
        let (last, before) = match events.split_last() {
            Some((last @ Event::Marker { marker: Marker::End(_), .. }, before)) => {
                (Some(last.worker()), before)
            }
            _ => (None, events),
        };
        for (at, event) in before.iter().enumerate() {
            match *event {
                Event::Marker { worker, marker: Marker::Begin(number) } => {
                    begun.insert(worker, (at, number));
                }
                Event::Marker { worker, marker: Marker::End(_) } => {
                    begun.remove(&worker);
                }
                _ => {}
            }
        }
        let mut kept: Vec<(usize, u8, u32)> =
            begun.into_iter().map(|(worker, (at, number))| (at, worker, number)).collect();
        kept.sort_unstable();
        let of_last = kept.iter().find(|(_, worker, _)| Some(*worker) == last);
        let from = of_last.or(kept.first()).map(|&(at, ..)| at);
        let by_worker = events.windows(2).any(|pair| pair[0].worker() != pair[1].worker());
        let marker = |marker| match marker {
            Marker::Begin(number) => format!("operation {number} begins"),
            Marker::End(number) => format!("operation {number} is acknowledged"),
            Marker::Note(number) => format!("note {number}"),
        };
        let source_of = |at: usize| self.recorded.event_location(at).map(ToString::to_string);
        let (timeline, lines) = tell(&Told {
            events,
            points: &self.recorded.trace.points,
            block_writes: &self.recorded.trace.block_writes,
            crash: Some((self.cause, states, image)),
            killed: false,
            reads: &[],
            what: &self.violation.what,
            marker: &marker,
            from: from.unwrap_or(0),
            by_worker,
            every_operation: false,
            source_of: &source_of,
            place: byte,
            cut: self.cut,
        });
        let operations = kept.iter().map(|&(_, worker, number)| KeptOperation {
            number: number as usize,
            worker: by_worker.then_some(worker),
            what: format!("operation {number}"),
        });
        Shrunk {
            subject: self.file.to_owned(),
            operations: operations.collect(),
            lines,
            timeline,
            clause: self.clause().to_owned(),
            what: self.violation.what.clone(),
            replay,
            explorations: asked,
            history: None,
            recorded: true,
        }
    }

    fn clause(&self) -> &'static str {
        match self.violation.failure {
            RecordedFailure::NotDurable { .. } if self.violation.point == ASSERTION => {
                "what the program asserts to be durable is"
            }
            RecordedFailure::NotDurable { .. } => {
                "what an operation has stored is durable when it ends"
            }
            RecordedFailure::NotInOrder { .. } => "what the program asserts to persist first does",
            RecordedFailure::Refused { .. } | RecordedFailure::DidNotEnd { .. } => {
                "the program's own check takes what a power cut leaves"
            }
        }
    }
}
