//! Frames: places in DRAM for pages, and what is known of the page in each.
//!
//! Frames are made once and stay until the manager goes. So a reader that still looks at a frame whose
//! page was evicted looks at memory that is there, and finds out by the latch, whose version only ever
//! grows: there is nothing that epochs would have to protect, and no reader pays for pinning one.

use core::sync::atomic::Ordering::Relaxed;

use lapis_pmem::{Domain, DramCell};

use crate::frame_memory::{Block, BlockCell, FrameMemory};
use crate::latch::Latch;
use crate::mutants::DIRTY_LINE_LOST_IN_PROMOTION;
use crate::page::PageNumber;
use crate::page::lines::LineMasks;

/// The page was not used since the clock's hand came by.
const UNUSED: u32 = 0;
/// It was.
const USED: u32 = 1;
/// It needs more room than it has: who fixes it next gets it a frame, or a larger one.
const OVERFULL: u32 = 2;

/// What is known of the page in a frame. All of it but `used` is changed by whoever holds the
/// latch, and read by whoever validates, or as a guess.
///
/// It stands for the header of Figs. 3 and 5 of the paper, without the slot in the parent, which the
/// manager finds by itself.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Frame<D: Domain> {
    pub(crate) latch: Latch<D>,
    /// The page; 0 for none.
    number: DramCell<u64, D>,
    /// 0 if the device has the page as it is here; else one more than the LSN of the first change
    /// that it does not have.
    changed_since: DramCell<u64, D>,
    /// One more than the frame of the parent, if that refers to the page by this frame; 0 otherwise.
    parent: DramCell<u32, D>,
    /// Children to which the page refers by their frames.
    pub(crate) swizzled_children: DramCell<u32, D>,
    /// The clock's second chance, and what the page needs first.
    used: DramCell<u32, D>,
    /// One more than the frame of persistent memory that has the page, too; 0 for none.
    backing: DramCell<u32, D>,
    /// Where the page lies.
    pub(crate) block: BlockCell,
    /// The masks of lines; none unless pages move by lines.
    pub(crate) masks: Option<Box<LineMasks>>,
}

impl<D: Domain> Frame<D> {
    /// An empty frame, whose latch says *partial* or does not.
    pub(crate) fn new(block: Block, is_partial: bool, masks: Option<LineMasks>) -> Self {
        Self {
            block: BlockCell::new(block),
            masks: masks.map(Box::new),
            latch: Latch::new(is_partial),
            number: DramCell::new(0),
            changed_since: DramCell::new(0),
            parent: DramCell::new(0),
            swizzled_children: DramCell::new(0),
            used: DramCell::new(UNUSED),
            backing: DramCell::new(0),
        }
    }

    #[inline]
    pub(crate) fn page(&self, domain: &D) -> Option<PageNumber> {
        PageNumber::new(self.number.load(domain))
    }

    pub(crate) fn set_page(&self, domain: &D, page: Option<PageNumber>) {
        self.number.store(domain, page.map_or(0, PageNumber::get));
    }

    /// The LSN of the first change that the device does not have.
    #[inline]
    pub(crate) fn changed_since(&self, domain: &D) -> Option<u64> {
        self.changed_since.load(domain).checked_sub(1)
    }

    pub(crate) fn set_changed_since(&self, domain: &D, lsn: Option<u64>) {
        self.changed_since.store(domain, lsn.map_or(0, |lsn| lsn.saturating_add(1)));
    }

    /// The frame of the parent, if that refers to the page by this frame.
    pub(crate) fn parent(&self, domain: &D) -> Option<usize> {
        (self.parent.load(domain) as usize).checked_sub(1)
    }

    pub(crate) fn set_parent(&self, domain: &D, parent: Option<usize>) {
        self.parent.store(domain, parent.map_or(0, |frame| frame as u32 + 1));
    }

    /// The frame of persistent memory that has the page, too.
    pub(crate) fn backing(&self, domain: &D) -> Option<usize> {
        (self.backing.load(domain) as usize).checked_sub(1)
    }

    /// Says that the page is in a frame of persistent memory, too, and is `whole` here or not at all yet; or
    /// that it is here alone.
    pub(crate) fn set_backing(&self, domain: &D, frame: Option<usize>, whole: bool) {
        if let Some(masks) = self.masks.as_deref().filter(|_| frame.is_some()) {
            masks.begin(whole);
        }
        self.backing.store(domain, frame.map_or(0, |frame| frame as u32 + 1));
    }

    /// Whether it is noted that the page is used, and nothing else is to be done for it.
    #[inline]
    pub(crate) fn is_used(&self, domain: &D) -> bool {
        self.used.load(domain) == USED
    }

    pub(crate) fn set_used(&self, domain: &D) {
        self.used.store(domain, USED);
    }

    /// Notes that the page needs more lines than there are in a mini block. Should somebody note at the same time that it
    /// is used, whoever misses a line notes this again.
    pub(crate) fn set_overfull(&self, domain: &D) {
        self.used.store(domain, OVERFULL);
    }

    pub(crate) fn is_overfull(&self, domain: &D) -> bool {
        self.used.load(domain) == OVERFULL
    }

    /// Moves the page to a full block, its latch held (M3). Which of its lines are there, and which were
    /// changed, stays as it is. Returns the mini block.
    pub(crate) fn promote(&self, domain: &D, memory: &FrameMemory<D>, full: Block) -> Block {
        let mini = self.block.get();
        if let Some(masks) = self.masks.as_deref() {
            if domain.commits(DIRTY_LINE_LOST_IN_PROMOTION) {
                masks.dirty().last().into_iter().for_each(|line| masks.forget(line));
            }
            for (slot, line) in masks.slots.filled() {
                let from = memory.lines(mini, slot..slot + 1);
                let to = memory.lines(full, line..line + 1);
                from.iter().zip(to).for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
            }
        }
        self.block.set(full);
        memory.promotions.fetch_add(1, Relaxed);
        mini
    }

    /// Whether the page was used since this was last asked. One that waits to be promoted is as if it were just
    /// loaded: it has no mark.
    pub(crate) fn take_reference(&self, domain: &D) -> bool {
        let was = self.is_used(domain);
        if was {
            self.set_unused(domain);
        }
        was
    }

    /// Takes back every mark.
    pub(crate) fn set_unused(&self, domain: &D) {
        self.used.store(domain, UNUSED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use lapis_pmem::Hardware;

    fn frame() -> Frame<Hardware> {
        let memory = FrameMemory::<Hardware>::new(4096, (0, 1, 0), None);
        Frame::new(memory.full(0), false, None)
    }

    #[test]
    fn a_frame_says_what_was_said_of_it() {
        let (domain, frame) = (test_domain(), frame());
        assert_eq!((frame.page(&domain), frame.changed_since(&domain)), (None, None));
        frame.set_changed_since(&domain, Some(0));
        assert_eq!(frame.changed_since(&domain), Some(0));
        frame.set_parent(&domain, Some(0));
        assert_eq!(frame.parent(&domain), Some(0));
        frame.set_parent(&domain, None);
        assert_eq!(frame.parent(&domain), None);
        assert!(!frame.take_reference(&domain));
        frame.set_used(&domain);
        assert!(frame.is_used(&domain) && !frame.is_overfull(&domain));
        assert!(frame.take_reference(&domain) && !frame.take_reference(&domain));
        frame.set_overfull(&domain);
        assert!(frame.is_overfull(&domain) && !frame.is_used(&domain));
        assert!(!frame.take_reference(&domain) && frame.is_overfull(&domain));
        frame.set_unused(&domain);
        assert!(!frame.is_overfull(&domain));
    }
}
