//! Whether so many keys fit into the memory that is free, asked before an hour is spent on it.

use crate::index_experiment::ExperimentError;

/// Bytes for a key: in the three orders in which a session has it, and in the index. The roomiest of
/// the structures take less than 100 bytes for it at any size; a hundred million of them, half.
const BYTES_PER_KEY: u64 = 136;

/// Beside what grows with the keys: pools, caches of the model, the program.
const FIXED_BYTES: u64 = 128 << 20;

/// What sessions with `keys` keys need, `sessions` of them at a time.
pub fn needed_bytes(keys: usize, sessions: usize) -> u64 {
    (FIXED_BYTES + keys as u64 * BYTES_PER_KEY) * sessions as u64
}

/// Memory that can be had without swapping; none if nobody says.
pub fn available_bytes() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Refuses what does not fit.
pub(super) fn check(keys: usize, sessions: usize) -> Result<(), ExperimentError> {
    match available_bytes() {
        Some(available) => check_against(keys, sessions, available),
        None => Ok(()),
    }
}

fn check_against(
    keys: usize,
    sessions: usize,
    available_bytes: u64,
) -> Result<(), ExperimentError> {
    let needed_bytes = needed_bytes(keys, sessions);
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let room = (available_bytes / sessions as u64).saturating_sub(FIXED_BYTES) / BYTES_PER_KEY;
    // A number that a person would write.
    let mut digit = 1;
    while room / digit >= 100 {
        digit *= 10;
    }
    let keys_that_fit = (room / digit * digit) as usize;
    Err(ExperimentError::TooLittleMemory { keys, needed_bytes, available_bytes, keys_that_fit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_from_the_line_that_says_so() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:    1000 kB\nCached: 7 kB\n";
        assert_eq!(available_in(meminfo), Some(1_024_000));
        assert_eq!(available_in("MemTotal: 5 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn too_many_keys_are_refused_with_a_number_that_fits() {
        let error = check_against(128_000_000, 1, 4_000_000_000).unwrap_err();
        let ExperimentError::TooLittleMemory { keys_that_fit, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(keys_that_fit, 28_000_000);
        check_against(keys_that_fit, 1, 4_000_000_000).unwrap();
        assert!(error.to_string().ends_with("available; use 28000000 or fewer"), "{error}");
    }

    #[test]
    fn sessions_side_by_side_need_as_much_each() {
        check_against(1_000_000, 1, 300_000_000).unwrap();
        assert!(check_against(1_000_000, 2, 300_000_000).is_err());
    }

    #[test]
    fn a_machine_without_room_for_any_is_told_to_free_some() {
        let error = check_against(1000, 1, 1 << 20).unwrap_err().to_string();
        assert!(error.ends_with("free some memory first"), "{error}");
    }
}
