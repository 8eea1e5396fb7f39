//! Memory of the user's choice to measure on.

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
