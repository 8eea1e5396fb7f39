//! Telling a violation of a recorded trace step by step, with the code that tells those of our own
//! structures.
//!
//! What the trace alone shows is told of one image that shows it: the store that may be missing is,
//! and everything else made it. Of an image that the program's own check refused, lines are first
//! moved to their oldest or newest state as long as it is refused in the same way. Operations are
//! left as they are: without one of them, the program would have done something else after it.

use std::collections::HashMap;

use lapis_device::trace_file::RecordedTrace;
use lapis_device::{CrashCause, CrashStates, Event, Image, Marker, Trace};
use lapis_pmem::Region;

use super::recovery::{Judge, replay_command};
use super::{
    Progressing, RecordedError, RecordedFailure, RecordedOptions, RecordedViolation,
    RecoverCommand, crash_points, memory_before,
};
use crate::report::{KeptOperation, Shrunk};
use crate::stop_flag::StopFlag;
use crate::structure::Progress;
use crate::timeline::byte;
use crate::timeline::{Told, tell};

/// Images that the program's own check is asked about to make one smaller: each is a process.
const MOST_IMAGES: u64 = 200;
/// The number of a marker that no program writes: the end of what is told.
const END: u32 = u32::MAX;

/// Tells the first violation that the trace shows of itself, and the first of the program's check.
pub(super) fn tell_first(
    recorded: &RecordedTrace,
    options: &RecordedOptions,
    violations: &mut [RecordedViolation],
    progress: &Progress<'_>,
) -> Result<(), RecordedError> {
    let refused = |it: &RecordedViolation| matches!(it.failure, RecordedFailure::Refused { .. });
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
    let there = stores.get(1).map(|&store| events[store]);
    for ((line, states), choice) in lines.zip(of_line).zip(&mut choices) {
        let missing = stored(&events[missing]).filter(|(of, ..)| *of == line);
        let Some((_, start, bytes, value)) = missing else { continue };
        let holds = |held: &[u8; 64], start: usize, bytes: usize, value: u64| {
            held[start..start + bytes] == value.to_le_bytes()[..bytes]
        };
        let there = there.as_ref().and_then(stored).filter(|(of, ..)| *of == line);
        let shows = |held: &&[u8; 64]| {
            let other =
                there.is_none_or(|(_, start, bytes, value)| holds(held, start, bytes, value));
            other && !holds(held, start, bytes, value)
        };
        if let Some(found) = states.iter().position(|held| shows(&held)) {
            *choice = found as u32;
        }
    }
    Image::from_choices(choices)
}

/// Line, offset in it, bytes and value of a store.
fn stored(event: &Event) -> Option<(u32, usize, usize, u64)> {
    match *event {
        Event::Store { start, bytes, line, value, .. }
        | Event::OrderedStore { start, bytes, line, value, .. }
        | Event::Locked { start, bytes, line, value, .. }
        | Event::NonTemporal { start, bytes, line, value, .. } => {
            Some((line, start.into(), bytes.into(), value))
        }
        _ => None,
    }
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
    while let Some(point) = points.advance() {
        points.bring_up_to_date(&mut region)?;
        if point.position != violation.position {
            continue;
        }
        progressing.read(&recorded.trace.events, point.position);
        let states = points.states();
        let found = Image::from_choices(violation.image.clone());
        let judge = Judge::new(recorded, command)?;
        let (stop, asked) = (options.stop, 0);
        let mut search =
            Search { judge, region, states: &states, progressing, asked, progress, stop };
        let image = match options.replay {
            // One that was asked for is told as it is.
            Some(_) => found,
            None => search.smaller(found, &violation.failure)?,
        };
        let replay = replay_command(options, point.position, &image);
        let end = point.position;
        let told =
            Tale { recorded, end, cause: point.cause, cut: None, violation, file: &options.file };
        return Ok(Some(told.tell(&states, &image, replay, search.asked)));
    }
    Ok(None)
}

/// Looks for an image that is refused like another and is nearer to the oldest or the newest.
struct Search<'s, 'j> {
    judge: Judge<'j>,
    region: Region,
    states: &'s CrashStates<'s>,
    progressing: Progressing,
    asked: u64,
    progress: &'s Progress<'s>,
    stop: StopFlag,
}

impl Search<'_, '_> {
    fn smaller(&mut self, found: Image, failure: &RecordedFailure) -> Result<Image, RecordedError> {
        // To wait for a command that does not end, again and again, is not worth it.
        if ended(failure).is_none_or(|how| how.starts_with("did not end")) {
            return Ok(found);
        }
        let mut best = (usize::MAX, found.clone());
        for end in [self.states.nothing(), self.states.everything()] {
            let mut at = found.clone();
            if self.is_refused(&end, failure)? {
                at = end.clone();
            } else {
                for (line, &choice) in end.choices().iter().enumerate() {
                    if at.choices()[line] == choice {
                        continue;
                    }
                    let mut nearer = at.choices().to_vec();
                    nearer[line] = choice;
                    let nearer = Image::from_choices(nearer);
                    if self.is_refused(&nearer, failure)? {
                        at = nearer;
                    }
                }
            }
            let distance = at.choices().iter().zip(end.choices()).filter(|(a, b)| a != b).count();
            if distance < best.0 {
                best = (distance, at);
            }
        }
        Ok(best.1)
    }

    /// Whether the check ends in the same way; no, when it has been asked often enough.
    fn is_refused(&mut self, image: &Image, like: &RecordedFailure) -> Result<bool, RecordedError> {
        if self.asked >= MOST_IMAGES || self.stop.is_raised() {
            return Ok(false);
        }
        self.asked += 1;
        (self.progress)(self.asked);
        self.states.apply(image, &mut self.region)?;
        let answer = self.judge.ask(&self.region, &self.progressing, self.stop);
        self.states.revert(image, &mut self.region)?;
        // What did not end because of the flag says nothing.
        if self.stop.is_raised() {
            return Ok(false);
        }
        Ok(answer?.as_ref().and_then(ended) == ended(like))
    }
}

/// How the command ended.
fn ended(failure: &RecordedFailure) -> Option<&str> {
    match failure {
        RecordedFailure::Refused { ended, .. } => Some(ended),
        _ => None,
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
            RecordedFailure::Refused { .. } => {
                "the program's own check takes what a power cut leaves"
            }
        }
    }
}
