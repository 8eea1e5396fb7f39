//! Statistics, the check of the invariants, and the blocks.

use lapis_pmem::{BlockVisitor, Domain};

use super::layout::{Owner, Target, page_checksum};
use super::{Lane, PageDamage, PageStore, PageStoreRoot, Place};

/// What a store holds, and what was done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStatistics {
    /// Pages that exist.
    pub pages: usize,
    /// Pages there is room for.
    pub capacity_pages: usize,
    /// Slots that name no page.
    pub free_slots: usize,
    /// Slots that lanes keep for their next copy.
    pub spare_slots: usize,
    /// Pages written to another slot.
    pub copies: u64,
    /// Pages written through a µlog.
    pub logs: u64,
    /// Lines written by both, headers included.
    pub lines_written: u64,
    /// µlogs that were valid and applied when the store was opened.
    pub redone_logs: usize,
    /// Slots that were found torn then: with the checksum scheme, which alone can and must tell.
    pub torn_slots: usize,
    /// Bytes of the pool that the store takes.
    pub bytes: usize,
}

impl<D: Domain> PageStore<D> {
    /// What the store holds, and what was done since it was opened.
    pub fn statistics(&self) -> PageStatistics {
        let mut statistics = PageStatistics {
            capacity_pages: self.geometry.capacity_pages as usize,
            redone_logs: self.recovered.redone_logs,
            torn_slots: self.recovered.torn_slots,
            bytes: self.geometry.block_bytes(),
            ..PageStatistics::default()
        };
        for lane in &self.lanes {
            let lane = lane.0.read();
            statistics.pages += lane.pages.iter().filter(|place| place.get().is_some()).count();
            statistics.spare_slots += usize::from(lane.spare.is_some());
            statistics.copies += lane.copies;
            statistics.logs += lane.logs;
            statistics.lines_written += lane.lines_written;
        }
        statistics.free_slots = self.free.lock().len();
        statistics
    }

    /// What is wrong with the invariants; nothing if all is well. Nobody may write meanwhile.
    pub fn check(&self) -> Vec<PageDamage> {
        let mut found = Vec::new();
        let mut uses = vec![0u32; self.geometry.slots() as usize];
        for (number, lane) in self.lanes.iter().enumerate() {
            let lane = lane.0.read();
            self.check_lane(number as u32, &lane, &mut uses, &mut found);
        }
        let free = self.free.lock();
        for &slot in free.iter() {
            uses[slot as usize] += 1;
            if self.named_page(slot).is_some() {
                found.push(self.damaged_slot(slot, "I3: a free slot names a page"));
            }
        }
        for (slot, &uses) in uses.iter().enumerate() {
            if uses != 1 {
                let what = "I3: a slot that is not exactly one of current, spare and free";
                found.push(self.damaged_slot(slot as u32, what));
            }
        }
        found
    }

    fn check_lane(&self, number: u32, lane: &Lane, uses: &mut [u32], found: &mut Vec<PageDamage>) {
        let domain = self.pool.domain();
        for (index, place) in lane.pages.iter().enumerate() {
            let Some(place) = place.get() else { continue };
            let id = index as u32 * self.geometry.lanes + number;
            uses[place.slot as usize] += 1;
            let header = self.header(place.slot);
            let version = header.version.load(domain);
            if self.named_page(place.slot) != Some(id) || version != place.version {
                found.push(self.damaged_slot(place.slot, "I1: a slot that is not of its page"));
            }
            if self.geometry.scheme.has_checksums {
                let checksum = page_checksum(id, version, self.contents(place.slot));
                if Owner(header.page.load(domain)).checksum() != checksum {
                    found.push(self.damaged_slot(place.slot, "I2: a page with a wrong checksum"));
                }
            }
        }
        if let Some(spare) = lane.spare {
            uses[spare.slot as usize] += 1;
            if self.named_page(spare.slot) != spare.names {
                found.push(self.damaged_slot(spare.slot, "I3: a spare slot of another page"));
            }
            let current = spare.names.and_then(|id| lane.pages[self.index(id)].get());
            let version = self.header(spare.slot).version.load(domain);
            if current.is_some_and(|current| current.version < version) {
                found
                    .push(self.damaged_slot(spare.slot, "I1: a spare slot is newer than the page"));
            }
            if spare.names.is_some() && current.is_none() {
                found.push(self.damaged_slot(spare.slot, "I3: a deleted page has a version left"));
            }
        }
        if self.geometry.scheme.has_micro_logs {
            let link = self.geometry.log(self.root, number);
            let target = Target(self.pool.at(link).target.load(domain)).get();
            let id = target.map(|(_, id)| id);
            if id != lane.logged || id.is_some_and(|id| lane.pages[self.index(id)] == Place::NONE) {
                let what = "I6: a µlog of another page, or of one that is gone";
                found.push(PageDamage { what, pool_offset: link.offset() });
            }
        }
    }

    /// Says which block the store takes.
    pub fn visit_blocks(&self, visitor: &mut BlockVisitor<'_, D>) {
        visitor.visit::<PageStoreRoot>(self.root, self.geometry.block_bytes());
    }

    fn named_page(&self, slot: u32) -> Option<u32> {
        Owner(self.header(slot).page.load(self.pool.domain())).id()
    }

    fn damaged_slot(&self, slot: u32, what: &'static str) -> PageDamage {
        PageDamage { what, pool_offset: self.geometry.header(self.root, slot).offset() }
    }
}
