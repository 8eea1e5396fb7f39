//! Pages of a store, changed under checksums that are right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::page(input));
