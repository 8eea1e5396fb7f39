//! Pages of a store, changed under checksums that are right.

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::page(input));
