//! Replacement: frames for pages that are not in one.
//!
//! A clock (Fig. 6 of the paper, decision 1): the hand goes round the frames, takes the mark of those that
//! were used since it came by last, and evicts the first that was not. A frame that holds nothing is taken
//! at once, so there is no list of these. What is changed is passed over; the batches that make it clean
//! begin where the hand is. A page that was just loaded has no mark: used once, it goes at the hand's
//! next visit.
//!
//! Frames with mini blocks are in the same round. A page of persistent memory takes whichever frame's turn it is, so that
//! all pages are kept as long as the clock goes round once; whoever needs a full block passes over the others.

use lapis_pmem::Domain;

use super::swizzle::find_reference;
use super::{BufferManager, ExclusivePage, OptimisticPage, Storage, count};
use crate::error::BufferError;
use crate::latch::Patience;
use crate::page::PageNumber;

/// Which frames do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One with a full block.
    Full,
    /// Any.
    Any,
}

/// Times that the hand may go round in vain, with a batch or a pause in between.
const MOST_ROUNDS: u32 = 10_000;

impl<D: Domain> BufferManager<D> {
    /// Where the hand is.
    pub(super) fn hand(&self) -> usize {
        (self.hand.load(&self.domain) % self.clocked as u64) as usize
    }

    fn advance_hand(&self) -> usize {
        let mut now = self.hand.load(&self.domain);
        while let Err(found) = self.hand.compare_exchange(&self.domain, now, now.wrapping_add(1)) {
            now = found;
        }
        (now % self.clocked as u64) as usize
    }

    /// A frame that holds no page, latched. A page in it, and its readers, are gone.
    pub(super) fn take_frame(&self, wanted: Wanted) -> Result<ExclusivePage<'_, D>, BufferError> {
        let mut patience = Patience::default();
        loop {
            if let Some(taken) = self.take_unchanged_frame(wanted) {
                return Ok(taken);
            }
            if self.write_back()? == 0 && patience.wait(&self.domain) >= self.patience_of_rounds() {
                return Err(BufferError::NoFrame { frames: self.clocked });
            }
        }
    }

    /// The same, if there is one that nothing has to be written for.
    pub(super) fn take_unchanged_frame(&self, wanted: Wanted) -> Option<ExclusivePage<'_, D>> {
        (0..2 * self.clocked).find_map(|_| self.try_take_frame(self.advance_hand(), wanted))
    }

    /// In memory nothing will become free by itself.
    fn patience_of_rounds(&self) -> u32 {
        match self.storage {
            Storage::None(_) => 1,
            Storage::Space(_) => MOST_ROUNDS,
        }
    }

    fn try_take_frame(&self, at: usize, wanted: Wanted) -> Option<ExclusivePage<'_, D>> {
        let (frame, domain) = (&self.frames[at], &self.domain);
        let is_mini = || self.memory.is_mini(frame.block.get());
        if wanted == Wanted::Full && is_mini() {
            return None;
        }
        let evicts = matches!(self.storage, Storage::Space(_));
        let stays = || {
            !evicts
                || frame.swizzled_children.load(domain) > 0
                || frame.changed_since(domain).is_some()
        };
        // A guess first, which costs nobody anything.
        if frame.page(domain).is_some() {
            if stays() {
                return None;
            }
            if frame.take_reference(domain) {
                self.note_whole(at);
                return None;
            }
        }
        let version = frame.latch.try_take(domain).ok()?;
        let partial = version.is_partial();
        let mut taken = ExclusivePage { manager: self, frame, version, changed: false, partial };
        if wanted == Wanted::Full && is_mini() {
            return None;
        }
        if let Some(number) = frame.page(domain) {
            // B1, B2.
            if stays() || !self.leave_parent(at, number) || !self.leave_dram(at, number) {
                return None;
            }
            frame.set_page(domain, None);
            frame.set_unused(domain);
            count(&self.counters.evictions);
        }
        (taken.changed, taken.partial) = (true, is_mini());
        Some(taken)
    }

    /// A page that is used and has come to lack no line is like any other from here on.
    fn note_whole(&self, at: usize) {
        let (frame, domain) = (&self.frames[at], &self.domain);
        if let Some(masks) = frame.masks.as_deref()
            && let Ok(version) = frame.latch.version(domain)
            && version.is_partial()
            && masks.is_whole()
        {
            drop(OptimisticPage { manager: self, frame, version }.latched());
        }
    }

    /// The parent of the page in frame `child`, which is latched, refers to it by its number from here
    /// on. False if the parent is busy (B6).
    fn leave_parent(&self, child: usize, number: PageNumber) -> bool {
        let domain = &self.domain;
        let Some(parent) = self.frames[child].parent(domain) else { return true };
        let frame = &self.frames[parent];
        let Ok(version) = frame.latch.try_take(domain) else { return false };
        let partial = version.is_partial();
        let changed = false;
        let mut page = ExclusivePage { manager: self, frame, version, changed, partial };
        let Some(offset) = find_reference(page.read(), child) else { return false };
        page.write_unlogged().set_word(offset, number.get());
        self.part(parent, child);
        true
    }
}
