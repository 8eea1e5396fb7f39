//! Memory: of the user's choice to measure on, and how much there is.

use std::path::Path;

use lapis_pmem::{Medium, Region, RegionError, RegionOptions};

/// Of a file that is made in a directory.
const FILE: &str = "lapis-lab.memory";

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
}
