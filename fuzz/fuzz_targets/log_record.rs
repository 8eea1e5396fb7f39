//! The parser of redo records.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = lapis::parse_log_record(input);
});
