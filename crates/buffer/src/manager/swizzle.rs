//! Pointer swizzling: references to children by their frames.
//!
//! After section 3.3 and Fig. 5 of the paper, and G. Graefe et al., *In-memory performance for big data*,
//! PVLDB 8 (2014). A reference is a word:
//!
//! ```text
//!  63   62                    48 47                                 0
//! +----+------------------------+------------------------------------+
//! | 0  | zero                   | page number                        |
//! | 1  | zero                   | frame                              |
//! +----+------------------------+------------------------------------+
//! ```
//!
//! A child knows the frame of its parent. The paper has it know the slot too; but entries of a page move,
//! and the array of references, which the page's header names, is searched in a microsecond when a child
//! is evicted. Where a reference moves to another page, or goes, its owner first has it unswizzled.

use core::sync::atomic::Ordering;

use lapis_pmem::Domain;

use super::{BufferManager, ExclusivePage, OptimisticPage, count};
use crate::error::{BufferError, Interruption};
use crate::latch::Patience;
use crate::page::PageNumber;
use crate::page::view::PageRead;

const SWIZZLED: u64 = 1 << 63;

/// Loads that evict another child of the same parent, until changed pages are written.
const LOADS_UNTIL_WRITE_BACK: u64 = 64;

/// The frame that a reference names.
#[inline]
pub(super) fn frame_of(reference: u64) -> Option<usize> {
    (reference & SWIZZLED != 0).then_some((reference & !SWIZZLED) as usize)
}

fn reference_to(frame: usize) -> u64 {
    SWIZZLED | frame as u64
}

impl<D: Domain> BufferManager<D> {
    /// The child that `parent` refers to at `offset`, which is to be one of its references. What was read
    /// of the parent before is validated. A child that was not in memory is when this returns, and
    /// the parent refers to its frame, if nobody else is busy with one of them.
    ///
    /// # Errors
    /// [`Interruption`].
    #[inline]
    pub fn fix_child<'m>(
        &'m self,
        parent: &mut OptimisticPage<'m, D>,
        offset: usize,
    ) -> Result<OptimisticPage<'m, D>, Interruption> {
        let reference = parent.read().word(offset);
        parent.validate()?;
        let Some(at) = frame_of(reference) else {
            return self.fix_unswizzled(parent, offset, reference);
        };
        let frame = self.frames.get(at).ok_or(BufferError::BadReference { word: reference })?;
        let version = frame.latch.version(&self.domain)?;
        // The frame held the child at that version, for the parent refers to it still (B5).
        parent.validate()?;
        if !frame.is_used(&self.domain) {
            self.note_use(at)?;
        }
        Ok(OptimisticPage { manager: self, frame, version })
    }

    fn fix_unswizzled<'m>(
        &'m self,
        parent: &mut OptimisticPage<'m, D>,
        offset: usize,
        reference: u64,
    ) -> Result<OptimisticPage<'m, D>, Interruption> {
        let number = PageNumber::new(reference);
        let number = number.ok_or(BufferError::BadReference { word: reference })?;
        let evictions = self.counters.evictions.load(Ordering::Relaxed);
        let child = self.fix(number);
        // Of a parent that has changed, the reference may lead to a page that is gone.
        if let Err(restart) = parent.validate() {
            if self.counters.evictions.load(Ordering::Relaxed) != evictions {
                self.make_some_clean()?;
            }
            return Err(restart.into());
        }
        let mut child = child?;
        if self.options.swizzling {
            self.swizzle(parent, offset, &mut child);
        }
        Ok(child)
    }

    /// A load has evicted another child of the parent. In a small pool pages of one path may go on evicting
    /// each other, if all other frames are changed; so now and then these are written.
    #[cold]
    fn make_some_clean(&self) -> Result<(), BufferError> {
        let counter = &self.counters.loads_beside_evictions;
        if counter.fetch_add(1, Ordering::Relaxed) % LOADS_UNTIL_WRITE_BACK
            == LOADS_UNTIL_WRITE_BACK - 1
        {
            self.write_back()?;
        }
        Ok(())
    }

    /// Lets the parent refer to the child's frame, if both are as they were.
    fn swizzle(
        &self,
        parent: &mut OptimisticPage<'_, D>,
        offset: usize,
        child: &mut OptimisticPage<'_, D>,
    ) {
        let domain = &self.domain;
        // B5 is about frames of DRAM.
        if parent.is_in_place() || child.is_in_place() {
            return;
        }
        let Ok(mut above) = parent.latched() else { return };
        let Ok(below) = child.latched() else { return *parent = above.into_optimistic() };
        // M2 of the lines.
        if !above.is_mini()
            && below.frame.parent(domain).is_none()
            && above.read().references().any(|at| at == offset)
        {
            above.write_unlogged().set_word(offset, reference_to(self.index_of(child.frame)));
            below.frame.set_parent(domain, Some(self.index_of(parent.frame)));
            let children = &above.frame.swizzled_children;
            children.store(domain, children.load(domain) + 1);
            count(&self.counters.swizzled);
        }
        *child = below.into_optimistic();
        *parent = above.into_optimistic();
    }

    /// A parent refers to a child's frame no more. Both are latched (B5).
    pub(super) fn part(&self, parent: usize, child: usize) {
        let (domain, children) = (&self.domain, &self.frames[parent].swizzled_children);
        children.store(domain, children.load(domain) - 1);
        self.frames[child].set_parent(domain, None);
        count(&self.counters.unswizzled);
    }
}

/// Where a page refers to a child's frame.
pub(super) fn find_reference<D: Domain>(page: PageRead<'_, D>, child: usize) -> Option<usize> {
    page.references().find(|&offset| page.word(offset) == reference_to(child))
}

/// Whether there are references to frames: of a page that comes from a medium, damage (P3).
pub(super) fn refers_to_frames<D: Domain>(page: PageRead<'_, D>) -> bool {
    page.references().any(|offset| frame_of(page.word(offset)).is_some())
}

impl<D: Domain> ExclusivePage<'_, D> {
    /// The page that the reference at `offset` leads to; none if it leads to no page.
    pub fn child_number(&self, offset: usize) -> Option<PageNumber> {
        let reference = self.read().word(offset);
        match frame_of(reference) {
            Some(frame) => self.manager.frames.get(frame)?.page(&self.manager.domain),
            None => PageNumber::new(reference),
        }
    }

    /// Makes the reference at `offset` a page number: before it moves to another page, or goes.
    pub fn unswizzle(&mut self, offset: usize) {
        let (manager, domain) = (self.manager, &self.manager.domain);
        let Some(child) = frame_of(self.read().word(offset)) else { return };
        let Some(frame) = manager.frames.get(child) else { return };
        let mut patience = Patience::default();
        let version = loop {
            match frame.latch.try_take(domain) {
                Ok(version) => break version,
                Err(_held) => _ = patience.wait(domain),
            }
        };
        let is_child = frame.parent(domain) == Some(self.at());
        if let Some(number) = frame.page(domain).filter(|_| is_child) {
            self.write_unlogged().set_word(offset, number.get());
            manager.part(self.at(), child);
        }
        frame.latch.release(domain, version, false);
    }

    /// Makes every reference a page number: before the page is split, merged or freed.
    pub fn unswizzle_all(&mut self) {
        if self.frame.swizzled_children.load(&self.manager.domain) > 0 {
            self.read().references().for_each(|offset| self.unswizzle(offset));
        }
    }
}
