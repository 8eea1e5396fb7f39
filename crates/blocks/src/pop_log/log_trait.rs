//! [`PopLog`] as a [`Log`].

use std::ops::Range;
use std::sync::Arc;

use lapis_pmem::{BlockVisitor, Committed, Domain, InFlight, Link, Owned, Pool};

use crate::log::{
    Damage, LARGEST_ENTRY_BYTES, Layout, Log, LogError, LogStatistics, Position,
    forward_to_own_methods,
};

use super::{PopLog, PopLogOptions, PopLogRoot};

impl<D: Domain> Log<D> for PopLog<D> {
    const NAME: &'static str = "pop-log";
    type Root = PopLogRoot;
    type Options = PopLogOptions;

    const BARRIERS: u64 = 1;
    const GROWS: bool = true;

    fn options(layout: Layout) -> PopLogOptions {
        let Layout { bytes, placement, .. } = layout;
        PopLogOptions { segment_bytes: bytes, spare_segments: 2, placement }
    }

    /// An entry has no way to say that it belongs to the next, so each pays for its own barrier,
    /// and a crash in between leaves the first so many. Other threads' entries may come between.
    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Range<Position>, LogError> {
        for payload in payloads {
            match payload.len() {
                0 => return Err(LogError::EmptyEntry),
                asked_bytes if asked_bytes > LARGEST_ENTRY_BYTES => {
                    return Err(LogError::EntryTooLarge { asked_bytes });
                }
                _ => {}
            }
        }
        let mut first = None;
        let mut end = self.end();
        for payload in payloads {
            let position = self.append(payload)?;
            first.get_or_insert(position);
            end = position.next();
        }
        Ok(first.unwrap_or(end)..end)
    }

    fn log_statistics(&self) -> LogStatistics {
        let statistics = self.statistics();
        LogStatistics {
            entries: statistics.entries,
            entry_bytes: statistics.entry_bytes,
            capacity_bytes: statistics.segment_bytes,
        }
    }

    forward_to_own_methods!(D);
}
