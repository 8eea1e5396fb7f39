//! Writing changed pages back: in batches, in the background, or by whoever would add to too many.

use lapis_pmem::Domain;

use super::swizzle::frame_of;
use super::tier::Propagated;
use super::{BufferManager, Storage, count};
use crate::error::BufferError;
use crate::latch::{Patience, Version};
use crate::mutants::{
    CHANGE_DURING_WRITE_FORGOTTEN, LATCHED_PAGE_OVERLOOKED, PAGE_BEFORE_LOG, STALE_PAGE_LEFT_IN_PM,
    SWIZZLED_REFERENCE_WRITTEN,
};
use crate::page::PageNumber;
use crate::space::{Added, Space};
use crate::tier::TierError;

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    pages: usize,
    /// The frames behind this one have not been looked at.
    next: usize,
    /// Changed frames that were latched.
    skipped: usize,
}

impl<D: Domain> BufferManager<D> {
    /// Writes a batch of changed pages, those first that the clock comes to next. Returns how many; a page
    /// that somebody has latched is left out.
    ///
    /// # Errors
    /// [`BufferError`]; what was to be written still is.
    pub fn write_back(&self) -> Result<usize, BufferError> {
        let Storage::Space(space) = &self.storage else { return Ok(0) };
        let first = self.hand();
        Ok(self.write_batch(space, first, first + self.frames.len())?.pages)
    }

    /// What a thread in the background does again and again: writes a batch if that many frames are
    /// changed that somebody might soon have to. Returns whether it did.
    ///
    /// # Errors
    /// [`BufferError`]; what was to be written still is.
    pub fn write_back_early(&self) -> Result<bool, BufferError> {
        let changed = self.changed_frames.get(&self.domain);
        let many = changed > self.options.most_changed_frames as u64 / 4 * 3;
        Ok((many || self.tier_wants_writing()) && self.write_back()? > 0)
    }

    /// Back-pressure: writes batches as long as too many frames are changed. Whoever is about to change
    /// pages calls this before having any; what fixes or allocates a page exclusively does so itself.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn relieve(&self) -> Result<(), BufferError> {
        let most = self.options.most_changed_frames as u64;
        while self.space().is_some() && self.changed_frames.get(&self.domain) >= most {
            count(&self.counters.back_pressure);
            if self.write_back()? == 0 {
                // All of them are in somebody's hands, or clean by now.
                break;
            }
        }
        Ok(())
    }

    /// Writes every page that is changed when this is called, and waits for those that are latched: so
    /// nobody calls it who has one. Pages that were freed are free on the device, too.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn write_all(&self) -> Result<(), BufferError> {
        let Storage::Space(space) = &self.storage else { return Ok(()) };
        let mut patience = Patience::default();
        loop {
            let mut written = Written::default();
            while written.next < self.frames.len() {
                let batch = self.write_batch(space, written.next, self.frames.len())?;
                written.skipped += batch.skipped;
                written.next = batch.next;
            }
            if written.skipped == 0 {
                return Ok(space.write_freed(self.log.flushed_lsn())?);
            }
            patience.wait(&self.domain);
        }
    }

    /// Writes everything and ends an orderly use: the next opening has nothing to complete.
    ///
    /// # Errors
    /// [`BufferError`].
    pub fn close(&self) -> Result<(), BufferError> {
        self.write_all()?;
        let Storage::Space(space) = &self.storage else { return Ok(()) };
        Ok(space.settle(self.log.flushed_lsn())?)
    }

    /// The first change that the device does not have, of pages in memory and of such as were freed: redo
    /// begins there, or earlier. None if it has all of them. Changes that the log has and pages have not yet
    /// are nobody's here: a checkpoint notes the end of the log first, and then asks. What a page that was freed
    /// had is not asked for: before the log is cut, it is durable up to where it ended afterwards. Waits for
    /// pages that are latched, for their change may be in the log already; so nobody calls this who has one.
    /// Where there is no device, nothing is missing on it.
    pub fn oldest_change(&self) -> Option<u64> {
        let Storage::Space(space) = &self.storage else { return None };
        let domain = &self.domain;
        let changed = self.frames.iter().filter_map(|frame| {
            let mut patience = Patience::default();
            while !domain.commits(LATCHED_PAGE_OVERLOOKED) && frame.latch.version(domain).is_err() {
                patience.wait(domain);
            }
            frame.changed_since(domain)
        });
        let changed = changed.min();
        // After the frames: who logs that a page is free has latched it, or the node above it, and frees it before he lets go. So
        // what the log had when this was called is noted by now, though what it did to other pages may be written already.
        changed.into_iter().chain(space.oldest_freed()).min()
    }

    /// Writes the changed pages of frames from `first` on, counted round, as many as a batch takes.
    fn write_batch(
        &self,
        space: &Space<D>,
        first: usize,
        end: usize,
    ) -> Result<Written, BufferError> {
        let domain = &self.domain;
        if self.tier.is_some() {
            // A write that PM may not hold is not followed by one to the SSD.
            domain.health().map_err(|fault| TierError::Store(fault.into()))?;
        }
        let mut batch = space.begin_batch();
        let mut copied: Vec<(usize, Version)> = Vec::new();
        let (mut written, mut lsn) = (Written { next: end, ..Written::default() }, 0);
        for next in first..end {
            let at = next % self.frames.len();
            let frame = &self.frames[at];
            if frame.changed_since(domain).is_none() {
                continue;
            }
            match self.write_back_to_tier(space, at)? {
                Propagated::Written => {
                    written.pages += 1;
                    continue;
                }
                Propagated::Busy | Propagated::AfterLog(_) => {
                    written.skipped += 1;
                    continue;
                }
                Propagated::NoFrame => {}
            }
            let Ok(version) = frame.latch.try_take(domain) else {
                written.skipped += 1;
                continue;
            };
            let changed = frame.changed_since(domain).and(frame.page(domain));
            // It may have entered PM meanwhile, and is written there alone (T2).
            let left_behind = domain.commits(STALE_PAGE_LEFT_IN_PM);
            let changed = changed.filter(|_| left_behind || frame.backing(domain).is_none());
            let added = changed.map(|number: PageNumber| {
                lsn = lsn.max(self.lsn_of(at));
                batch.add(number, |into| self.copy_out(at, into))
            });
            frame.latch.release(domain, version, false);
            match added {
                Some(Added::InBatch) => copied.push((at, version)),
                Some(Added::Full) => {
                    written.next = next;
                    break;
                }
                Some(Added::NotInUse) | None => {}
            }
        }
        let tier = self.tier.as_deref().filter(|_| self.tier_wants_writing());
        let in_tier = match tier {
            Some(tier) => self.add_changed_in_tier(tier, &mut batch)?,
            None => Vec::new(),
        };
        if batch.is_empty() {
            return Ok(written);
        }
        // B3.
        if self.log.flushed_lsn() < lsn && !domain.commits(PAGE_BEFORE_LOG) {
            self.log.flush_to(lsn)?;
        }
        batch.write(self.log.flushed_lsn())?;
        // The turn to write is kept until it is known what is clean: a page that another batch writes in
        // place is never read from there.
        count(&self.counters.batches);
        for &(at, version) in &copied {
            count(&self.counters.pages_written);
            self.make_clean(at, version);
        }
        if let Some(tier) = tier {
            self.make_clean_in_tier(tier, &in_tier);
        }
        written.pages += copied.len() + in_tier.len();
        Ok(written)
    }

    /// Writes the changed page in a frame to PM, if that is where it belongs.
    fn write_back_to_tier(&self, space: &Space<D>, at: usize) -> Result<Propagated, BufferError> {
        let Some(tier) = self.tier.as_deref() else { return Ok(Propagated::NoFrame) };
        let (domain, frame) = (&self.domain, &self.frames[at]);
        let mut may_enter = None;
        let mut attempt = || {
            let Ok(version) = frame.latch.try_take(domain) else { return Ok(Propagated::Busy) };
            let propagated = match frame.changed_since(domain) {
                Some(_) => self.propagate(tier, space, at, &mut may_enter),
                None => Ok(Propagated::Busy),
            };
            frame.latch.release(domain, version, false);
            propagated
        };
        match attempt()? {
            // The log is waited for without the latch.
            Propagated::AfterLog(lsn) => {
                self.log.flush_to(lsn)?;
                attempt()
            }
            other => Ok(other),
        }
    }

    /// The page in a frame, which is latched, is somewhere else as it is here, or nobody's.
    pub(super) fn count_unchanged(&self, at: usize) {
        let frame = &self.frames[at];
        if frame.changed_since(&self.domain).is_some() {
            frame.set_changed_since(&self.domain, None);
            self.changed_frames.add(&self.domain, -1);
        }
    }

    /// The page in a frame that has a full block, or the beginning of any.
    fn words_of(&self, frame: usize) -> crate::PageRead<'_, D> {
        let block = self.frames[frame].block.get();
        crate::PageRead::new(&self.domain, self.memory.words(block))
    }

    pub(super) fn lsn_of(&self, frame: usize) -> u64 {
        // M5 of the lines.
        self.words_of(frame).lsn()
    }

    /// Copies a page as it is to be on the device: with page numbers for frames (P3). Its frame is latched,
    /// so its children stay where they are (B5).
    pub(super) fn copy_out(&self, frame: usize, into: &mut [u8]) {
        let page = self.words_of(frame);
        page.copy_to(0, into);
        if self.domain.commits(SWIZZLED_REFERENCE_WRITTEN) {
            return;
        }
        page.references().for_each(|offset| self.copy_reference_out(page, offset, into));
    }

    /// Copies a reference as it is to be outside of DRAM (P3).
    pub(super) fn copy_reference_out(
        &self,
        page: crate::PageRead<'_, D>,
        offset: usize,
        into: &mut [u8],
    ) {
        if let Some(child) = frame_of(page.word(offset)) {
            let number = self.frames.get(child).and_then(|child| child.page(&self.domain));
            let number = number.map_or(0, PageNumber::get);
            into[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// B4.
    fn make_clean(&self, at: usize, version: Version) {
        let (domain, frame) = (&self.domain, &self.frames[at]);
        let taken = match domain.commits(CHANGE_DURING_WRITE_FORGOTTEN) {
            true => frame.latch.try_take(domain),
            false => frame.latch.upgrade(domain, version).map(|()| version),
        };
        let Ok(version) = taken else { return };
        self.count_unchanged(at);
        frame.latch.release(domain, version, false);
    }
}
