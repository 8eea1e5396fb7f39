//! Creating and opening a space: what a power cut left of the last batches is completed.

use lapis_pmem::{BLOCK_BYTES, BlockBuffer, BlockDevice, Domain};

use super::batch::{Descriptor, page_buffer};
use super::geometry::Geometry;
use super::map::{STAMPS, SpaceMap};
use super::{SpaceError, SpaceOptions};
use crate::mutants::TORN_BATCH_REDONE;
use crate::page::{self, PAGE_HEADER_BYTES, PageDamage, PageKind};

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

fn read_descriptor(
    device: &dyn BlockDevice,
    geometry: Geometry,
    area: u64,
) -> Result<Option<Descriptor>, SpaceError> {
    let mut buffer = page_buffer(geometry);
    device.read_blocks(geometry.journal(area), &mut buffer)?;
    let descriptor = Descriptor::decode(&buffer, geometry);
    Ok(descriptor.filter(|it| it.sequence % 2 == area))
}

/// The last batches that are whole, in order. After an orderly end there is nothing to redo, and their pages are not read.
fn read_journal<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
) -> Result<Vec<Found>, SpaceError> {
    let mut found = Vec::new();
    for area in 0..2 {
        found.extend(read_descriptor(device, geometry, area)?);
    }
    if let Some(last) = found.into_iter().max_by_key(|it| it.sequence)
        && last.settled
    {
        return Ok(vec![Found { descriptor: last, pages: Vec::new() }]);
    }
    let mut found = Vec::new();
    for area in 0..2 {
        found.extend(read_batch(domain, device, geometry, area)?);
    }
    found.sort_by_key(|batch| batch.descriptor.sequence);
    Ok(found)
}

/// Reads an area of the journal; none unless all of a batch is there (J3).
pub(super) fn read_batch<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
    area: u64,
) -> Result<Option<Found>, SpaceError> {
    let Some(descriptor) = read_descriptor(device, geometry, area)? else { return Ok(None) };
    let mut pages = Vec::with_capacity(descriptor.pages.len());
    for (at, (_, checksum)) in descriptor.pages.iter().enumerate() {
        let mut page = page_buffer(geometry);
        device.read_blocks(geometry.journal_page(area, at), &mut page)?;
        // A page of an earlier batch is whole too: it has another checksum than the descriptor says.
        let whole = page::check(&page, page::number_of(&page)).is_ok()
            && page::checksum_of(&page) == *checksum;
        if !whole && !domain.commits(TORN_BATCH_REDONE) {
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
    let found = read_journal(domain, device, geometry)?;
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
                device.read_blocks(*block, &mut buffer)?;
                if !is_as_new(&buffer, page) {
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
        device.read_blocks(block, &mut buffer)?;
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
