//! Files that are cut, damaged, or of another kind.

use lapis_device::Marker;
use lapis_device::trace_file::{
    BLOCK_PAYLOAD_BYTES_LIMIT, Ending, FlushInstruction, Record, RecordProblem, RecordedTrace,
    StoreKind, TraceFileError, TraceHeader, TraceWriter,
};
use proptest::prelude::*;

use crate::trace_file::harness::{header, read, records, specimen, written};

const HEADER_BYTES: usize = 64;
const BLOCK_HEADER_BYTES: usize = 16;

/// Puts a payload into a block with the right checksum, behind a good header.
fn with_payload(payload: &[u8]) -> Vec<u8> {
    let mut file = TraceWriter::new(Vec::new(), &header()).unwrap().leave().unwrap();
    let mut block = b"LTBK".to_vec();
    block.extend((payload.len() as u32).to_le_bytes());
    block.extend(0u32.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block), payload);
    block.extend(crc.to_le_bytes());
    block.extend(payload);
    file.extend(block);
    file
}

fn problem(payload: &[u8]) -> RecordProblem {
    match read(&with_payload(payload)).1 {
        Err(TraceFileError::Record { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// Several blocks of records.
fn several_blocks() -> (Vec<Record>, Vec<u8>) {
    let store = |number: u32| Record::Store {
        kind: StoreKind::Plain,
        worker: 0,
        location: 0,
        offset: u64::from(number) * 64,
        bytes: vec![number as u8; 4096],
    };
    let records: Vec<_> = (0..40).map(store).collect();
    let file = written(&records);
    assert!(file.len() > 2 * BLOCK_PAYLOAD_BYTES_LIMIT);
    (records, file)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cut_file_gives_a_prefix_and_says_how_much_of_it_was_whole(
        records in records(), share in 0.0f64..1.0,
    ) {
        let file = written(&records);
        let length = HEADER_BYTES + ((file.len() - HEADER_BYTES) as f64 * share) as usize;
        let (found, ending) = read(&file[..length]);
        prop_assert!(records.starts_with(&found));
        match ending {
            Ok(Ending::Cut { whole_bytes, torn_bytes }) => {
                prop_assert_eq!(whole_bytes + torn_bytes, length as u64);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_changed_byte_is_found_and_what_precedes_it_is_not_lost(
        records in records(), at in any::<prop::sample::Index>(), change in 1u8..=255,
    ) {
        let mut file = written(&records);
        let at = at.index(file.len());
        file[at] ^= change;
        let (found, ending) = read(&file);
        prop_assert!(records.starts_with(&found));
        match ending {
            Err(_) => {}
            // A block that claims to be longer than the file looks like one that was cut.
            Ok(Ending::Cut { .. }) => {}
            Ok(Ending::Complete) => prop_assert!(false, "byte {} changed unnoticed", at),
        }
    }

    #[test]
    fn arbitrary_payloads_are_read_or_refused(
        payload in proptest::collection::vec(any::<u8>(), 1..600),
    ) {
        let _ = RecordedTrace::read_prefix(with_payload(&payload).as_slice());
    }

    /// As the fuzz target does, which changes payloads under good checksums.
    #[test]
    fn changed_payloads_are_read_or_refused_and_what_is_read_can_be_written(
        records in records(), at in any::<prop::sample::Index>(), bytes in any::<[u8; 3]>(),
    ) {
        let file = written(&records);
        let mut payload = file[HEADER_BYTES + BLOCK_HEADER_BYTES..].to_vec();
        payload.truncate(BLOCK_PAYLOAD_BYTES_LIMIT);
        let at = at.index(payload.len());
        let end = payload.len().min(at + 3);
        payload[at..end].copy_from_slice(&bytes[..end - at]);
        let (found, _) = RecordedTrace::read_prefix(with_payload(&payload).as_slice()).unwrap();
        let again = RecordedTrace::read(found.write(Vec::new()).unwrap().as_slice()).unwrap();
        prop_assert_eq!(again.trace, found.trace);
        prop_assert_eq!(again.assertions, found.assertions);
    }
}

#[test]
fn a_file_cut_between_blocks_keeps_all_of_them() {
    let (records, file) = several_blocks();
    let second = file.windows(4).enumerate().filter(|(_, word)| word == b"LTBK").nth(1).unwrap().0;
    let (found, ending) = read(&file[..second]);
    assert!(!found.is_empty() && records.starts_with(&found));
    let whole = Ending::Cut { whole_bytes: second as u64, torn_bytes: 0 };
    assert_eq!(ending.unwrap(), whole);
    let (shorter, ending) = read(&file[..second + 100]);
    assert_eq!(shorter, found);
    let torn = Ending::Cut { whole_bytes: second as u64, torn_bytes: 100 };
    assert_eq!(ending.unwrap(), torn);
}

#[test]
fn a_missing_block_is_damage_with_its_number_and_place() {
    let (_, file) = several_blocks();
    let blocks: Vec<_> =
        (0..file.len() - 4).filter(|&at| file[at..].starts_with(b"LTBK")).collect();
    let mut missing = file.clone();
    missing.drain(blocks[1]..blocks[2]);
    match read(&missing).1 {
        Err(TraceFileError::Block { block: 1, at, what }) => {
            assert_eq!((at, what), (blocks[1] as u64, "its number is not the next one"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_block_is_told_with_its_number_and_place_and_the_rest_before_it_is_given() {
    let (records, mut file) = several_blocks();
    let second = file.windows(4).enumerate().filter(|(_, word)| word == b"LTBK").nth(1).unwrap().0;
    file[second + 300] ^= 1;
    let (found, ending) = read(&file);
    assert!(!found.is_empty() && records.starts_with(&found));
    let text = ending.unwrap_err().to_string();
    let expected =
        format!("block 1 of the trace, at byte {second}, is damaged: its checksum is wrong");
    assert_eq!(text, expected);
}

#[test]
fn other_files_and_short_ones_are_no_traces() {
    for file in [&b""[..], b"LAPISTRC", &[0; 64], &[b'x'; 200]] {
        assert!(matches!(read(file).1, Err(TraceFileError::NotATrace)));
    }
}

#[test]
fn another_version_is_refused_by_number() {
    let mut file = specimen().write(Vec::new()).unwrap();
    file[8] = 2;
    assert!(matches!(read(&file).1, Err(TraceFileError::Version { version: 2 })));
}

#[test]
fn bits_that_are_to_be_zero_are_refused() {
    let mut file = specimen().write(Vec::new()).unwrap();
    file[50] = 1;
    let crc = crc32c::crc32c(&file[..60]);
    file[60..64].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(read(&file).1, Err(TraceFileError::Header { .. })));
}

#[test]
fn a_region_that_the_model_cannot_cover_is_refused() {
    let enormous = TraceHeader { region_bytes: u64::MAX, ..header() };
    let file = TraceWriter::new(Vec::new(), &enormous).unwrap().leave().unwrap();
    assert!(matches!(read(&file).1, Err(TraceFileError::Header { .. })));
}

#[test]
fn each_impossible_record_is_refused_for_what_it_is() {
    assert_eq!(problem(&[0x55]), RecordProblem::UnknownTag(0x55));
    assert_eq!(problem(&[0x10, 0, 0, 0]), RecordProblem::Short);
    assert_eq!(problem(&[0x23, 0, 0x80, 0x00]), RecordProblem::Number);
    // A store of 4,097 bytes, of none, of more bytes than there are.
    assert_eq!(problem(&[0x10, 0, 0, 0, 0x81, 0x20]), RecordProblem::Length);
    assert_eq!(problem(&[0x10, 0, 0, 0, 0]), RecordProblem::Length);
    assert_eq!(problem(&[0x10, 0, 0, 0, 9, 1]), RecordProblem::Short);
    // A store before the beginning and one beyond the end of the region.
    assert_eq!(problem(&[0x10, 0, 0, 1, 1, 7]), RecordProblem::Outside);
    assert_eq!(problem(&[0x10, 0, 0, 0x80, 0x80, 0x80, 0x01, 1, 7]), RecordProblem::Outside);
    // Ordered stores of three bytes, and across words.
    assert_eq!(problem(&[0x11, 0, 0, 0, 3, 1, 2, 3]), RecordProblem::Length);
    assert_eq!(problem(&[0x11, 0, 0, 4, 4, 1, 2, 3, 4]), RecordProblem::Alignment);
    // A flush of seventeen lines, and one that is not at a line.
    assert_eq!(problem(&[0x20, 0, 0, 0, 17]), RecordProblem::Length);
    assert_eq!(problem(&[0x20, 0, 0, 2, 1]), RecordProblem::Alignment);
    assert_eq!(problem(&[0x23, 255, 0]), RecordProblem::Worker);
    assert_eq!(problem(&[0x23, 0, 1]), RecordProblem::UnknownLocation);
    assert_eq!(problem(&[0x04, 0, 1, 1]), RecordProblem::UnknownLocation);
    assert_eq!(problem(&[0x23, 0, 0, 0x01, 0, 1, 9]), RecordProblem::LateBase);
    assert_eq!(problem(&[0x7F, 1]), RecordProblem::WrongCount);
    assert_eq!(problem(&[0x7F, 0, 0x23, 0, 0]), RecordProblem::AfterTrailer);
}

#[test]
fn more_filled_memory_than_allowed_is_refused_though_the_region_has_it() {
    let large = TraceHeader { region_bytes: 1 << 36, ..header() };
    let mut writer = TraceWriter::new(Vec::new(), &large).unwrap();
    let fill = Record::Fill { offset: 0, bytes: 1 << 30, value: 1 };
    writer.write(&fill).unwrap();
    let error = writer.write(&fill).unwrap_err();
    assert_eq!(error.to_string(), RecordProblem::TooMuchFill.to_string());
}

#[test]
fn bytes_after_the_trailer_are_refused() {
    let mut file = written(&[]);
    assert_eq!(read(&file).1.unwrap(), Ending::Complete);
    file.push(0);
    assert!(matches!(
        read(&file).1,
        Err(TraceFileError::Record { what: RecordProblem::AfterTrailer, .. })
    ));
}

#[test]
fn a_writer_refuses_what_no_reader_takes() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let flush = Record::Flush {
        instruction: FlushInstruction::Clwb,
        worker: 0,
        location: 0,
        line: 1 << 40,
        lines: 1,
    };
    assert!(writer.write(&flush).is_err());
    let marker = Record::Marker { worker: 255, location: 0, marker: Marker::Begin(0) };
    assert!(writer.write(&marker).is_err());
    assert_eq!(read(&writer.finish().unwrap()).0, []);
}
