//! Creating and opening a space: what a power cut left of the last batches is completed.

use lapis_pmem::{BLOCK_BYTES, BlockBuffer, BlockDevice, BlockError, Domain};

use super::batch::{Descriptor, page_buffer};
use super::geometry::Geometry;
use super::map::{STAMPS, SpaceMap};
use super::{SpaceError, SpaceOptions};
use crate::mutants::TORN_BATCH_REDONE;
use crate::page::{self, PAGE_HEADER_BYTES, PageDamage, PageKind, PageNumber};

/// The number of the first batch.
pub(super) const FIRST_SEQUENCE: u64 = 1;

/// Lays out an empty space; durable when this returns. The superblock comes last, so that a space that
/// was not laid out whole is none.
pub(super) fn lay_out(
    device: &dyn BlockDevice,
    options: &SpaceOptions,
    tier: u64,
) -> Result<(), SpaceError> {
    let geometry = Geometry::new(options.page_bytes, options.batch_pages)?;
    device.grow_to(geometry.end(0))?;
    let mut buffer = page_buffer(geometry);
    device.write_blocks(0, &buffer[..BLOCK_BYTES])?;
    device.flush()?;
    // A device may hold anything, maps of an earlier space too.
    let maps = (1..).map(|region| geometry.map(region));
    for map in maps.take_while(|map| *map < device.capacity_blocks()) {
        device.write_blocks(map, &buffer[..BLOCK_BYTES])?;
    }
    page::begin_page(&mut buffer, PageKind::SPACE_MAP, 0, 0);
    page::seal(&mut buffer, 0);
    device.write_blocks(geometry.map(0), &buffer)?;
    let sequence = FIRST_SEQUENCE;
    Descriptor { sequence, settled: true, pages: Vec::new() }.encode(&mut buffer);
    device.write_blocks(geometry.journal(sequence), &buffer)?;
    buffer.fill(0);
    device.write_blocks(geometry.journal(sequence + 1), &buffer)?;
    device.flush()?;
    encode_superblock(geometry, tier, &mut buffer[..BLOCK_BYTES]);
    device.write_blocks(0, &buffer[..BLOCK_BYTES])?;
    Ok(device.flush()?)
}

pub(super) fn encode_superblock(geometry: Geometry, tier: u64, into: &mut [u8]) {
    page::begin_page(into, PageKind::SUPERBLOCK, 0, 0);
    let words = [geometry.page_bytes as u64, geometry.batch_pages as u64, tier];
    for (at, word) in words.iter().enumerate() {
        let at = PAGE_HEADER_BYTES + at * 8;
        into[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    page::seal(into, 0);
}

/// Reads the superblock: how large everything is, and the identity of the tier.
pub(super) fn read_superblock(device: &dyn BlockDevice) -> Result<(Geometry, u64), SpaceError> {
    let mut block = BlockBuffer::zeroed(1);
    device.read_blocks(0, &mut block)?;
    page::check(&block, 0).map_err(SpaceError::NotASpace)?;
    if page::kind_of(&block) != PageKind::SUPERBLOCK {
        return Err(SpaceError::NotASpace(PageDamage::NotAPage));
    }
    let word = |at: usize| block[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
    let [page_bytes, batch_pages, tier] = [0, 8, 16].map(|at| word(PAGE_HEADER_BYTES + at));
    Ok((Geometry::new(page_bytes as usize, batch_pages as usize)?, tier))
}

/// A batch that is durable in the journal.
pub(super) struct Found {
    descriptor: Descriptor,
    pages: Vec<BlockBuffer>,
}

impl Found {
    /// Its copy of the page that belongs there.
    fn copy_for(&self, block: u64) -> Option<&[u8]> {
        let at = self.descriptor.pages.iter().position(|(place, _)| *place == block)?;
        self.pages.get(at).map(|page| &page[..])
    }
}

/// What cannot be read is not what is torn (J4): it may be the last batch, of which some places are written and others are not.
fn of_journal(error: BlockError) -> SpaceError {
    match error {
        BlockError::Io { .. } => SpaceError::JournalUnreadable { source: error },
        error => error.into(),
    }
}

fn read_descriptor(
    device: &dyn BlockDevice,
    geometry: Geometry,
    area: u64,
) -> Result<Option<Descriptor>, SpaceError> {
    let mut buffer = page_buffer(geometry);
    device.read_blocks(geometry.journal(area), &mut buffer).map_err(of_journal)?;
    let descriptor = Descriptor::decode(&buffer, geometry);
    Ok(descriptor.filter(|it| it.sequence % 2 == area))
}

/// What the areas of the journal hold: the last two batches, as far as all of them is there (J3). After an orderly end there is
/// nothing to redo, and the pages of the batch before it are not read.
pub(super) fn read_areas<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
) -> [Result<Option<Found>, SpaceError>; 2] {
    let descriptors = [0, 1].map(|area| read_descriptor(device, geometry, area));
    let sequences = descriptors.each_ref().map(|found| match found {
        Ok(Some(descriptor)) => Some(descriptor.sequence),
        Ok(None) | Err(_) => None,
    });
    let is_swapped = sequences[1] < sequences[0];
    let [one, other] = descriptors;
    let (earlier, later) = if is_swapped { (other, one) } else { (one, other) };
    let later = match later {
        Ok(Some(descriptor)) => read_batch(domain, device, geometry, descriptor, None),
        found => found.map(|_| None),
    };
    let next = later.as_ref().ok().and_then(Option::as_ref);
    let earlier = match earlier {
        Ok(Some(_)) if next.is_some_and(|next| next.descriptor.settled) => Ok(None),
        Ok(Some(descriptor)) => read_batch(domain, device, geometry, descriptor, next),
        found => found.map(|_| None),
    };
    if is_swapped { [later, earlier] } else { [earlier, later] }
}

/// Reads a batch's pages; none unless all of them are there. `next` is the batch that came next, if that is there.
fn read_batch<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
    descriptor: Descriptor,
    next: Option<&Found>,
) -> Result<Option<Found>, SpaceError> {
    let mut pages = Vec::with_capacity(descriptor.pages.len());
    for (at, (block, checksum)) in descriptor.pages.iter().enumerate() {
        let mut page = page_buffer(geometry);
        let place = geometry.journal_page(descriptor.sequence, at);
        let unread = device.read_blocks(place, &mut page).err();
        // Of a copy that cannot be read the page in place may do.
        if unread.is_some() && device.read_blocks(*block, &mut page).is_err() {
            page.fill(0);
        }
        // A page of an earlier batch is whole too: it has another checksum than the descriptor says.
        let whole = page::check(&page, page::number_of(&page)).is_ok()
            && page::checksum_of(&page) == *checksum;
        if let Some(error) = unread.filter(|_| !whole) {
            // Or what comes after it.
            let newer = next.and_then(|next| next.copy_for(*block));
            page.copy_from_slice(newer.ok_or_else(|| of_journal(error))?);
        } else if !whole && !domain.commits(TORN_BATCH_REDONE) {
            return Ok(None);
        }
        pages.push(page);
    }
    Ok(Some(Found { descriptor, pages }))
}

/// Whether the page in place is the one in the journal, or the one that the next batch wrote: then it
/// stays, for of that batch the journal may since have gone bad.
fn is_as_new(in_place: &[u8], journaled: &[u8]) -> bool {
    let Ok(stamp) = page::check(in_place, page::number_of(journaled)) else { return false };
    if page::kind_of(journaled) == PageKind::SPACE_MAP {
        // Of maps, the LSN is the sequence number of the batch.
        return page::kind_of(in_place) == PageKind::SPACE_MAP
            && page::lsn_of(in_place) >= page::lsn_of(journaled);
    }
    let Ok(journaled) = page::check(journaled, page::number_of(journaled)) else { return false };
    stamp.wrapping_sub(journaled) % STAMPS <= 1
}

fn of_map(geometry: Geometry, region: u64, error: BlockError) -> SpaceError {
    match (PageNumber::new(region * geometry.region_pages() + 1), error) {
        (Some(first), source @ BlockError::Io { .. }) => {
            SpaceError::MapUnreadable { first, source }
        }
        (_, error) => error.into(),
    }
}

/// What opening found out.
pub(super) struct Opened {
    pub(super) map: SpaceMap,
    pub(super) next_sequence: u64,
    /// Pages that were written again.
    pub(super) redone_pages: usize,
}

/// Completes the last batches and reads the map. Doing so again changes nothing.
pub(super) fn redo<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
) -> Result<Opened, SpaceError> {
    let [one, other] = read_areas(domain, device, geometry);
    let mut found: Vec<_> = one?.into_iter().chain(other?).collect();
    found.sort_by_key(|batch| batch.descriptor.sequence);
    let Some(last) = found.last() else { return Err(SpaceError::JournalDamaged) };
    let next_sequence = last.descriptor.sequence + 1;
    let mut buffer = page_buffer(geometry);
    let mut redone_pages = 0;
    if !last.descriptor.settled {
        for Found { descriptor, pages } in &found {
            for ((block, _), page) in descriptor.pages.iter().zip(pages) {
                // It was free, and its place given back.
                let end = block.checked_add(geometry.page_blocks());
                let is_beyond = end.is_none_or(|end| end > device.capacity_blocks());
                if is_beyond && page::kind_of(page) != PageKind::SPACE_MAP {
                    continue;
                }
                let is_new = match device.read_blocks(*block, &mut buffer) {
                    Ok(()) => is_as_new(&buffer, page),
                    // Writing it moves it elsewhere on the media.
                    Err(BlockError::Io { .. }) => false,
                    Err(error) => return Err(error.into()),
                };
                if !is_new {
                    device.write_blocks(*block, page)?;
                    redone_pages += 1;
                }
            }
        }
        // Of what is in place already, nobody knows whether it is so durably.
        device.flush()?;
    }
    drop(found);
    let mut map = SpaceMap::new(geometry);
    let maps = (0..).map(|region| (region, geometry.map(region)));
    let end = device.capacity_blocks();
    for (region, block) in maps.take_while(|(_, block)| block + geometry.page_blocks() <= end) {
        // It is not taken for a damaged one: what is written meanwhile it would not know when it can be read again.
        device.read_blocks(block, &mut buffer).map_err(|error| of_map(geometry, region, error))?;
        let bytes = match page::check(&buffer, region) {
            Err(PageDamage::NeverWritten) => break,
            Ok(_) if page::kind_of(&buffer) == PageKind::SPACE_MAP => {
                Some(&buffer[PAGE_HEADER_BYTES..])
            }
            _ => None,
        };
        map.add_region(bytes);
    }
    map.note_storage(geometry.pages_within(end));
    Ok(Opened { map, next_sequence, redone_pages })
}
