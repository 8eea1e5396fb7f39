//! A backup, changed.

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::backup(input));
