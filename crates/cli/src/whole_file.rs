//! Files that are there whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Links that are followed, as many as the system follows.
const MOST_LINKS: usize = 40;

/// Has `fill` write a file beside `path`, which has that name when it is whole, and is durable then. A link stays one: the file
/// that it leads to is written. What is there and no ordinary file, a pipe or a device, is written to directly.
pub fn write<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error: io::Error| Failure::file("write", path, &error);
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        let mut sink = BufWriter::new(File::options().write(true).open(path).map_err(failed)?);
        let filled = fill(&mut sink)?;
        let file = sink.into_inner().map_err(|error| failed(error.into_error()))?;
        // Nothing else that is written to here can be synced.
        if file.metadata().is_ok_and(|about| about.file_type().is_block_device()) {
            file.sync_all().map_err(failed)?;
        }
        return Ok(filled);
    }
    let target = target(path);
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let partial: NamedTempFile = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(parent)
        .map_err(failed)?;
    let mut sink = BufWriter::new(partial);
    let filled = fill(&mut sink)?;
    let partial = sink.into_inner().map_err(|error| failed(error.into_error()))?;
    partial.as_file().sync_all().map_err(failed)?;
    partial.persist(&target).map_err(|error| failed(error.error))?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok(filled)
}

/// What a path leads to, whether it is there or not.
fn target(path: &Path) -> PathBuf {
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(next) = path.read_link() else { break };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}
