//! Letting go of entries.

use lapis_pmem::{Committed, Domain};

use crate::log::{Damage, LogError, Position};

use super::RingLog;
use super::kind::{RingKind, Seen, after_entry};
use super::layout::Start;

impl<D: Domain, K: RingKind> RingLog<D, K> {
    /// Drops every entry before `up_to`, which becomes the oldest retained one; `truncate(end())`
    /// drops all. Durable on return; nothing happens if the entries are gone already. Appends go
    /// on meanwhile, in the space that was free before.
    ///
    /// Cost: one flush and one fence. The classic and the pop log also zero what became free, by whole lines:
    /// two fences and one flush more.
    ///
    /// # Errors
    /// [`LogError::BeyondEnd`], [`LogError::Damaged`], [`LogError::Fault`].
    pub fn truncate(&self, up_to: Position) -> Result<Committed, LogError> {
        let _exclusive = self.retention.write();
        let (old, tail, next) = {
            let writer = self.writer.lock();
            (writer.start, writer.tail, writer.next)
        };
        if up_to > next {
            return Err(LogError::BeyondEnd { asked: up_to, end: next });
        }
        if up_to <= old.position {
            return Ok(Committed::nothing_to_do());
        }
        let ring = self.ring();
        let (mut at, mut position) = (old.offset, old.position);
        if up_to == next {
            at = tail;
        } else {
            while position < up_to {
                let Seen::Whole(head) = K::look(&ring, at, tail, position) else {
                    let what = "entries that do not follow one another";
                    let pool_offset = ring.pool_offset(at);
                    return Err(LogError::Damaged(Damage { what, position, pool_offset }));
                };
                at = after_entry::<K>(self.spacing, at, head);
                position = position.next();
            }
        }
        let domain = self.pool.domain();
        let mut start = Start { position: up_to, offset: at, limit: old.limit };
        let limit = start.widest_limit(self.capacity);
        if !K::ZEROED {
            start.limit = limit;
        }
        // G4.
        let committed = self.header().store_start(domain, start).persist();
        domain.health()?;
        if start.limit < limit {
            if !domain.commits(K::REUSE_MUTANT) {
                // SAFETY: behind the start, durably; readers are locked out, and appends stay
                // before the old limit.
                unsafe { ring.zero(old.limit, limit) };
                // G3, before the limit says so.
                domain.fence();
                domain.health()?;
            }
            start.limit = limit;
            let _: Committed = self.header().store_start(domain, start).persist();
        }
        self.writer.lock().start = start;
        domain.health()?;
        Ok(committed)
    }
}
