//! Pages on their way between DRAM and persistent memory. The invariants are in the [header of the
//! tier](crate::tier).
//!
//! ```text
//!  DRAM    page ──changed, written back──▶ its frame in PM, if it has one or was denied one lately
//!               ──unchanged, evicted─────▶ stays in its frame in PM
//!                                          or enters one, if it was denied one lately
//!                                          or is noted as denied
//!  PM      page ──fixed──▶ DRAM too; its frame is not taken meanwhile
//!               ──fixed, if chance decides so──▶ is used where it is (`in_place.rs`)
//!               ──changed, written back──▶ SSD
//!               ──unchanged──▶ another page takes its frame
//! ```

use std::sync::atomic::Ordering;

use lapis_blocks::page::{DirtyLines, PageError};
use lapis_pmem::{Domain, LINE_BYTES};

use super::evict::Wanted;
use super::in_place::damage_in_tier;
use super::{BufferManager, ExclusivePage, OptimisticPage, Storage, count};
use crate::error::{BufferError, Interruption};
use crate::latch::{Restart, Version};
use crate::migration::Decision;
use crate::mutants::{
    CHANGED_PAGE_IN_PM_DROPPED, DIRTY_LINE_DROPPED, PAGE_BEFORE_LOG, READ_ON_IN_PM,
    STALE_PAGE_ADMITTED, STALE_PAGE_LEFT_IN_PM, STALE_PAGE_OUTLIVES_NUMBER, TORN_PAGE_IN_PM,
};
use crate::page::PageNumber;
use crate::page::lines::LineSource;
use crate::page::missing::MissingLines;
use crate::page::view::PageRead;
use crate::space::{Added, Batch, Space};
use crate::tier::{PersistentTier, TierError, TierFrame};

/// What became of a changed page that might be written to persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagated {
    /// It is there as it is.
    Written,
    /// Somebody is busy with its frame there.
    Busy,
    /// The log has to be durable up to here first (T4).
    AfterLog(u64),
    /// It has no frame there, and gets none.
    NoFrame,
}

impl<D: Domain> BufferManager<D> {
    /// The slot of the page table that a frame of PM is.
    pub(super) fn slot_of(&self, frame: usize) -> usize {
        self.frames.len() + frame
    }

    /// Takes up the pages that a tier has: those are deleted that are nobody's (T3), the others found by
    /// the page table.
    pub(super) fn adopt_tier(
        &self,
        tier: &PersistentTier<D>,
        space: &Space<D>,
    ) -> Result<(), TierError> {
        for at in 0..tier.frames.len() {
            let frame = &tier.frames[at];
            let Some(number) = frame.page(&self.domain) else { continue };
            if !space.contains(number) {
                let _committed = tier.store.delete_page(at as u64)?;
                tier.frames.set_changed(&self.domain, at, false);
                frame.begin(&self.domain, None);
            } else if self.table.insert(&self.domain, number, self.slot_of(at)) {
                count(&self.counters.tier_kept);
            } else {
                return Err(TierError::Twice { number });
            }
        }
        Ok(())
    }

    /// A frame of PM that another page may have, latched.
    pub(super) fn take_tier_frame(
        &self,
        tier: &PersistentTier<D>,
        space: &Space<D>,
    ) -> Option<(usize, Version)> {
        let domain = &self.domain;
        let drops = domain.commits(CHANGED_PAGE_IN_PM_DROPPED);
        tier.frames.take(domain, |frame: &TierFrame<D>| {
            let Some(number) = frame.page(domain) else { return true };
            // T2, T5.
            !frame.is_held(domain)
                && (drops
                    || !frame.is_changed(domain)
                    || frame.is_freed(domain) && space.is_free(number))
        })
    }

    /// Writes the page in frame `at`, which is latched, to a frame of PM, which is latched: all of it, or, if
    /// that is where the page is already, what was changed.
    pub(super) fn write_to_tier(
        &self,
        tier: &PersistentTier<D>,
        at: usize,
        frame: usize,
    ) -> Result<(), TierError> {
        let mut buffer = tier.buffer();
        let dirty = match self.frames[at].backing(&self.domain) {
            Some(_) => self.copy_dirty_out(tier, at, frame, &mut buffer),
            None => {
                self.copy_out(at, &mut buffer);
                Ok(DirtyLines::all(tier.page_bytes()))
            }
        };
        if self.domain.commits(STALE_PAGE_ADMITTED)
            && self.frames[at].backing(&self.domain).is_none()
            && let (Some(space), Some(number)) = (self.space(), self.frames[at].page(&self.domain))
        {
            _ = space.read(number, |bytes| buffer.copy_from_slice(bytes));
        }
        let _mutant = self.domain.omitting(TORN_PAGE_IN_PM);
        let written = dirty.and_then(|dirty| tier.write(frame, &buffer, &dirty));
        tier.give_back(buffer);
        written?;
        if let Some(masks) = self.frames[at].masks.as_deref() {
            masks.clear_dirty();
        }
        count(&self.counters.tier_pages_written);
        Ok(())
    }

    /// Copies what the page store needs to write the dirty lines of a page, and says which they are.
    fn copy_dirty_out(
        &self,
        tier: &PersistentTier<D>,
        at: usize,
        frame: usize,
        into: &mut [u8],
    ) -> Result<DirtyLines, PageError> {
        let Some(masks) = self.frames[at].masks.as_deref() else {
            self.copy_out(at, into);
            return Ok(DirtyLines::all(tier.page_bytes()));
        };
        let mut dirty = DirtyLines::none();
        masks.dirty().for_each(|line| dirty.mark_line(line));
        if self.domain.commits(DIRTY_LINE_DROPPED)
            && let Some(last) = dirty.last()
        {
            dirty = DirtyLines::none();
            masks.dirty().filter(|&line| line != last).for_each(|line| dirty.mark_line(line));
        }
        self.counters.tier_lines_written.fetch_add(dirty.count() as u64, Ordering::Relaxed);
        if masks.is_whole() {
            self.copy_out(at, into);
            return Ok(dirty);
        }
        if !tier.store.scheme().logs(dirty.count(), tier.store.copy_from_lines()) {
            tier.store.read_page(frame as u64, into)?;
        }
        self.copy_lines_out(at, &dirty, into);
        Ok(dirty)
    }

    /// Copies lines of a page that are in DRAM as they are to be outside of it (P3). Its frame is latched.
    fn copy_lines_out(&self, at: usize, lines: &DirtyLines, into: &mut [u8]) {
        let held = self.held(at);
        for run in lines.runs(self.page_bytes / LINE_BYTES) {
            let bytes = run.start * LINE_BYTES..run.end * LINE_BYTES;
            held.copy_to(bytes.start, &mut into[bytes]);
        }
        held.references()
            .filter(|offset| lines.contains(offset / LINE_BYTES))
            .for_each(|offset| self.copy_reference_out(held, offset, into));
    }

    /// The page in a frame, which is latched and may lack lines.
    fn held(&self, at: usize) -> PageRead<'_, D> {
        let (frame, memory) = (&self.frames[at], &self.memory);
        let missing = frame.masks.as_deref().map(|_| MissingLines::held(frame, memory));
        PageRead::over(&self.domain, memory.words(frame.block.get()), missing)
    }

    /// Appendix A.6: the lines of a page in PM that are in DRAM, and were not marked as changed, are as they
    /// are in PM. Looked at where machines are explored, and with the feature `check-lines`.
    pub(super) fn check_lines(&self, tier: &PersistentTier<D>, at: usize, frame: usize) {
        let Some(masks) = self.frames[at].masks.as_deref() else { return };
        if !D::DETERMINISTIC && !cfg!(feature = "check-lines") {
            return;
        }
        let (mut here, mut clean) = (tier.buffer(), DirtyLines::none());
        masks.clean().for_each(|line| clean.mark_line(line));
        self.copy_lines_out(at, &clean, &mut here);
        // Past the domain: a machine that counts is not to count this.
        let unmarked = tier.store.place_of(frame as u64).map(|place| {
            let there = tier.store.words_at(place);
            let differs = |line: &usize| {
                let here = here[line * LINE_BYTES..][..LINE_BYTES].chunks_exact(size_of::<u64>());
                let there = &there[line * LINE_BYTES / size_of::<u64>()..];
                here.zip(there)
                    .any(|(here, there)| here != there.load(Ordering::Relaxed).to_ne_bytes())
            };
            masks.clean().find(differs)
        });
        let page = self.frames[at].page(&self.domain);
        assert!(
            matches!(unmarked, Ok(None)),
            "page {page:?} in PM was changed where it was not marked: {unmarked:?}"
        );
        tier.give_back(here);
    }

    /// A frame of PM has another page, which was written there, and its page is on the SSD alone (T2).
    fn move_in(&self, tier: &PersistentTier<D>, frame: usize, number: PageNumber) {
        let (domain, into) = (&self.domain, &tier.frames[frame]);
        if let Some(before) = into.page(domain) {
            self.table.remove(domain, before);
            count(&self.counters.tier_evictions);
        }
        into.begin(domain, Some(number));
        tier.denied.remove(domain, number);
        count(&self.counters.tier_admissions);
    }

    /// Whether a page that is not in PM enters it, now that it is written back or leaves DRAM.
    fn may_enter(&self, tier: &PersistentTier<D>, number: PageNumber) -> bool {
        match &self.migrations {
            Some(migrations) => migrations.decide(Decision::LeaveToMemory, number),
            None => tier.denied.contains(&self.domain, number),
        }
    }

    /// Writes the changed page in frame `at`, which is latched, to PM, if it is there or `may_enter`, which is found out
    /// once.
    pub(super) fn propagate(
        &self,
        tier: &PersistentTier<D>,
        space: &Space<D>,
        at: usize,
        may_enter: &mut Option<bool>,
    ) -> Result<Propagated, BufferError> {
        let (domain, frame) = (&self.domain, &self.frames[at]);
        let Some(number) = frame.page(domain) else { return Ok(Propagated::NoFrame) };
        let backing = frame.backing(domain);
        let mut may_enter = || *may_enter.get_or_insert_with(|| self.may_enter(tier, number));
        // T3.
        if backing.is_none() && !(space.contains(number) && may_enter()) {
            return Ok(Propagated::NoFrame);
        }
        if backing.is_some() && domain.commits(STALE_PAGE_LEFT_IN_PM) && !may_enter() {
            return Ok(Propagated::NoFrame);
        }
        let lsn = self.lsn_of(at);
        if self.log.flushed_lsn() < lsn && !domain.commits(PAGE_BEFORE_LOG) {
            return Ok(Propagated::AfterLog(lsn));
        }
        let taken = match backing {
            Some(backing) => {
                tier.frames[backing].latch.try_take(domain).ok().map(|version| (backing, version))
            }
            None => self.take_tier_frame(tier, space),
        };
        let Some((into, version)) = taken else {
            let busy = backing.is_some();
            return Ok(if busy { Propagated::Busy } else { Propagated::NoFrame });
        };
        if backing.is_some() {
            self.check_lines(tier, at, into);
        }
        let written = self.write_to_tier(tier, at, into);
        if written.is_ok() {
            if backing.is_none() {
                self.move_in(tier, into, number);
                tier.frames[into].set_holder(domain, Some(at));
                frame.set_backing(domain, Some(into), true);
            }
            tier.frames.set_changed(domain, into, true);
            self.count_unchanged(at);
        }
        tier.frames[into].latch.release(domain, version, true);
        written?;
        Ok(Propagated::Written)
    }

    /// The unchanged page in frame `at`, which is latched, is not in DRAM from here on. False if it has to
    /// stay, because somebody is busy with its frame in PM.
    pub(super) fn leave_dram(&self, at: usize, number: PageNumber) -> bool {
        let (domain, frame) = (&self.domain, &self.frames[at]);
        let Some((tier, space)) = self.tier.as_deref().zip(self.space()) else {
            self.table.remove(domain, number);
            return true;
        };
        if let Some(backing) = frame.backing(domain) {
            let below = &tier.frames[backing];
            let Ok(version) = below.latch.try_take(domain) else { return false };
            self.check_lines(tier, at, backing);
            below.set_holder(domain, None);
            self.table.replace(domain, number, at, self.slot_of(backing));
            frame.set_backing(domain, None, true);
            below.latch.release(domain, version, false);
        } else if !self.admit(tier, space, at, number) {
            tier.denied.insert(domain, number);
            count(&self.counters.tier_denials);
            self.table.remove(domain, number);
        }
        true
    }

    /// Lets the page enter PM, if it was denied lately and there is a frame. One that cannot be written
    /// does without: the SSD has it.
    fn admit(
        &self,
        tier: &PersistentTier<D>,
        space: &Space<D>,
        at: usize,
        number: PageNumber,
    ) -> bool {
        let domain = &self.domain;
        if !space.contains(number) || !self.may_enter(tier, number) {
            return false;
        }
        let Some((into, version)) = self.take_tier_frame(tier, space) else { return false };
        let written = self.write_to_tier(tier, at, into).is_ok();
        if written {
            self.move_in(tier, into, number);
            tier.frames.set_changed(domain, into, false);
            self.table.replace(domain, number, at, self.slot_of(into));
        }
        tier.frames[into].latch.release(domain, version, true);
        written
    }

    /// Takes a frame of DRAM for the page that slot `slot` of the page table says to be in PM. Both are
    /// latched when `fill` is called. A page that was freed is there only for who begins it `anew`.
    pub(super) fn enter_dram(
        &self,
        number: PageNumber,
        slot: usize,
        wanted: Wanted,
        anew: bool,
        fill: impl FnOnce(
            &PersistentTier<D>,
            usize,
            &mut ExclusivePage<'_, D>,
        ) -> Result<(), Interruption>,
    ) -> Result<ExclusivePage<'_, D>, Interruption> {
        let Some(tier) = self.tier.as_deref() else { return Err(Restart.into()) };
        let (domain, below) = (&self.domain, slot - self.frames.len());
        let mut page = self.take_frame(wanted)?;
        let frame = &tier.frames[below];
        let version = frame.latch.try_take(domain)?;
        let outcome = if frame.page(domain) != Some(number) || frame.is_held(domain) {
            Err(Restart.into())
        } else if frame.is_freed(domain) && !anew {
            Err(BufferError::NotInUse { number }.into())
        } else {
            page.frame.set_backing(domain, Some(below), anew);
            let filled = fill(tier, below, &mut page);
            if filled.is_err() {
                page.partial = false;
                page.frame.set_backing(domain, None, true);
            }
            filled
        };
        if outcome.is_ok() {
            page.frame.set_page(domain, Some(number));
            frame.set_holder(domain, Some(page.at()));
            frame.set_freed(domain, false);
            frame.set_used(domain);
            // Nobody takes it out of the table but who has the latch.
            self.table.replace(domain, number, slot, page.at());
        }
        // S3.
        let is_read_there = self.migrations.is_some() && !domain.commits(READ_ON_IN_PM);
        frame.latch.release(domain, version, is_read_there && outcome.is_ok());
        outcome.map(|()| page)
    }

    /// Loads a page that is in PM.
    #[cold]
    pub(super) fn load_from_tier(
        &self,
        number: PageNumber,
        slot: usize,
    ) -> Result<OptimisticPage<'_, D>, Interruption> {
        let below = slot - self.frames.len();
        if let Some(page) = self.fix_in_place(number, below)? {
            return Ok(page);
        }
        self.refill_spares();
        // A page with references is an inner node, of which all is read.
        let is_inner = self.tier.as_deref().is_some_and(|tier| tier.has_references(below));
        let wanted = if is_inner { Wanted::Full } else { Wanted::Any };
        let page = self.enter_dram(number, slot, wanted, false, |tier, below, page| {
            page.partial = page.frame.masks.is_some();
            if page.partial {
                match page.read().references().next() {
                    // It has become one meanwhile.
                    Some(_) if page.is_mini() => return Err(Restart.into()),
                    Some(_) => page.make_resident(0..tier.page_bytes()),
                    None => {}
                }
            } else {
                let words = self.memory.words(page.frame.block.get());
                tier.copy_lines(below, 0..tier.page_bytes() / LINE_BYTES, words);
            }
            let Some(damage) = damage_in_tier(page.read(), number) else { return Ok(()) };
            let number = number.get();
            Err(BufferError::from(TierError::Page { frame: below, number, damage }).into())
        })?;
        count(&self.counters.tier_loads);
        if page.is_mini() {
            count(&self.counters.tier_mini_loads);
        }
        Ok(page.into_optimistic())
    }

    /// A page that was freed is in PM no more, durably: its number is about to be given out again (T3).
    pub(super) fn forget_in_tier(&self, number: PageNumber) -> Result<(), BufferError> {
        let (domain, Some(tier)) = (&self.domain, self.tier.as_deref()) else { return Ok(()) };
        self.retry(|| {
            let found = self.table.find(domain, number)?;
            let Some(below) = found.and_then(|slot| slot.checked_sub(self.frames.len())) else {
                return Ok(());
            };
            let frame = &tier.frames[below];
            let version = frame.latch.try_take(domain)?;
            let mut outcome = Ok(());
            if frame.page(domain) == Some(number) {
                if !domain.commits(STALE_PAGE_OUTLIVES_NUMBER) {
                    let deleted = tier.store.delete_page(below as u64);
                    outcome = deleted.map(|_committed| ()).map_err(TierError::from);
                }
                if outcome.is_ok() {
                    self.table.remove(domain, number);
                    tier.frames.set_changed(domain, below, false);
                    frame.begin(domain, None);
                }
            }
            frame.latch.release(domain, version, true);
            Ok(outcome.map_err(BufferError::from)?)
        })
    }

    /// The page in frame `at`, which is latched, was freed. It stays in PM until that is durable (T5).
    pub(super) fn free_in_tier(&self, at: usize, number: PageNumber) {
        let (domain, frame) = (&self.domain, &self.frames[at]);
        let Some((tier, backing)) = self.tier.as_deref().zip(frame.backing(domain)) else {
            self.table.remove(domain, number);
            return;
        };
        let version = tier.frames.latch(domain, backing);
        tier.frames[backing].set_freed(domain, true);
        tier.frames[backing].set_holder(domain, None);
        self.table.replace(domain, number, at, self.slot_of(backing));
        frame.set_backing(domain, None, true);
        tier.frames[backing].latch.release(domain, version, true);
    }

    /// Frees the page that slot `slot` of the page table says to be in PM alone, whatever it holds. It stays there until that is
    /// durable (T5).
    pub(super) fn free_unread_in_tier(
        &self,
        number: PageNumber,
        slot: usize,
        lsn: u64,
    ) -> Result<(), Interruption> {
        let Some(tier) = self.tier.as_deref() else { return Err(Restart.into()) };
        let (domain, frame) = (&self.domain, &tier.frames[slot - self.frames.len()]);
        let version = frame.latch.try_take(domain)?;
        let freed = match frame.page(domain) == Some(number) && !frame.is_held(domain) {
            true => self.give_back(number, lsn).map_err(Interruption::from),
            false => Err(Restart.into()),
        };
        if freed.is_ok() {
            frame.set_freed(domain, true);
        }
        // S3.
        frame.latch.release(domain, version, true);
        freed
    }

    /// Adds pages that PM has and the SSD lacks to a batch, those first that the clock comes to next. They
    /// count as changed until it is written.
    pub(super) fn add_changed_in_tier(
        &self,
        tier: &PersistentTier<D>,
        batch: &mut Batch<'_, D>,
    ) -> Result<Vec<(usize, Version)>, BufferError> {
        let (domain, mut copied) = (&self.domain, Vec::new());
        let first = tier.frames.hand(domain);
        for at in (first..first + tier.frames.len()).map(|at| at % tier.frames.len()) {
            let frame = &tier.frames[at];
            if !frame.is_changed(domain) || frame.is_freed(domain) {
                continue;
            }
            let Ok(version) = frame.latch.try_take(domain) else { continue };
            let mut read = Ok(());
            let changed = frame.page(domain).filter(|_| frame.is_changed(domain));
            let added = changed.map(|number| {
                batch.add(number, |into| read = tier.store.read_page(at as u64, into))
            });
            frame.latch.release(domain, version, false);
            read.map_err(TierError::from)?;
            match added {
                Some(Added::InBatch) => copied.push((at, version)),
                Some(Added::Full) => break,
                Some(Added::NotInUse) | None => {}
            }
        }
        Ok(copied)
    }

    /// The SSD has these pages as they were copied from PM.
    pub(super) fn make_clean_in_tier(&self, tier: &PersistentTier<D>, copied: &[(usize, Version)]) {
        for &(at, version) in copied {
            count(&self.counters.tier_pages_to_ssd);
            let latch = &tier.frames[at].latch;
            if latch.upgrade(&self.domain, version).is_ok() {
                tier.frames.set_changed(&self.domain, at, false);
                latch.release(&self.domain, version, false);
            }
        }
    }

    /// Whether so many pages in PM are changed that a page that is to enter may find no frame.
    pub(super) fn tier_wants_writing(&self) -> bool {
        let many = |tier: &PersistentTier<D>| {
            tier.frames.changed(&self.domain) > tier.frames.len() as u64 / 2
        };
        matches!(self.storage, Storage::Space(_)) && self.tier.as_deref().is_some_and(many)
    }
}
