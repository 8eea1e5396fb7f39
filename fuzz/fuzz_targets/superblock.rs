//! The superblock of a store's pages, changed under a checksum that is right.

#![cfg_attr(fuzzing, no_main)]

lapis_fuzz::fuzz_target!(|input: &[u8]| lapis_fuzz::engine_bytes::superblock(input));
