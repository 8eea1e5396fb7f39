//! Reading a log that is open.

use std::fmt;
use std::sync::Arc;

use lapis_pmem::Domain;

use super::BlockLog;
use super::error::{BlockLogError, LogDamage};
use super::record::{Form, Lsn, RECORD_HEADER_BYTES, Record, RecordHeader};
use super::window::Window;

/// The durable records from a position on, oldest first. Records may be appended and dropped meanwhile;
/// those that become durable after the reader was made are not among them. Keeps as many bytes in memory as a
/// batch has.
pub struct Reader<'l, D: Domain> {
    log: &'l BlockLog<D>,
    window: Window<D>,
    position: u64,
    end: u64,
}

impl<D: Domain> fmt::Debug for Reader<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader(at {}, until {})", self.position(), self.end())
    }
}

impl<D: Domain> BlockLog<D> {
    /// Where the ring grows meanwhile, what is retained stays where it is (B7).
    fn window(&self, blocks: Option<usize>) -> Window<D> {
        let ring = self.lock().ring;
        let blocks = blocks.unwrap_or(ring.batch_blocks());
        Window::new(self.domain.clone(), Arc::clone(&self.device), ring, blocks)
    }

    /// The durable records from the one at `from` on; from [`BlockLog::start`] on, all.
    ///
    /// # Errors
    /// [`BlockLogError::Truncated`], [`BlockLogError::NotDurable`].
    pub fn read_from(&self, from: Lsn) -> Result<Reader<'_, D>, BlockLogError> {
        let durable = self.durable();
        if from > durable {
            return Err(BlockLogError::NotDurable { asked: from, durable });
        }
        self.check_retained(from)?;
        let window = self.window(None);
        Ok(Reader { log: self, window, position: from.number(), end: durable.number() })
    }

    fn check_retained(&self, asked: Lsn) -> Result<(), BlockLogError> {
        let start = self.start();
        if asked < start { Err(BlockLogError::Truncated { asked, start }) } else { Ok(()) }
    }

    /// Whether a durable record begins at `lsn`.
    pub(super) fn is_record_at(&self, lsn: Lsn) -> Result<bool, BlockLogError> {
        let (mut window, bytes) = (self.window(Some(2)), RECORD_HEADER_BYTES);
        let at = window.ring().settle(lsn.number());
        let header = RecordHeader::decode(window.bytes(at, bytes)?);
        Ok(header.is_some_and(|(header, _)| header.lsn == at))
    }
}

impl<D: Domain> Reader<'_, D> {
    /// Where the next record begins, or shortly before that.
    pub fn position(&self) -> Lsn {
        Lsn::from_number(self.position)
    }

    /// Where reading ends: with [`Reader::position`], how far it has come.
    pub fn end(&self) -> Lsn {
        Lsn::from_number(self.end)
    }

    /// The next record; none at the end.
    ///
    /// # Errors
    /// [`BlockLogError::Truncated`]: it was dropped meanwhile. [`BlockLogError::Damaged`],
    /// [`BlockLogError::Device`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, BlockLogError> {
        let ring = self.window.ring();
        while self.position < self.end {
            let at = ring.settle(self.position);
            let entry = self.window.entry_at(at)?;
            // What has been dropped may be something else by now, and have been so when it was read.
            self.log.check_retained(self.position())?;
            let Some(header) = entry else {
                let (at, witness) = (Lsn::from_number(at), self.end());
                return Err(BlockLogError::Damaged(LogDamage { at, witness }));
            };
            self.position = at + header.record_bytes();
            if header.form == Form::User {
                let lsn = Lsn::from_number(at);
                let payload = self.window.payload(at, header)?;
                return Ok(Some(Record { lsn, kind: header.kind, payload }));
            }
        }
        Ok(None)
    }
}
