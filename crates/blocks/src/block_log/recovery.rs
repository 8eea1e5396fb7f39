//! Opening a log: finding its end, and making it one.

use std::fmt;
use std::sync::Arc;

use lapis_pmem::{BlockBuffer, BlockDevice, Domain};

use super::batch::Batch;
use super::error::{BlockLogError, LogDamage};
use super::header::{Header, HeaderCopies};
use super::record::{ALIGNMENT, Form, Lsn, Record};
use super::ring::BLOCK;
use super::window::Window;
use super::{BlockLog, mutants};

/// A log that is being opened. It gives the records that are there, for an analysis that needs all of
/// them anyway, and then the log. What was read may not be durable until [`Recovery::finish`] has
/// returned: nothing may be written elsewhere on the strength of it before.
pub struct Recovery<D: Domain> {
    domain: D,
    device: Arc<dyn BlockDevice>,
    header: HeaderCopies,
    window: Window<D>,
    position: u64,
    /// Before it all was durable before the crash.
    vouched: u64,
    is_at_end: bool,
}

impl<D: Domain> fmt::Debug for Recovery<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recovery(at {})", self.position())
    }
}

impl<D: Domain> Recovery<D> {
    /// Begins to open the log on a device. Nothing is written.
    ///
    /// # Errors
    /// [`BlockLogError::NotALog`], [`BlockLogError::NewerVersion`], [`BlockLogError::DamagedHeader`],
    /// [`BlockLogError::DeviceTooSmall`], [`BlockLogError::Device`].
    pub fn begin(domain: D, device: Arc<dyn BlockDevice>) -> Result<Self, BlockLogError> {
        let header = HeaderCopies::read(&*device)?;
        let Header { ring, start, durable, .. } = header.header();
        let window = Window::new(domain.clone(), Arc::clone(&device), ring, ring.batch_blocks());
        Ok(Self {
            domain,
            device,
            header,
            window,
            position: start,
            vouched: durable,
            is_at_end: false,
        })
    }

    /// Where the oldest retained record begins.
    pub fn start(&self) -> Lsn {
        Lsn::from_number(self.header.header().start)
    }

    /// How far the log was read. It ends at the latest one ring behind [`Recovery::start`].
    pub fn position(&self) -> Lsn {
        Lsn::from_number(self.position)
    }

    /// The next record; none at the end of the log.
    ///
    /// # Errors
    /// [`BlockLogError::Damaged`], [`BlockLogError::Device`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, BlockLogError> {
        let ring = self.window.ring();
        let Header { closed, durable, .. } = self.header.header();
        let limit = ring.limit(self.start().number());
        while !self.is_at_end {
            // B8
            if closed && self.position >= durable {
                self.is_at_end = true;
                break;
            }
            let at = ring.settle(self.position);
            let entry = if at < limit { self.window.entry_at(at)? } else { None };
            let Some(header) = entry else {
                self.check_behind(at, limit)?;
                self.is_at_end = true;
                break;
            };
            let witness = self.window.witness(at, header)?;
            self.vouched = self.vouched.max(witness.unwrap_or(0));
            self.position = at + header.record_bytes();
            if header.form == Form::User {
                let lsn = Lsn::from_number(at);
                let payload = self.window.payload(at, header)?;
                return Ok(Some(Record { lsn, kind: header.kind, payload }));
            }
        }
        Ok(None)
    }

    /// Tells the end of the log, where no record is, from damage.
    fn check_behind(&mut self, end: u64, limit: u64) -> Result<(), BlockLogError> {
        let ring = self.window.ring();
        let damage = |witness| {
            let (at, witness) = (Lsn::from_number(end), Lsn::from_number(witness));
            Err(BlockLogError::Damaged(LogDamage { at, witness }))
        };
        if self.vouched > self.position {
            return damage(self.vouched);
        }
        // B3: up to here records may be there although this one is not. Behind it a record would begin
        // within another batch, if there is any.
        let excused = self.position - self.position % ring.unit_bytes() + ring.batch_bytes();
        let last = limit.min(excused + ring.batch_bytes());
        let mut at = end;
        while at < last {
            let settled = ring.settle(at);
            if settled != at {
                at = settled;
                continue;
            }
            let stands_here = self.window.bytes(at + 8, 8)? == at.to_le_bytes();
            let entry = if stands_here { self.window.entry_at(at)? } else { None };
            let Some(header) = entry else {
                at += ALIGNMENT;
                continue;
            };
            let witness = self.window.witness(at, header)?;
            if at >= excused || witness.is_some_and(|witness| witness > end) {
                return damage(at);
            }
            at += header.record_bytes();
        }
        // What is lost may be more than a batch: every segment says that it was begun, in its first block.
        let mut begun = Window::new(self.domain.clone(), Arc::clone(&self.device), ring, 1);
        let mut at = ring.next_segment(last);
        while at < limit {
            if begun.entry_at(at)?.is_some() {
                return damage(at);
            }
            at = ring.segment_end(at);
        }
        Ok(())
    }

    /// Reads what is left, makes the log durable up to its end and opens it.
    ///
    /// # Errors
    /// [`BlockLogError::Damaged`], [`BlockLogError::Device`].
    pub fn finish(mut self) -> Result<BlockLog<D>, BlockLogError> {
        while self.next_record()?.is_some() {}
        let ring = self.window.ring();
        let header = self.header.header();
        let end = self.position;
        let first = end - end % ring.unit_bytes();
        // What nobody vouches for is written as it is read.
        let mut at = self.vouched - self.vouched % BLOCK;
        while at < first {
            self.domain.happens("what nobody vouches for is written again");
            let bytes = (first - at).min(ring.segment_end(at) - at).min(ring.batch_bytes());
            let read = self.window.bytes(at, bytes)?;
            ring.write(&*self.device, at, read)?;
            at += bytes;
        }
        let mut blocks = BlockBuffer::zeroed(ring.batch_blocks());
        // Of a log that was closed with nothing retained, nobody reads what was there.
        if first < end && !(header.closed && header.start == end) {
            let kept = end - first;
            blocks[..kept as usize].copy_from_slice(self.window.bytes(first, kept)?);
        }
        if !header.closed {
            // B6
            let parts = 1 + u64::from(self.domain.commits(mutants::HALF_OF_TAIL_LEFT));
            let bytes = match self.domain.commits(mutants::TAIL_LEFT) {
                true => end.next_multiple_of(ring.unit_bytes()) - first,
                false => (ring.limit(header.start) - first).min(ring.batch_bytes() / parts),
            };
            ring.write(&*self.device, first, &blocks[..bytes as usize])?;
        }
        if header.durable == end && self.header.are_alike() {
            // The header may have been written and not flushed; the space before its start is used from now on (B5).
            // Of a log that was closed it is written again before.
            if !header.closed {
                self.device.flush()?;
            }
        } else {
            let next = Header { durable: self.vouched, sequence: header.sequence + 1, ..header };
            self.header.write(&*self.device, next)?;
        }
        Ok(BlockLog::over(
            self.domain,
            self.device,
            self.header,
            Batch::at(end, ring.unit_bytes(), blocks),
        ))
    }
}
