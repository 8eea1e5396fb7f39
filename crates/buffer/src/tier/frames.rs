//! What is known, in DRAM, of the pages in persistent memory, and the clock over them.

use core::ops::{Deref, Index};

use lapis_pmem::{Domain, DramCell};

use crate::counter::Counter;
use crate::frame::Frame;
use crate::frame_memory::Block;
use crate::latch::{Patience, Restart, Version};
use crate::page::PageNumber;

/// What is known of the page in a frame of PM. It is changed by whoever holds the latch.
///
/// Latches of these frames are taken by those who hold that of a frame in DRAM, or none; never the other
/// way round. Who holds one waits for nobody, but who changes the page there ([`in_place`](crate::manager)).
#[derive(Debug)]
pub(crate) struct TierFrame<D: Domain> {
    /// The latch, the page that is in it, where that lies, and whether it is used or wanted in DRAM. Its backing is itself.
    frame: Frame<D>,
    /// Whether the SSD lacks the page as it is here.
    changed: DramCell<u32, D>,
    /// One more than the frame of DRAM that the page is in, too; 0 for none.
    holder: DramCell<u32, D>,
    /// The page was freed (T5).
    freed: DramCell<u32, D>,
    /// The page was found to be what it says, since it is there.
    checked: DramCell<u32, D>,
}

impl<D: Domain> Deref for TierFrame<D> {
    type Target = Frame<D>;

    fn deref(&self) -> &Frame<D> {
        &self.frame
    }
}

impl<D: Domain> TierFrame<D> {
    fn new() -> Self {
        Self {
            // S1: its latch says *partial*.
            frame: Frame::new(Block::in_place(0), true, None),
            changed: DramCell::new(0),
            holder: DramCell::new(0),
            freed: DramCell::new(0),
            checked: DramCell::new(0),
        }
    }

    /// Says what is in the frame from here on.
    pub(crate) fn begin(&self, domain: &D, page: Option<PageNumber>) {
        self.set_page(domain, page);
        self.holder.store(domain, 0);
        self.freed.store(domain, 0);
        self.checked.store(domain, 0);
        self.set_unused(domain);
    }

    pub(crate) fn is_changed(&self, domain: &D) -> bool {
        self.changed.load(domain) != 0
    }

    /// Whether the page is in DRAM, too.
    pub(crate) fn is_held(&self, domain: &D) -> bool {
        self.holder.load(domain) != 0
    }

    pub(crate) fn set_holder(&self, domain: &D, frame: Option<usize>) {
        self.holder.store(domain, frame.map_or(0, |frame| frame as u32 + 1));
    }

    pub(crate) fn is_freed(&self, domain: &D) -> bool {
        self.freed.load(domain) != 0
    }

    pub(crate) fn set_freed(&self, domain: &D, freed: bool) {
        self.freed.store(domain, freed.into());
    }

    pub(crate) fn is_checked(&self, domain: &D) -> bool {
        self.checked.load(domain) != 0
    }

    pub(crate) fn set_checked(&self, domain: &D) {
        self.checked.store(domain, 1);
    }
}

/// All of them, with the clock's hand.
#[derive(Debug)]
pub(crate) struct TierFrames<D: Domain> {
    frames: Box<[TierFrame<D>]>,
    hand: DramCell<u64, D>,
    changed: Counter<D>,
}

impl<D: Domain> Index<usize> for TierFrames<D> {
    type Output = TierFrame<D>;

    fn index(&self, frame: usize) -> &TierFrame<D> {
        &self.frames[frame]
    }
}

impl<D: Domain> TierFrames<D> {
    pub(super) fn new(frames: usize) -> Self {
        Self {
            frames: (0..frames).map(|_| TierFrame::new()).collect(),
            hand: DramCell::new(0),
            changed: Counter::new(),
        }
    }

    /// Frames whose pages the SSD lacks as they are.
    pub(crate) fn changed(&self, domain: &D) -> u64 {
        self.changed.get(domain)
    }

    /// Says whether the SSD lacks the page of a frame, which is latched.
    pub(crate) fn set_changed(&self, domain: &D, frame: usize, changed: bool) {
        let frame = &self.frames[frame];
        if frame.is_changed(domain) != changed {
            frame.changed.store(domain, changed.into());
            self.changed.add(domain, if changed { 1 } else { -1 });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Where the hand is.
    pub(crate) fn hand(&self, domain: &D) -> usize {
        (self.hand.load(domain) % self.frames.len() as u64) as usize
    }

    /// The first frame that `may_go` and was not used since the hand came by last, latched. Everything that
    /// would have to be waited for is passed over: who gets none does without.
    pub(crate) fn take(
        &self,
        domain: &D,
        may_go: impl Fn(&TierFrame<D>) -> bool,
    ) -> Option<(usize, Version)> {
        for _ in 0..2 * self.frames.len() {
            let at = self.hand(domain);
            // Two that come at once look at the same frame: one of them finds it latched.
            self.hand.store(domain, at as u64 + 1);
            let frame = &self.frames[at];
            if !may_go(frame) || frame.take_reference(domain) {
                continue;
            }
            let Ok(version) = frame.latch.try_take(domain) else { continue };
            if may_go(frame) {
                return Some((at, version));
            }
            frame.latch.release(domain, version, false);
        }
        None
    }

    /// Waits for a frame's latch. For moments: see [`TierFrame`].
    pub(crate) fn latch(&self, domain: &D, frame: usize) -> Version {
        let mut patience = Patience::default();
        loop {
            match self.frames[frame].latch.try_take(domain) {
                Ok(version) => return version,
                Err(Restart) => _ = patience.wait(domain),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;

    #[test]
    fn the_hand_passes_over_what_was_used_once_and_takes_what_may_go() {
        let (domain, frames) = (test_domain(), TierFrames::new(3));
        frames[0].set_used(&domain);
        let (first, version) = frames.take(&domain, |_| true).unwrap();
        assert_eq!(first, 1);
        // Held, it is passed over.
        let not_the_last = |frame: &TierFrame<_>| !core::ptr::eq(frame, &frames[2]);
        let (second, _) = frames.take(&domain, not_the_last).unwrap();
        assert_eq!(second, 0);
        assert!(frames.take(&domain, not_the_last).is_none());
        frames[first].latch.release(&domain, version, true);
        assert_eq!(frames.take(&domain, not_the_last).unwrap().0, first);
    }
}
