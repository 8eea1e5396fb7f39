//! Letting go of entries: truncation, and what becomes of segments that hold none any more.

use lapis_pmem::host_lock::{lock, write};
use lapis_pmem::{Committed, Domain, LINE_BYTES};

use crate::log::{Damage, LogError, Position};

use super::PopLog;
use super::entry::{is_entry_at, whole_entry_bytes};
use super::layout::Start;
use super::mutants;
use super::recovery::Held;
use super::segment::{self, Spare};

impl<D: Domain> PopLog<D> {
    /// Drops every entry before `up_to`, which becomes the oldest retained one; `truncate(end())`
    /// drops all. Durable on return; nothing happens if the entries are gone already. Appends and
    /// truncation go on side by side.
    ///
    /// Cost: one flush and one fence. If whole segments become free, the zeroing of those that are
    /// kept as spares and one fence more, and what the allocator needs to take back the others.
    ///
    /// # Errors
    /// [`LogError::BeyondEnd`], [`LogError::Damaged`], [`LogError::Fault`].
    pub fn truncate(&self, up_to: Position) -> Result<Committed, LogError> {
        let _exclusive = write(self.pool.domain(), &self.retention);
        let (old, held, drops_all) = {
            let writer = lock(self.pool.domain(), &self.writer);
            if up_to > writer.next {
                return Err(LogError::BeyondEnd { asked: up_to, end: writer.next });
            }
            if up_to <= writer.start.position {
                return Ok(Committed::nothing_to_do());
            }
            (writer.start, writer.holding(up_to), up_to == writer.next)
        };
        let (mut at, mut data_offset) = if held.segment == old.segment {
            (old.position, old.data_offset)
        } else {
            (held.first, 0)
        };
        // A length has changed since it was acknowledged.
        let damaged = |position| {
            Err(LogError::Damaged(Damage {
                what: "entries that do not add up to their segment",
                position,
                pool_offset: held.segment.pool_offset(0),
            }))
        };
        while at < up_to {
            if data_offset >= held.used_bytes {
                return damaged(at);
            }
            data_offset += whole_entry_bytes(&self.pool, held.segment, self.spacing, data_offset);
            at = at.next();
        }
        let adds_up = match drops_all {
            true => data_offset == held.used_bytes,
            false => {
                data_offset < held.used_bytes
                    && is_entry_at(&self.pool, held.segment, data_offset, up_to)
            }
        };
        if !adds_up {
            return damaged(up_to);
        }
        let start = Start { segment: held.segment, position: up_to, data_offset };
        let unlinked = self.persist_start(start);
        self.pool.domain().health()?;
        let (dropped, room) = {
            let mut writer = lock(self.pool.domain(), &self.writer);
            writer.start = start;
            let count =
                writer.earlier.iter().take_while(|held| held.segment != start.segment).count();
            let dropped: Vec<Held> = writer.earlier.drain(..count).collect();
            (dropped, self.spare_limit.saturating_sub(writer.spares.len()))
        };
        self.recycle(dropped, room, unlinked);
        Ok(unlinked)
    }

    /// I6: all in one line, the selector last, so that what it selects is there whenever it is.
    fn persist_start(&self, start: Start) -> Committed {
        let (header, domain) = (self.header(), self.pool.domain());
        let selector = header.start_selector.load(domain).wrapping_add(1);
        let record = &header.starts[(selector & 1) as usize];
        record.segment.word().store_ordered(domain, start.segment.bits());
        record.position.store_ordered(domain, start.position.number());
        record.data_offset.store_ordered(domain, start.data_offset as u64);
        header.start_selector.publish(domain, selector).persist()
    }

    /// Makes spares of up to `room` segments and frees the others. The writer's lock is not held.
    fn recycle(&self, dropped: Vec<Held>, room: usize, unlinked: Committed) {
        let mut spares = Vec::new();
        for Held { segment, .. } in dropped {
            if segment.is_ordinary() && spares.len() < room {
                self.pool.domain().happens("a segment becomes a spare one");
                // SAFETY: behind the start, durably (`unlinked`); readers are locked out, and
                // the writer knows it no more.
                unsafe { segment::zero(&self.pool, segment, self.ordinary_bytes) };
                spares.push(Spare { segment, unlinked });
            } else {
                self.pool.domain().happens("a segment is freed");
                segment::free(&self.pool, segment, self.ordinary_bytes, unlinked);
            }
        }
        if !spares.is_empty() {
            // I3. Here, not at the append that takes the spare: that may be another thread's.
            {
                let _mutant = self.pool.domain().omitting(mutants::RECYCLE_WITHOUT_BARRIER);
                self.pool.domain().fence();
            }
            lock(self.pool.domain(), &self.writer).spares.append(&mut spares);
        }
    }

    /// Stocks spare segments up to the limit that the log was created with, so that appends find
    /// them ready: for whoever cannot bear an append that allocates and zeroes one.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::Fault`]; spares that were had until then are kept.
    pub fn prepare_spares(&self) -> Result<(), LogError> {
        let _retained = write(self.pool.domain(), &self.retention);
        while lock(self.pool.domain(), &self.writer).spares.len() < self.spare_limit {
            let segment = segment::allocate(&self.pool, self.ordinary_bytes, LINE_BYTES)?;
            let spare = Spare { segment, unlinked: Committed::nothing_to_do() };
            lock(self.pool.domain(), &self.writer).spares.push(spare);
        }
        Ok(self.pool.domain().health()?)
    }
}

impl<D: Domain> Drop for PopLog<D> {
    fn drop(&mut self) {
        // I7: nothing durable refers to them.
        for Spare { segment, unlinked } in self.writer.get_mut().spares.drain(..) {
            segment::free(&self.pool, segment, self.ordinary_bytes, unlinked);
        }
    }
}
