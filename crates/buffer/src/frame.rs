//! Frames: places in DRAM for pages, and what is known of the page in each.
//!
//! Frames are made once and stay until the manager goes. So a reader that still looks at a frame whose
//! page was evicted looks at memory that is there, and finds out by the latch, whose version only ever
//! grows: there is nothing that epochs would have to protect, and no reader pays for pinning one.

use core::sync::atomic::AtomicU64;

use lapis_pmem::{Domain, DramCell, LINE_BYTES};

use crate::latch::Latch;
use crate::page::PageNumber;
use crate::page::lines::LineMasks;

const WORD_BYTES: usize = size_of::<AtomicU64>();

/// What is known of the page in a frame. All of it but `referenced` is changed by whoever holds the
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
    /// The clock's second chance.
    referenced: DramCell<u32, D>,
    /// One more than the frame of persistent memory that has the page, too; 0 for none.
    backing: DramCell<u32, D>,
    /// The masks of lines; none unless pages move by lines.
    pub(crate) masks: Option<Box<LineMasks<D>>>,
}

impl<D: Domain> Frame<D> {
    pub(crate) fn new(masks: Option<LineMasks<D>>) -> Self {
        Self {
            masks: masks.map(Box::new),
            latch: Latch::new(),
            number: DramCell::new(0),
            changed_since: DramCell::new(0),
            parent: DramCell::new(0),
            swizzled_children: DramCell::new(0),
            referenced: DramCell::new(0),
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
        if let Some((masks, frame)) = self.masks.as_deref().zip(frame) {
            masks.begin(domain, frame, whole);
        }
        self.backing.store(domain, frame.map_or(0, |frame| frame as u32 + 1));
    }

    /// Notes that the page is used. Mostly it is noted already, and then nothing is written.
    #[inline]
    pub(crate) fn reference(&self, domain: &D) {
        if self.referenced.load(domain) == 0 {
            self.referenced.store(domain, 1);
        }
    }

    /// Whether the page was used since this was last asked.
    pub(crate) fn take_reference(&self, domain: &D) -> bool {
        let was = self.referenced.load(domain) != 0;
        if was {
            self.referenced.store(domain, 0);
        }
        was
    }
}

/// Pools of fewer bytes have no large pages.
#[cfg(all(target_os = "linux", not(miri)))]
const FEWEST_BYTES_FOR_LARGE_PAGES: usize = 4 << 20;

/// The memory of all frames.
pub(crate) struct FrameMemory {
    words: Box<[AtomicU64]>,
    /// The first at a line's beginning.
    first: usize,
    frame_words: usize,
}

impl core::fmt::Debug for FrameMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "FrameMemory({} words)", self.words.len())
    }
}

impl FrameMemory {
    /// Memory for so many frames, zero. The operating system provides it as it is used: memory that is asked
    /// for with an alignment of a line would be zeroed here, so the first line is looked for.
    pub(crate) fn new(frames: usize, page_bytes: usize) -> Self {
        let frame_words = page_bytes / WORD_BYTES;
        let words = frames * frame_words + LINE_BYTES / WORD_BYTES;
        let words = Box::<[AtomicU64]>::new_zeroed_slice(words);
        // SAFETY: any bits are the value of an atomic word.
        let words = unsafe { words.assume_init() };
        prefer_large_pages(&words);
        let first = words.as_ptr().addr().wrapping_neg() % LINE_BYTES / WORD_BYTES;
        Self { words, first, frame_words }
    }

    /// The words of a frame.
    #[inline]
    pub(crate) fn words(&self, frame: usize) -> &[AtomicU64] {
        let begin = self.first + frame * self.frame_words;
        &self.words[begin..begin + self.frame_words]
    }
}

/// Asks for large pages: a random read of a large pool then misses the TLB less often.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_large_pages(words: &[AtomicU64]) {
    let (begin, page) = (words.as_ptr().addr(), rustix::param::page_size());
    let skipped = begin.next_multiple_of(page) - begin;
    let bytes = size_of_val(words).saturating_sub(skipped) / page * page;
    if bytes >= FEWEST_BYTES_FOR_LARGE_PAGES {
        let from = words.as_ptr().wrapping_byte_add(skipped).cast_mut().cast();
        // SAFETY: these are whole pages of the words, and advice changes no contents. It may be refused.
        _ = unsafe { rustix::mm::madvise(from, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn prefer_large_pages(_words: &[AtomicU64]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domain;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn frames_have_memory_of_their_own() {
        let memory = FrameMemory::new(3, 4096);
        for frame in 0..3 {
            memory.words(frame).iter().for_each(|word| word.store(frame as u64, Relaxed));
        }
        for frame in 0..3 {
            let words = memory.words(frame);
            assert_eq!((words.len(), words.as_ptr().addr() % LINE_BYTES), (512, 0));
            assert!(words.iter().all(|word| word.load(Relaxed) == frame as u64));
        }
    }

    #[test]
    fn a_frame_says_what_was_said_of_it() {
        let (domain, frame) = (test_domain(), Frame::new(None));
        assert_eq!((frame.page(&domain), frame.changed_since(&domain)), (None, None));
        frame.set_changed_since(&domain, Some(0));
        assert_eq!(frame.changed_since(&domain), Some(0));
        frame.set_parent(&domain, Some(0));
        assert_eq!(frame.parent(&domain), Some(0));
        frame.set_parent(&domain, None);
        assert_eq!(frame.parent(&domain), None);
        assert!(!frame.take_reference(&domain));
        frame.reference(&domain);
        assert!(frame.take_reference(&domain) && !frame.take_reference(&domain));
    }
}
