//! What an SSD holds: durable sectors, and the versions of each that were written since the last
//! flush.
//!
//! Invariants:
//!
//! * V1. The versions of a sector are in the order in which they completed, those in flight last.
//! * V2. Reads see the last completed version, or the durable contents where there is none.
//! * V3. A flush with watermark `w` makes durable the last version that completed by event `w` and
//!   forgets those before it: they can no longer be what a power cut leaves.
//! * V4. While a flush is in flight, the newest version of a sector that it covers is kept, however many are written
//!   after it: it is what the flush makes durable.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use lapis_pmem::{BLOCK_BYTES, SECTOR_BYTES};

/// The contents of a sector.
pub(crate) type Sector = [u8; SECTOR_BYTES];
type Block = [u8; BLOCK_BYTES];

/// Sectors in a block.
pub(super) const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
/// Versions of one sector that are kept. Beyond, old ones are forgotten (but see V4), and the crash states are
/// not all of them any more.
const MOST_VERSIONS: usize = 256;

/// Identifies a write request; in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(pub(super) u32);

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) write: WriteId,
    /// When it completed; `None` in flight.
    completed: Option<u64>,
    pub(crate) bytes: Box<Sector>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// Blocks that are not all zero, or were written once.
    durable: HashMap<u64, Arc<Block>>,
    pending: BTreeMap<u64, Vec<Version>>,
    /// The durable contents to go back to, of each block that changed. `None`: not tracked.
    before: Option<HashMap<u64, Option<Arc<Block>>>>,
    events: u64,
    /// The sectors of each write that was not answered.
    in_flight: BTreeMap<WriteId, Range<u64>>,
    /// The watermark of each flush that was not answered.
    flushes: Vec<u64>,
    forgot: bool,
}

impl Contents {
    /// The same durable contents, and nothing pending.
    pub(super) fn durable_copy(&self) -> Self {
        Self { durable: self.durable.clone(), ..Self::default() }
    }

    /// The same, tracked from here on.
    pub(super) fn tracked_copy(&self) -> Self {
        Self { before: Some(HashMap::new()), ..self.durable_copy() }
    }

    /// Undoes every change of a tracked copy. Costs as much as the blocks that changed.
    pub(super) fn revert(&mut self) {
        self.pending.clear();
        self.in_flight.clear();
        self.flushes.clear();
        self.forgot = false;
        let Some(before) = &mut self.before else { return };
        for (block, contents) in before.drain() {
            match contents {
                Some(contents) => self.durable.insert(block, contents),
                None => self.durable.remove(&block),
            };
        }
    }

    pub(super) fn read(&self, first_block: u64, into: &mut [u8]) {
        for (block, into) in (first_block..).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            match self.durable.get(&block) {
                Some(contents) => into.copy_from_slice(&contents[..]),
                None => into.fill(0),
            }
            let sectors = block * BLOCK_SECTORS..(block + 1) * BLOCK_SECTORS;
            for (sector, versions) in self.pending.range(sectors) {
                // V2
                let visible = versions.iter().rev().find(|version| version.completed.is_some());
                if let Some(visible) = visible {
                    let at = (sector % BLOCK_SECTORS) as usize * SECTOR_BYTES;
                    into[at..at + SECTOR_BYTES].copy_from_slice(&visible.bytes[..]);
                }
            }
        }
    }

    /// Puts a write in flight: from now on a power cut may leave any of its sectors.
    pub(super) fn begin_write(&mut self, write: WriteId, first_block: u64, from: &[u8]) {
        let first_sector = first_block * BLOCK_SECTORS;
        let sectors = first_sector..first_sector + (from.len() / SECTOR_BYTES) as u64;
        self.in_flight.insert(write, sectors.clone());
        for (sector, bytes) in sectors.zip(from.chunks_exact(SECTOR_BYTES)) {
            let mut copy = Box::new([0; SECTOR_BYTES]);
            copy.copy_from_slice(bytes);
            let versions = self.pending.entry(sector).or_default();
            versions.push(Version { write, completed: None, bytes: copy });
            if versions.len() > MOST_VERSIONS
                && let Some(old) = oldest_to_forget(versions, &self.flushes)
            {
                versions.remove(old);
                self.forgot = true;
            }
        }
    }

    /// The sectors of a write that was not answered.
    pub(super) fn in_flight(&self, write: WriteId) -> Range<u64> {
        self.in_flight.get(&write).cloned().unwrap_or_default()
    }

    /// Completes the sectors of a write for which `landed` says so, and forgets the others: those
    /// of a failed write that stay old.
    pub(super) fn end_write(&mut self, write: WriteId, mut landed: impl FnMut(u64) -> bool) {
        self.events += 1;
        for sector in self.in_flight.remove(&write).unwrap_or_default() {
            let versions = self.pending.get_mut(&sector).expect("a write in flight is pending");
            let at = versions.iter().position(|version| version.write == write);
            let mut version = versions.remove(at.expect("a write in flight is pending"));
            if landed(sector) {
                version.completed = Some(self.events);
                // V1
                let completed = versions.iter().filter(|other| other.completed.is_some()).count();
                versions.insert(completed, version);
            } else if versions.is_empty() {
                self.pending.remove(&sector);
            }
        }
    }

    /// Puts a flush in flight; what it covers.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.flushes.push(self.events);
        self.events
    }

    /// Makes durable what was completed.
    pub(super) fn settle(&mut self) {
        self.make_durable(self.events);
    }

    /// Whether such a flush would make anything durable.
    pub(super) fn is_pending_before(&self, watermark: u64) -> bool {
        let mut versions = self.pending.values().flatten();
        versions.any(|version| version.completed.is_some_and(|at| at <= watermark))
    }

    /// Completes a flush (V3).
    pub(super) fn end_flush(&mut self, watermark: u64) {
        self.make_durable(watermark);
        self.fail_flush(watermark);
    }

    /// Completes a flush that makes nothing durable.
    pub(super) fn fail_flush(&mut self, watermark: u64) {
        if let Some(at) = self.flushes.iter().position(|flush| *flush == watermark) {
            self.flushes.swap_remove(at);
        }
    }

    fn make_durable(&mut self, watermark: u64) {
        let mut pending = core::mem::take(&mut self.pending);
        pending.retain(|&sector, versions| {
            if let Some(last) = newest_covered(versions, watermark) {
                self.set_durable(sector, &versions[last].bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
        self.pending = pending;
    }

    fn durable_block(&mut self, block: u64) -> &mut Block {
        if let Some(before) = &mut self.before {
            before.entry(block).or_insert_with(|| self.durable.get(&block).cloned());
        }
        let contents = self.durable.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(contents)
    }

    /// Makes a sector durable as it stands.
    pub(super) fn set_durable(&mut self, sector: u64, bytes: &Sector) {
        let at = (sector % BLOCK_SECTORS) as usize * SECTOR_BYTES;
        let block = self.durable_block(sector / BLOCK_SECTORS);
        block[at..at + SECTOR_BYTES].copy_from_slice(bytes);
    }

    pub(crate) fn durable_sector(&self, sector: u64) -> Sector {
        let at = (sector % BLOCK_SECTORS) as usize * SECTOR_BYTES;
        let mut bytes = [0; SECTOR_BYTES];
        if let Some(block) = self.durable.get(&(sector / BLOCK_SECTORS)) {
            bytes.copy_from_slice(&block[at..at + SECTOR_BYTES]);
        }
        bytes
    }

    /// Flips one bit of a block wherever it is held.
    pub(super) fn flip_bit(&mut self, block: u64, bit: usize) {
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        self.durable_block(block)[byte] ^= mask;
        let sector = block * BLOCK_SECTORS + (byte / SECTOR_BYTES) as u64;
        for version in self.pending.get_mut(&sector).into_iter().flatten() {
            version.bytes[byte % SECTOR_BYTES] ^= mask;
        }
    }

    /// The sectors with versions, in order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (u64, &[Version])> {
        self.pending.iter().map(|(&sector, versions)| (sector, &versions[..]))
    }

    /// Whether a version was forgotten that a power cut might have left.
    pub(crate) fn forgot_versions(&self) -> bool {
        self.forgot
    }
}

/// The newest version that a flush with this watermark covers.
fn newest_covered(versions: &[Version], watermark: u64) -> Option<usize> {
    versions.iter().rposition(|version| version.completed.is_some_and(|at| at <= watermark))
}

/// The oldest completed version that no flush in flight makes durable (V4).
fn oldest_to_forget(versions: &[Version], flushes: &[u64]) -> Option<usize> {
    let is_awaited = |at| flushes.iter().any(|&flush| newest_covered(versions, flush) == Some(at));
    (0..versions.len()).find(|&at| versions[at].completed.is_some() && !is_awaited(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(contents: &mut Contents, number: u32) {
        let byte = number.to_le_bytes()[0];
        contents.begin_write(WriteId(number), 0, &[byte; BLOCK_BYTES]);
        contents.end_write(WriteId(number), |_| true);
    }

    #[test]
    fn what_a_flush_in_flight_covers_is_not_forgotten_however_much_is_written_before_its_answer() {
        let mut contents = Contents::default();
        (1..=3).for_each(|number| write(&mut contents, number));
        let first = contents.begin_flush();
        (4..=5).for_each(|number| write(&mut contents, number));
        let second = contents.begin_flush();
        (6..=400).for_each(|number| write(&mut contents, number));
        assert!(contents.forgot_versions());
        let versions = |contents: &Contents| contents.pending().next().unwrap().1.len();
        assert_eq!(versions(&contents), MOST_VERSIONS);
        contents.end_flush(first);
        assert_eq!(contents.durable_sector(0), [3; SECTOR_BYTES]);
        contents.end_flush(second);
        assert_eq!(contents.durable_sector(0), [5; SECTOR_BYTES]);
        // Nobody waits for anything now.
        (401..=800).for_each(|number| write(&mut contents, number));
        assert_eq!(contents.pending().next().unwrap().1[0].bytes[0], 33); // 545
    }

    #[test]
    fn a_flush_that_fails_keeps_nothing() {
        let mut contents = Contents::default();
        write(&mut contents, 1);
        let flush = contents.begin_flush();
        contents.fail_flush(flush);
        (2..=300).for_each(|number| write(&mut contents, number));
        assert_eq!(contents.pending().next().unwrap().1[0].bytes[0], 45);
        assert_eq!(contents.durable_sector(0), [0; SECTOR_BYTES]);
    }
}
