//! What an engine has written, changed under checksums that are right: an answer or an error. As the fuzz targets do it, with
//! inputs at random.

#[path = "../../../../fuzz/src/engine_bytes.rs"]
mod engine_bytes;

use crate::harness::Random;

/// Tries as many inputs, of few spots and of more.
fn tried(times: u64, with: fn(&[u8])) {
    for seed in 0..times {
        let mut random = Random::new(seed);
        let bytes = 3 + 4 * (1 + random.below(1 + seed % 12)) as usize;
        let input: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        with(&input);
    }
}

#[test]
fn pages_that_say_anything_end_in_an_answer_or_an_error() {
    tried(1000, engine_bytes::page);
}

#[test]
fn superblocks_that_say_anything_end_in_an_answer_or_an_error() {
    tried(200, engine_bytes::superblock);
}

#[test]
fn records_that_say_anything_end_in_an_answer_or_an_error() {
    tried(1000, engine_bytes::engine_log);
}

#[test]
fn backups_that_say_anything_are_restored_if_and_only_if_they_are_verified() {
    tried(1000, engine_bytes::backup);
}
