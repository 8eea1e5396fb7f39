//! The parser of the records of transactions.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = lapis_engine::is_record(input);
});
