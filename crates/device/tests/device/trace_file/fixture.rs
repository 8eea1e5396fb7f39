//! A file of the present version is read; from the first release on, for ever.

use lapis_device::trace_file::RecordedTrace;

use crate::trace_file::harness::specimen;

/// Written by `RecordedTrace::write` of the specimen when the format had version 1.
const VERSION_1: &[u8] = include_bytes!("../../fixtures/trace-v1.lapistrace");

#[test]
fn version_1_is_read() {
    assert_eq!(RecordedTrace::read(VERSION_1).unwrap(), specimen());
}

#[test]
fn version_1_is_written_to_the_byte() {
    assert!(specimen().write(Vec::new()).unwrap() == VERSION_1, "the bytes differ");
}

/// Renews the fixture; only for a format that nobody has used yet.
#[test]
#[ignore = "writes the fixture"]
fn write_the_fixture() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace-v1.lapistrace");
    std::fs::write(path, specimen().write(Vec::new()).unwrap()).unwrap();
}
