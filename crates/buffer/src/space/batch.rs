//! Batches: pages that are written together, all of them or none. The order is in the [header of the
//! space](super).

use std::collections::BTreeSet;

use lapis_pmem::host_lock::HostGuard;
use lapis_pmem::{BlockBuffer, BlockDevice, BlockError, BlockQueue, Completion, Domain, Request};
use parking_lot::MutexGuard;

use super::geometry::{DESCRIPTOR_BYTES, ENTRY_BYTES, Geometry, index_of};
use super::map::Staged;
use super::{Space, SpaceError};
use crate::mutants::UNFLUSHED_JOURNAL;
use crate::page::{self, PAGE_HEADER_BYTES, PageKind, PageNumber};

/// Most requests in flight.
const QUEUE_DEPTH: u32 = 64;

/// A page in a batch.
#[derive(Debug)]
struct Image {
    /// Where it belongs.
    block: u64,
    /// The space's page that it is; none if it is the map of a region.
    staged: Option<Staged>,
    region: u64,
    buffer: BlockBuffer,
}

/// What the one who has the turn to write keeps from batch to batch.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Box<dyn BlockQueue>,
    /// Of the next batch.
    sequence: u64,
    images: Vec<Image>,
    /// Regions whose maps are in the batch.
    regions: BTreeSet<u64>,
    staged: Vec<Staged>,
    descriptor: BlockBuffer,
    spare: Vec<BlockBuffer>,
    requests: Vec<Request>,
    completions: Vec<Completion>,
}

impl Writer {
    pub(super) fn new(
        device: &dyn BlockDevice,
        geometry: Geometry,
        sequence: u64,
    ) -> Result<Self, BlockError> {
        Ok(Self {
            queue: device.queue(QUEUE_DEPTH)?,
            sequence,
            images: Vec::new(),
            regions: BTreeSet::new(),
            staged: Vec::new(),
            descriptor: page_buffer(geometry),
            spare: Vec::new(),
            requests: Vec::new(),
            completions: Vec::new(),
        })
    }

    fn buffer(&mut self, geometry: Geometry) -> BlockBuffer {
        self.spare.pop().unwrap_or_else(|| page_buffer(geometry))
    }

    /// Forgets a batch, and keeps the buffers that came back.
    fn clear(&mut self) {
        let buffers = self.images.drain(..).map(|image| image.buffer);
        self.spare.extend(buffers.filter(|buffer| buffer.blocks() > 0));
        self.regions.clear();
        self.staged.clear();
    }

    /// Puts the write of a page in line; `at` is its place among the images.
    fn put_in_line(&mut self, at: usize, first_block: u64) {
        let buffer = std::mem::replace(&mut self.images[at].buffer, BlockBuffer::zeroed(0));
        self.requests.push(Request::Write { tag: at as u64, first_block, buffer });
    }

    /// Makes all requests in line, and waits for their answers. Of those that failed, one.
    ///
    /// # Errors
    /// What the queue failed with: nothing is known of requests that may still be in flight, and their
    /// buffers are gone.
    fn transfer(&mut self) -> Result<Result<(), BlockError>, BlockError> {
        let mut outcome = Ok(());
        while !self.requests.is_empty() || self.queue.in_flight() > 0 {
            self.queue.submit(&mut self.requests)?;
            self.queue.complete(self.queue.in_flight(), &mut self.completions)?;
            for completion in self.completions.drain(..) {
                let place = match self.images.get_mut(completion.tag as usize) {
                    Some(image) => &mut image.buffer,
                    None => &mut self.descriptor,
                };
                if let Some(buffer) = completion.buffer {
                    *place = buffer;
                }
                outcome = outcome.and(completion.outcome);
            }
        }
        Ok(outcome)
    }
}

pub(super) fn page_buffer(geometry: Geometry) -> BlockBuffer {
    BlockBuffer::zeroed(geometry.page_bytes / lapis_pmem::BLOCK_BYTES)
}

/// What a batch's descriptor says.
///
/// ```text
///   0 32  the header of a page of kind 2; its number is the sequence number
///  32  8  count     pages in the batch
///  40  8  settled   1: everything that was written before is in its place, durably
///  48 16  zero
///  64  …  for each page: the first block it belongs to (8), its checksum (4), zero (4)
/// ```
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) sequence: u64,
    pub(super) settled: bool,
    pub(super) pages: Vec<(u64, u32)>,
}

impl Descriptor {
    pub(super) fn encode(&self, into: &mut [u8]) {
        into.fill(0);
        page::begin_page(into, PageKind::JOURNAL, self.sequence, 0);
        let words = [self.pages.len() as u64, self.settled.into()];
        for (at, word) in words.iter().enumerate() {
            let at = PAGE_HEADER_BYTES + at * 8;
            into[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let entries = into[DESCRIPTOR_BYTES..].chunks_exact_mut(ENTRY_BYTES);
        for (entry, (block, checksum)) in entries.zip(&self.pages) {
            entry[..8].copy_from_slice(&block.to_le_bytes());
            entry[8..12].copy_from_slice(&checksum.to_le_bytes());
        }
        page::seal(into, 0);
    }

    /// The descriptor in a page; none if it is torn, rotten or something else.
    pub(super) fn decode(from: &[u8], geometry: Geometry) -> Option<Self> {
        let word =
            |at: usize| from[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let sequence = page::number_of(from);
        if page::check(from, sequence).is_err() || page::kind_of(from) != PageKind::JOURNAL {
            return None;
        }
        let count = word(PAGE_HEADER_BYTES);
        if count > geometry.batch_pages as u64 {
            return None;
        }
        let entries = from[DESCRIPTOR_BYTES..].chunks_exact(ENTRY_BYTES).take(count as usize);
        let pages = entries.map(|entry| {
            let (block, sum) = (entry.first_chunk(), entry[8..].first_chunk());
            (
                block.map_or(0, |it| u64::from_le_bytes(*it)),
                sum.map_or(0, |it| u32::from_le_bytes(*it)),
            )
        });
        let pages: Vec<_> = pages.collect();
        let may_be = sequence < u64::MAX && pages.iter().all(|(block, _)| geometry.is_page(*block));
        may_be.then(|| Self { sequence, settled: word(PAGE_HEADER_BYTES + 8) == 1, pages })
    }
}

/// What became of a page that was to be in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Added {
    /// It is in the batch.
    InBatch,
    /// The batch has no room for it, and is to be written first.
    Full,
    /// It is not in use any more.
    NotInUse,
}

/// Pages to be written together. Whoever has one has the turn to write, until it is dropped.
#[derive(Debug)]
pub struct Batch<'s, D: Domain> {
    space: &'s Space<D>,
    writer: HostGuard<'s, D, MutexGuard<'s, Writer>>,
}

impl<'s, D: Domain> Batch<'s, D> {
    pub(super) fn new(
        space: &'s Space<D>,
        mut writer: HostGuard<'s, D, MutexGuard<'s, Writer>>,
    ) -> Self {
        writer.clear();
        Self { space, writer }
    }

    /// Adds a page, if there is room; `fill` makes its contents, with a header. A page is added once.
    pub fn add(&mut self, number: PageNumber, fill: impl FnOnce(&mut [u8])) -> Added {
        let (geometry, index) = (self.space.geometry, index_of(number));
        let map = self.space.map.lock();
        let Some(staged) = map.stage(index) else { return Added::NotInUse };
        let with = map.regions_with(staged);
        drop(map);
        let writer = &mut *self.writer;
        let new = with.clone().filter(|region| !writer.regions.contains(region)).count();
        if writer.images.len() + writer.regions.len() + 1 + new > geometry.batch_pages {
            // Maps of regions before the page's may fill batches of their own.
            if writer.images.is_empty() {
                self.add_maps(with);
            }
            return Added::Full;
        }
        let mut buffer = writer.buffer(geometry);
        fill(&mut buffer);
        writer.regions.extend(with);
        writer.staged.push(staged);
        let block = geometry.page(index);
        writer.images.push(Image { block, staged: Some(staged), region: 0, buffer });
        Added::InBatch
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writer.images.is_empty() && self.writer.regions.is_empty()
    }

    /// Pages in the batch.
    pub fn pages(&self) -> usize {
        self.writer.staged.len()
    }

    /// Adds the maps of these regions, as far as there is room.
    pub(super) fn add_maps(&mut self, regions: impl IntoIterator<Item = u64>) {
        let writer = &mut *self.writer;
        let room = self.space.geometry.batch_pages - writer.images.len();
        for region in regions {
            if writer.regions.len() < room {
                writer.regions.insert(region);
            }
        }
    }

    /// Writes the batch: durable, all of it, when this returns, and in place. The log holds all
    /// changes up to `flushed_lsn`; what these freed is free from here on, as far as there is room.
    ///
    /// # Errors
    /// [`SpaceError`]; the pages are then still to be written. [`SpaceError::WritesLost`] from then on
    /// if it was more than the journal that could not be written.
    pub fn write(&mut self, flushed_lsn: u64) -> Result<(), SpaceError> {
        let (space, geometry) = (self.space, self.space.geometry);
        space.check_not_lost()?;
        let freed = space.map.lock().freed_regions(flushed_lsn);
        self.add_maps(freed);
        if self.is_empty() {
            space.map.lock().commit(&[], std::iter::empty(), flushed_lsn);
            return Ok(());
        }
        let writer = &mut *self.writer;
        let sequence = writer.sequence;
        let map = space.map.lock();
        for region in std::mem::take(&mut writer.regions) {
            let mut buffer = writer.buffer(geometry);
            page::begin_page(&mut buffer, PageKind::SPACE_MAP, region, sequence);
            map.compose(region, &writer.staged, flushed_lsn, &mut buffer[PAGE_HEADER_BYTES..]);
            writer.images.push(Image { block: geometry.map(region), staged: None, region, buffer });
        }
        drop(map);
        let mut pages = Vec::with_capacity(writer.images.len());
        for image in &mut writer.images {
            page::seal(&mut image.buffer, image.staged.map_or(0, |staged| staged.stamp));
            pages.push((image.block, page::checksum_of(&image.buffer)));
        }
        let descriptor = Descriptor { sequence, settled: false, pages };
        descriptor.encode(&mut writer.descriptor);

        // J1: until this is durable, every page is in its place as it was.
        for at in 0..writer.images.len() {
            writer.put_in_line(at, geometry.journal_page(sequence, at));
        }
        let buffer = std::mem::replace(&mut writer.descriptor, BlockBuffer::zeroed(0));
        let first_block = geometry.journal(sequence);
        writer.requests.push(Request::Write { tag: u64::MAX, first_block, buffer });
        writer.transfer().map_err(|error| space.lose(error))??;
        if !space.domain.commits(UNFLUSHED_JOURNAL) {
            space.flush()?;
        }
        writer.sequence += 1;
        let maps = writer.images.iter().filter(|image| image.staged.is_none());
        let maps = maps.map(|image| (image.region, &image.buffer[PAGE_HEADER_BYTES..]));
        space.map.lock().commit(&writer.staged, maps, flushed_lsn);

        // J2: the next flush, before this area is used again, makes these durable.
        for at in 0..writer.images.len() {
            writer.put_in_line(at, writer.images[at].block);
        }
        writer.transfer().flatten().map_err(|error| space.lose(error))?;
        writer.clear();
        Ok(())
    }
}

impl<D: Domain> Space<D> {
    /// Writes a descriptor after which nothing has to be redone.
    pub(super) fn write_settled(&self, writer: &mut Writer) -> Result<(), SpaceError> {
        self.flush()?;
        let sequence = writer.sequence;
        let descriptor = Descriptor { sequence, settled: true, pages: Vec::new() };
        descriptor.encode(&mut writer.descriptor);
        self.device.write_blocks(self.geometry.journal(sequence), &writer.descriptor)?;
        self.flush()?;
        writer.sequence += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_read_as_it_was_written_and_not_when_a_bit_is_flipped() {
        let geometry = Geometry::new(4096, 8).unwrap();
        let pages = vec![(geometry.map(0), 0xdead_beef), (geometry.page(1 << 40), 3)];
        let descriptor = Descriptor { sequence: 9, settled: false, pages };
        let mut page = vec![0xff; 4096];
        descriptor.encode(&mut page);
        assert_eq!(Descriptor::decode(&page, geometry), Some(descriptor));
        for at in (0..4096).step_by(31) {
            page[at] ^= 4;
            assert_eq!(Descriptor::decode(&page, geometry), None, "byte {at}");
            page[at] ^= 4;
        }
    }

    #[test]
    fn a_descriptor_that_would_overwrite_the_superblock_is_none() {
        let geometry = Geometry::new(8192, 8).unwrap();
        let mut page = vec![0; 8192];
        for block in [0, geometry.journal(0), geometry.page(3) + 1] {
            let pages = vec![(block, 1)];
            Descriptor { sequence: 9, settled: false, pages }.encode(&mut page);
            assert_eq!(Descriptor::decode(&page, geometry), None, "{block}");
        }
    }
}
