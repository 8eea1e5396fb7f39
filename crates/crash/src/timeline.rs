//! Telling a violation step by step: operations, stores, flushes, fences, the crash, what of the
//! uncertain lines made it, what the recovery read of them, and what was wrong then.

use std::collections::HashMap;

use lapis_device::{
    CrashCause, CrashPoints, CrashStates, Event, Image, LineRead, Marker, PowerFailDomain,
};

use crate::explore::{Markers, replay_command};
use crate::image_check::Bench;
use crate::line_history::{LineHistories, StoreFate};
use crate::options::ExploreOptions;
use crate::oracle::Failure;
use crate::report::{KeptOperation, Shrunk, Violation};
use crate::run::Run;
use crate::strategy::Strategy;
use crate::subject::Subject;

/// Events of the last operation that are told one by one; of longer ones only those that touch
/// uncertain lines are.
const MOST_EVENTS: usize = 300;
/// Lines that are told of one by one.
const MOST_LINES: usize = 48;

/// What an entry of a timeline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// An operation begins or is acknowledged.
    Operation,
    /// Events that do not matter here.
    Omitted,
    /// A store, or several that follow each other.
    Store,
    /// A line is written back.
    Flush,
    /// A fence.
    Fence,
    /// The power is cut, or the process killed.
    Crash,
    /// What became of a line.
    Line,
    /// The recovery, or the check after it, reads of an uncertain line.
    Read,
    /// What is wrong.
    Verdict,
}

/// What is known of the newest contents of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineState {
    /// Stored, not flushed.
    Pending,
    /// Flushed, not fenced.
    Flushed,
    /// Survives.
    Durable,
    /// Was not durable, and is gone.
    Lost,
    /// Was not durable, and some of it is there.
    Partly,
    /// Was not durable, and is there all the same.
    Persisted,
}

/// A line that an entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LineChange {
    /// The line.
    pub line: u32,
    /// What is known of it from here on.
    pub state: LineState,
}

/// One entry of a timeline.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TimelineEntry {
    /// Events before it.
    pub event: usize,
    /// What it is about.
    pub kind: EntryKind,
    /// What happened.
    pub text: String,
    /// The source line that asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The lines that it changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineChange>,
}

/// What became of a line that was uncertain.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LineFate {
    /// The line.
    pub line: u32,
    /// Its offset in bytes from the start of the pool.
    pub offset: u64,
    /// Where in the pool that is.
    pub place: String,
    /// How much of it made it.
    pub state: LineState,
}

/// Tells the violation that `options` (with its operations) lead to.
///
/// # Errors
/// What went wrong without any crash, or that the crash cannot be found again.
pub(crate) fn draw<S: Subject>(
    subject: &S,
    options: &ExploreOptions,
    violation: &Violation,
) -> Result<Shrunk, String> {
    let options = ExploreOptions { strategy: Strategy::Pruned, ..options.clone() };
    let run = Run::record(subject, &options)?;
    let mut bench = Bench::new(&run.base, subject.pool_bytes(), &options)?;
    let mut points = CrashPoints::new(&run.trace, &run.base, PowerFailDomain::AdrPortable);
    if options.every_store {
        points = points.at_every_store();
    }
    let mut markers = Markers::default();
    let point = loop {
        let point = points.advance().ok_or("there is no such crash point")?;
        points.bring_up_to_date(&mut bench.region).map_err(|e| e.to_string())?;
        let storage_bytes = run.storage_bytes(point.position);
        bench.region.grow_to(storage_bytes).map_err(|e| e.to_string())?;
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
    states.apply(&image, &mut bench.region).map_err(|e| e.to_string())?;
    bench.watch(&states);
    let seed = options.seed ^ (point.position as u64) << 20;
    let _ = bench.check(subject, markers.expectation(&run), seed, 1);
    let mut reads = Vec::new();
    bench.take_reads(&mut reads);

    let events = &run.trace.events[..point.position];
    let histories = LineHistories::of(events);
    let telling = Telling {
        events,
        fates: histories.final_fates(events, &states, &image),
        histories,
        uncertain: states.uncertain_lines().into_iter().flatten().collect(),
        points: &run.trace.points,
        states: &states,
        image: &image,
        name: &|number| operation_name(&run, number),
        from: markers.begun.unwrap_or(0),
        entries: Vec::new(),
    };
    let (timeline, lines) = telling.tell(point.cause, violation, &reads);
    let kept = run.numbers.iter().zip(&run.operations);
    Ok(Shrunk {
        subject: subject.name().to_owned(),
        operations: kept
            .map(|(&number, operation)| KeptOperation { number, what: format!("{operation:?}") })
            .collect(),
        lines,
        timeline,
        clause: clause(&violation.failure),
        what: violation.what.clone(),
        replay: replay_command(
            subject.name(),
            &options,
            violation.position,
            violation.as_image().as_ref(),
        ),
        explorations: 0,
    })
}

fn operation_name<S: Subject>(run: &Run<S>, number: u32) -> String {
    match (number as usize).checked_sub(1) {
        None => "the creation".to_owned(),
        Some(index) => match run.operations.get(index) {
            Some(operation) => format!("operation {}: {operation:?}", run.numbers[index]),
            None => "the clean shutdown".to_owned(),
        },
    }
}

/// The clause of the oracle that a failure breaks.
fn clause(failure: &Failure) -> &'static str {
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

struct Telling<'t> {
    events: &'t [Event],
    histories: LineHistories,
    /// What became of the pending stores.
    fates: HashMap<usize, StoreFate>,
    uncertain: Vec<u32>,
    points: &'t [lapis_device::PersistPoint],
    states: &'t CrashStates<'t>,
    image: &'t Image,
    name: &'t dyn Fn(u32) -> String,
    /// The operation that is told in full, if it is not too long.
    from: u32,
    entries: Vec<TimelineEntry>,
}

/// Stores that follow each other in memory, as those of one copy do.
struct Stores {
    event: usize,
    kind: &'static str,
    start: u64,
    end: u64,
    value: u64,
    fates: Vec<StoreFate>,
    lines: Vec<u32>,
}

impl Telling<'_> {
    fn tell(
        mut self,
        cause: CrashCause,
        violation: &Violation,
        reads: &[LineRead],
    ) -> (Vec<TimelineEntry>, Vec<LineFate>) {
        self.events();
        let position = self.events.len();
        let what = if violation.killed {
            "the process is killed here; the power is cut during its recovery".to_owned()
        } else {
            match cause {
                CrashCause::BeforeFence(_) => "the power is cut before the next fence".to_owned(),
                CrashCause::BeforeLocked => {
                    "the power is cut before the next locked operation".to_owned()
                }
                CrashCause::BeforeStrongFlush => {
                    "the power is cut before the next clflush".to_owned()
                }
                CrashCause::BeforeStore => "the power is cut before the next store".to_owned(),
                CrashCause::OperationEnd(_) => {
                    "the power is cut just after the acknowledgement".to_owned()
                }
                CrashCause::AfterStore => "the power is cut after this store".to_owned(),
                CrashCause::AfterFlush(_) => "the power is cut after this flush".to_owned(),
                CrashCause::TraceEnd => "the power is cut at the end".to_owned(),
            }
        };
        let source = match cause {
            CrashCause::BeforeFence(point) => Some(point.to_string()),
            _ => None,
        };
        self.push(position, EntryKind::Crash, what, source, Vec::new());
        let fates = self.fates();
        for fate in fates.iter().take(MOST_LINES) {
            let stored = self.histories.pending_of(fate.line).len();
            let what = match fate.state {
                LineState::Lost => format!("none of its {stored} pending stores made it"),
                LineState::Persisted => format!("all of its {stored} pending stores made it"),
                _ => format!("some of its {stored} pending stores made it"),
            };
            let text = format!("line {} ({}): {what}", fate.line, fate.place);
            let change = LineChange { line: fate.line, state: fate.state };
            self.push(position, EntryKind::Line, text, None, vec![change]);
        }
        if fates.len() > MOST_LINES {
            let text = format!("… and {} lines more", fates.len() - MOST_LINES);
            self.push(position, EntryKind::Omitted, text, None, Vec::new());
        }
        self.reads(reads);
        self.push(position, EntryKind::Verdict, violation.what.clone(), None, Vec::new());
        (self.entries, fates)
    }

    fn push(
        &mut self,
        event: usize,
        kind: EntryKind,
        text: String,
        source: Option<String>,
        lines: Vec<LineChange>,
    ) {
        self.entries.push(TimelineEntry { event, kind, text, source, lines });
    }

    fn is_uncertain(&self, line: u32) -> bool {
        self.uncertain.binary_search(&line).is_ok()
    }

    fn events(&mut self) {
        let begin = self.events.iter().rposition(|event| {
            matches!(event, Event::Marker { marker: Marker::Begin(number), .. }
                if *number == self.from)
        });
        let begin = begin.unwrap_or(0);
        // A long operation (a creation) is told like those before it.
        let in_full = if self.events.len() - begin > MOST_EVENTS { usize::MAX } else { begin };
        let mut omitted = Omitted::default();
        let mut stores: Option<Stores> = None;
        let mut at = 0;
        while at < self.events.len() {
            let event = self.events[at];
            let matters = at >= in_full || self.matters(at, &event);
            let continues = match (&event, &mut stores) {
                (_, Some(run)) if matters => self.joins(run, at, &event),
                _ => false,
            };
            if !continues {
                self.finish(&mut stores);
                if matters {
                    self.omit(&mut omitted, at);
                    stores = self.event(at, &event);
                } else {
                    omitted.count(&event);
                }
            }
            at += 1;
        }
        self.finish(&mut stores);
        let end = self.events.len();
        self.omit(&mut omitted, end);
    }

    /// Whether an event outside of the operation told in full has to do with the crash.
    fn matters(&self, at: usize, event: &Event) -> bool {
        match event {
            Event::Marker { marker: Marker::Begin(_) | Marker::End(_), .. } => true,
            Event::Marker { .. } => false,
            Event::Store { line, .. }
            | Event::OrderedStore { line, .. }
            | Event::Locked { line, .. }
            | Event::NonTemporal { line, .. } => {
                self.is_uncertain(*line) && self.histories.fate(at) == StoreFate::Pending
            }
            Event::Flush { line, .. } => {
                self.is_uncertain(*line) && self.histories.is_flushed_in_vain(at)
            }
            Event::StrongFlush { .. } | Event::Fence { .. } => false,
        }
    }

    fn event(&mut self, at: usize, event: &Event) -> Option<Stores> {
        let source = |point: u16| {
            let point = self.points[usize::from(point)];
            Some(format!("{}:{}:{}", point.file, point.line, point.column))
        };
        match *event {
            Event::Marker { marker, .. } => {
                let text = match marker {
                    Marker::Begin(number) => format!("{} begins", (self.name)(number)),
                    Marker::End(number) => format!("{} is acknowledged", (self.name)(number)),
                    Marker::Note(number) => format!("note {number}"),
                };
                self.push(at, EntryKind::Operation, text, None, Vec::new());
            }
            Event::Flush { point, line, .. } => {
                let source = source(point);
                let text = format!("flush line {line} ({})", place(u64::from(line) * 64));
                let lines = self.histories.changes_at(at);
                self.push(at, EntryKind::Flush, text, source, lines);
            }
            Event::StrongFlush { line, .. } => {
                let text = format!("clflush line {line} ({})", place(u64::from(line) * 64));
                let lines = self.histories.changes_at(at);
                self.push(at, EntryKind::Flush, text, None, lines);
            }
            Event::Fence { point, .. } => {
                let source = source(point);
                let lines = self.histories.changes_at(at);
                let text = match lines.len() {
                    0 => "fence".to_owned(),
                    1 => format!("fence: line {} is durable", lines[0].line),
                    count => format!("fence: {count} lines are durable"),
                };
                self.push(at, EntryKind::Fence, text, source, lines);
            }
            Event::Store { .. }
            | Event::OrderedStore { .. }
            | Event::Locked { .. }
            | Event::NonTemporal { .. } => return self.store(at, event),
        }
        None
    }

    fn store(&self, at: usize, event: &Event) -> Option<Stores> {
        let (kind, line, start, bytes, value) = match *event {
            Event::Store { start, bytes, line, value, .. } => ("store", line, start, bytes, value),
            Event::OrderedStore { start, bytes, line, value, .. } => {
                ("store in order", line, start, bytes, value)
            }
            Event::Locked { start, bytes, line, value, .. } => {
                ("locked store", line, start, bytes, value)
            }
            Event::NonTemporal { start, bytes, line, value, .. } => {
                ("store past the caches", line, start, bytes, value)
            }
            _ => return None,
        };
        let start = u64::from(line) * 64 + u64::from(start);
        let end = start + u64::from(bytes);
        let fates = vec![self.fates.get(&at).copied().unwrap_or(StoreFate::Durable)];
        Some(Stores { event: at, kind, start, end, value, fates, lines: vec![line] })
    }

    /// Whether the event goes on where the stores end, in the same manner.
    fn joins(&self, stores: &mut Stores, at: usize, event: &Event) -> bool {
        if !matches!(event, Event::Store { .. } | Event::NonTemporal { .. }) {
            return false;
        }
        let Some(next) = self.store(at, event) else { return false };
        if next.kind != stores.kind || next.start != stores.end {
            return false;
        }
        stores.end = next.end;
        stores.fates.extend(next.fates);
        if stores.lines.last() != next.lines.last() {
            stores.lines.extend(next.lines);
        }
        true
    }

    fn finish(&mut self, stores: &mut Option<Stores>) {
        let Some(stores) = stores.take() else { return };
        let (bytes, count) = (stores.end - stores.start, stores.fates.len());
        let what = if count == 1 {
            format!("= {:#0width$x}", stores.value, width = 2 + 2 * bytes as usize)
        } else {
            format!("({count} stores)")
        };
        let of = |fate: StoreFate| stores.fates.iter().filter(|found| **found == fate).count();
        let fate = match (of(StoreFate::Lost), of(StoreFate::Persisted)) {
            (0, 0) => "",
            (_, 0) => " – lost",
            (0, _) => " – made it",
            _ => " – partly lost",
        };
        let text = format!(
            "{} {bytes} bytes at {:#x} (line {}, {}) {what}{fate}",
            stores.kind,
            stores.start,
            stores.lines[0],
            place(stores.start),
        );
        let state = LineState::Pending;
        let lines = stores.lines.iter().map(|&line| LineChange { line, state }).collect();
        self.push(stores.event, EntryKind::Store, text, None, lines);
    }

    fn omit(&mut self, omitted: &mut Omitted, at: usize) {
        if let Some(text) = std::mem::take(omitted).text() {
            self.push(at, EntryKind::Omitted, text, None, Vec::new());
        }
    }

    fn fates(&self) -> Vec<LineFate> {
        let everything = self.states.everything();
        let chosen = self.image.choices().iter().zip(everything.choices());
        let lines = self.uncertain.iter().zip(chosen);
        lines
            .map(|(&line, (&choice, &newest))| {
                let offset = u64::from(line) * 64;
                let state = match choice {
                    0 => LineState::Lost,
                    _ if choice == newest => LineState::Persisted,
                    _ => LineState::Partly,
                };
                LineFate { line, offset, place: place(offset), state }
            })
            .collect()
    }

    fn reads(&mut self, reads: &[LineRead]) {
        let Some(states) = self.states.line_states() else { return };
        let position = self.events.len();
        let mut seen: Vec<u32> = Vec::new();
        for read in reads {
            if seen.contains(&read.place) {
                continue;
            }
            seen.push(read.place);
            if seen.len() > MOST_LINES {
                break;
            }
            let of_line = reads.iter().filter(|other| other.place == read.place);
            let mask = of_line.fold(0, |mask, other| mask | other.bytes);
            let at = read.place as usize;
            let bytes = &states[at][self.image.choices()[at] as usize];
            let text = format!(
                "recovery and check read of line {}: {}",
                self.uncertain[at],
                words(bytes, mask)
            );
            self.push(position, EntryKind::Read, text, None, Vec::new());
        }
    }
}

/// The words of a line that a mask touches, with their offsets.
fn words(bytes: &[u8; 64], mask: u64) -> String {
    let words = bytes.chunks_exact(8).enumerate();
    let read = words.filter(|(word, _)| mask >> (8 * word) & 0xFF != 0);
    let texts = read.map(|(word, bytes)| {
        let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        format!("+{:#x} = {value:#x}", 8 * word)
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct Omitted {
    stores: usize,
    flushes: usize,
    fences: usize,
}

impl Omitted {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Marker { .. } => {}
            Event::Flush { .. } => self.flushes += 1,
            Event::Fence { .. } => self.fences += 1,
            _ => self.stores += 1,
        }
    }

    fn text(self) -> Option<String> {
        let counts = [
            (self.stores, "store", "stores"),
            (self.flushes, "flush", "flushes"),
            (self.fences, "fence", "fences"),
        ];
        let named: Vec<_> = counts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        (!named.is_empty()).then(|| format!("… {}", named.join(", ")))
    }
}
