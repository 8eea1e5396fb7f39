//! How long the ring is, and the end of an orderly use.

use std::sync::atomic::Ordering;

use lapis_pmem::{BlockBuffer, BlockError, Domain, host_lock};

use super::batch::Batch;
use super::error::BlockLogError;
use super::header::Header;
use super::{BlockLog, mutants};

impl<D: Domain> BlockLog<D> {
    /// Makes the ring longer than so many bytes, if it is not already: four times as long, or as long as it may be. False if it is, if what is
    /// retained comes round its end, or if the disk is full. Appending does this where it would find the log full; who has the
    /// time does it before.
    ///
    /// # Errors
    /// [`BlockLogError::Device`]: it is as long as it was. [`BlockLogError::Failed`].
    pub fn grow_beyond(&self, bytes: u64) -> Result<bool, BlockLogError> {
        let mut copies = host_lock::lock(&self.domain, &self.header);
        let header = copies.header();
        if header.ring.bytes() > bytes {
            return Ok(true);
        }
        if header.ring.bytes() == header.ring.most_bytes() {
            return Ok(false);
        }
        let turn = self.wait_to_write()?;
        // In the turn to write, what is written is durable.
        let written = self.durable.load(&self.domain);
        let Some(ring) = header.ring.longer(header.start, written) else {
            drop(self.give_back(turn));
            return Ok(false);
        };
        let make_room = || self.device.grow_to(ring.device_blocks());
        let claims_first = self.domain.commits(mutants::LENGTH_BEFORE_STORAGE);
        if !claims_first && let Err(error) = make_room() {
            drop(self.give_back(turn));
            return match error {
                BlockError::NoSpace { .. } => Ok(false),
                error => Err(error.into()),
            };
        }
        self.domain.happens("the ring grows");
        let mut state = self.write_header(&mut copies, turn, Header { ring, ..header }, true)?;
        if claims_first {
            make_room()?;
        }
        state.statistics.growths += 1;
        self.capacity_bytes.store(ring.bytes(), Ordering::Relaxed);
        state.ring = ring;
        state.limit = ring.limit(header.start);
        Ok(true)
    }

    /// Makes everything durable and says so in the header, so that the next opening need not look for more. If nothing is
    /// retained, the ring becomes as short as it was made. What is appended afterwards opens the log again.
    ///
    /// # Errors
    /// [`BlockLogError::Failed`], [`BlockLogError::Device`].
    pub fn close(&self) -> Result<(), BlockLogError> {
        self.sync()?;
        let mut copies = host_lock::lock(&self.domain, &self.header);
        let (header, turn) = (copies.header(), self.wait_to_write()?);
        let durable = self.durable.load(&self.domain);
        let mut state = self.lock();
        let has_more =
            state.batch.end() > durable && !self.domain.commits(mutants::CLOSED_WITH_MORE);
        let goes_on = has_more || state.promised > 0;
        // Who appends from here on waits for the header.
        state.closed |= !goes_on;
        drop(state);
        if goes_on || header.closed {
            drop(self.give_back(turn));
            return Ok(());
        }
        let is_empty = header.start == durable;
        let shortest = if is_empty { header.ring.shortest(durable) } else { None };
        let next = Header { durable, closed: true, ..header };
        let Some((ring, first)) = shortest else {
            return self.write_header(&mut copies, turn, next, true).map(drop);
        };
        // The stream leaves out what is left of a segment, so that the first round has all of the ring.
        let next = Header { ring, start: first, durable: first, ..next };
        let mut state = self.write_header(&mut copies, turn, next, true)?;
        let buffer = BlockBuffer::zeroed(ring.batch_blocks());
        state.batch = Batch::at(first, ring.unit_bytes(), buffer);
        self.durable.store_release(&self.domain, first);
        self.start.store_release(&self.domain, first);
        self.capacity_bytes.store(ring.bytes(), Ordering::Relaxed);
        state.ring = ring;
        state.limit = ring.limit(first);
        drop(state);
        if ring.bytes() < header.ring.bytes() {
            self.domain.happens("the ring becomes shorter");
            self.device.shrink_to(ring.device_blocks())?;
        }
        Ok(())
    }

    /// Says in the header that the log does not end there any more (B8).
    pub(super) fn reopen(&self) -> Result<(), BlockLogError> {
        let mut copies = host_lock::lock(&self.domain, &self.header);
        let header = copies.header();
        if !header.closed {
            return Ok(());
        }
        let turn = self.wait_to_write()?;
        let closed = self.domain.commits(mutants::CLOSED_FOR_GOOD);
        let mut state = self.write_header(&mut copies, turn, Header { closed, ..header }, true)?;
        state.closed = false;
        Ok(())
    }
}
