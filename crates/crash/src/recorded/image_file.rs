//! Crash images as files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lapis_device::Event;
use lapis_device::trace_file::{BasePiece, RecordedTrace};
use lapis_pmem::{LINE_BYTES, Region};

const PAGE_BYTES: u64 = 4096;

/// The pages of a region that may hold something: an image costs as much as they.
pub(super) struct ImagePages {
    region_bytes: u64,
    /// Runs of pages: from start to end, in bytes.
    runs: Vec<(u64, u64)>,
}

impl ImagePages {
    /// The pages that a trace says something about.
    pub(super) fn of(recorded: &RecordedTrace) -> Self {
        let mut pages = BTreeSet::new();
        for piece in &recorded.base {
            let (offset, bytes) = match piece {
                BasePiece::Bytes { offset, bytes } => (*offset, bytes.len() as u64),
                BasePiece::Fill { offset, bytes, .. } => (*offset, *bytes),
            };
            pages.extend(offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES));
        }
        for event in &recorded.trace.events {
            if let Event::Store { line, .. }
            | Event::OrderedStore { line, .. }
            | Event::Locked { line, .. }
            | Event::NonTemporal { line, .. } = *event
            {
                pages.insert(u64::from(line) * LINE_BYTES as u64 / PAGE_BYTES);
            }
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

    /// Writes what the region holds to a new file, sparse where it is zero.
    pub(super) fn write(&self, region: &Region, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.region_bytes)?;
        for &(start, end) in &self.runs {
            assert!(end <= region.mapped_bytes() as u64, "a page that is not mapped");
            // SAFETY: mapped (checked above), and nobody writes to the region during the call.
            let bytes = unsafe {
                std::slice::from_raw_parts(
                    region.base().add(start as usize),
                    (end - start) as usize,
                )
            };
            file.write_all_at(bytes, start)?;
        }
        Ok(())
    }
}
