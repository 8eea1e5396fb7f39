//! Pages that are used in persistent memory, with [`Placement::Spitfire`](crate::Placement).
//!
//! A reader has a view of the words in PM themselves, at a version of the latch of the frame there. Nothing is
//! copied, no frame of DRAM is taken. A writer who stored to PM would have his change reach the media whenever a line leaves the
//! caches, before the log has it and torn; so he changes lines in a *workspace*, a frame of DRAM that is his as long as he has the
//! page, and when he lets go of it the log is flushed and the page store writes these lines in place.
//!
//! ```text
//!  reader   fix ──▶ view of PM ──▶ validate: the latch of PM's frame has the same version
//!  writer   exclusive ──▶ latches, workspace ──lines as they are needed──▶ changed
//!           drop ──▶ log durable up to the page's LSN ──▶ µlog or copy of the changed lines ──▶ latches let go
//! ```
//!
//! # Invariants
//!
//! * S1. The latch of a frame of PM says *partial*, that of a frame whose page is whole in DRAM does not. So views
//!   of the latter have one branch for all that is special. That of a workspace always does: a page that stays in
//!   one (S7) may lack lines, and who lets go of one has to be found to do so.
//! * S2. A frame of PM knows where its page lies. That changes only with its latch held, as the words there do. Whoever has read
//!   either finds another version.
//! * S3. When a page comes to DRAM, or is freed, its frame in PM is left with another version. So nobody reads it in PM
//!   while it is changed in DRAM.
//! * S4. What readers see in PM is durable: it was written by the page store, which fences before the latch
//!   is let go of.
//! * S5. A page is changed in PM only when the log is durable up to its LSN (T4), and a power cut leaves it as it was or as it
//!   is now (T1). So there is nothing to undo, and a torn page is repaired by the page store, when it is opened.
//! * S6. While somebody has a page in a workspace, the page table leads to its frame in PM, both latches are his, and the
//!   workspace is counted among changed frames. A checkpoint waits for it as for any latched page.
//! * S7. A workspace holds a page for as long as its latch is held. Should the log or PM fail then, the page stays there
//!   and is one in DRAM like any other, changed, until it can be written: nothing is lost, and the next operation to
//!   wait for the log or to write a page says what has failed.
//!
//! # Order of stores
//!
//! * Change: the log's flush (S5); the page store's write; PM's latch; the workspace's.
//! * SSD to PM: the page that was in the frame is deleted, durably (T2: the SSD has it); the page table; the page
//!   store's write.

use lapis_blocks::page::DirtyLines;
use lapis_pmem::Domain;

use super::swizzle::refers_to_frames;
use super::{BufferManager, ExclusivePage, OptimisticPage, count};
use crate::error::{BufferError, Interruption};
use crate::frame::Frame;
use crate::latch::{Restart, Version};
use crate::migration::Decision;
use crate::mutants::CHANGED_IN_PLACE_BEFORE_LOG;
use crate::page::view::PageRead;
use crate::page::{PageDamage, PageNumber};
use crate::tier::{PersistentTier, TierError};

/// What is wrong with a page that lies in PM under this number.
pub(super) fn damage_in_tier<D: Domain>(
    page: PageRead<'_, D>,
    number: PageNumber,
) -> Option<PageDamage> {
    match page.number() {
        found if found != number.get() => Some(PageDamage::Misdirected { found }),
        _ => refers_to_frames(page).then_some(PageDamage::SwizzledReference),
    }
}

impl<D: Domain> BufferManager<D> {
    /// The page in a frame of PM, to be read there; none if it is to come to DRAM.
    pub(super) fn fix_in_place(
        &self,
        number: PageNumber,
        below: usize,
    ) -> Result<Option<OptimisticPage<'_, D>>, Interruption> {
        let Some((tier, migrations)) = self.tier.as_deref().zip(self.migrations.as_ref()) else {
            return Ok(None);
        };
        let (domain, frame) = (&self.domain, &tier.frames[below]);
        if frame.is_overfull(domain) || migrations.decide(Decision::ReadToDram, number) {
            return Ok(None);
        }
        let version = frame.latch.version(domain)?;
        let page = OptimisticPage { manager: self, frame, version };
        if frame.page(domain) != Some(number) || frame.is_held(domain) {
            return Err(Restart.into());
        }
        let (is_freed, is_checked) = (frame.is_freed(domain), frame.is_checked(domain));
        let damage = if is_checked { None } else { damage_in_tier(page.read(), number) };
        page.validate()?;
        if is_freed {
            return Err(BufferError::NotInUse { number }.into());
        }
        if let Some(damage) = damage {
            let number = number.get();
            return Err(BufferError::from(TierError::Page { frame: below, number, damage }).into());
        }
        if !is_checked {
            frame.set_checked(domain);
        }
        if !frame.is_used(domain) {
            frame.set_used(domain);
        }
        Ok(Some(page))
    }

    /// Reads a page from the SSD into a frame of PM, if it is to go there. Returns the slot of the page table.
    pub(super) fn load_into_tier(&self, number: PageNumber) -> Result<Option<usize>, Interruption> {
        let parts = self.migrations.as_ref().zip(self.tier.as_deref().zip(self.space()));
        let Some((migrations, (tier, space))) = parts else { return Ok(None) };
        // T3.
        if !space.contains(number) || !migrations.decide(Decision::LoadToMemory, number) {
            return Ok(None);
        }
        let Some((below, version)) = self.take_tier_frame(tier, space) else { return Ok(None) };
        let (domain, frame) = (&self.domain, &tier.frames[below]);
        let loaded =
            self.empty_tier_frame(tier, below).map_err(Interruption::from).and_then(|()| {
                let slot = self.slot_of(below);
                if !self.table.insert(domain, number, slot) {
                    return Err(Restart.into());
                }
                let mut buffer = tier.buffer();
                let read = space.read(number, |bytes| buffer.copy_from_slice(bytes));
                let written = read.map_err(BufferError::from).and_then(|()| {
                    let all = DirtyLines::all(tier.page_bytes());
                    tier.write(below, &buffer, &all).map_err(|error| TierError::from(error).into())
                });
                tier.give_back(buffer);
                if let Err(error) = written {
                    self.table.remove(domain, number);
                    return Err(error.into());
                }
                frame.begin(domain, Some(number));
                count(&self.counters.loads);
                count(&self.counters.tier_loads_from_ssd);
                Ok(slot)
            });
        frame.latch.release(domain, version, true);
        loaded.map(Some)
    }

    /// The page in a frame of PM, which is latched and which the SSD has as it is, is there no more, durably.
    fn empty_tier_frame(&self, tier: &PersistentTier<D>, below: usize) -> Result<(), BufferError> {
        let (domain, frame) = (&self.domain, &tier.frames[below]);
        if let Some(before) = frame.page(domain) {
            let _committed = tier.store.delete_page(below as u64).map_err(TierError::from)?;
            self.table.remove(domain, before);
            tier.frames.set_changed(domain, below, false);
            frame.begin(domain, None);
            count(&self.counters.tier_evictions);
        }
        Ok(())
    }

    /// The page that was read in PM, alone, to be changed there. If it is to come to DRAM, or if there is no
    /// workspace, whoever fixes it next brings it there.
    #[cold]
    pub(super) fn change_in_place<'m>(
        &'m self,
        page: OptimisticPage<'m, D>,
    ) -> Result<ExclusivePage<'m, D>, Restart> {
        let (domain, above) = (&self.domain, page.frame);
        let (number, below) = (above.page(domain), above.backing(domain));
        page.validate()?;
        let (Some(number), Some(migrations)) = (number, &self.migrations) else {
            return Err(Restart);
        };
        let stays = !migrations.decide(Decision::WriteToDram, number);
        let Some(workspace) = stays.then(|| self.take_workspace()).flatten() else {
            above.set_overfull(domain);
            return Err(Restart);
        };
        above.latch.upgrade(domain, page.version)?;
        workspace.frame.set_page(domain, Some(number));
        workspace.frame.set_backing(domain, below, false);
        Ok(workspace)
    }

    /// A frame that is in no round of the clock and holds nothing, latched.
    fn take_workspace(&self) -> Option<ExclusivePage<'_, D>> {
        let domain = &self.domain;
        self.frames[self.clocked..].iter().find_map(|frame| {
            let is_empty = || frame.page(domain).is_none();
            let version = is_empty().then(|| frame.latch.try_take(domain).ok()).flatten()?;
            let page =
                ExclusivePage { manager: self, frame, version, changed: false, partial: true };
            is_empty().then_some(page)
        })
    }

    /// The frame of PM of a page that is being changed there.
    pub(super) fn changed_in_place(&self, page: &ExclusivePage<'_, D>) -> Option<usize> {
        if page.at() < self.clocked {
            return None;
        }
        let (tier, below) = (self.tier.as_deref()?, page.frame.backing(&self.domain)?);
        // S7: or it has stayed in the workspace.
        (!tier.frames[below].is_held(&self.domain)).then_some(below)
    }

    /// Lets go of a page that was changed in PM, in frame `below`. Returns where it is read from here on.
    pub(super) fn end_in_place<'m>(
        &'m self,
        page: &ExclusivePage<'m, D>,
        below: usize,
    ) -> (&'m Frame<D>, Version) {
        let (domain, frame, at) = (&self.domain, page.frame, page.at());
        let Some(tier) = self.tier.as_deref() else { unreachable!("it has a frame in PM") };
        let under = &tier.frames[below];
        let held = under.latch.held(domain);
        let is_changed = frame.changed_since(domain).is_some();
        let written = if is_changed { self.write_in_place(tier, at, below) } else { Ok(()) };
        if let (Err(_), Some(number)) = (written, frame.page(domain)) {
            // S7.
            under.set_holder(domain, Some(at));
            self.table.replace(domain, number, self.slot_of(below), at);
            under.latch.release(domain, held, true);
            return (frame, frame.latch.release(domain, page.version, true));
        }
        frame.set_page(domain, None);
        frame.set_backing(domain, None, true);
        let version = under.latch.release(domain, held, page.changed);
        frame.latch.release(domain, page.version, true);
        (under, version)
    }

    /// A page that is being changed in PM was freed, and is there until that is durable (T5). False if it is not.
    pub(super) fn free_in_place(&self, page: &ExclusivePage<'_, D>) -> bool {
        let frame = self.tier.as_deref().zip(self.changed_in_place(page));
        frame.inspect(|(tier, below)| tier.frames[*below].set_freed(&self.domain, true)).is_some()
    }

    fn write_in_place(
        &self,
        tier: &PersistentTier<D>,
        at: usize,
        below: usize,
    ) -> Result<(), BufferError> {
        let lsn = self.lsn_of(at);
        // S5.
        if self.log.flushed_lsn() < lsn && !self.domain.commits(CHANGED_IN_PLACE_BEFORE_LOG) {
            self.log.flush_to(lsn)?;
        }
        self.check_lines(tier, at, below);
        self.write_to_tier(tier, at, below)?;
        tier.frames.set_changed(&self.domain, below, true);
        self.count_unchanged(at);
        count(&self.counters.tier_writes_in_place);
        Ok(())
    }
}
