//! A crash image as a file.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lapis_device::Event;
use lapis_device::trace_file::{BasePiece, RecordedTrace};
use lapis_pmem::{LINE_BYTES, Region};

const PAGE_BYTES: u64 = 4096;

/// The file, and in what it may differ from the region.
pub(super) struct ImageFile {
    path: PathBuf,
    file: File,
    pages: ImagePages,
    changed: HashSet<u32>,
}

impl ImageFile {
    /// A file in `directory` with what the region holds.
    pub(super) fn new(
        recorded: &RecordedTrace,
        region: &Region,
        directory: &Path,
    ) -> io::Result<Self> {
        let (path, pages) = (directory.join("image"), ImagePages::of(recorded));
        let file = pages.write(region, &path)?;
        Ok(Self { path, file, pages, changed: HashSet::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A line of the region is not what it was.
    pub(super) fn line_changes(&mut self, line: u32) {
        self.changed.insert(line);
    }

    /// Writes what the region holds to a new file, sparse where it is zero.
    pub(super) fn write(&mut self, region: &Region) -> io::Result<()> {
        self.changed.clear();
        self.file = self.pages.write(region, &self.path)?;
        Ok(())
    }

    /// Writes the lines that have changed to the file that there is.
    pub(super) fn renew(&mut self, region: &Region) -> io::Result<()> {
        let region_bytes = self.pages.region_bytes;
        for line in self.changed.drain() {
            let start = u64::from(line) * LINE_BYTES as u64;
            let end = (start + LINE_BYTES as u64).min(region_bytes);
            self.file.write_all_at(bytes_of(region, start, end), start)?;
        }
        Ok(())
    }
}

/// The pages of a region that may hold something: an image costs as much as they.
struct ImagePages {
    region_bytes: u64,
    /// Runs of pages: from start to end, in bytes.
    runs: Vec<(u64, u64)>,
}

impl ImagePages {
    /// The pages that a trace says something about.
    fn of(recorded: &RecordedTrace) -> Self {
        let mut pages = BTreeSet::new();
        for piece in &recorded.base {
            let (offset, bytes) = match piece {
                BasePiece::Bytes { offset, bytes } => (*offset, bytes.len() as u64),
                BasePiece::Fill { offset, bytes, .. } => (*offset, *bytes),
            };
            pages.extend(offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES));
        }
        for stored in recorded.trace.events.iter().filter_map(Event::stored) {
            pages.insert(u64::from(stored.line) * LINE_BYTES as u64 / PAGE_BYTES);
        }
        let region_bytes = recorded.header.region_bytes;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            let (start, end) = (page * PAGE_BYTES, ((page + 1) * PAGE_BYTES).min(region_bytes));
            match runs.last_mut() {
                Some((_, last)) if *last == start => *last = end,
                _ => runs.push((start, end)),
            }
        }
        Self { region_bytes, runs }
    }

    fn write(&self, region: &Region, path: &Path) -> io::Result<File> {
        // Another file: of the last one a process may still have something.
        let _ = std::fs::remove_file(path);
        let file = File::create(path)?;
        file.set_len(self.region_bytes)?;
        for &(start, end) in &self.runs {
            file.write_all_at(bytes_of(region, start, end), start)?;
        }
        Ok(file)
    }
}

/// What a region holds, which nobody writes to meanwhile.
fn bytes_of(region: &Region, start: u64, end: u64) -> &[u8] {
    assert!(end <= region.mapped_bytes() as u64, "bytes that are not mapped");
    // SAFETY: mapped (checked above), and nobody writes to the region while it is borrowed.
    unsafe { std::slice::from_raw_parts(region.base().add(start as usize), (end - start) as usize) }
}
