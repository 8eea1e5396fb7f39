//! Telling a violation step by step: operations, stores, flushes, fences, the crash, what of the
//! uncertain lines made it, what the recovery read of them, and what was wrong then.

mod crash;
mod entries;
pub(crate) mod entry;
mod line_history;
mod page;
mod text;

use lapis_device::{Event, Marker, Trace};

use crate::erased::AnySubject;
use crate::image_check::shown;
use crate::markers::Markers;
use crate::options::ExploreOptions;
use crate::oracle::Failure;
use crate::report::{KeptOperation, Shrunk, Violation};
use crate::run::Run;
use crate::strategy::Strategy;

pub(crate) use self::entries::{Told, tell};
use self::entry::TimelineEntry;

/// Tells the violation that `options` (with its operations) lead to.
///
/// # Errors
/// What went wrong without any crash, or that the crash cannot be found again.
pub(crate) fn draw(
    subject: &dyn AnySubject,
    options: &ExploreOptions,
    violation: &Violation,
) -> Result<Shrunk, String> {
    let options = ExploreOptions { strategy: Strategy::Pruned, ..options.clone() };
    let run = Run::record(subject, &options)?;
    let mut checker = run.checker(subject, &options)?;
    let mut points = run.crash_points(&options);
    let mut markers = Markers::default();
    let point = loop {
        let point = points.advance().ok_or("there is no such crash point")?;
        checker.bring_up_to_date(&points).map_err(|e| e.to_string())?;
        let storage_bytes = run.storage_bytes(point.position);
        checker.region.grow_to(storage_bytes).map_err(|e| e.to_string())?;
        markers.read(&run.trace.events, point.position);
        if point.position == violation.position {
            break point;
        }
    };
    let states = points.states();
    let image = violation.as_image().unwrap_or_else(|| states.everything());
    if !states.includes(&image) {
        return Err("the image is not one of that crash point".to_owned());
    }
    checker.apply(&states, &image).map_err(|e| e.to_string())?;
    checker.watch(&states);
    let seed = markers.check_seed(&options);
    let _ = checker.check(subject, markers.expectation(&run), seed, 1);
    let mut reads = Vec::new();
    checker.take_reads(&mut reads);
    checker.add_sector_reads(&states, &mut reads);

    let events = &run.trace.units_before(point.position);
    let last = markers.begun.unwrap_or(0);
    let begins = |event: &Event| match event {
        Event::Marker { marker: Marker::Begin(number), .. } => *number == last,
        _ => false,
    };
    let marker = |marker| match marker {
        Marker::Begin(number) => format!("{} begins", operation_name(&run, number)),
        Marker::End(number) => format!("{} is acknowledged", operation_name(&run, number)),
        Marker::Note(number) => format!("note {number}"),
    };
    let (mut timeline, lines) = tell(&Told {
        events,
        points: &run.trace.points,
        block_writes: &run.trace.block_writes,
        crash: Some((point.cause, &states, &image)),
        killed: violation.killed,
        reads: &reads,
        what: &violation.what,
        marker: &marker,
        from: events.iter().rposition(begins).unwrap_or(0),
        by_worker: false,
        every_operation: true,
        source_of: &|_| None,
        place,
        cut: None,
    });
    number_by_events(&mut timeline, &run.trace, point.position);
    Ok(Shrunk {
        subject: subject.name().to_owned(),
        operations: kept_operations(&run),
        lines,
        timeline,
        clause: clause(&violation.failure).to_owned(),
        what: violation.what.clone(),
        replay: options.replay_command(
            subject.name(),
            violation.position,
            violation.as_image().as_ref(),
        ),
        explorations: 0,
        history: None,
        recorded: false,
    })
}

/// Numbers what is told of the units of the first `position` events as a crash point's position counts: a copy and a
/// flush of several lines are an event each.
pub(crate) fn number_by_events(timeline: &mut [TimelineEntry], trace: &Trace, position: usize) {
    let events = trace.events.iter().take(position).enumerate();
    let of_units: Vec<usize> =
        events.flat_map(|(at, event)| trace.units(*event).map(move |_| at)).collect();
    let end = position.min(trace.events.len());
    for entry in timeline {
        entry.event = of_units.get(entry.event).copied().unwrap_or(end);
    }
}

/// Those before a first power cut, too.
fn kept_operations(run: &Run) -> Vec<KeptOperation> {
    let kept = |number, what| KeptOperation { number, worker: None, what };
    let mut operations = Vec::new();
    if let Some(cut) = &run.first_cut {
        let before = cut.operations.iter();
        operations
            .extend(before.map(|(number, operation)| kept(*number, format!("{operation:?}"))));
        if let Some(last) = operations.last_mut() {
            let (position, image) = (cut.position, shown(cut.image.choices()));
            last.what += &format!("; the power is cut after {position} events, image {image}");
        }
    }
    let after = run.numbers.iter().zip(&run.operations);
    operations.extend(after.map(|(&number, operation)| kept(number, format!("{operation:?}"))));
    operations
}

fn operation_name(run: &Run, number: u32) -> String {
    match (number as usize).checked_sub(1) {
        None => match run.first_cut.as_ref().and_then(|cut| cut.operations.last()) {
            Some((number, _)) => format!("the opening after a power cut in operation {number}"),
            None => "the creation".to_owned(),
        },
        Some(index) => match run.operations.get(index) {
            Some(operation) => format!("operation {}: {operation:?}", run.numbers[index]),
            None => "the clean shutdown".to_owned(),
        },
    }
}

/// The clause of the oracle that a failure breaks.
pub(crate) fn clause(failure: &Failure) -> &'static str {
    match failure {
        Failure::Open { .. } => "a pool opens after any crash",
        Failure::Gone => "what was created and acknowledged is there",
        Failure::Contents { .. } => {
            "acknowledged operations are there, the one in flight whole or not at all"
        }
        Failure::Invariant { .. } => "the invariants of the structure hold",
        Failure::Space { .. } => "exactly what is reachable is allocated",
        Failure::NotIdempotent { .. } => "a second recovery changes nothing",
        Failure::Broken { .. } => "the structure still works after the recovery",
        Failure::DuringRecovery { .. } => "a crash during the recovery does no harm",
        Failure::Panic { .. } => "neither recovery nor the operations after it panic",
    }
}

/// Where in a pool an offset is.
pub(crate) fn place(offset: u64) -> String {
    const CHUNK: u64 = lapis_pmem::EXTENT_BYTES as u64;
    match offset {
        0..4096 => format!("pool header + {offset:#x}"),
        4096..CHUNK => format!("chunk table + {:#x}", offset - 4096),
        _ => format!("chunk {} + {:#x}", offset / CHUNK, offset % CHUNK),
    }
}

/// Where in the memory of a recorded trace an offset is.
pub(crate) fn byte(offset: u64) -> String {
    format!("byte {offset:#x}")
}
