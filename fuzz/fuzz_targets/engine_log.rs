//! Records of an engine's log, changed and appended to it.

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::engine_log(input));
