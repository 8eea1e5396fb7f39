//! Records: what a trace file is a sequence of.

use lapis_pmem::LINE_BYTES;

use super::encoding::{Cursor, put_delta, put_varint};
use super::{
    FILE_NAME_BYTES_LIMIT, FILL_BYTES_LIMIT, LOCATION_LIMIT, RECORD_BYTES_LIMIT,
    RECORD_LINES_LIMIT, RecordProblem, WORKER_LIMIT,
};
use crate::trace::Marker;

/// How bytes were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// In no particular order among its neighbours.
    Plain,
    /// After all earlier stores to its line.
    Ordered,
    /// By a locked instruction.
    Locked,
    /// Past the caches.
    NonTemporal,
}

/// What lines were flushed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushInstruction {
    /// Writes back and keeps the line.
    Clwb,
    /// Writes back and drops the line.
    Clflushopt,
    /// The same, ordered with other stores: complete before whatever follows.
    Clflush,
}

/// One record. See the [module documentation](super) for the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// What memory held before the first event.
    Base {
        /// From here.
        offset: u64,
        /// These.
        bytes: Vec<u8>,
    },
    /// Memory held one byte many times.
    Fill {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
        /// This one.
        value: u8,
    },
    /// Introduces the next source file.
    File {
        /// Its name.
        name: String,
    },
    /// Introduces the next place in a source file.
    Location {
        /// The file.
        file: u32,
        /// Line, from 1.
        line: u32,
        /// Column, from 1; 0 if unknown.
        column: u32,
    },
    /// A store.
    Store {
        /// How.
        kind: StoreKind,
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// Where to.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// A flush.
    Flush {
        /// With what.
        instruction: FlushInstruction,
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// Number of the first line.
        line: u64,
        /// So many lines.
        lines: u64,
    },
    /// A fence.
    Fence {
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
    },
    /// A marker.
    Marker {
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// The note.
        marker: Marker,
    },
    /// Asserts that a range is durable.
    Durable {
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
    /// Asserts that what one range holds persisted before what another holds.
    InOrder {
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// Offset and length of the first.
        first: (u64, u64),
        /// Offset and length of the second.
        second: (u64, u64),
    },
    /// Declares that nothing rests on a range: a lock, a cache.
    Volatile {
        /// Who.
        worker: u8,
        /// From which place in the source; 0 if unknown.
        location: u32,
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
    /// The end.
    Trailer {
        /// Records before it.
        records: u64,
    },
}

/// What earlier records allow later ones to say.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub(super) region_bytes: u64,
    pub(super) files: usize,
    pub(super) locations: usize,
    pub(super) filled_bytes: u64,
    pub(super) events_began: bool,
    pub(super) records: u64,
    pub(super) ended: bool,
}

impl Context {
    fn inside(&self, offset: u64, bytes: u64) -> Result<(), RecordProblem> {
        let end = offset.checked_add(bytes).ok_or(RecordProblem::Outside)?;
        if end <= self.region_bytes { Ok(()) } else { Err(RecordProblem::Outside) }
    }

    fn located(&self, worker: u8, location: u32) -> Result<(), RecordProblem> {
        if worker > WORKER_LIMIT {
            return Err(RecordProblem::Worker);
        }
        let known = location as usize <= self.locations;
        if known { Ok(()) } else { Err(RecordProblem::UnknownLocation) }
    }

    /// Whether `record` may come next, and what may come after it.
    pub(super) fn admit(&mut self, record: &Record) -> Result<(), RecordProblem> {
        if self.ended {
            return Err(RecordProblem::AfterTrailer);
        }
        match *record {
            Record::Base { offset, ref bytes } => {
                check_length(bytes.len() as u64, RECORD_BYTES_LIMIT as u64)?;
                self.inside(offset, bytes.len() as u64)?;
                self.before_events()?;
            }
            Record::Fill { offset, bytes, .. } => {
                check_length(bytes, u64::MAX)?;
                self.inside(offset, bytes)?;
                self.before_events()?;
                // No overflow: the region is far smaller than 2^63 bytes.
                self.filled_bytes += bytes;
                if self.filled_bytes > FILL_BYTES_LIMIT {
                    return Err(RecordProblem::TooMuchFill);
                }
            }
            Record::File { ref name } => {
                check_length(name.len() as u64, FILE_NAME_BYTES_LIMIT as u64)?;
                self.files += 1;
                if self.files > LOCATION_LIMIT {
                    return Err(RecordProblem::TooManyLocations);
                }
            }
            Record::Location { file, .. } => {
                if file as usize >= self.files {
                    return Err(RecordProblem::UnknownLocation);
                }
                self.locations += 1;
                if self.locations > LOCATION_LIMIT {
                    return Err(RecordProblem::TooManyLocations);
                }
            }
            Record::Store { kind, worker, location, offset, ref bytes } => {
                self.located(worker, location)?;
                self.inside(offset, bytes.len() as u64)?;
                check_length(bytes.len() as u64, RECORD_BYTES_LIMIT as u64)?;
                if matches!(kind, StoreKind::Ordered | StoreKind::Locked) {
                    if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
                        return Err(RecordProblem::Length);
                    }
                    if !offset.is_multiple_of(bytes.len() as u64) {
                        return Err(RecordProblem::Alignment);
                    }
                }
            }
            Record::Flush { worker, location, line, lines, .. } => {
                self.located(worker, location)?;
                check_length(lines, RECORD_LINES_LIMIT)?;
                let end = line.checked_add(lines).ok_or(RecordProblem::Outside)?;
                if end > self.region_bytes.div_ceil(LINE_BYTES as u64) {
                    return Err(RecordProblem::Outside);
                }
            }
            Record::Fence { worker, location } | Record::Marker { worker, location, .. } => {
                self.located(worker, location)?;
            }
            Record::Durable { worker, location, offset, bytes }
            | Record::Volatile { worker, location, offset, bytes } => {
                self.located(worker, location)?;
                check_length(bytes, u64::MAX)?;
                self.inside(offset, bytes)?;
            }
            Record::InOrder { worker, location, first, second } => {
                self.located(worker, location)?;
                for (offset, bytes) in [first, second] {
                    check_length(bytes, u64::MAX)?;
                    self.inside(offset, bytes)?;
                }
            }
            Record::Trailer { records } => {
                if records != self.records {
                    return Err(RecordProblem::WrongCount);
                }
                self.ended = true;
            }
        }
        self.events_began |= record.is_event();
        self.records += 1;
        Ok(())
    }

    fn before_events(&self) -> Result<(), RecordProblem> {
        if self.events_began { Err(RecordProblem::LateBase) } else { Ok(()) }
    }
}

fn check_length(length: u64, limit: u64) -> Result<(), RecordProblem> {
    if (1..=limit).contains(&length) { Ok(()) } else { Err(RecordProblem::Length) }
}

/// The line that a byte lies in.
fn line_of(offset: u64) -> Result<u64, RecordProblem> {
    let line = LINE_BYTES as u64;
    if offset.is_multiple_of(line) { Ok(offset / line) } else { Err(RecordProblem::Alignment) }
}

impl Record {
    fn is_event(&self) -> bool {
        !matches!(
            self,
            Self::Base { .. }
                | Self::Fill { .. }
                | Self::File { .. }
                | Self::Location { .. }
                | Self::Trailer { .. }
        )
    }

    /// Appends the record to a payload. `previous` is the last offset coded as a difference.
    pub(super) fn encode(&self, out: &mut Vec<u8>, previous: &mut u64) {
        let event = |out: &mut Vec<u8>, tag: u8, worker: u8, location: u32| {
            out.extend([tag, worker]);
            put_varint(out, location.into());
        };
        match *self {
            Self::Base { offset, ref bytes } => {
                out.push(0x01);
                put_varint(out, offset);
                put_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            Self::Fill { offset, bytes, value } => {
                out.push(0x02);
                put_varint(out, offset);
                put_varint(out, bytes);
                out.push(value);
            }
            Self::File { ref name } => {
                out.push(0x03);
                put_varint(out, name.len() as u64);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Location { file, line, column } => {
                out.push(0x04);
                for number in [file, line, column] {
                    put_varint(out, number.into());
                }
            }
            Self::Store { kind, worker, location, offset, ref bytes } => {
                let tag = match kind {
                    StoreKind::Plain => 0x10,
                    StoreKind::Ordered => 0x11,
                    StoreKind::Locked => 0x12,
                    StoreKind::NonTemporal => 0x13,
                };
                event(out, tag, worker, location);
                put_delta(out, previous, offset);
                put_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            Self::Flush { instruction, worker, location, line, lines } => {
                let tag = match instruction {
                    FlushInstruction::Clwb => 0x20,
                    FlushInstruction::Clflushopt => 0x21,
                    FlushInstruction::Clflush => 0x22,
                };
                event(out, tag, worker, location);
                put_delta(out, previous, line * LINE_BYTES as u64);
                put_varint(out, lines);
            }
            Self::Fence { worker, location } => event(out, 0x23, worker, location),
            Self::Marker { worker, location, marker } => {
                let (tag, number) = match marker {
                    Marker::Begin(number) => (0x30, number),
                    Marker::End(number) => (0x31, number),
                    Marker::Note(number) => (0x32, number),
                };
                event(out, tag, worker, location);
                put_varint(out, number.into());
            }
            Self::Durable { worker, location, offset, bytes } => {
                event(out, 0x40, worker, location);
                put_varint(out, offset);
                put_varint(out, bytes);
            }
            Self::InOrder { worker, location, first, second } => {
                event(out, 0x41, worker, location);
                for number in [first.0, first.1, second.0, second.1] {
                    put_varint(out, number);
                }
            }
            Self::Volatile { worker, location, offset, bytes } => {
                event(out, 0x42, worker, location);
                put_varint(out, offset);
                put_varint(out, bytes);
            }
            Self::Trailer { records } => {
                out.push(0x7F);
                put_varint(out, records);
            }
        }
    }

    /// Reads the record at the cursor. Lengths are checked before anything is allocated.
    pub(super) fn decode(
        cursor: &mut Cursor<'_>,
        previous: &mut u64,
    ) -> Result<Self, RecordProblem> {
        let taken = |cursor: &mut Cursor<'_>, limit: usize| -> Result<Vec<u8>, RecordProblem> {
            let length = cursor.varint()?;
            check_length(length, limit as u64)?;
            Ok(cursor.bytes(length as usize)?.to_vec())
        };
        let tag = cursor.byte()?;
        if let 0x01..=0x04 | 0x7F = tag {
            return Ok(match tag {
                0x01 => Self::Base {
                    offset: cursor.varint()?,
                    bytes: taken(cursor, RECORD_BYTES_LIMIT)?,
                },
                0x02 => Self::Fill {
                    offset: cursor.varint()?,
                    bytes: cursor.varint()?,
                    value: cursor.byte()?,
                },
                0x03 => {
                    let name = taken(cursor, FILE_NAME_BYTES_LIMIT)?;
                    Self::File { name: file_name(&name) }
                }
                0x04 => Self::Location {
                    file: cursor.varint_u32()?,
                    line: cursor.varint_u32()?,
                    column: cursor.varint_u32()?,
                },
                _ => Self::Trailer { records: cursor.varint()? },
            });
        }
        if !matches!(tag, 0x10..=0x13 | 0x20..=0x23 | 0x30..=0x32 | 0x40..=0x42) {
            return Err(RecordProblem::UnknownTag(tag));
        }
        let worker = cursor.byte()?;
        let location = cursor.varint_u32()?;
        Ok(match tag {
            0x10..=0x13 => {
                let kind = match tag {
                    0x10 => StoreKind::Plain,
                    0x11 => StoreKind::Ordered,
                    0x12 => StoreKind::Locked,
                    _ => StoreKind::NonTemporal,
                };
                let offset = cursor.delta(previous)?;
                let bytes = taken(cursor, RECORD_BYTES_LIMIT)?;
                Self::Store { kind, worker, location, offset, bytes }
            }
            0x20..=0x22 => {
                let instruction = match tag {
                    0x20 => FlushInstruction::Clwb,
                    0x21 => FlushInstruction::Clflushopt,
                    _ => FlushInstruction::Clflush,
                };
                let line = line_of(cursor.delta(previous)?)?;
                Self::Flush { instruction, worker, location, line, lines: cursor.varint()? }
            }
            0x23 => Self::Fence { worker, location },
            0x30..=0x32 => {
                let number = cursor.varint_u32()?;
                let marker = match tag {
                    0x30 => Marker::Begin(number),
                    0x31 => Marker::End(number),
                    _ => Marker::Note(number),
                };
                Self::Marker { worker, location, marker }
            }
            0x41 => Self::InOrder {
                worker,
                location,
                first: (cursor.varint()?, cursor.varint()?),
                second: (cursor.varint()?, cursor.varint()?),
            },
            _ => {
                let (offset, bytes) = (cursor.varint()?, cursor.varint()?);
                if tag == 0x40 {
                    Self::Durable { worker, location, offset, bytes }
                } else {
                    Self::Volatile { worker, location, offset, bytes }
                }
            }
        })
    }
}

/// Names need not be UTF-8 on every system; what is not is replaced, within the limit.
fn file_name(bytes: &[u8]) -> String {
    let mut name = String::from_utf8_lossy(bytes).into_owned();
    name.truncate(name.floor_char_boundary(FILE_NAME_BYTES_LIMIT));
    name
}
