//! What an SSD holds: durable sectors, and the versions of each that were written since the last
//! flush.
//!
//! Invariants:
//!
//! * V1. The versions of a sector are in the order in which they completed, those in flight last.
//! * V2. Reads see the last completed version, or the durable contents where there is none.
//! * V3. A flush with watermark `w` makes durable the last version that completed by event `w` and
//!   forgets those before it: they can no longer be what a power cut leaves.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use lapis_pmem::{BLOCK_BYTES, SECTOR_BYTES};

/// The contents of a sector.
pub(crate) type Sector = [u8; SECTOR_BYTES];
type Block = [u8; BLOCK_BYTES];

/// Sectors in a block.
pub(super) const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
/// Versions of one sector that are kept. Beyond, old ones are forgotten, and the crash states are
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
                && let Some(old) = versions.iter().position(|version| version.completed.is_some())
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

    /// What a flush that is submitted now covers.
    pub(super) fn watermark(&self) -> u64 {
        self.events
    }

    /// Whether such a flush would make anything durable.
    pub(super) fn is_pending_before(&self, watermark: u64) -> bool {
        let mut versions = self.pending.values().flatten();
        versions.any(|version| version.completed.is_some_and(|at| at <= watermark))
    }

    /// Completes a flush (V3).
    pub(super) fn end_flush(&mut self, watermark: u64) {
        let mut pending = core::mem::take(&mut self.pending);
        pending.retain(|&sector, versions| {
            let covered = |version: &Version| version.completed.is_some_and(|at| at <= watermark);
            if let Some(last) = versions.iter().rposition(covered) {
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
