//! Records of an engine's log, changed and appended to it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::engine_log(input));
