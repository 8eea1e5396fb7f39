//! Whether so many keys fit into the memory that is free, asked before an hour is spent on it.

use lapis_index::IndexKind;

use super::Contestant;
use crate::experiment::ExperimentError;
use crate::experiment::memory::{FIXED_BYTES, check_room, round};
use crate::keys::Distribution;

/// Bytes for a key: in the three orders in which a session has it, and in the index. The roomiest of
/// the structures take less than 100 bytes for it at any size; a hundred million of them, half.
const BYTES_PER_KEY: u64 = 136;

/// Bytes for a byte-string key of some sixty bytes, likewise.
const BYTES_PER_STRING_KEY: u64 = 640;

/// What it takes to build one structure and to keep its keys in one order, estimated: what was found at
/// four million keys, and a fifth more, as a radix tree's nodes are filled differently at each size.
pub(super) fn built_bytes(structure: Contestant, distribution: Distribution, keys: usize) -> u64 {
    FIXED_BYTES + keys as u64 * built_bytes_per_key(structure, distribution)
}

/// How many keys of which a structure is built in so many bytes.
pub(super) fn keys_that_are_built_in(
    structure: Contestant,
    distribution: Distribution,
    bytes: u64,
) -> usize {
    round(bytes.saturating_sub(FIXED_BYTES) / built_bytes_per_key(structure, distribution))
}

fn built_bytes_per_key(structure: Contestant, distribution: Distribution) -> u64 {
    let key_bytes = size_of::<u64>() as u64;
    let found = match (structure.index(), distribution) {
        (Some(IndexKind::Wort), Distribution::Clustered) => 30,
        (Some(IndexKind::Wort | IndexKind::Woart | IndexKind::ArtCow), distribution) => {
            match distribution {
                Distribution::Dense => 26,
                Distribution::Clustered => 48,
                _ => 56,
            }
        }
        (Some(IndexKind::WbTreeSlot), _) => 31,
        _ => 27,
    };
    key_bytes + found * 6 / 5
}

/// Refuses what does not fit.
pub(super) fn check(keys: usize, sessions: usize) -> Result<(), ExperimentError> {
    check_room(keys, sessions, BYTES_PER_KEY)
}

/// The same for byte-string keys.
pub(super) fn check_strings(keys: usize, sessions: usize) -> Result<(), ExperimentError> {
    check_room(keys, sessions, BYTES_PER_STRING_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_the_published_size_are_built_in_gigabytes() {
        let needs = |kind| {
            built_bytes(Contestant::Index(kind), Distribution::Sparse, 128 << 20) / 1_000_000_000
        };
        assert_eq!([needs(IndexKind::FpTree), needs(IndexKind::Wort)], [5, 10]);
        let fit = keys_that_are_built_in(
            Contestant::Index(IndexKind::FpTree),
            Distribution::Sparse,
            4_000_000_000,
        );
        assert_eq!(fit, 96_000_000);
    }
}
