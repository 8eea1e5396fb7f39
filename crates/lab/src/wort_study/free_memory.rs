//! Whether so many keys fit into the memory that is free, asked before an hour is spent on it.

use lapis_index::IndexKind;

use super::Contestant;
use crate::experiment::ExperimentError;
use crate::experiment::memory::available_bytes;
use crate::keys::Distribution;

/// Bytes for a key: in the three orders in which a session has it, and in the index. The roomiest of
/// the structures take less than 100 bytes for it at any size; a hundred million of them, half.
const BYTES_PER_KEY: u64 = 136;

/// Bytes for a byte-string key of some sixty bytes, likewise.
const BYTES_PER_STRING_KEY: u64 = 640;

/// Beside what grows with the keys: pools, caches of the model, the program.
const FIXED_BYTES: u64 = 128 << 20;

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
    match available_bytes() {
        Some(available) => check_against(keys, sessions, BYTES_PER_KEY, available),
        None => Ok(()),
    }
}

/// The same for byte-string keys.
pub(super) fn check_strings(keys: usize, sessions: usize) -> Result<(), ExperimentError> {
    match available_bytes() {
        Some(available) => check_against(keys, sessions, BYTES_PER_STRING_KEY, available),
        None => Ok(()),
    }
}

fn check_against(
    keys: usize,
    sessions: usize,
    bytes_per_key: u64,
    available_bytes: u64,
) -> Result<(), ExperimentError> {
    let needed_bytes = (FIXED_BYTES + keys as u64 * bytes_per_key) * sessions as u64;
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let room = (available_bytes / sessions as u64).saturating_sub(FIXED_BYTES) / bytes_per_key;
    let keys_that_fit = round(room);
    Err(ExperimentError::TooLittleMemory { keys, needed_bytes, available_bytes, keys_that_fit })
}

/// A number that a person would write, not above `room`.
fn round(room: u64) -> usize {
    let mut digit = 1;
    while room / digit >= 100 {
        digit *= 10;
    }
    (room / digit * digit) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_keys_are_refused_with_a_number_that_fits() {
        let error = check_against(128_000_000, 1, BYTES_PER_KEY, 4_000_000_000).unwrap_err();
        let ExperimentError::TooLittleMemory { keys_that_fit, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(keys_that_fit, 28_000_000);
        check_against(keys_that_fit, 1, BYTES_PER_KEY, 4_000_000_000).unwrap();
        assert!(error.to_string().ends_with("available; use 28000000 or fewer"), "{error}");
    }

    #[test]
    fn sessions_side_by_side_need_as_much_each() {
        check_against(1_000_000, 1, BYTES_PER_KEY, 300_000_000).unwrap();
        assert!(check_against(1_000_000, 2, BYTES_PER_KEY, 300_000_000).is_err());
    }

    #[test]
    fn a_machine_without_room_for_any_is_told_to_free_some() {
        let error = check_against(1000, 1, BYTES_PER_KEY, 1 << 20).unwrap_err().to_string();
        assert!(error.ends_with("free some memory first"), "{error}");
    }

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
