//! What an SSD holds: durable blocks, and the versions of each that were written since the last flush. A version is of
//! whole sectors: all of the block, unless its write failed.
//!
//! Invariants:
//!
//! * V1. The versions of a block are in the order in which they completed, those in flight last.
//! * V2. Reads see the last completed version of a sector, or the durable contents where there is none.
//! * V3. A flush with watermark `w` makes durable the last version of a sector that completed by event `w` and
//!   forgets those before it: they can no longer be what a power cut leaves.
//! * V4. While a flush is in flight, the newest version of a sector that it covers is kept, however many are written
//!   after it: it is what the flush makes durable.
//!
//! The memory of a block is shared by all that have it so: a version that becomes durable is not copied.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use lapis_pmem::{BLOCK_BYTES, SECTOR_BYTES};

/// The contents of a sector.
pub(crate) type Sector = [u8; SECTOR_BYTES];
type Block = [u8; BLOCK_BYTES];

/// Sectors in a block.
pub(super) const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
/// All of them, a bit each.
const ALL_SECTORS: u8 = u8::MAX;
/// Versions of one block that are kept. Beyond, old ones are forgotten (but see V2 and V4), and the crash states are
/// not all of them any more.
const MOST_VERSIONS: usize = 256;

static ZEROES: LazyLock<Arc<Block>> = LazyLock::new(|| Arc::new([0; BLOCK_BYTES]));

/// Identifies a write request; in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(pub(super) u32);

/// What a write leaves of a block.
#[derive(Clone, Debug)]
struct Version {
    write: WriteId,
    /// When it completed; `None` in flight.
    completed: Option<u64>,
    /// Those that it has, a bit each.
    sectors: u8,
    bytes: Arc<Block>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// Blocks that are not all zero, or were written once.
    durable: HashMap<u64, Arc<Block>>,
    /// The versions of each block.
    pending: BTreeMap<u64, Vec<Version>>,
    /// The durable contents to go back to, of each block that changed. `None`: not tracked.
    before: Option<HashMap<u64, Option<Arc<Block>>>>,
    events: u64,
    /// The blocks of each write that was not answered.
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
            let versions = self.pending.get(&block).map_or(&[][..], |versions| &versions[..]);
            let completed = &versions[..completed_by(versions, u64::MAX)];
            match self.durable.get(&block) {
                _ if completed.last().is_some_and(|newest| newest.sectors == ALL_SECTORS) => {}
                Some(contents) => into.copy_from_slice(&contents[..]),
                None => into.fill(0),
            }
            // V2
            for (version, sectors) in newest_of_each_sector(completed) {
                copy_sectors(sectors, &version.bytes, into);
            }
        }
    }

    /// Puts a write of so many blocks in flight: from now on a power cut may leave any of its sectors. `None` are zeroes.
    pub(super) fn begin_write(
        &mut self,
        write: WriteId,
        first_block: u64,
        blocks: u64,
        from: Option<&[u8]>,
    ) {
        self.in_flight.insert(write, first_block..first_block + blocks);
        let (from, _) = from.unwrap_or_default().as_chunks();
        for (at, block) in (first_block..first_block + blocks).enumerate() {
            let bytes = from.get(at).map_or_else(|| ZEROES.clone(), |bytes| Arc::new(*bytes));
            let versions = self.pending.entry(block).or_default();
            versions.push(Version { write, completed: None, sectors: ALL_SECTORS, bytes });
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
        let Range { start, end } = self.in_flight.get(&write).cloned().unwrap_or_default();
        start * BLOCK_SECTORS..end * BLOCK_SECTORS
    }

    /// Completes the sectors of a write for which `landed` says so, and forgets the others: those
    /// of a failed write that stay old.
    pub(super) fn end_write(&mut self, write: WriteId, mut landed: impl FnMut(u64) -> bool) {
        self.events += 1;
        for block in self.in_flight.remove(&write).unwrap_or_default() {
            let versions = self.pending.get_mut(&block).expect("a write in flight is pending");
            let at = versions.iter().position(|version| version.write == write);
            let mut version = versions.remove(at.expect("a write in flight is pending"));
            version.sectors = (0..BLOCK_SECTORS)
                .filter(|sector| landed(block * BLOCK_SECTORS + sector))
                .fold(0, |sectors, sector| sectors | 1 << sector);
            if version.sectors != 0 {
                version.completed = Some(self.events);
                // V1
                versions.insert(completed_by(versions, u64::MAX), version);
            } else if versions.is_empty() {
                self.pending.remove(&block);
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
        self.pending.values().any(|versions| completed_by(versions, watermark) > 0)
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
        pending.retain(|&block, versions| {
            let covered = completed_by(versions, watermark);
            for (version, sectors) in newest_of_each_sector(&versions[..covered]) {
                if sectors == ALL_SECTORS {
                    self.keep_before(block);
                    self.durable.insert(block, version.bytes.clone());
                } else {
                    copy_sectors(sectors, &version.bytes, self.durable_block(block));
                }
            }
            versions.drain(..covered);
            !versions.is_empty()
        });
        self.pending = pending;
    }

    /// Has the durable contents of a block to go back to, before they change.
    fn keep_before(&mut self, block: u64) {
        if let Some(before) = &mut self.before {
            before.entry(block).or_insert_with(|| self.durable.get(&block).cloned());
        }
    }

    fn durable_block(&mut self, block: u64) -> &mut Block {
        self.keep_before(block);
        Arc::make_mut(self.durable.entry(block).or_insert_with(|| ZEROES.clone()))
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
        for version in self.pending.get_mut(&block).into_iter().flatten() {
            Arc::make_mut(&mut version.bytes)[byte] ^= mask;
        }
    }

    /// The sectors with versions, in order: each version's write, and what it leaves.
    pub(crate) fn pending(
        &self,
    ) -> impl Iterator<Item = (u64, impl Iterator<Item = (WriteId, &Sector)>)> {
        self.pending.iter().flat_map(|(block, versions)| {
            (0..BLOCK_SECTORS).map(move |sector| {
                let of_sector = versions.iter().filter(move |it| it.sectors & 1 << sector != 0);
                let contents = of_sector.map(move |version| {
                    let (sectors, _) = version.bytes.as_chunks();
                    (version.write, &sectors[sector as usize])
                });
                (block * BLOCK_SECTORS + sector, contents)
            })
        })
    }

    /// Whether a version was forgotten that a power cut might have left.
    pub(crate) fn forgot_versions(&self) -> bool {
        self.forgot
    }
}

/// How many versions of a block a flush with this watermark covers: the first ones (V1).
fn completed_by(versions: &[Version], watermark: u64) -> usize {
    versions.partition_point(|version| version.completed.is_some_and(|at| at <= watermark))
}

/// Of some versions, those that have a sector last, with these sectors; newest first.
fn newest_of_each_sector(versions: &[Version]) -> impl Iterator<Item = (&Version, u8)> {
    let mut each = versions.iter().rev();
    let mut found = 0;
    std::iter::from_fn(move || {
        while found != ALL_SECTORS {
            let version = each.next()?;
            let new = version.sectors & !found;
            found |= new;
            if new != 0 {
                return Some((version, new));
            }
        }
        None
    })
}

fn copy_sectors(sectors: u8, from: &Block, into: &mut [u8]) {
    for sector in (0..BLOCK_SECTORS as usize).filter(|sector| sectors & 1 << sector != 0) {
        let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        into[bytes.clone()].copy_from_slice(&from[bytes]);
    }
}

/// The oldest completed version that no read (V2) and no flush in flight (V4) will want.
fn oldest_to_forget(versions: &[Version], flushes: &[u64]) -> Option<usize> {
    let is_wanted = |at: usize, watermark| {
        let covered = completed_by(versions, watermark);
        let newer = versions[..covered].iter().skip(at + 1).fold(0, |all, it| all | it.sectors);
        at < covered && versions[at].sectors & !newer != 0
    };
    let watermarks = || flushes.iter().copied().chain([u64::MAX]);
    let completed = 0..completed_by(versions, u64::MAX);
    completed.into_iter().find(|&at| !watermarks().any(|watermark| is_wanted(at, watermark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(contents: &mut Contents, number: u32) {
        let byte = number.to_le_bytes()[0];
        contents.begin_write(WriteId(number), 0, 1, Some(&[byte; BLOCK_BYTES]));
        contents.end_write(WriteId(number), |_| true);
    }

    /// What the oldest version of the first sector has.
    fn oldest(contents: &Contents) -> u8 {
        contents.pending().next().unwrap().1.next().unwrap().1[0]
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
        let versions = |contents: &Contents| contents.pending().next().unwrap().1.count();
        assert_eq!(versions(&contents), MOST_VERSIONS);
        contents.end_flush(first);
        assert_eq!(contents.durable_sector(0), [3; SECTOR_BYTES]);
        contents.end_flush(second);
        assert_eq!(contents.durable_sector(0), [5; SECTOR_BYTES]);
        // Nobody waits for anything now.
        (401..=800).for_each(|number| write(&mut contents, number));
        assert_eq!(oldest(&contents), 33); // 545
    }

    #[test]
    fn a_flush_that_fails_keeps_nothing() {
        let mut contents = Contents::default();
        write(&mut contents, 1);
        let flush = contents.begin_flush();
        contents.fail_flush(flush);
        (2..=300).for_each(|number| write(&mut contents, number));
        assert_eq!(oldest(&contents), 45);
        assert_eq!(contents.durable_sector(0), [0; SECTOR_BYTES]);
    }

    #[test]
    fn writes_that_fail_leave_what_each_sector_had_however_many_there_are() {
        let mut contents = Contents::default();
        write(&mut contents, 1);
        for number in 2..=400 {
            let byte = number as u8;
            contents.begin_write(WriteId(number), 0, 1, Some(&[byte; BLOCK_BYTES]));
            contents.end_write(WriteId(number), |sector| sector % 2 == 1);
        }
        let mut block = [0; BLOCK_BYTES];
        let newest = [[1; SECTOR_BYTES], [144; SECTOR_BYTES]].concat().repeat(4); // 400
        contents.read(0, &mut block);
        assert!(block[..] == newest[..]);
        contents.settle();
        contents.read(0, &mut block);
        assert!(block[..] == newest[..] && contents.pending().next().is_none());
    }

    #[test]
    fn a_write_of_which_nothing_lands_leaves_no_version() {
        let mut contents = Contents::default();
        contents.begin_write(WriteId(0), 3, 2, None);
        assert_eq!(contents.pending().count() as u64, 2 * BLOCK_SECTORS);
        contents.end_write(WriteId(0), |_| false);
        assert_eq!(contents.pending().count(), 0);
    }
}
