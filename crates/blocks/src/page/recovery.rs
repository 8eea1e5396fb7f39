//! Finding every page again: scanning the slot headers, and applying the µlogs that are valid.

use lapis_pmem::{Domain, LINE_BYTES, Link, Pool};

use super::layout::{Geometry, Owner, PageStoreRoot, Target, page_checksum};
use super::micro_log::write_lines;
use super::{DirtyLines, Lane, PageDamage, Place, Recovered, Spare, mutants};

/// What a store holds.
pub(super) struct Scan {
    pub(super) lanes: Vec<Lane>,
    pub(super) free: Vec<u32>,
    pub(super) live_pages: usize,
    /// Checksum scheme: slots that name a page and are not whole.
    torn: Vec<u32>,
    geometry: Geometry,
    /// Logs to apply.
    redo: Vec<Redo>,
    /// Lanes whose log is valid and names a page that does not exist.
    left_over: Vec<u32>,
}

/// A µlog that is to be applied (I6).
struct Redo {
    lane: u32,
    slot: u32,
    lines: DirtyLines,
}

impl Scan {
    /// Reads headers and µlogs. Nothing is written.
    pub(super) fn new<D: Domain>(
        pool: &Pool<D>,
        root: Link<PageStoreRoot>,
        geometry: Geometry,
    ) -> Result<Self, PageDamage> {
        let lanes = (0..geometry.lanes).map(|lane| Lane {
            pages: vec![Place::NONE; geometry.page_ids.div_ceil(geometry.lanes) as usize],
            spare: None,
            logged: logged_page(pool, root, geometry, lane),
            copies: 0,
            logs: 0,
            lines_written: 0,
        });
        let mut scan = Self {
            lanes: lanes.collect(),
            free: Vec::new(),
            live_pages: 0,
            torn: Vec::new(),
            geometry,
            redo: Vec::new(),
            left_over: Vec::new(),
        };
        // The lowest are handed out first.
        for slot in (0..geometry.slots()).rev() {
            scan.add_slot(pool, root, slot)?;
        }
        if scan.live_pages > geometry.capacity_pages as usize {
            let what = "more pages than there is room for";
            return Err(PageDamage { what, pool_offset: root.offset() });
        }
        scan.read_logs(pool, root)?;
        Ok(scan)
    }

    fn add_slot<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        root: Link<PageStoreRoot>,
        slot: u32,
    ) -> Result<(), PageDamage> {
        let (geometry, domain) = (self.geometry, pool.domain());
        let link = geometry.header(root, slot);
        let damage = |what| PageDamage { what, pool_offset: link.offset() };
        let header = pool.at(link);
        let owner = Owner(header.page.load(domain));
        let Some(id) = owner.id() else {
            if owner != Owner(0) {
                return Err(damage("a slot that has a checksum and no page"));
            }
            self.free.push(slot);
            return Ok(());
        };
        let has_checksum = geometry.scheme.has_checksums;
        if id >= geometry.page_ids || (!has_checksum && owner.checksum() != 0) {
            return Err(damage("a slot that names an impossible page"));
        }
        let found = Place { slot, version: header.version.load(domain) };
        let lane = &mut self.lanes[geometry.lane_of(id) as usize];
        let place = &mut lane.pages[(id / geometry.lanes) as usize];
        let torn = has_checksum && {
            let contents = pool.tail(geometry.slot(root, slot), geometry.page_bytes);
            owner.checksum() != page_checksum(id, found.version, contents)
        };
        // I1. Slots come in falling order, so of equal versions the first stays.
        let outdated = if torn {
            self.torn.push(slot);
            Some(slot)
        } else if let Some(other) = place.get() {
            let newer = found.version > other.version;
            if newer {
                *place = found;
            }
            Some(if newer { other.slot } else { slot })
        } else {
            *place = found;
            self.live_pages += 1;
            None
        };
        if let Some(slot) = outdated {
            // A torn one will name none (I2).
            let spare = Spare { slot, names: (!torn).then_some(id) };
            if lane.spare.replace(spare).is_some() {
                return Err(damage("a lane with two slots that are not current"));
            }
        }
        Ok(())
    }

    fn read_logs<D: Domain>(
        &mut self,
        pool: &Pool<D>,
        root: Link<PageStoreRoot>,
    ) -> Result<(), PageDamage> {
        let (geometry, domain) = (self.geometry, pool.domain());
        if !geometry.scheme.has_micro_logs {
            return Ok(());
        }
        for lane in 0..geometry.lanes {
            let link = geometry.log(root, lane);
            let log = pool.at(link);
            let Some((slot, id)) = Target(log.target.load(domain)).get() else { continue };
            let lines = log.line_set(domain, geometry.lines());
            if slot >= geometry.slots()
                || id >= geometry.page_ids
                || geometry.lane_of(id) != lane
                || lines.is_empty()
                || lines.last() >= Some(geometry.lines())
            {
                let what = "a valid µlog of an impossible page";
                return Err(PageDamage { what, pool_offset: link.offset() });
            }
            let place = self.lanes[lane as usize].pages[(id / geometry.lanes) as usize];
            let meant = Place { slot, version: log.version.load(domain) };
            // I6.
            if place == Place::NONE {
                if !domain.commits(mutants::LEFT_OVER_LOG_KEPT) {
                    self.lanes[lane as usize].logged = None;
                    self.left_over.push(lane);
                }
            } else if place == meant {
                self.redo.push(Redo { lane, slot, lines });
            } else if domain.commits(mutants::REDO_WHATEVER_THE_VERSION) {
                self.redo.push(Redo { lane, slot: place.slot, lines });
            }
        }
        Ok(())
    }

    /// Applies the µlogs that are to be applied, makes those of pages that are gone invalid, and clears the
    /// headers of torn slots. What is applied stays valid: doing so again does no harm. One fence if there was
    /// anything to do.
    pub(super) fn repair<D: Domain>(&self, pool: &Pool<D>, root: Link<PageStoreRoot>) -> Recovered {
        let (geometry, domain) = (self.geometry, pool.domain());
        for redo in &self.redo {
            domain.happens("a log is applied when the store is opened");
            let log = geometry.log(root, redo.lane);
            let mut rest = pool.tail(log, redo.lines.count() * LINE_BYTES);
            let slot = geometry.slot(root, redo.slot);
            write_lines(pool, slot, geometry.lines(), &redo.lines, |run| {
                let (source, behind) = rest.split_at(run.len());
                rest = behind;
                source
            });
        }
        for &lane in &self.left_over {
            domain.happens("the log of a page that is gone is cleared");
            // I6: before there may be a page of that name again, with the version and perhaps in the slot.
            let log = pool.at(geometry.log(root, lane));
            let _shared_fence = log.target.publish(domain, 0).flush();
        }
        for &slot in &self.torn {
            if domain.commits(mutants::TORN_SLOT_KEPT) {
                continue;
            }
            domain.happens("a torn page is given up");
            // I2: or the next page that is written here might bring what is missing.
            let header = pool.at(geometry.header(root, slot));
            let _shared_fence = header.page.publish(domain, 0).flush();
        }
        if !self.redo.is_empty() || !self.left_over.is_empty() || !self.torn.is_empty() {
            // I5 of the next µlog of each lane, I6 of the next page, I2 of the next copy.
            domain.fence();
        }
        Recovered { redone_logs: self.redo.len(), torn_slots: self.torn.len() }
    }
}

/// The page that the µlog of a lane names, if it is valid.
fn logged_page<D: Domain>(
    pool: &Pool<D>,
    root: Link<PageStoreRoot>,
    geometry: Geometry,
    lane: u32,
) -> Option<u32> {
    if !geometry.scheme.has_micro_logs {
        return None;
    }
    let log = pool.at(geometry.log(root, lane));
    Target(log.target.load(pool.domain())).get().map(|(_, id)| id)
}
