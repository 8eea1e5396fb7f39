//! Pages as their users have them: to be read optimistically, or alone.

use core::ops::Range;

use lapis_pmem::Domain;

use super::BufferManager;
use crate::frame::Frame;
use crate::latch::{Restart, Version};
use crate::mutants::CHANGED_SINCE_NOT_LOWERED;
use crate::page::PageNumber;
use crate::page::missing::MissingLines;
use crate::page::view::{PageRead, PageWrite};

/// A page that others may change or evict: what was read of it counts when it is validated.
#[derive(Debug)]
pub struct OptimisticPage<'m, D: Domain> {
    pub(super) manager: &'m BufferManager<D>,
    pub(super) frame: &'m Frame<D>,
    pub(super) version: Version,
}

impl<D: Domain> Clone for OptimisticPage<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for OptimisticPage<'_, D> {}

impl<'m, D: Domain> OptimisticPage<'m, D> {
    /// What is there, whatever that is by now.
    #[inline]
    pub fn read(&self) -> PageRead<'m, D> {
        let Self { manager, frame, version } = *self;
        if version.is_partial() {
            return self.read_partial();
        }
        PageRead::over(&manager.domain, manager.memory.words(frame.block.get()), None)
    }

    #[inline(never)]
    fn read_partial(&self) -> PageRead<'m, D> {
        let Self { manager, frame, version } = *self;
        let (memory, block) = (&manager.memory, frame.block.get());
        match memory.words_in_place(block) {
            Some(words) => PageRead::over(&manager.domain, words, None),
            None => {
                let missing = Some(MissingLines::read(frame, memory, version));
                PageRead::over(&manager.domain, memory.words(block), missing)
            }
        }
    }

    /// Whether it is used in persistent memory.
    pub(super) fn is_in_place(&self) -> bool {
        self.version.is_partial() && self.frame.block.get().is_in_place()
    }

    /// Loads the lines of a range of bytes at once, as far as they are missing: what is read is loaded anyway,
    /// line by line. Whoever reads a whole page says so.
    #[inline]
    pub fn make_resident(&self, bytes: Range<usize>) {
        _ = self.read().make_resident(bytes);
    }

    /// Whether everything read so far was the page, all of one moment.
    ///
    /// # Errors
    /// [`Restart`] if it was not.
    #[inline]
    pub fn validate(&self) -> Result<(), Restart> {
        self.frame.latch.validate(&self.manager.domain, self.version)
    }

    /// The page alone, as it was read.
    ///
    /// # Errors
    /// [`Restart`] if it has changed.
    pub fn exclusive(self) -> Result<ExclusivePage<'m, D>, Restart> {
        if self.is_in_place() {
            return self.manager.change_in_place(self);
        }
        let page = self.latched()?;
        if page.partial && !page.has_spare_if_mini() {
            return Err(Restart);
        }
        Ok(page)
    }

    /// The same for the manager, of a page in DRAM, which looks at no more of it than its header, or refers to its frame.
    pub(super) fn latched(self) -> Result<ExclusivePage<'m, D>, Restart> {
        let Self { manager, frame, version } = self;
        frame.latch.upgrade(&manager.domain, version)?;
        Ok(ExclusivePage { manager, frame, version, changed: false, partial: version.is_partial() })
    }
}

/// A page that nobody else reads or writes, until this is dropped.
#[derive(Debug)]
pub struct ExclusivePage<'m, D: Domain> {
    pub(super) manager: &'m BufferManager<D>,
    pub(super) frame: &'m Frame<D>,
    pub(super) version: Version,
    /// Whether readers must begin again.
    pub(super) changed: bool,
    /// Whether lines of it may be missing.
    pub(super) partial: bool,
}

impl<'m, D: Domain> ExclusivePage<'m, D> {
    /// The number of its frame.
    pub(super) fn at(&self) -> usize {
        self.manager.index_of(self.frame)
    }

    /// Whether the page lies in a mini block.
    pub(super) fn is_mini(&self) -> bool {
        self.manager.memory.is_mini(self.frame.block.get())
    }

    /// Sees to it that a mini page can be promoted (M6 of the lines). If it cannot, it is to be promoted first.
    #[cold]
    fn has_spare_if_mini(&self) -> bool {
        let (domain, frame) = (&self.manager.domain, self.frame);
        let Some(masks) = frame.masks.as_deref().filter(|_| self.is_mini()) else { return true };
        let spare = self.manager.memory.take_spare(domain);
        masks.set_spare(spare);
        if spare.is_none() {
            frame.set_overfull(domain);
        }
        spare.is_some()
    }

    /// Which page it is.
    pub fn number(&self) -> PageNumber {
        self.frame.page(&self.manager.domain).unwrap_or(PageNumber::LAST)
    }

    /// The page, to be read.
    #[inline]
    pub fn read(&self) -> PageRead<'m, D> {
        let (frame, memory) = (self.frame, &self.manager.memory);
        let missing = if self.partial { Some(MissingLines::held(frame, memory)) } else { None };
        PageRead::over(&self.manager.domain, memory.words(frame.block.get()), missing)
    }

    /// Loads the lines of a range of bytes at once, as far as they are missing: what is read or changed is
    /// loaded anyway, line by line. Whoever rewrites a page says so.
    pub fn make_resident(&self, bytes: Range<usize>) {
        _ = self.read().make_resident(bytes);
    }

    /// The page, to be changed by the change `lsn` of the log (0 if there is none). The log has it already,
    /// if not durably. Changes may come in another order than they have in the log: the page's LSN is the
    /// latest of all, and redo begins with the earliest that the device does not have.
    #[inline]
    pub fn write(&mut self, lsn: u64) -> PageWrite<'_, D> {
        let (manager, frame) = (self.manager, self.frame);
        let domain = &manager.domain;
        match frame.changed_since(domain) {
            None => {
                frame.set_changed_since(domain, Some(lsn));
                manager.changed_frames.add(domain, 1);
            }
            Some(since) if lsn < since && !domain.commits(CHANGED_SINCE_NOT_LOWERED) => {
                frame.set_changed_since(domain, Some(lsn));
            }
            Some(_) => {}
        }
        let mut page = self.write_unlogged();
        if page.read().lsn() < lsn {
            page.set_lsn(lsn);
        }
        page
    }

    /// The page, to be changed in what is not written out.
    pub(super) fn write_unlogged(&mut self) -> PageWrite<'_, D> {
        self.changed = true;
        let frame = self.frame;
        let masks =
            frame.masks.as_deref().filter(|_| frame.backing(&self.manager.domain).is_some());
        PageWrite::over(self.read(), masks)
    }

    /// Lets go of it, to go on reading.
    pub fn into_optimistic(self) -> OptimisticPage<'m, D> {
        let manager = self.manager;
        let (frame, version) = core::mem::ManuallyDrop::new(self).end();
        OptimisticPage { manager, frame, version }
    }

    /// Lets go of it. Returns where it is from here on, and at which version.
    fn end(&self) -> (&'m Frame<D>, Version) {
        if self.partial || self.version.is_partial() {
            return match self.manager.changed_in_place(self) {
                Some(below) => self.manager.end_in_place(self, below),
                None => (self.frame, self.end_partial()),
            };
        }
        (self.frame, self.frame.latch.release(&self.manager.domain, self.version, self.changed))
    }

    #[cold]
    fn end_partial(&self) -> Version {
        let (domain, memory, frame) = (&self.manager.domain, &self.manager.memory, self.frame);
        let (mut partial, mut promoted) = (false, false);
        if let Some(masks) = frame.masks.as_deref() {
            // S1: whatever a workspace held, the next page in it begins without lines.
            let is_workspace = self.at() >= self.manager.clocked;
            partial = is_workspace || self.is_mini() || self.partial && !masks.is_whole();
            if let Some(spare) = masks.spare() {
                let spare = &memory.spares[spare];
                promoted = memory.is_mini(spare.block.get());
                masks.set_spare(None);
                spare.give_back(domain);
            }
        }
        // M3.
        if promoted || partial != self.version.is_partial() {
            return frame.latch.release_as(domain, self.version, partial);
        }
        frame.latch.release(domain, self.version, self.changed)
    }
}

impl<D: Domain> Drop for ExclusivePage<'_, D> {
    fn drop(&mut self) {
        self.end();
    }
}
