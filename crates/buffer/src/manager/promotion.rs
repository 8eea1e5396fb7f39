//! Pages in mini blocks that need full ones. The invariants are M1 to M6 of the [lines](crate::page::lines).

use lapis_pmem::Domain;

use super::evict::Wanted;
use super::{BufferManager, ExclusivePage};
use crate::error::Interruption;
use crate::latch::Restart;

impl<D: Domain> BufferManager<D> {
    /// Notes that the page in frame `at` is used. Mostly that is noted already, and nobody comes here.
    #[cold]
    pub(super) fn note_use(&self, at: usize) -> Result<(), Interruption> {
        let (domain, frame) = (&self.domain, &self.frames[at]);
        if frame.is_overfull(domain) {
            self.promote(at)?;
            return Err(Restart.into());
        }
        frame.set_used(domain);
        Ok(())
    }

    /// Gives the page in frame `at` the full block of another frame, which gets its mini block.
    fn promote(&self, at: usize) -> Result<(), Interruption> {
        let (domain, memory, frame) = (&self.domain, &self.memory, &self.frames[at]);
        let mut full = self.take_frame(Wanted::Full)?;
        let version = frame.latch.try_take(domain)?;
        let partial = version.is_partial();
        let page = ExclusivePage { manager: self, frame, version, changed: true, partial };
        frame.set_used(domain);
        if page.is_mini() && frame.page(domain).is_some() {
            let mini = frame.promote(domain, memory, full.frame.block.get());
            full.frame.block.set(mini);
            // M1.
            full.partial = true;
        }
        Ok(())
    }

    /// Makes spare blocks full that were exchanged for mini blocks, as far as there are frames for that.
    pub(super) fn refill_spares(&self) {
        let (domain, memory) = (&self.domain, &self.memory);
        for (at, spare) in memory.spares.iter().enumerate() {
            if !memory.try_take_spare(domain, at, true) {
                continue;
            }
            if let Some(mut full) = self.take_unchanged_frame(Wanted::Full) {
                let block = full.frame.block.get();
                full.frame.block.set(spare.block.get());
                spare.block.set(block);
                full.partial = true;
            }
            spare.give_back(domain);
        }
    }
}
