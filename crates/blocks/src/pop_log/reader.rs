//! Reading a log from its oldest retained entry.

use lapis_pmem::Domain;
use lapis_pmem::host_lock::{lock, read};

use crate::log::{Damage, LogError, Position};

use super::PopLog;
use super::entry::{Found, examine};
use super::layout::SegmentRef;

/// Iterates over the entries of a log, oldest first. Made by [`PopLog::iter`].
///
/// Each step copies one entry, so that the log may be appended to and truncated between steps:
/// entries appended meanwhile are seen, and entries truncated meanwhile are skipped.
#[derive(Debug)]
pub struct Iter<'log, D: Domain> {
    log: &'log PopLog<D>,
    next: Position,
    /// Where `next` is, unless it is the first in its segment.
    cursor: Option<(SegmentRef, usize)>,
    failed: bool,
}

impl<'log, D: Domain> Iter<'log, D> {
    pub(super) fn new(log: &'log PopLog<D>) -> Self {
        Self { log, next: Position::FIRST, cursor: None, failed: false }
    }
}

impl<D: Domain> Iterator for Iter<'_, D> {
    type Item = Result<(Position, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Held while the entry is read: no segment is recycled meanwhile. Appends go on.
        let _retained = read(self.log.pool.domain(), &self.log.retention);
        let (segment, data_offset, used_bytes) = {
            let writer = lock(self.log.pool.domain(), &self.log.writer);
            if self.next < writer.start.position {
                self.next = writer.start.position;
                self.cursor = Some((writer.start.segment, writer.start.data_offset));
            }
            if self.failed || self.next >= writer.next {
                return None;
            }
            let held = writer.holding(self.next);
            // An entry that is not where the one before it ended is the first of its segment.
            let data_offset = match self.cursor {
                Some((segment, data_offset)) if segment == held.segment => data_offset,
                _ if writer.start.segment == held.segment => writer.start.data_offset,
                _ => 0,
            };
            (held.segment, data_offset, held.used_bytes)
        };
        let (pool, spacing) = (&self.log.pool, self.log.spacing);
        match examine(pool, segment, spacing, data_offset, used_bytes, self.next) {
            Found::Whole { payload, bytes } => {
                let entry = (self.next, payload.to_vec());
                self.next = self.next.next();
                self.cursor = Some((segment, data_offset + bytes));
                Some(Ok(entry))
            }
            not_whole => {
                // Where the next one starts is not known any more.
                self.failed = true;
                let what = match not_whole {
                    Found::Damaged(what) => what,
                    _ => "an acknowledged entry with bits missing",
                };
                let pool_offset = segment.pool_offset(data_offset);
                Some(Err(LogError::Damaged(Damage { what, position: self.next, pool_offset })))
            }
        }
    }
}
