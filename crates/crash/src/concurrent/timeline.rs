//! Telling a violation of several workers step by step, with the code that tells those of one.

use lapis_device::{CrashPoint, CrashStates, LineRead, Marker};

use super::case::Case;
use super::first_cut::FirstCut;
use super::history::Call;
use super::machines::{Machines, Ran};
use super::options::replay_command;
use crate::report::{KeptOperation, Shrunk, ShrunkHistory};
use crate::timeline::place;
use crate::timeline::{Told, number_by_events, tell};

/// Tells `case`, which `ran` has shown.
///
/// # Errors
/// What could not be done.
pub(super) fn draw(machines: &mut Machines<'_>, ran: &Ran, case: &Case) -> Result<Shrunk, String> {
    let reads = reads(machines, ran, case)?;
    let machines = &*machines;
    let marker = |marker| match marker {
        Marker::Begin(number) => format!("{} begins", call_name(machines, number)),
        Marker::End(number) => {
            let is = |call: &&Call<_, _>| call.number == number;
            let call = ran.history.calls().iter().find(is);
            match call.and_then(|call| call.completed.as_ref()) {
                Some((_, answer)) => {
                    format!("{} is acknowledged: {answer:?}", call_name(machines, number))
                }
                None => format!("{} is acknowledged", call_name(machines, number)),
            }
        }
        Marker::Note(number) => format!("note {number}"),
    };
    let told = Told {
        events: &ran.trace.units_before(usize::MAX),
        points: &ran.trace.points,
        block_writes: &ran.trace.block_writes,
        crash: None,
        killed: false,
        reads: &reads,
        what: &case.found.what,
        marker: &marker,
        from: 0,
        by_worker: true,
        every_operation: true,
        source_of: &|_| None,
        place,
        cut: None,
    };
    let (mut timeline, lines) = match &case.found.at {
        None => tell(&told),
        Some((point, image)) => {
            let events = &ran.trace.units_before(point.position);
            let told = |found: CrashPoint, states: &CrashStates<'_>| {
                let crash = Some((found.cause, states, image));
                tell(&Told { events, crash, ..told })
            };
            machines.at_crash(ran, point.position, told).ok_or("there is no such crash point")?
        }
    };
    let position = case.found.position().unwrap_or(usize::MAX);
    number_by_events(&mut timeline, &ran.trace, position);
    let callers = machines.calls.iter().filter(|calls| !calls.is_empty()).count();
    let kept = machines.calls.iter().zip(0u8..).flat_map(|(calls, worker)| {
        calls.iter().map(move |(number, call)| kept(*number, Some(worker), call))
    });
    let schedule = &case.schedule;
    let selection = &case.selection;
    Ok(Shrunk {
        subject: machines.subject.name().to_owned(),
        operations: kept.collect(),
        lines,
        timeline,
        clause: case.found.rule.to_string(),
        what: case.found.what.clone(),
        replay: replay_command(
            machines.subject.name(),
            machines.options,
            machines.seed,
            selection,
            case.found.crash(),
            Some(schedule),
        ),
        explorations: case.runs,
        history: Some(ShrunkHistory {
            workers: callers,
            before: beforehand(machines),
            schedule: schedule.to_string(),
            switches: schedule.switches(),
            deviations: case.deviations,
        }),
        recorded: false,
    })
}

fn kept(number: u32, worker: Option<u8>, operation: &impl std::fmt::Debug) -> KeptOperation {
    KeptOperation { number: number as usize, worker, what: format!("{operation:?}") }
}

/// What was done beforehand, and the power cut in the last of it.
fn beforehand(machines: &Machines<'_>) -> Vec<KeptOperation> {
    let all = machines.before.iter();
    let mut kept: Vec<_> = all.map(|(number, call)| kept(*number, None, call)).collect();
    if let (Some(last), Some(FirstCut { position, image })) = (kept.last_mut(), &machines.first_cut)
    {
        last.what.push_str(&format!(
            ", and the power is cut after {position} events of it, image {image:?}"
        ));
    }
    kept
}

fn call_name(machines: &Machines<'_>, number: u32) -> String {
    let mut calls = machines.calls.iter().flatten();
    match calls.find(|(other, _)| *other == number) {
        Some((_, operation)) => format!("call {number}: {operation:?}"),
        None => format!("call {number}"),
    }
}

/// What recovery and check read of the uncertain lines.
fn reads(machines: &mut Machines<'_>, ran: &Ran, case: &Case) -> Result<Vec<LineRead>, String> {
    let mut reads = Vec::new();
    let Some((wanted, image)) = &case.found.at else { return Ok(reads) };
    machines.fill_scratch(ran);
    let mut points = ran.crash_points();
    while let Some(point) = points.advance() {
        machines.bring_up_to_date(&points)?;
        if point.position != wanted.position {
            continue;
        }
        let states = points.states();
        machines.apply(&states, image)?;
        machines.recovering.watch_reads(states.uncertain_lines().into_iter().flatten());
        let _ = machines.recover(true);
        machines.recovering.take_reads(&mut reads);
        machines.revert(&states, image)?;
        break;
    }
    Ok(reads)
}

impl Machines<'_> {
    /// What `look` makes of the crash of `ran` after so many events.
    pub(super) fn at_crash<T>(
        &self,
        ran: &Ran,
        position: usize,
        look: impl FnOnce(CrashPoint, &CrashStates<'_>) -> T,
    ) -> Option<T> {
        let mut points = ran.crash_points();
        while let Some(point) = points.advance() {
            if point.position == position {
                return Some(look(point, &points.states()));
            }
        }
        None
    }
}
