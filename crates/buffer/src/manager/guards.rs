//! Pages as their users have them: to be read optimistically, or alone.

use core::ops::Range;
use core::sync::atomic::AtomicU64;

use lapis_pmem::Domain;

use super::BufferManager;
use crate::frame::Frame;
use crate::latch::{Restart, Version};
use crate::mutants::CHANGED_SINCE_NOT_LOWERED;
use crate::page::PageNumber;
use crate::page::lines::{LineMasks, MissingLines};
use crate::page::view::{PageRead, PageWrite};

/// A page that others may change or evict: what was read of it counts when it is validated.
#[derive(Debug)]
pub struct OptimisticPage<'m, D: Domain> {
    pub(super) manager: &'m BufferManager<D>,
    pub(super) frame: usize,
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
        let missing =
            if version.is_partial() { manager.missing_lines(frame, version) } else { None };
        PageRead::over(&manager.domain, manager.memory.words(frame), missing)
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
        self.manager.frames[self.frame].latch.validate(&self.manager.domain, self.version)
    }

    /// The page alone, as it was read.
    ///
    /// # Errors
    /// [`Restart`] if it has changed.
    pub fn exclusive(self) -> Result<ExclusivePage<'m, D>, Restart> {
        let Self { manager, frame, version } = self;
        manager.frames[frame].latch.upgrade(&manager.domain, version)?;
        Ok(ExclusivePage { manager, frame, version, changed: false, partial: version.is_partial() })
    }
}

/// A page that nobody else reads or writes, until this is dropped.
#[derive(Debug)]
pub struct ExclusivePage<'m, D: Domain> {
    pub(super) manager: &'m BufferManager<D>,
    pub(super) frame: usize,
    pub(super) version: Version,
    /// Whether readers must begin again.
    pub(super) changed: bool,
    /// Whether lines of it may be missing.
    pub(super) partial: bool,
}

impl<'m, D: Domain> ExclusivePage<'m, D> {
    pub(super) fn frame(&self) -> &'m Frame<D> {
        &self.manager.frames[self.frame]
    }

    fn words(&self) -> &'m [AtomicU64] {
        self.manager.memory.words(self.frame)
    }

    /// Which page it is.
    pub fn number(&self) -> PageNumber {
        self.frame().page(&self.manager.domain).unwrap_or(PageNumber::LAST)
    }

    /// The page, to be read.
    #[inline]
    pub fn read(&self) -> PageRead<'m, D> {
        let masks = if self.partial { self.frame().masks.as_deref() } else { None };
        PageRead::over(&self.manager.domain, self.words(), masks.map(MissingLines::held))
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
        let (manager, frame) = (self.manager, self.frame());
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
        let frame = self.frame();
        let masks =
            frame.masks.as_deref().filter(|_| frame.backing(&self.manager.domain).is_some());
        PageWrite::over(self.read(), masks)
    }

    /// Lets go of it, to go on reading.
    pub fn into_optimistic(self) -> OptimisticPage<'m, D> {
        let (manager, frame) = (self.manager, self.frame);
        let version = self.release();
        OptimisticPage { manager, frame, version }
    }

    fn release(self) -> Version {
        core::mem::ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Version {
        let (domain, frame) = (&self.manager.domain, self.frame());
        if self.partial || self.version.is_partial() {
            let lacks = |masks: &LineMasks<D>| self.partial && !masks.is_whole();
            let partial = frame.masks.as_deref().is_some_and(lacks);
            if partial != self.version.is_partial() {
                return frame.latch.release_as(domain, self.version, partial);
            }
        }
        frame.latch.release(domain, self.version, self.changed)
    }
}

impl<D: Domain> Drop for ExclusivePage<'_, D> {
    fn drop(&mut self) {
        self.end();
    }
}
