//! A trace file in memory: as a [`Trace`], and what a trace has no room for.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use lapis_pmem::LINE_BYTES;
use parking_lot::Mutex;
use serde::Serialize;

use super::record::{FlushInstruction, Record, StoreKind};
use super::{
    Ending, RECORD_BYTES_LIMIT, RECORD_LINES_LIMIT, RecordProblem, TraceFileError, TraceHeader,
    TraceReader, TraceWriter,
};
use crate::modelled::persist_points::{PersistKind, PersistPoint};
use crate::trace::{Event, Trace, unit_value, units};

/// A place in the source of the program that was traced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLocation {
    /// The file, as its compiler saw it.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.column > 0 { write!(f, ":{}", self.column) } else { Ok(()) }
    }
}

impl Serialize for SourceLocation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What part of the memory held before the first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BasePiece {
    /// These bytes.
    Bytes {
        /// From here.
        offset: u64,
        /// These.
        bytes: Vec<u8>,
    },
    /// One byte, many times.
    Fill {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
        /// This one.
        value: u8,
    },
}

/// What a program says of its own persistence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum Claim {
    /// All stores to the range so far are durable.
    Durable {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
    /// No power cut leaves the last stores to the second range without those to the first.
    InOrder {
        /// Offset and length of the first.
        first: (u64, u64),
        /// Offset and length of the second.
        second: (u64, u64),
    },
    /// Nothing rests on the range: it may be lost.
    Volatile {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
}

/// A [`Claim`] at an instant of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assertion {
    /// Events before it.
    pub position: usize,
    /// Who claims it.
    pub worker: u8,
    /// Where, as in [`RecordedTrace::places`].
    pub place: u32,
    /// What.
    pub claim: Claim,
}

/// What a header calls the writer of a run of our own.
const OUR_OWN: &str = "lapis";

/// A trace file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTrace {
    /// What the file says of itself.
    pub header: TraceHeader,
    /// What memory held; zero where no piece lies, and the later of two pieces where they overlap.
    pub base: Vec<BasePiece>,
    /// What happened.
    pub trace: Trace,
    /// For each event, the place in the source: 0 if unknown, else the index in
    /// [`RecordedTrace::locations`] plus one.
    pub places: Vec<u32>,
    /// Places in the source.
    pub locations: Vec<SourceLocation>,
    /// What the program claimed, in order.
    pub assertions: Vec<Assertion>,
    /// How the file ended.
    pub ending: Ending,
}

impl RecordedTrace {
    /// A trace recorded by [`Modelled`](crate::Modelled) over memory that held `base`, in units: what
    /// is said of a recorded trace is said of single stores.
    pub fn of_run(trace: Trace, base: &[u8]) -> Self {
        let trace = trace.in_units();
        let mut recorded = Self::empty(TraceHeader {
            region_bytes: base.len() as u64,
            base_address: 0,
            writer: OUR_OWN.to_owned(),
        });
        recorded.base = base_pieces(base);
        recorded.ending = Ending::Complete;
        let mut numbers = HashMap::new();
        for event in &trace.events {
            let place = match *event {
                Event::Flush { point, .. } | Event::Fence { point, .. } => {
                    let point = trace.points[usize::from(point)];
                    let key = (point.file, point.line, point.column);
                    *numbers.entry(key).or_insert_with(|| {
                        let PersistPoint { file, line, column, .. } = point;
                        recorded.locations.push(SourceLocation { file: file.into(), line, column });
                        recorded.locations.len() as u32
                    })
                }
                _ => 0,
            };
            recorded.places.push(place);
        }
        recorded.trace = trace;
        recorded
    }

    fn empty(header: TraceHeader) -> Self {
        Self {
            header,
            base: Vec::new(),
            trace: Trace::default(),
            places: Vec::new(),
            locations: Vec::new(),
            assertions: Vec::new(),
            ending: Ending::Cut { whole_bytes: 0, torn_bytes: 0 },
        }
    }

    /// Whether it is a run of one of our own structures ([`RecordedTrace::of_run`]).
    pub fn is_of_our_own(&self) -> bool {
        self.header.writer == OUR_OWN
    }

    /// Reads a trace file that is undamaged. It may be cut: see [`RecordedTrace::ending`].
    ///
    /// # Errors
    /// [`TraceFileError`].
    pub fn read(input: impl Read) -> Result<Self, TraceFileError> {
        match Self::read_prefix(input)? {
            (recorded, None) => Ok(recorded),
            (_, Some(damage)) => Err(damage),
        }
    }

    /// Reads a trace file up to its end or to where it is damaged, with the damage.
    ///
    /// # Errors
    /// [`TraceFileError`] if not even the header can be read.
    pub fn read_prefix(input: impl Read) -> Result<(Self, Option<TraceFileError>), TraceFileError> {
        let mut reader = TraceReader::new(input)?;
        let mut recorded = Self::empty(reader.header().clone());
        let mut files: Vec<Arc<str>> = Vec::new();
        let mut points = HashMap::new();
        let mut records = 0;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    if let Err(what) = recorded.add(record, &mut files, &mut points) {
                        let at = reader.whole_bytes();
                        let damage = TraceFileError::Record { record: records, at, what };
                        return Ok((recorded, Some(damage)));
                    }
                    records += 1;
                }
                Ok(None) => break,
                Err(damage) => return Ok((recorded, Some(damage))),
            }
        }
        if let Some(ending) = reader.ending() {
            recorded.ending = ending;
        }
        Ok((recorded, None))
    }

    fn add(
        &mut self,
        record: Record,
        files: &mut Vec<Arc<str>>,
        points: &mut HashMap<(u32, PersistKind), u16>,
    ) -> Result<(), RecordProblem> {
        match record {
            Record::Base { offset, bytes } => self.base.push(BasePiece::Bytes { offset, bytes }),
            Record::Fill { offset, bytes, value } => {
                self.base.push(BasePiece::Fill { offset, bytes, value });
            }
            Record::File { name } => files.push(name.into()),
            Record::Location { file, line, column } => {
                let file = Arc::clone(&files[file as usize]);
                self.locations.push(SourceLocation { file, line, column });
            }
            Record::Store { kind, worker, location, offset, bytes } => {
                for (line, start, length, at) in units(offset as usize, bytes.len()) {
                    let value = unit_value(&bytes[at..at + usize::from(length)]);
                    let bytes = length;
                    let event = match kind {
                        StoreKind::Plain => Event::Store { worker, start, bytes, line, value },
                        StoreKind::Ordered => {
                            Event::OrderedStore { worker, start, bytes, line, value }
                        }
                        StoreKind::Locked => Event::Locked { worker, start, bytes, line, value },
                        StoreKind::NonTemporal => {
                            Event::NonTemporal { worker, start, bytes, line, value }
                        }
                    };
                    self.push(event, location);
                }
            }
            Record::Flush { instruction, worker, location, line, lines } => {
                for line in line..line + lines {
                    let line = line as u32;
                    let event = if instruction == FlushInstruction::Clflush {
                        Event::StrongFlush { worker, line }
                    } else {
                        let point = self.point(location, PersistKind::Flush, points)?;
                        Event::Flush { worker, point, line }
                    };
                    self.push(event, location);
                }
            }
            Record::Fence { worker, location } => {
                let point = self.point(location, PersistKind::Fence, points)?;
                self.push(Event::Fence { worker, point }, location);
            }
            Record::Marker { worker, location, marker } => {
                self.push(Event::Marker { worker, marker }, location);
            }
            Record::Durable { worker, location, offset, bytes } => {
                self.claim(worker, location, Claim::Durable { offset, bytes });
            }
            Record::InOrder { worker, location, first, second } => {
                self.claim(worker, location, Claim::InOrder { first, second });
            }
            Record::Volatile { worker, location, offset, bytes } => {
                self.claim(worker, location, Claim::Volatile { offset, bytes });
            }
            Record::Trailer { .. } => {}
        }
        Ok(())
    }

    fn push(&mut self, event: Event, place: u32) {
        self.trace.events.push(event);
        self.places.push(place);
    }

    fn claim(&mut self, worker: u8, place: u32, claim: Claim) {
        let position = self.trace.events.len();
        self.assertions.push(Assertion { position, worker, place, claim });
    }

    fn point(
        &mut self,
        place: u32,
        kind: PersistKind,
        points: &mut HashMap<(u32, PersistKind), u16>,
    ) -> Result<u16, RecordProblem> {
        if let Some(&point) = points.get(&(place, kind)) {
            return Ok(point);
        }
        let number =
            u16::try_from(self.trace.points.len()).map_err(|_| RecordProblem::TooManyLocations)?;
        let point = match self.location(place) {
            Some(at) => {
                PersistPoint { file: interned(&at.file), line: at.line, column: at.column, kind }
            }
            None => PersistPoint { file: "unknown", line: 0, column: 0, kind },
        };
        self.trace.points.push(point);
        points.insert((place, kind), number);
        Ok(number)
    }

    /// The place in the source that a number of [`RecordedTrace::places`] stands for.
    pub fn location(&self, place: u32) -> Option<&SourceLocation> {
        self.locations.get((place as usize).checked_sub(1)?)
    }

    /// The place in the source of the event at `position`.
    pub fn event_location(&self, position: usize) -> Option<&SourceLocation> {
        self.location(*self.places.get(position)?)
    }

    /// Writes what memory held before the first event to `memory`, which is zero, as far as it
    /// reaches.
    pub fn lay_base(&self, memory: &mut [u8]) {
        for piece in &self.base {
            let (offset, length) = match piece {
                BasePiece::Bytes { offset, bytes } => (*offset as usize, bytes.len()),
                BasePiece::Fill { offset, bytes, .. } => (*offset as usize, *bytes as usize),
            };
            let end = (offset + length).min(memory.len());
            let Some(place) = memory.get_mut(offset..end) else { continue };
            match piece {
                BasePiece::Bytes { bytes, .. } => place.copy_from_slice(&bytes[..place.len()]),
                BasePiece::Fill { value, .. } => place.fill(*value),
            }
        }
    }

    /// Writes the trace as a file.
    ///
    /// # Errors
    /// What writing says; `InvalidInput` for a trace that no file can hold.
    pub fn write<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = TraceWriter::new(out, &self.header)?;
        for piece in &self.base {
            match piece {
                BasePiece::Bytes { offset, bytes } => {
                    for (index, bytes) in bytes.chunks(RECORD_BYTES_LIMIT).enumerate() {
                        let offset = offset + (index * RECORD_BYTES_LIMIT) as u64;
                        writer.write(&Record::Base { offset, bytes: bytes.to_vec() })?;
                    }
                }
                &BasePiece::Fill { offset, bytes, value } => {
                    writer.write(&Record::Fill { offset, bytes, value })?;
                }
            }
        }
        let mut files: HashMap<&str, u32> = HashMap::new();
        for location in &self.locations {
            let next = files.len() as u32;
            let file = *files.entry(&location.file).or_insert(next);
            if file == next {
                writer.write(&Record::File { name: location.file.as_ref().to_owned() })?;
            }
            let SourceLocation { line, column, .. } = *location;
            writer.write(&Record::Location { file, line, column })?;
        }
        let mut assertions = self.assertions.iter().peekable();
        // Neighbouring words of one copy, and neighbouring lines of one flush, become one record.
        let mut held: Option<Record> = None;
        for (position, event) in self.trace.events.iter().enumerate() {
            while let Some(assertion) = assertions.next_if(|next| next.position <= position) {
                if let Some(held) = held.take() {
                    writer.write(&held)?;
                }
                writer.write(&assertion_record(assertion))?;
            }
            let place = self.places.get(position).copied().unwrap_or(0);
            for unit in self.trace.units(*event) {
                let Some(record) = event_record(&unit, place) else { continue };
                if held.as_mut().is_some_and(|held| join(held, &record)) {
                    continue;
                }
                if let Some(held) = held.replace(record) {
                    writer.write(&held)?;
                }
            }
        }
        if let Some(held) = held {
            writer.write(&held)?;
        }
        for assertion in assertions {
            writer.write(&assertion_record(assertion))?;
        }
        match self.ending {
            Ending::Complete => writer.finish(),
            Ending::Cut { .. } => writer.leave(),
        }
    }
}

fn assertion_record(assertion: &Assertion) -> Record {
    let Assertion { worker, place: location, .. } = *assertion;
    match assertion.claim {
        Claim::Durable { offset, bytes } => Record::Durable { worker, location, offset, bytes },
        Claim::InOrder { first, second } => Record::InOrder { worker, location, first, second },
        Claim::Volatile { offset, bytes } => Record::Volatile { worker, location, offset, bytes },
    }
}

/// The record of a unit, if files have one for it.
fn event_record(event: &Event, location: u32) -> Option<Record> {
    let store = |kind, worker, start: u8, bytes: u8, line: u32, value: u64| Record::Store {
        kind,
        worker,
        location,
        offset: u64::from(line) * LINE_BYTES as u64 + u64::from(start),
        bytes: value.to_le_bytes()[..usize::from(bytes)].to_vec(),
    };
    let flush = |instruction, worker, line: u32| Record::Flush {
        instruction,
        worker,
        location,
        line: line.into(),
        lines: 1,
    };
    Some(match *event {
        Event::Store { worker, start, bytes, line, value } => {
            store(StoreKind::Plain, worker, start, bytes, line, value)
        }
        Event::OrderedStore { worker, start, bytes, line, value } => {
            store(StoreKind::Ordered, worker, start, bytes, line, value)
        }
        Event::Locked { worker, start, bytes, line, value } => {
            store(StoreKind::Locked, worker, start, bytes, line, value)
        }
        Event::NonTemporal { worker, start, bytes, line, value } => {
            store(StoreKind::NonTemporal, worker, start, bytes, line, value)
        }
        Event::Flush { worker, line, .. } => flush(FlushInstruction::Clwb, worker, line),
        Event::StrongFlush { worker, line } => flush(FlushInstruction::Clflush, worker, line),
        Event::Fence { worker, .. } => Record::Fence { worker, location },
        Event::Marker { worker, marker } => Record::Marker { worker, location, marker },
        // Units are neither copies nor several flushes; block devices are not told of.
        Event::Copy { .. } | Event::FlushLines { .. } | Event::Block { .. } => return None,
    })
}

/// Appends `next` to `held` if reading the longer record gives the same events.
fn join(held: &mut Record, next: &Record) -> bool {
    match (held, next) {
        (
            Record::Store { kind, worker, location, offset, bytes },
            Record::Store {
                kind: next_kind,
                worker: next_worker,
                location: next_location,
                offset: next_offset,
                bytes: next_bytes,
            },
        ) => {
            let end = *offset + bytes.len() as u64;
            let joins = matches!(kind, StoreKind::Plain | StoreKind::NonTemporal)
                && *kind == *next_kind
                && *worker == *next_worker
                && *location == *next_location
                && end == *next_offset
                // Where a store is split anyway.
                && end.is_multiple_of(8)
                && bytes.len() + next_bytes.len() <= RECORD_BYTES_LIMIT;
            if joins {
                bytes.extend_from_slice(next_bytes);
            }
            joins
        }
        (
            Record::Flush { instruction, worker, location, line, lines },
            Record::Flush {
                instruction: next_instruction,
                worker: next_worker,
                location: next_location,
                line: next_line,
                ..
            },
        ) => {
            let joins = *instruction == *next_instruction
                && *worker == *next_worker
                && *location == *next_location
                && *line + *lines == *next_line
                && *lines < RECORD_LINES_LIMIT;
            *lines += u64::from(joins);
            joins
        }
        _ => false,
    }
}

/// The parts of a memory that are not zero: uniform pages as fills.
fn base_pieces(base: &[u8]) -> Vec<BasePiece> {
    const PAGE_BYTES: usize = RECORD_BYTES_LIMIT;
    let mut pieces: Vec<BasePiece> = Vec::new();
    for (index, page) in base.chunks(PAGE_BYTES).enumerate() {
        let (offset, length) = ((index * PAGE_BYTES) as u64, page.len() as u64);
        let value = page[0];
        if page.iter().any(|&byte| byte != value) {
            pieces.push(BasePiece::Bytes { offset, bytes: page.to_vec() });
        } else if value != 0 {
            match pieces.last_mut() {
                Some(BasePiece::Fill { offset: from, bytes, value: last })
                    if *last == value && *from + *bytes == offset =>
                {
                    *bytes += length;
                }
                _ => pieces.push(BasePiece::Fill { offset, bytes: length, value }),
            }
        }
    }
    pieces
}

/// The name for the rest of the process: persist points are compared and copied a lot, and the
/// names of source files are few and short ([`super::FILE_NAME_BYTES_LIMIT`]).
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(kept);
            kept
        }
    }
}
