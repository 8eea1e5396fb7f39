//! The reader of trace files: it gives a trace or an error, and what it gives can be written and
//! read again. The input is tried as a file, and as the payload of a block whose checksum is right.

#![cfg_attr(fuzzing, no_main)]

use lapis_device::trace_file::{RecordedTrace, TraceHeader, TraceWriter};

fn check(file: &[u8]) {
    let Ok((found, _)) = RecordedTrace::read_prefix(file) else { return };
    // A record of six bytes may flush sixteen lines; nothing may become more than that.
    assert!(found.trace.events.len() <= 64 + file.len() * 6, "more events than the file can hold");
    let again = found.write(Vec::new()).expect("what was read can be written");
    let again = RecordedTrace::read(again.as_slice()).expect("what was written can be read");
    assert!(again.trace == found.trace && again.assertions == found.assertions);
    assert!(again.base.len() == found.base.len() && again.locations == found.locations);
}

lapis_fuzz::fuzz_target!(|input: &[u8]| {
    check(input);
    if input.is_empty() || input.len() > 1 << 16 {
        return;
    }
    let header = TraceHeader { region_bytes: 1 << 20, base_address: 0, writer: "fuzz".to_owned() };
    let mut file = TraceWriter::new(Vec::new(), &header).unwrap().leave().unwrap();
    let mut block = b"LTBK".to_vec();
    block.extend((input.len() as u32).to_le_bytes());
    block.extend(0u32.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block), input);
    block.extend(crc.to_le_bytes());
    block.extend(input);
    file.extend(block);
    check(&file);
});
