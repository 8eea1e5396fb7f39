//! Which pages exist: the space map, in memory as it is and as it is durable.
//!
//! ```text
//!  Reserved ──written by a batch──▶ Written ──free──▶ Freed ──a batch without it──▶ Free
//!     ▲                                                                              │
//!     └──────────────────────────────── allocate ────────────────────────────────────┘
//! ```
//!
//! A page's byte in the map on the device: bit 7, whether it is written; bits 0 to 5, its stamp, kept
//! when it is freed so that the next write of that place has another.

use core::ops::RangeInclusive;
use std::collections::BTreeSet;

use super::geometry::Geometry;
use crate::page::PageDamage;

/// Stamps count modulo this.
pub(super) const STAMPS: u8 = 64;
/// A durable stamp is never so far behind the page's own, so that it is known which of two is later.
const MOST_BEHIND: u8 = 31;
const WRITTEN: u8 = 0x80;
/// Pages that may lie before one that the log says was given out, and are neither on the device nor in the log: what was
/// freed before it was ever written, and what somebody held. Many more than fit into the frames of a large pool.
pub(super) const MOST_UNKNOWN: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody's.
    Free,
    /// Given out, and not on the device.
    Reserved,
    /// On the device.
    Written,
    /// Nobody's as soon as that is durable.
    Freed,
    /// Its map page is damaged: it may be anything.
    Unknown,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    state: State,
    stamp: u8,
    /// Whether the stamp is the page's; if not, the page's may be later.
    exact: bool,
    /// Its byte in the map on the device.
    durable: u8,
}

/// The map. Pages are counted from 0.
#[derive(Debug)]
pub(super) struct SpaceMap {
    region_pages: u64,
    pages: Vec<Page>,
    /// Regions with a map on the device.
    regions: u64,
    damaged: BTreeSet<u64>,
    /// Pages that were freed, and by which change.
    freed: Vec<(u64, u64)>,
    /// No page before this is free.
    lowest_free: usize,
    /// Pages that are not free.
    in_use: u64,
    /// Pages that are kept free for those who may not be refused one (`promise.rs`).
    pub(super) promised: u64,
    /// Pages that stay besides, once something has grown.
    pub(super) reserved: u64,
    /// So many pages, the first, have storage for certain.
    pub(super) backed: u64,
    /// No page from here on has storage.
    stored_end: u64,
    /// No page from here on can have been given out before the space was opened.
    given_out_end: u64,
}

/// A page that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    pub(super) index: u64,
    pub(super) stamp: u8,
    /// Its map has to be written with it.
    pub(super) needs_map: bool,
}

impl SpaceMap {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            region_pages: geometry.region_pages(),
            pages: Vec::new(),
            regions: 0,
            damaged: BTreeSet::new(),
            freed: Vec::new(),
            lowest_free: 0,
            in_use: 0,
            promised: 0,
            reserved: 0,
            backed: 0,
            stored_end: 0,
            given_out_end: MOST_UNKNOWN,
        }
    }

    /// Adds a region with what its map on the device says; none if that cannot be read.
    pub(super) fn add_region(&mut self, bytes: Option<&[u8]>) {
        let unknown = Page { state: State::Unknown, stamp: 0, exact: false, durable: 0 };
        let first = (self.regions * self.region_pages) as usize;
        self.pages.resize(first, Page { state: State::Free, ..unknown });
        match bytes {
            None => {
                self.damaged.insert(self.regions);
                self.pages.resize(first + self.region_pages as usize, unknown);
            }
            Some(bytes) => self.pages.extend(bytes.iter().map(|&durable| Page {
                state: if durable & WRITTEN != 0 { State::Written } else { State::Free },
                stamp: durable % STAMPS,
                exact: false,
                durable,
            })),
        }
        self.regions += 1;
        let added = &self.pages[first..];
        self.in_use += added.iter().filter(|page| page.state != State::Free).count() as u64;
        let stored = |page: &Page| page.durable != 0 || page.state == State::Unknown;
        let last = self.pages.iter().rposition(stored);
        self.stored_end = last.map_or(0, |last| last as u64 + 1);
        self.backed = self.end();
        self.note_storage(self.pages.len() as u64);
    }

    /// The device has storage for so many pages (M4).
    pub(super) fn note_storage(&mut self, pages: u64) {
        self.given_out_end = self.given_out_end.max(pages + MOST_UNKNOWN);
    }

    /// Pages up to the last that is not free.
    pub(super) fn end(&self) -> u64 {
        let last = self.pages.iter().rposition(|page| page.state != State::Free);
        last.map_or(0, |last| last as u64 + 1)
    }

    pub(super) fn regions(&self) -> u64 {
        self.regions
    }

    pub(super) fn damaged_regions(&self) -> impl Iterator<Item = u64> + '_ {
        self.damaged.iter().copied()
    }

    /// Pages that are in use or cannot be given out yet.
    pub(super) fn used(&self) -> u64 {
        self.in_use
    }

    /// Whether the device has the page, as far as is known.
    pub(super) fn is_on_device(&self, index: u64) -> bool {
        let page = self.pages.get(index as usize);
        page.is_some_and(|page| matches!(page.state, State::Written | State::Unknown))
    }

    /// Whether the map on the device says anything of the page.
    pub(super) fn is_known(&self, index: u64) -> bool {
        self.pages.get(index as usize).is_none_or(|page| page.state != State::Unknown)
    }

    /// Whether a page may be given out.
    pub(super) fn is_free(&self, index: u64) -> bool {
        self.pages.get(index as usize).is_none_or(|page| page.state == State::Free)
    }

    /// Reserves the lowest page that is free.
    pub(super) fn reserve(&mut self) -> u64 {
        let free = |page: &Page| page.state == State::Free;
        let found = self.pages[self.lowest_free..].iter().position(free);
        let index = found.map_or(self.pages.len(), |at| self.lowest_free + at);
        self.reserve_at(index);
        self.lowest_free = index + 1;
        index as u64
    }

    fn reserve_at(&mut self, index: usize) {
        let never = Page { state: State::Free, stamp: 0, exact: false, durable: 0 };
        if index >= self.pages.len() {
            self.pages.resize(index + 1, never);
        }
        self.pages[index].state = State::Reserved;
        self.in_use += 1;
        self.stored_end = self.stored_end.max(index as u64 + 1);
    }

    /// Whether a page can have been given out before the space was opened (M4).
    pub(super) fn may_be_given_out(&self, index: u64) -> bool {
        index < self.given_out_end
    }

    /// Takes a page into use that may have been given out, whatever became of it.
    pub(super) fn reserve_again(&mut self, index: u64) {
        // So the map is never longer than what the device and the log have to say.
        self.given_out_end += 1;
        match self.pages.get(index as usize).map(|page| page.state) {
            None | Some(State::Free) => self.reserve_at(index as usize),
            Some(State::Freed) => {
                self.freed.retain(|(freed, _)| *freed != index);
                let page = &mut self.pages[index as usize];
                let on_device = page.durable & WRITTEN != 0;
                page.state = if on_device { State::Written } else { State::Reserved };
            }
            Some(State::Reserved | State::Written | State::Unknown) => {}
        }
    }

    /// Gives back a page that [`SpaceMap::reserve`] gave out and nobody knows of.
    pub(super) fn unreserve(&mut self, index: u64) {
        self.make_free(index);
    }

    /// Frees a page by the change `lsn`. False if it was not in use.
    pub(super) fn free(&mut self, index: u64, lsn: u64, at_once: bool) -> bool {
        let Some(page) = self.pages.get_mut(index as usize) else { return false };
        match page.state {
            State::Free | State::Freed => return false,
            // Where nothing is known of a region, nothing is given out either.
            State::Unknown => {}
            State::Reserved | State::Written => {
                page.state = State::Freed;
                self.freed.push((index, lsn));
                if at_once {
                    self.make_free(index);
                }
            }
        }
        true
    }

    fn make_free(&mut self, index: u64) {
        self.pages[index as usize].state = State::Free;
        self.in_use -= 1;
        self.lowest_free = self.lowest_free.min(index as usize);
    }

    /// Checks the stamp of a page that was read.
    pub(super) fn check_stamp(&mut self, index: u64, found: u8) -> Result<(), PageDamage> {
        let Some(page) = self.pages.get_mut(index as usize) else { return Ok(()) };
        let later_by = found.wrapping_sub(page.stamp) % STAMPS;
        let unknown = page.state == State::Unknown && !page.exact;
        let right = if page.exact { later_by == 0 } else { unknown || later_by <= MOST_BEHIND };
        if !right {
            return Err(PageDamage::Lost { expected: page.stamp, found });
        }
        (page.stamp, page.exact) = (found % STAMPS, true);
        Ok(())
    }

    /// What writing a page comes with; none if it was freed.
    pub(super) fn stage(&self, index: u64) -> Option<Staged> {
        let page = self.pages.get(index as usize)?;
        // A stamp that is not exact may be behind by what is skipped here.
        let step = if page.exact { 1 } else { MOST_BEHIND + 1 };
        let stamp = (page.stamp + step) % STAMPS;
        let behind = stamp.wrapping_sub(page.durable) % STAMPS;
        let needs_map = match page.state {
            State::Free | State::Freed => return None,
            State::Unknown => false,
            State::Reserved => true,
            State::Written => behind >= MOST_BEHIND,
        };
        Some(Staged { index, stamp, needs_map })
    }

    /// The regions whose maps are written with a page: its own, and those before that have none yet.
    pub(super) fn regions_with(&self, staged: Staged) -> RangeInclusive<u64> {
        let own = staged.index / self.region_pages;
        let from = if staged.needs_map { own.min(self.regions) } else { own + 1 };
        from..=own
    }

    /// Regions whose maps differ from what is on the device, the free pages of changes up to
    /// `flushed_lsn` being free.
    pub(super) fn changed_regions(&self, flushed_lsn: u64) -> Vec<u64> {
        let mut image = vec![0; self.region_pages as usize];
        let mut changed = Vec::new();
        for region in (0..self.regions).filter(|region| !self.damaged.contains(region)) {
            self.compose(region, &[], flushed_lsn, &mut image);
            let pages = self.region(region).iter();
            if pages.zip(&image).any(|(page, &byte)| page.durable != byte) {
                changed.push(region);
            }
        }
        changed
    }

    fn region(&self, region: u64) -> &[Page] {
        let first = ((region * self.region_pages) as usize).min(self.pages.len());
        let end = (first + self.region_pages as usize).min(self.pages.len());
        &self.pages[first..end]
    }

    /// The map of a region as it is when the staged pages are written.
    pub(super) fn compose(
        &self,
        region: u64,
        staged: &[Staged],
        flushed_lsn: u64,
        into: &mut [u8],
    ) {
        into.fill(0);
        for (page, byte) in self.region(region).iter().zip(into.iter_mut()) {
            *byte = match page.state {
                State::Written => WRITTEN | page.stamp,
                State::Freed => (page.durable & WRITTEN) | page.stamp,
                State::Free | State::Reserved | State::Unknown => page.stamp,
            };
        }
        let first = region * self.region_pages;
        let within = |index: u64| index.checked_sub(first).filter(|at| *at < self.region_pages);
        for (index, lsn) in &self.freed {
            if let Some(at) = within(*index)
                && *lsn <= flushed_lsn
            {
                into[at as usize] &= !WRITTEN;
            }
        }
        for page in staged {
            if let Some(at) = within(page.index) {
                into[at as usize] = WRITTEN | page.stamp;
            }
        }
    }

    /// A batch is durable: these pages, and the maps of these regions.
    pub(super) fn commit<'a>(
        &mut self,
        staged: &[Staged],
        maps: impl Iterator<Item = (u64, &'a [u8])>,
        flushed_lsn: u64,
    ) {
        for Staged { index, stamp, .. } in staged {
            let page = &mut self.pages[*index as usize];
            (page.stamp, page.exact) = (*stamp, true);
            if page.state == State::Reserved {
                page.state = State::Written;
            }
        }
        for (region, bytes) in maps {
            self.regions = self.regions.max(region + 1);
            let first = (region * self.region_pages) as usize;
            let pages = self.pages.get_mut(first..).unwrap_or_default();
            pages.iter_mut().zip(bytes).for_each(|(page, byte)| page.durable = *byte);
        }
        // What a power cut leaves of these is free from here on.
        let mut freed = core::mem::take(&mut self.freed);
        freed.retain(|&(index, lsn)| {
            let page = self.pages[index as usize];
            let waits = lsn > flushed_lsn || page.durable & WRITTEN != 0;
            if !waits && page.state == State::Freed {
                self.make_free(index);
            }
            waits
        });
        self.freed = freed;
    }

    /// The regions whose maps have to be written to make freed pages free, the log holding all changes up
    /// to `flushed_lsn`. Pages that were never written need none.
    pub(super) fn freed_regions(&self, flushed_lsn: u64) -> BTreeSet<u64> {
        let is_written = |index: u64| self.pages[index as usize].durable & WRITTEN != 0;
        let freed = self.freed.iter().filter(|(_, lsn)| *lsn <= flushed_lsn);
        let written = freed.filter(|(index, _)| is_written(*index));
        written.map(|(index, _)| index / self.region_pages).collect()
    }

    /// The first change that freed a page which the map on the device still has.
    pub(super) fn oldest_freed(&self) -> Option<u64> {
        let is_written = |index: u64| self.pages[index as usize].durable & WRITTEN != 0;
        let freed = self.freed.iter().filter(|(index, _)| is_written(*index));
        freed.map(|(_, lsn)| *lsn).min()
    }

    /// The pages at the end that are free, not promised (S2), and have storage: it is about to be given back.
    pub(super) fn cut_end(&mut self) -> core::ops::Range<u64> {
        let end = self.end().max(self.in_use + self.promised + self.reserved);
        let stored_end = self.stored_end.max(self.backed).max(end);
        (self.stored_end, self.backed) = (end, self.backed.min(end));
        end..stored_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> SpaceMap {
        let mut map = SpaceMap::new(Geometry::new(4096, 8).unwrap());
        map.add_region(Some(&vec![0; 4064]));
        map
    }

    fn write(map: &mut SpaceMap, index: u64, flushed_lsn: u64) -> Staged {
        let staged = map.stage(index).unwrap();
        let mut image = vec![0; 4064];
        map.compose(0, &[staged], flushed_lsn, &mut image);
        map.commit(&[staged], [(0, &image[..])].into_iter(), flushed_lsn);
        staged
    }

    #[test]
    fn a_freed_page_is_given_out_again_when_a_batch_has_made_that_durable() {
        let mut map = map();
        assert_eq!((map.reserve(), map.reserve()), (0, 1));
        write(&mut map, 0, 0);
        write(&mut map, 1, 0);
        assert!(map.free(0, 5, false));
        assert!(!map.free(0, 6, false), "it is freed once");
        assert_eq!(map.reserve(), 2);
        write(&mut map, 1, 4);
        assert_eq!(map.reserve(), 3, "the log does not hold change 5 yet");
        write(&mut map, 1, 5);
        assert_eq!(map.reserve(), 0);
    }

    #[test]
    fn a_page_that_was_never_written_waits_for_the_log_alone() {
        let mut map = map();
        assert_eq!(map.reserve(), 0);
        map.free(0, 5, false);
        map.commit(&[], std::iter::empty(), 4);
        assert_eq!(map.reserve(), 1);
        map.commit(&[], std::iter::empty(), 5);
        assert_eq!(map.reserve(), 0);
    }

    #[test]
    fn a_page_freed_while_it_is_written_waits_for_the_next_batch() {
        let mut map = map();
        let index = map.reserve();
        let staged = map.stage(index).unwrap();
        let mut image = vec![0; 4064];
        map.compose(0, &[staged], 9, &mut image);
        map.free(index, 3, false);
        map.commit(&[staged], [(0, &image[..])].into_iter(), 9);
        assert_eq!(map.reserve(), 1);
        map.compose(0, &[], 9, &mut image);
        map.commit(&[], [(0, &image[..])].into_iter(), 9);
        assert_eq!(map.reserve(), 0);
    }

    #[test]
    fn an_earlier_version_is_told_from_the_last_and_after_a_restart_from_those_that_may_be() {
        let mut map = map();
        let index = map.reserve();
        let first = write(&mut map, index, 0).stamp;
        let second = write(&mut map, index, 0).stamp;
        let lost = PageDamage::Lost { expected: second, found: first };
        assert_eq!(map.check_stamp(index, first), Err(lost));
        assert_eq!(map.check_stamp(index, second), Ok(()));
        // The map on the device says `second`, and the page was written up to 31 times since.
        let mut image = vec![0; 4064];
        map.compose(0, &[], 0, &mut image);
        for behind in 0..=31 {
            let mut reopened = SpaceMap::new(Geometry::new(4096, 8).unwrap());
            reopened.add_region(Some(&image));
            assert_eq!(reopened.check_stamp(index, first), Err(lost));
            assert_eq!(reopened.check_stamp(index, (second + behind) % 64), Ok(()));
        }
    }

    #[test]
    fn a_durable_stamp_is_never_more_than_31_behind() {
        let mut map = map();
        let index = map.reserve();
        write(&mut map, index, 0);
        let mut with_map = 0;
        for _ in 0..310 {
            let staged = map.stage(index).unwrap();
            if staged.needs_map {
                with_map += 1;
                write(&mut map, index, 0);
            } else {
                map.commit(&[staged], std::iter::empty(), 0);
            }
            let page = map.pages[0];
            assert!(page.stamp.wrapping_sub(page.durable) % 64 < 31);
        }
        assert_eq!(with_map, 10);
    }

    #[test]
    fn a_place_that_is_used_again_after_a_restart_gets_a_stamp_that_it_cannot_have_had() {
        let mut map = map();
        let index = map.reserve();
        write(&mut map, index, 0);
        map.free(index, 0, false);
        let mut image = vec![0; 4064];
        map.compose(0, &[], 0, &mut image);
        let durable = image[0] % 64;
        let mut reopened = SpaceMap::new(Geometry::new(4096, 8).unwrap());
        reopened.add_region(Some(&image));
        assert_eq!(reopened.reserve(), index);
        let stamp = reopened.stage(index).unwrap().stamp;
        assert_eq!(stamp.wrapping_sub(durable) % 64, 32);
    }

    #[test]
    fn a_page_is_given_out_again_as_far_as_device_and_log_go() {
        let mut map = map();
        let end = 4064 + MOST_UNKNOWN;
        assert!(map.may_be_given_out(end - 1) && !map.may_be_given_out(end));
        map.reserve_again(9);
        assert!(map.may_be_given_out(end) && !map.may_be_given_out(end + 1));
        map.note_storage(100_000);
        assert!(!map.may_be_given_out(100_000 + MOST_UNKNOWN));
        assert!(map.may_be_given_out(100_000 + MOST_UNKNOWN - 1));
    }

    #[test]
    fn a_region_without_a_map_has_its_pages_read_and_gives_none_out() {
        let mut map = map();
        map.add_region(None);
        (0..4064).for_each(|index| assert_eq!(map.reserve(), index));
        assert_eq!(map.reserve(), 2 * 4064);
        assert!(map.is_on_device(4064));
        assert_eq!(map.check_stamp(4064, 50), Ok(()));
        assert!(!map.stage(4064).unwrap().needs_map);
        assert_eq!(map.damaged_regions().collect::<Vec<_>>(), [1]);
    }
}
