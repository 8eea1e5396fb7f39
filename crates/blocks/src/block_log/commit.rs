//! Group commit: who finds nobody writing writes for all who came until then; the others wait.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lapis_pmem::{BlockBuffer, BlockError, Domain, host_lock};

use super::batch::Batch;
use super::error::BlockLogError;
use super::record::Lsn;
use super::ring::Ring;
use super::{BlockLog, Held, mutants};

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Until the record, and all before it, survives a power cut.
    #[default]
    Immediate,
    /// For nothing: the [`Ticket`] says when the record does.
    Group,
    /// For nothing. The record is lost if the process ends or the power goes before a later commit
    /// waits, or so many records are appended that they fill a batch; what is lost then is the end of
    /// the log, and less than two batches.
    Eventual,
}

/// A commit that may not be durable yet.
pub struct Ticket<'l, D: Domain> {
    log: &'l BlockLog<D>,
    lsn: Lsn,
}

impl<D: Domain> fmt::Debug for Ticket<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.lsn)
    }
}

impl<D: Domain> Ticket<'_, D> {
    /// Whether it is durable.
    pub fn is_durable(&self) -> bool {
        self.log.durable() > self.lsn
    }

    /// Waits until it is durable. If no sync is under way that will make it so, this begins one.
    ///
    /// # Errors
    /// [`BlockLogError::Failed`].
    pub fn wait(self) -> Result<(), BlockLogError> {
        self.log.wait_until_durable(self.lsn)
    }
}

impl<D: Domain> BlockLog<D> {
    /// Commits the record at `lsn`, and with it all before it.
    ///
    /// # Errors
    /// [`BlockLogError::BeyondEnd`]. [`BlockLogError::Failed`]: it may or may not be durable.
    pub fn commit(&self, lsn: Lsn, durability: Durability) -> Result<Ticket<'_, D>, BlockLogError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if durability == Durability::Immediate {
            self.wait_until_durable(lsn)?;
        } else {
            let state = self.lock();
            self.check_appended(&state, lsn)?;
            state.check_health()?;
        }
        Ok(Ticket { log: self, lsn })
    }

    /// Makes durable all that was appended.
    ///
    /// # Errors
    /// [`BlockLogError::Failed`].
    pub fn sync(&self) -> Result<(), BlockLogError> {
        match self.end().number().checked_sub(1) {
            Some(last) => self.wait_until_durable(Lsn::from_number(last)),
            None => Ok(()),
        }
    }

    /// Whether half of a batch has been filled since this was asked last: the time to have [`BlockLog::write_early`] called.
    pub fn take_half_full(&self) -> bool {
        self.half_full.load(Ordering::Relaxed) && self.half_full.swap(false, Ordering::Relaxed)
    }

    /// What a thread in the background does again and again: makes durable what was appended if that fills half of a batch,
    /// so that who appends the other half need not wait. Returns whether it did.
    ///
    /// # Errors
    /// [`BlockLogError::Failed`].
    pub fn write_early(&self) -> Result<bool, BlockLogError> {
        let mut state = self.lock();
        state.check_health()?;
        if !state.is_due() || state.spare.is_none() {
            return Ok(false);
        }
        state = self.write_batch_or_wait(state);
        state.check_health().map(|()| true)
    }

    fn check_appended(&self, state: &Held<'_, D>, asked: Lsn) -> Result<(), BlockLogError> {
        let end = Lsn::from_number(state.batch.end());
        if asked < end { Ok(()) } else { Err(BlockLogError::BeyondEnd { asked, end }) }
    }

    fn wait_until_durable(&self, lsn: Lsn) -> Result<(), BlockLogError> {
        if self.durable() > lsn {
            return Ok(());
        }
        let mut state = self.lock();
        self.check_appended(&state, lsn)?;
        // Batches end with records, so one that begins before the end of a batch is in it whole.
        while self.durable() <= lsn {
            state.check_health()?;
            state = self.write_batch_or_wait(state);
        }
        Ok(())
    }

    /// Waits until nobody writes. Whoever gets the buffer gives it back.
    pub(super) fn wait_to_write(&self) -> Result<BlockBuffer, BlockLogError> {
        let mut state = self.lock();
        loop {
            state.check_health()?;
            match state.spare.take() {
                Some(spare) => return Ok(spare),
                None => state = host_lock::wait(&self.state, state, &self.written),
            }
        }
    }

    /// Gives back the turn to write.
    pub(super) fn give_back(&self, turn: BlockBuffer) -> Held<'_, D> {
        let mut state = self.lock();
        state.spare = Some(turn);
        self.written.notify_all();
        state
    }

    /// Writes what was appended and makes it durable, or waits for whoever is doing that. The caller
    /// then looks again for what it wants.
    pub(super) fn write_batch_or_wait<'l>(&'l self, mut state: Held<'l, D>) -> Held<'l, D> {
        let Some(spare) = state.spare.take() else {
            return host_lock::wait(&self.state, state, &self.written);
        };
        let durable = self.durable.load(&self.domain);
        let ring = state.ring;
        state.batch.mark(ring, durable);
        if ring.rounds_before(state.batch.first()) < ring.rounds_before(state.batch.end()) {
            self.domain.happens("the ring comes round");
        }
        let drops_last_unit = self.domain.commits(mutants::LAST_BLOCK_DROPPED);
        let batch = state.batch.close(spare, drops_last_unit);
        drop(state);
        let outcome = self.write(ring, &batch);
        let mut state = self.lock();
        match outcome {
            Ok(()) => self.durable.store_release(&self.domain, batch.end()),
            // For good: what the device says afterwards promises nothing (D5).
            Err(error) => _ = state.failure.get_or_insert_with(|| Arc::new(error)),
        }
        state.statistics.syncs += 1;
        state.statistics.written_bytes += batch.units().len() as u64;
        state.spare = Some(batch.into_buffer());
        self.written.notify_all();
        state
    }

    fn write(&self, ring: Ring, batch: &Batch) -> Result<(), BlockError> {
        let written = ring.write(&*self.device, batch.first(), batch.units());
        if !self.domain.commits(mutants::IGNORED_WRITE_ERROR) {
            written?;
        }
        if self.domain.commits(mutants::ACKNOWLEDGED_BEFORE_SYNC) {
            self.durable.store_release(&self.domain, batch.end());
        }
        if self.domain.commits(mutants::MISSING_FLUSH) {
            return Ok(());
        }
        self.device.flush()
    }
}
