//! Room in a log that is kept free for records to come.

use std::fmt;

use lapis_pmem::Domain;

use super::error::BlockLogError;
use super::record::Lsn;
use super::ring::{MARK_ROOM, Ring};
use super::{BlockLog, State};

/// Room for records to come: a transaction that has reserved what it takes to commit, and to undo what
/// it did, does not find the log full when it is too late. What is left when it is dropped is free
/// again.
pub struct Reservation<'l, D: Domain> {
    log: &'l BlockLog<D>,
    bytes: u64,
}

impl<D: Domain> fmt::Debug for Reservation<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reservation({} bytes)", self.bytes)
    }
}

impl<D: Domain> BlockLog<D> {
    /// Reserves room for so many records with so many bytes of payload together. It is more than they
    /// will take, since they may not fit where a segment ends.
    ///
    /// # Errors
    /// [`BlockLogError::Full`], [`BlockLogError::Failed`]: nothing was reserved.
    pub fn reserve(
        &self,
        records: u64,
        payload_bytes: u64,
    ) -> Result<Reservation<'_, D>, BlockLogError> {
        let mut reservation = Reservation { log: self, bytes: 0 };
        reservation.extend(records, payload_bytes)?;
        Ok(reservation)
    }
}

impl State {
    fn promise(&mut self, bytes: u64, payload_bytes: u64) -> Result<(), BlockLogError> {
        self.check_health()?;
        let taken = self.batch.end() + MARK_ROOM + self.promised;
        if taken.saturating_add(bytes) > self.limit {
            let bytes = usize::try_from(payload_bytes).unwrap_or(usize::MAX);
            return Err(BlockLogError::Full { bytes, free: self.limit.saturating_sub(taken) });
        }
        self.promised += bytes;
        Ok(())
    }
}

impl<D: Domain> Reservation<'_, D> {
    /// Reserves room for more.
    ///
    /// # Errors
    /// As [`BlockLog::reserve`]; what was reserved before stays.
    pub fn extend(&mut self, records: u64, payload_bytes: u64) -> Result<(), BlockLogError> {
        let bytes = Ring::room_for(records, payload_bytes);
        loop {
            let mut state = self.log.lock();
            let capacity = state.ring.bytes();
            match state.promise(bytes, payload_bytes) {
                Ok(()) => break,
                Err(BlockLogError::Full { bytes, free }) => {
                    drop(state);
                    if !self.log.grow_beyond(capacity)? {
                        return Err(BlockLogError::Full { bytes, free });
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.bytes += bytes;
        Ok(())
    }

    /// [`BlockLog::append`] into what was reserved, so that the log is not full. Beyond that it may be.
    ///
    /// # Errors
    /// As [`BlockLog::append`].
    pub fn append(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, BlockLogError> {
        self.log.append_promised(kind, parts, &mut self.bytes)
    }
}

impl<D: Domain> Drop for Reservation<'_, D> {
    fn drop(&mut self) {
        self.log.lock().promised -= self.bytes;
    }
}
