//! Checkpoints: writing pages, so that the log can be cut.

use std::sync::atomic::{AtomicU64, Ordering};

use lapis_blocks::block_log::{BlockLogError, Lsn};
use lapis_buffer::WriteAheadLog;
use lapis_pmem::{Domain, host_lock};

use crate::engine::{Engine, Shared};
use crate::error::EngineError;
use crate::mutants::{CHECKPOINT_FORGETS_TRANSACTIONS, CHECKPOINT_TOO_EARLY, NO_ROOM_TO_LOG_AGAIN};

/// Room in the log: see [`Shared::keep_room_to_log_again`].
pub(crate) struct RoomToLogAgain<'l> {
    kept: &'l AtomicU64,
    bytes: u64,
}

impl Drop for RoomToLogAgain<'_> {
    fn drop(&mut self) {
        self.kept.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<D: Domain> Engine<D> {
    /// Writes every changed page and cuts the log, while others go on.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn checkpoint(&self) -> Result<(), EngineError> {
        self.shared().guarded(|| self.shared().checkpoint())
    }

    /// What a thread in the background does again and again: writes what others would soon have to write, of the log
    /// and of pages, tunes the chances by which pages move, makes the log longer or cuts it when half of it is used, takes away
    /// what nobody can read any more: chunks of long values, pages of dropped tables, entries that have expired. Returns
    /// whether there was something to do.
    ///
    /// # Errors
    /// [`EngineError`], of a page that cannot be read, say. Unless it is [`EngineError::Stopped`], what concerns other
    /// pages was done, and calls that follow go on with it.
    pub fn maintain(&self) -> Result<bool, EngineError> {
        let shared = self.shared();
        if shared.is_read_only() {
            return Ok(false);
        }
        shared.guarded(|| {
            let mut busy = shared.log.block_log().write_early()?;
            busy |= shared.manager.write_back_early()?;
            shared.manager.tune(shared.counters.leaf_accesses.sum());
            if shared.look_at_redo() {
                shared.checkpoint()?;
                busy = true;
            }
            if shared.log.free_bytes() < shared.log.block_log().capacity_bytes() / 2 {
                if !shared.grow_log()? {
                    shared.checkpoint()?;
                }
                busy = true;
            }
            // Of other pages each: one that cannot be read ends none of the others.
            let steps =
                [shared.remove_unwanted_chunks(), shared.free_dropped(), self.walk_expiring()];
            steps.into_iter().try_for_each(|step| step.map(|found| busy |= found))?;
            Ok(busy)
        })
    }

    /// Makes everything durable, writes every page and ends an orderly use: the next opening has nothing to redo. What the
    /// log, and pages at the end, took of the devices and do not need is given back. One that is read only has nothing to
    /// write.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn close(&self) -> Result<(), EngineError> {
        let shared = self.shared();
        if shared.is_read_only() {
            return Ok(());
        }
        shared.order.check_running()?;
        self.sync()?;
        self.checkpoint()?;
        shared.log.block_log().close()?;
        if let Some(space) = shared.manager.space() {
            space.trim().map_err(lapis_buffer::BufferError::from)?;
        }
        Ok(shared.manager.close()?)
    }
}

impl<D: Domain> Shared<D> {
    /// Keeps room in the log for logging again what is left of a transaction, of so many bytes at most, where the log is full
    /// before all of it is in the trees; until the room is dropped.
    pub(crate) fn keep_room_to_log_again(&self, bytes: u64) -> RoomToLogAgain<'_> {
        let bytes = if self.domain.commits(NO_ROOM_TO_LOG_AGAIN) { 0 } else { bytes };
        self.to_log_again.fetch_add(bytes, Ordering::Relaxed);
        RoomToLogAgain { kept: &self.to_log_again, bytes }
    }

    /// Makes sure that the log has room for a record of so many bytes, for what is kept for others and oneself, and for what
    /// trees log. It grows as long as it may before it is cut. Where it is kept for a transaction that is still changing
    /// trees, that one comes first: what it logs must find the room. The record may take no more than what trees log may.
    ///
    /// `own`: where the log is kept for the caller. Nobody waits for itself, nor for who has kept it from there or later, and
    /// may wait for the caller: a small record then finds room in what trees log may take.
    pub(crate) fn make_room(&self, bytes: u64, own: Option<u64>) -> Result<(), EngineError> {
        let is_asked = !self.domain.commits(NO_ROOM_TO_LOG_AGAIN);
        let fits = || bytes <= self.room_for_structure() || !is_asked;
        let has_room = || {
            let kept = self.to_log_again.load(Ordering::Relaxed);
            fits() && self.log.free_bytes() >= bytes + kept + self.room_for_structure()
        };
        let grow = || self.grow_log();
        while !has_room() {
            if grow()? {
                continue;
            }
            let kept = self.order.kept_from().filter(|&kept| own.is_none_or(|own| kept < own));
            self.checkpoint()?;
            match kept {
                Some(kept) if !has_room() => self.order.wait_beyond(kept)?,
                // What is retained now may lie so that it can grow.
                _ if !has_room() && grow()? => {}
                _ => break,
            }
        }
        if fits() {
            return Ok(());
        }
        let (bytes, free) = (usize::try_from(bytes).unwrap_or(usize::MAX), self.log.free_bytes());
        Err(BlockLogError::Full { bytes, free }.into())
    }

    /// Makes the log longer, if it can be.
    pub(crate) fn grow_log(&self) -> Result<bool, EngineError> {
        let log = self.log.block_log();
        Ok(log.grow_beyond(log.capacity_bytes())?)
    }

    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let _turn = host_lock::lock(&self.domain, &self.checkpoint);
        // Before pages are looked at: what is ordered later is behind it, in trees or not (E5).
        let transactions = self.order.keep_from(|| self.log.block_log().end().number());
        // Pages that were freed before that are to be free on the device too.
        self.log.block_log().sync()?;
        if !self.domain.commits(CHECKPOINT_TOO_EARLY) {
            self.manager.write_all()?;
        }
        if let Some(space) = self.manager.space() {
            space.write_freed(self.log.flushed_lsn()).map_err(lapis_buffer::BufferError::from)?;
        }
        self.cut(transactions)?;
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Cuts the log where nothing before is needed (E5).
    fn cut(&self, transactions: u64) -> Result<(), EngineError> {
        let pages = self.manager.oldest_change().unwrap_or(u64::MAX);
        // What became of pages that were freed is not asked for; that they were is in the log by now.
        self.log.block_log().sync()?;
        let pages = if self.domain.commits(CHECKPOINT_TOO_EARLY) { u64::MAX } else { pages };
        let forgets = self.domain.commits(CHECKPOINT_FORGETS_TRANSACTIONS);
        let transactions = if forgets { self.order.last() } else { transactions };
        let from = self.order.whole_from(pages.min(transactions));
        let log = self.log.block_log();
        if from > log.start().number() {
            log.truncate_before(Lsn::from_number(from))?;
        }
        self.note_cut();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lapis_device::{Config, Modelled, ModelledSsd, RunEnd, SchedulePolicy, SsdConfig};
    use lapis_pmem::Region;

    use crate::engine::{Engine, EngineOptions};
    use crate::storage::Storage;

    #[test]
    fn who_has_the_log_kept_does_not_wait_for_itself_where_there_is_no_room() {
        let region = Region::anonymous(1 << 16, 1 << 16).unwrap();
        let machine = Modelled::over(&region, Config::concurrent());
        let device = |blocks| {
            Arc::new(ModelledSsd::attached_to(&machine, blocks, SsdConfig::default()).unwrap()) as _
        };
        let options = EngineOptions::small();
        let storage = Storage::ssd(device(1), device(2 + 64));
        let engine = Engine::create(machine.clone(), storage, &options).unwrap();
        let shared = engine.shared();
        let policy = SchedulePolicy::Random { seed: 1 };
        let run = machine.run_workers(
            &policy,
            vec![Box::new(|| {
                let kept = shared.order.keep_log();
                // As others do who may have to log all of it again.
                let _others = shared.keep_room_to_log_again(shared.log.free_bytes());
                shared.make_room(0, Some(kept)).unwrap();
                shared.order.let_go_of_log(kept);
            })],
        );
        assert_eq!(run.end, RunEnd::Completed);
    }
}
