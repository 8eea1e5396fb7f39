//! Traces made up record by record.

use lapis_crash::recorded::{Missing, RecordedFailure, RecordedViolation};
use lapis_crash::{RecordedOptions, RecordedReport, check_recorded};
use lapis_device::Marker;
use lapis_device::trace_file::{
    FlushInstruction, Record, RecordedTrace, StoreKind, TraceHeader, TraceWriter,
};

pub const REGION_BYTES: u64 = 4096;

/// Writes a trace record by record; the place of each event is its number, as a line of `p.c`.
pub struct Program {
    pub records: Vec<Record>,
    line: u32,
    /// Where the next events are, if not each at a place of its own.
    place: Option<u32>,
}

impl Program {
    pub fn new() -> Self {
        Self { records: vec![Record::File { name: "p.c".into() }], line: 0, place: None }
    }

    /// The next events are at this place, or again each at its own.
    pub fn at_place(&mut self, place: Option<u32>) -> &mut Self {
        self.place = place;
        self
    }

    pub fn last_place(&self) -> u32 {
        self.line
    }

    pub fn next(&mut self) -> u32 {
        if let Some(place) = self.place {
            return place;
        }
        self.line += 1;
        self.records.push(Record::Location { file: 0, line: self.line, column: 0 });
        self.line
    }

    pub fn store(&mut self, worker: u8, kind: StoreKind, offset: u64) -> &mut Self {
        let location = self.next();
        let bytes = u64::from(location).to_le_bytes().to_vec();
        self.records.push(Record::Store { kind, worker, location, offset, bytes });
        self
    }

    pub fn flush(&mut self, worker: u8, instruction: FlushInstruction, line: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Flush { instruction, worker, location, line, lines: 1 });
        self
    }

    pub fn fence(&mut self, worker: u8) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Fence { worker, location });
        self
    }

    pub fn begin(&mut self, worker: u8, number: u32) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Marker { worker, location, marker: Marker::Begin(number) });
        self
    }

    pub fn end(&mut self, worker: u8, number: u32) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Marker { worker, location, marker: Marker::End(number) });
        self
    }

    pub fn volatile(&mut self, offset: u64, bytes: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Volatile { worker: 0, location, offset, bytes });
        self
    }

    pub fn durable(&mut self, offset: u64, bytes: u64) -> &mut Self {
        let location = self.next();
        self.records.push(Record::Durable { worker: 0, location, offset, bytes });
        self
    }

    pub fn in_order(&mut self, first: u64, second: u64) -> &mut Self {
        let location = self.next();
        let (first, second) = ((first, 8), (second, 8));
        self.records.push(Record::InOrder { worker: 0, location, first, second });
        self
    }

    pub fn trace(&self) -> RecordedTrace {
        let header =
            TraceHeader { region_bytes: REGION_BYTES, base_address: 0, writer: "test".into() };
        let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
        for record in &self.records {
            writer.write(record).unwrap();
        }
        RecordedTrace::read(writer.finish().unwrap().as_slice()).unwrap()
    }

    pub fn check(&self, options: &RecordedOptions) -> RecordedReport {
        check_recorded(&self.trace(), options, &|_| {}).unwrap()
    }

    pub fn violations(&self) -> Vec<RecordedViolation> {
        self.check(&RecordedOptions::default()).violations
    }
}

/// The lines of `p.c` that a missing durability names, and what is missing.
pub fn not_durable(violation: &RecordedViolation) -> (String, String, Missing) {
    match &violation.failure {
        RecordedFailure::NotDurable { stored_at, asserted_at, missing, .. } => {
            (stored_at.clone().unwrap(), asserted_at.clone().unwrap(), *missing)
        }
        other => panic!("{other:?}"),
    }
}

pub fn at(line: u32) -> String {
    format!("p.c:{line}")
}
