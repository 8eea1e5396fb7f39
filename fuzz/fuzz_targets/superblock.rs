//! The superblock of a store's pages, changed under a checksum that is right.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::superblock(input));
