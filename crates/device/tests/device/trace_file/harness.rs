//! Traces to write and read.

use std::sync::Arc;

use lapis_device::trace_file::{
    Assertion, BasePiece, Claim, Ending, FlushInstruction, Record, RecordedTrace, SourceLocation,
    StoreKind, TraceFileError, TraceHeader, TraceReader, TraceWriter,
};
use lapis_device::{Event, Marker, PersistKind, PersistPoint, Trace};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes of the memory in generated traces.
pub const REGION_BYTES: u64 = 1 << 20;

pub fn header() -> TraceHeader {
    TraceHeader { region_bytes: REGION_BYTES, base_address: 0x7000_0000, writer: "test".to_owned() }
}

/// A file of these records.
pub fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

/// All records of a file, or what stands in the way, and how it ended.
pub fn read(file: &[u8]) -> (Vec<Record>, Result<Ending, TraceFileError>) {
    let mut reader = match TraceReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut records = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, Ok(reader.ending().unwrap())),
            Err(error) => return (records, Err(error)),
        }
    }
}

/// Records that may begin a file: what memory held, and `places` places in one source file.
fn preamble() -> impl Strategy<Value = (Vec<Record>, u32)> {
    let base = (0..REGION_BYTES - 5000, vec(any::<u8>(), 1..4096))
        .prop_map(|(offset, bytes)| Record::Base { offset, bytes });
    let fill = (0..REGION_BYTES / 2, 1..REGION_BYTES / 2, any::<u8>())
        .prop_map(|(offset, bytes, value)| Record::Fill { offset, bytes, value });
    let pieces = vec(prop_oneof![base, fill], 0..4);
    (pieces, vec((1u32..9999, 0u32..200), 0..5)).prop_map(|(mut records, places)| {
        let count = places.len() as u32;
        records.push(Record::File { name: "src/list.c".to_owned() });
        let place = |(line, column)| Record::Location { file: 0, line, column };
        records.extend(places.into_iter().map(place));
        (records, count)
    })
}

fn event(places: u32) -> impl Strategy<Value = Record> {
    let issuer = (0u8..=254, 0..=places);
    let kinds = [StoreKind::Plain, StoreKind::Ordered, StoreKind::Locked, StoreKind::NonTemporal];
    let store = (
        issuer.clone(),
        prop::sample::select(kinds.to_vec()),
        0..REGION_BYTES - 300,
        vec(any::<u8>(), 1..300),
    );
    let store = store.prop_map(|((worker, location), kind, offset, mut bytes)| {
        if matches!(kind, StoreKind::Ordered | StoreKind::Locked) {
            bytes.resize(1 << (bytes.len() % 4), 7);
        }
        let aligned = matches!(kind, StoreKind::Ordered | StoreKind::Locked);
        let offset = if aligned { offset / 8 * 8 } else { offset };
        Record::Store { kind, worker, location, offset, bytes }
    });
    let instructions =
        [FlushInstruction::Clwb, FlushInstruction::Clflushopt, FlushInstruction::Clflush];
    let flush =
        (issuer.clone(), prop::sample::select(instructions.to_vec()), 0u64..16_000, 1u64..=16)
            .prop_map(|((worker, location), instruction, line, lines)| Record::Flush {
                instruction,
                worker,
                location,
                line,
                lines,
            });
    let fence = issuer.clone().prop_map(|(worker, location)| Record::Fence { worker, location });
    let marker =
        (issuer.clone(), 0..3, any::<u32>()).prop_map(|((worker, location), kind, number)| {
            let marker = match kind {
                0 => Marker::Begin(number),
                1 => Marker::End(number),
                _ => Marker::Note(number),
            };
            Record::Marker { worker, location, marker }
        });
    let range = (0..REGION_BYTES / 2, 1..REGION_BYTES / 2);
    let claim = (issuer, 0..3, range.clone(), range).prop_map(
        |((worker, location), kind, first, second)| {
            let (offset, bytes) = first;
            match kind {
                0 => Record::Durable { worker, location, offset, bytes },
                1 => Record::Volatile { worker, location, offset, bytes },
                _ => Record::InOrder { worker, location, first, second },
            }
        },
    );
    prop_oneof![4 => store, 2 => flush, 1 => fence, 1 => marker, 1 => claim]
}

/// Records that make a file.
pub fn records() -> impl Strategy<Value = Vec<Record>> {
    preamble().prop_flat_map(|(preamble, places)| {
        vec(event(places), 0..400).prop_map(move |events| [preamble.clone(), events].concat())
    })
}

/// A trace with one of everything.
pub fn specimen() -> RecordedTrace {
    let file: Arc<str> = "src/list.c".into();
    let at = |line, column| SourceLocation { file: Arc::clone(&file), line, column };
    let point = |line, column, kind| PersistPoint { file: "src/list.c", line, column, kind };
    let events_and_places = [
        (Event::Marker { worker: 0, marker: Marker::Begin(1) }, 0),
        (Event::Store { worker: 0, start: 3, bytes: 5, line: 2, value: 0x05_0403_0201 }, 1),
        (Event::Store { worker: 0, start: 8, bytes: 8, line: 2, value: 0x1122_3344_5566_7788 }, 1),
        (Event::OrderedStore { worker: 0, start: 16, bytes: 4, line: 2, value: 9 }, 0),
        (Event::Flush { worker: 0, point: 0, line: 2 }, 2),
        (Event::Fence { worker: 0, point: 1 }, 2),
        (Event::Marker { worker: 0, marker: Marker::End(1) }, 0),
        (Event::Locked { worker: 7, start: 0, bytes: 8, line: 3, value: u64::MAX }, 1),
        (Event::StrongFlush { worker: 7, line: 3 }, 3),
        (Event::NonTemporal { worker: 254, start: 56, bytes: 8, line: 1023, value: 1 }, 0),
        (Event::Marker { worker: 7, marker: Marker::Note(u32::MAX) }, 3),
    ];
    RecordedTrace {
        header: TraceHeader {
            region_bytes: 65_536,
            base_address: 0x10_0000,
            writer: "lapis fixture".to_owned(),
        },
        base: vec![
            BasePiece::Fill { offset: 0, bytes: 8192, value: 0x5A },
            BasePiece::Bytes { offset: 128, bytes: (0..200).collect() },
        ],
        trace: Trace::of(
            events_and_places.iter().map(|(event, _)| *event).collect(),
            vec![point(12, 5, PersistKind::Flush), point(12, 5, PersistKind::Fence)],
        ),
        places: events_and_places.iter().map(|(_, place)| *place).collect(),
        locations: vec![at(10, 9), at(12, 5), at(40, 0)],
        assertions: vec![
            Assertion {
                position: 6,
                worker: 0,
                place: 2,
                claim: Claim::Durable { offset: 131, bytes: 13 },
            },
            Assertion {
                position: 6,
                worker: 0,
                place: 0,
                claim: Claim::InOrder { first: (131, 5), second: (144, 4) },
            },
            Assertion {
                position: 11,
                worker: 7,
                place: 3,
                claim: Claim::Volatile { offset: 192, bytes: 8 },
            },
        ],
        ending: Ending::Complete,
    }
}
