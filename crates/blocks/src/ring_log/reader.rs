//! Reading a log from its oldest retained entry.

use lapis_pmem::Domain;

use crate::log::{Damage, LogError, Position};

use super::RingLog;
use super::kind::{RingKind, Seen, after_entry};

/// Iterates over the entries of a log, oldest first. Made by [`RingLog::iter`].
///
/// Each step copies one entry, so that the log may be appended to and truncated between steps:
/// entries appended meanwhile are seen, and entries truncated meanwhile are skipped.
#[derive(Debug)]
pub struct Iter<'log, D: Domain, K: RingKind> {
    log: &'log RingLog<D, K>,
    next: Position,
    /// Where `next` is.
    at: u64,
    failed: bool,
}

impl<'log, D: Domain, K: RingKind> Iter<'log, D, K> {
    pub(super) fn new(log: &'log RingLog<D, K>) -> Self {
        Self { log, next: Position::from_number(0), at: 0, failed: false }
    }
}

impl<D: Domain, K: RingKind> Iterator for Iter<'_, D, K> {
    type Item = Result<(Position, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Held while the entry is read: its bytes are not used again meanwhile. Appends go on.
        let _retained = self.log.retention.read();
        let tail = {
            let writer = self.log.writer.lock();
            if self.next < writer.start.position {
                (self.next, self.at) = (writer.start.position, writer.start.offset);
            }
            if self.failed || self.next >= writer.next {
                return None;
            }
            writer.tail
        };
        let ring = self.log.ring();
        let what = match K::look(&ring, self.at, tail, self.next) {
            Seen::Whole(head) if K::is_intact(&ring, self.at, head) => {
                let mut payload = Vec::with_capacity(head.length);
                K::read(&ring, self.at, head, &mut payload);
                let entry = (self.next, payload);
                self.at = after_entry::<K>(self.log.spacing, self.at, head);
                self.next = self.next.next();
                return Some(Ok(entry));
            }
            Seen::Whole(_) => "an entry with a wrong checksum",
            Seen::Damaged(what) => what,
            Seen::Torn(_) | Seen::Nothing => "an acknowledged entry that is not whole",
        };
        // Where the next one starts is not known any more.
        self.failed = true;
        let pool_offset = ring.pool_offset(self.at);
        Some(Err(LogError::Damaged(Damage { what, position: self.next, pool_offset })))
    }
}
