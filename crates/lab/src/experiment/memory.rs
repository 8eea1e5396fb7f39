//! Memory: of the user's choice to measure on, and how much there is.

use std::path::Path;

use lapis_pmem::{Medium, Region, RegionError, RegionOptions};

use super::error::ExperimentError;

/// Of a file that is made in a directory.
const FILE: &str = "lapis-lab.memory";

/// Beside what grows with the keys: pools, caches of the model, the program.
pub(crate) const FIXED_BYTES: u64 = 128 << 20;

/// A region of `bytes` in a new file at `path`, or in that directory, which has no name any more when this returns and goes
/// with the region; or a device-DAX device, whole, which is overwritten. It can grow to `reserve_bytes`.
pub(crate) fn region_at(
    path: &Path,
    bytes: usize,
    reserve_bytes: usize,
) -> Result<Region, RegionError> {
    let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
    let options = RegionOptions { reserve_bytes, ..RegionOptions::default() };
    let region = Region::create_file(&path, bytes, &options)?;
    if region.medium() != Medium::DeviceDax {
        std::fs::remove_file(&path)
            .map_err(|source| RegionError::Os { doing: "remove the file", source })?;
    }
    Ok(region)
}

/// Memory that can be had without swapping; none if nobody says.
pub(crate) fn available_bytes() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Refuses so many keys, of so many bytes each in each of the sessions side by side, if they do not fit into the memory that
/// is free. Asked before an hour is spent on it.
pub(crate) fn check_room(
    keys: usize,
    sessions: usize,
    bytes_per_key: u64,
) -> Result<(), ExperimentError> {
    match available_bytes() {
        Some(available) => check_against(keys, sessions, bytes_per_key, available),
        None => Ok(()),
    }
}

fn check_against(
    keys: usize,
    sessions: usize,
    bytes_per_key: u64,
    available_bytes: u64,
) -> Result<(), ExperimentError> {
    let grown_bytes = (keys as u64).saturating_mul(bytes_per_key);
    let needed_bytes = FIXED_BYTES.saturating_add(grown_bytes).saturating_mul(sessions as u64);
    if needed_bytes <= available_bytes {
        return Ok(());
    }
    let room = (available_bytes / sessions as u64).saturating_sub(FIXED_BYTES) / bytes_per_key;
    let keys_that_fit = round(room);
    Err(ExperimentError::TooLittleMemory { keys, needed_bytes, available_bytes, keys_that_fit })
}

/// A number that a person would write, not above `room`.
pub(crate) fn round(room: u64) -> usize {
    let mut digit = 1;
    while room / digit >= 100 {
        digit *= 10;
    }
    (room / digit * digit) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_PER_KEY: u64 = 136;

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
    fn as_many_keys_as_there_are_numbers_are_too_many() {
        assert!(check_against(usize::MAX, 2, BYTES_PER_KEY, 4_000_000_000).is_err());
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
    fn what_is_available_is_read_from_the_line_that_says_so() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:    1000 kB\nCached: 7 kB\n";
        assert_eq!(available_in(meminfo), Some(1_024_000));
        assert_eq!(available_in("MemTotal: 5 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many kB\n"), None);
    }
}
