//! Making a space that can be opened of what is left of a damaged one, for whoever salvages what is in it.

use std::collections::HashMap;
use std::sync::Arc;

use lapis_pmem::{BLOCK_BYTES, BlockBuffer, BlockDevice, Domain};

use super::batch::{Descriptor, page_buffer};
use super::geometry::{FEWEST_BATCH_PAGES, Geometry, index_of, most_batch_pages};
use super::redo::{FIRST_SEQUENCE, Found, encode_superblock, read_areas, read_superblock};
use super::{Space, SpaceError};
use crate::page::{
    self, LARGEST_PAGE_BYTES, PAGE_HEADER_BYTES, PageKind, PageNumber, SMALLEST_PAGE_BYTES,
};

/// Kinds below this are the space's own.
const FIRST_KIND: u8 = 16;
/// So many pages behind the longest journal say how large everything is.
const ENOUGH_PAGES: u32 = 32;

impl<D: Domain> Space<D> {
    /// Opens a space of which anything may be damaged, and tells what was wrong besides single pages. What has to be found
    /// out anew is written to the device, so it is a copy, or an overlay. `tier` is the identity of what there is in persistent
    /// memory, 0 if there is nothing: a space that cannot say what was there is taken for that one's, and one that had another is
    /// from then on without.
    ///
    /// # Errors
    /// [`SpaceError::NotASpace`] if there is no page of one, [`SpaceError::Device`] if the device cannot be written.
    pub fn open_damaged(
        domain: D,
        device: Arc<dyn BlockDevice>,
        tier: u64,
        tell: &mut dyn FnMut(String),
    ) -> Result<Self, SpaceError> {
        let geometry = mend_superblock(&*device, tier, tell)?;
        mend_journal(&domain, &*device, geometry, tell)?;
        mend_maps(&*device, geometry)?;
        Self::open(domain, device)
    }
}

fn mend_superblock(
    device: &dyn BlockDevice,
    tier: u64,
    tell: &mut dyn FnMut(String),
) -> Result<Geometry, SpaceError> {
    let (geometry, tier) = match read_superblock(device) {
        Ok((geometry, found)) if [0, tier].contains(&found) => return Ok(geometry),
        Ok((geometry, found)) => {
            tell(format!(
                "later versions of some pages were in persistent memory (tier {found:#x})"
            ));
            (geometry, 0)
        }
        Err(error) => {
            tell(format!("{error}; how large pages are was found out from them"));
            (find_geometry(device).ok_or(error)?, tier)
        }
    };
    let mut block = BlockBuffer::zeroed(1);
    encode_superblock(geometry, tier, &mut block);
    device.write_blocks(0, &block)?;
    Ok(geometry)
}

/// How large pages and the journal are, by the pages: each has its number, and so says where the first one lies. A copy in the
/// journal lies before its page, and says that the journal is shorter. So it is the longest one that several pages speak
/// for, and rather one with a map behind it.
fn find_geometry(device: &dyn BlockDevice) -> Option<Geometry> {
    let mut votes: HashMap<(usize, usize), u32> = HashMap::new();
    let mut page_bytes = SMALLEST_PAGE_BYTES;
    while page_bytes <= LARGEST_PAGE_BYTES {
        let smallest = Geometry::new(page_bytes, FEWEST_BATCH_PAGES).ok()?;
        let longest = Geometry::new(page_bytes, most_batch_pages(page_bytes)).ok()?;
        let (blocks, mut buffer) = (smallest.page_blocks(), page_buffer(smallest));
        let pages = device.capacity_blocks() / blocks;
        for at in 1..pages {
            let begins = device.read_blocks(at * blocks, &mut buffer[..BLOCK_BYTES]).is_ok()
                && page::check_header(&buffer).is_ok()
                && page::kind_of(&buffer).0 >= FIRST_KIND;
            let number = page::number_of(&buffer);
            if !begins
                || device.read_blocks(at * blocks, &mut buffer).is_err()
                || page::check(&buffer, number).is_err()
            {
                continue;
            }
            let Some(index) = number.checked_sub(1) else { continue };
            // What its place would be if the journal had no pages.
            let (region, within) =
                (index / smallest.region_pages(), index % smallest.region_pages());
            let place = region.checked_mul(1 + smallest.region_pages());
            let Some(place) = place.and_then(|place| place.checked_add(2 + 2 + within)) else {
                continue;
            };
            let journaled = at.checked_sub(place).filter(|twice| twice.is_multiple_of(2));
            let Some(batch_pages) = journaled.map(|twice| (twice / 2) as usize) else { continue };
            if let Ok(geometry) = Geometry::new(page_bytes, batch_pages) {
                let votes = votes.entry((page_bytes, batch_pages)).or_default();
                *votes += 1;
                if *votes >= ENOUGH_PAGES && at * blocks >= longest.map(0) {
                    return Some(geometry);
                }
            }
        }
        page_bytes *= 2;
    }
    let found = votes.into_iter().filter_map(|((page_bytes, batch_pages), votes)| {
        let geometry = Geometry::new(page_bytes, batch_pages).ok()?;
        Some(((has_map(device, geometry), votes.min(2), batch_pages, votes), geometry))
    });
    found.max_by_key(|&(weight, _)| weight).map(|(_, geometry)| geometry)
}

/// Whether the first map is where it would be.
fn has_map(device: &dyn BlockDevice, geometry: Geometry) -> bool {
    let mut buffer = page_buffer(geometry);
    device.read_blocks(geometry.map(0), &mut buffer).is_ok()
        && page::check(&buffer, 0).is_ok()
        && page::kind_of(&buffer) == PageKind::SPACE_MAP
}

/// Without a batch that can be read, nothing says that the last one is in place. An area that cannot be read is taken for one
/// that is torn, which whoever opens the space for good may not do.
fn mend_journal<D: Domain>(
    domain: &D,
    device: &dyn BlockDevice,
    geometry: Geometry,
    tell: &mut dyn FnMut(String),
) -> Result<(), SpaceError> {
    let is_there = |areas: &[Result<Option<Found>, SpaceError>]| {
        areas.iter().any(|area| matches!(area, Ok(Some(_))))
    };
    let mut areas = read_areas(domain, device, geometry);
    if areas.iter().all(Result::is_ok) && is_there(&areas) {
        return Ok(());
    }
    tell("the journal is damaged; pages that were being written may be older".to_owned());
    device.grow_to(geometry.end(0))?;
    let mut buffer = page_buffer(geometry);
    // What is put in place may have been all that was left of the other area.
    for _ in 0..areas.len() {
        let Some(area) = areas.iter().position(Result::is_err) else { break };
        put_copies_in_place(device, geometry, area as u64)?;
        device.write_blocks(geometry.journal(area as u64), &buffer)?;
        areas = read_areas(domain, device, geometry);
    }
    if is_there(&areas) {
        return Ok(());
    }
    let sequence = FIRST_SEQUENCE;
    Descriptor { sequence, settled: true, pages: Vec::new() }.encode(&mut buffer);
    device.write_blocks(geometry.journal(sequence), &buffer)?;
    buffer.fill(0);
    Ok(device.write_blocks(geometry.journal(sequence + 1), &buffer)?)
}

/// Of a batch that is not there whole, the copies that are newer than what is in place may be all that there is of what they
/// hold. Each is whole in itself.
fn put_copies_in_place(
    device: &dyn BlockDevice,
    geometry: Geometry,
    area: u64,
) -> Result<(), SpaceError> {
    let (mut copy, mut in_place) = (page_buffer(geometry), page_buffer(geometry));
    for at in 0..geometry.batch_pages {
        let is_read = device.read_blocks(geometry.journal_page(area, at), &mut copy).is_ok();
        let number = page::number_of(&copy);
        let is_whole = is_read && page::check(&copy, number).is_ok();
        let Some(place) = place_of(&copy, geometry).filter(|_| is_whole) else { continue };
        let end = place.checked_add(geometry.page_blocks());
        if end.is_none_or(|end| end > device.capacity_blocks()) {
            continue;
        }
        let is_newer = device.read_blocks(place, &mut in_place).is_err()
            || page::check(&in_place, number).is_err()
            || page::lsn_of(&in_place) < page::lsn_of(&copy);
        if is_newer {
            device.write_blocks(place, &copy)?;
        }
    }
    Ok(())
}

/// Where a page belongs that says what it is.
fn place_of(page: &[u8], geometry: Geometry) -> Option<u64> {
    let number = page::number_of(page);
    match page::kind_of(page) {
        PageKind::SPACE_MAP => {
            let last = index_of(PageNumber::LAST) / geometry.region_pages();
            (number <= last).then(|| geometry.map(number))
        }
        kind if kind.0 >= FIRST_KIND => {
            PageNumber::new(number).map(|number| geometry.page(index_of(number)))
        }
        _ => None,
    }
}

/// A map that is zero ends the space, unless there are maps or pages behind it. Such a one, and one that cannot be read, becomes
/// one that is damaged.
fn mend_maps(device: &dyn BlockDevice, geometry: Geometry) -> Result<(), SpaceError> {
    let (blocks, end) = (geometry.page_blocks(), device.capacity_blocks());
    let mut buffer = page_buffer(geometry);
    let damaged = vec![0xFF; geometry.page_bytes];
    let regions = (0..).take_while(|&region| geometry.map(region) + blocks <= end).count() as u64;
    let mut is_within = false;
    for region in (0..regions).rev() {
        let map = geometry.map(region);
        let is_read = device.read_blocks(map, &mut buffer).is_ok();
        let has_map = is_read && buffer[..PAGE_HEADER_BYTES].iter().any(|&byte| byte != 0);
        is_within = is_within || has_map || !is_read || has_pages(device, geometry, region);
        if is_within && !has_map {
            device.write_blocks(map, &damaged)?;
        }
    }
    Ok(())
}

/// Whether a page of a region can be read.
fn has_pages(device: &dyn BlockDevice, geometry: Geometry, region: u64) -> bool {
    let mut buffer = page_buffer(geometry);
    let first = region * geometry.region_pages();
    (first..first + geometry.region_pages())
        .map(|index| (index, geometry.page(index)))
        .take_while(|(_, block)| block + geometry.page_blocks() <= device.capacity_blocks())
        .any(|(index, block)| {
            device.read_blocks(block, &mut buffer).is_ok()
                && page::check(&buffer, index + 1).is_ok()
        })
}

const _: () = assert!(PageKind::SPACE_MAP.0 < FIRST_KIND);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Added, SpaceOptions};
    use lapis_pmem::{DirectTransfers, FileDevice, Hardware, OverlayDevice};
    use std::sync::Arc;

    type Device = Arc<dyn BlockDevice>;

    const PAGES: u64 = 40;

    fn device() -> (tempfile::TempDir, Device) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ssd");
        let direct = DirectTransfers::Never;
        let device: Device = Arc::new(FileDevice::create(&file, 2, direct).unwrap());
        let options = SpaceOptions { page_bytes: 8192, batch_pages: 7 };
        let space = Space::create(crate::test_domain(), Arc::clone(&device), &options).unwrap();
        for _ in 0..PAGES {
            let number = space.allocate().unwrap();
            let mut batch = space.begin_batch();
            let fill = |bytes: &mut [u8]| {
                bytes.fill(number.get() as u8);
                page::begin_page(bytes, PageKind(FIRST_KIND), number.get(), 0);
            };
            assert_eq!(batch.add(number, fill), Added::InBatch);
            batch.write(0).unwrap();
        }
        space.settle(0).unwrap();
        (directory, device)
    }

    fn overlay(device: &Device) -> Device {
        Arc::new(OverlayDevice::over(Arc::clone(device)))
    }

    /// Opens it, and expects all pages but these.
    fn opened(device: Device, lost: &[u64]) -> (Space<Hardware>, Vec<String>) {
        let mut told = Vec::new();
        let tell = &mut |what| told.push(what);
        let space = Space::open_damaged(crate::test_domain(), device, 0, tell).unwrap();
        for number in 1..=PAGES {
            let read = space.read(PageNumber::new(number).unwrap(), |bytes| bytes[5000]);
            assert_eq!(read.ok(), (!lost.contains(&number)).then_some(number as u8), "{number}");
        }
        (space, told)
    }

    #[test]
    fn a_whole_space_is_opened_as_it_is() {
        let (_directory, device) = device();
        let (_, told) = opened(overlay(&device), &[]);
        assert_eq!(told, Vec::<String>::new());
    }

    #[test]
    fn a_lost_superblock_is_found_out_from_the_pages() {
        let (_directory, device) = device();
        for byte in [0, 0xFF] {
            let damaged = overlay(&device);
            damaged.write_blocks(0, &[byte; BLOCK_BYTES]).unwrap();
            assert_eq!(opened(damaged, &[]).1.len(), 1);
        }
    }

    #[test]
    fn copies_in_the_journal_do_not_say_how_long_it_is() {
        for batch_pages in [100, 101] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("ssd");
            let direct = DirectTransfers::Never;
            let device: Device = Arc::new(FileDevice::create(&file, 2, direct).unwrap());
            let options = SpaceOptions { page_bytes: 4096, batch_pages };
            let space = Space::create(crate::test_domain(), Arc::clone(&device), &options).unwrap();
            // One in each area; the pages follow each other there as they do in their places.
            for _ in 0..2 {
                let mut batch = space.begin_batch();
                for _ in 0..40 {
                    let number = space.allocate().unwrap();
                    let kind = PageKind(FIRST_KIND);
                    let fill = |bytes: &mut [u8]| page::begin_page(bytes, kind, number.get(), 0);
                    assert_eq!(batch.add(number, fill), Added::InBatch);
                }
                batch.write(0).unwrap();
            }
            space.settle(0).unwrap();
            let right = Geometry::new(4096, batch_pages).unwrap();
            assert_eq!(find_geometry(&*device), Some(right));
            // Without the map, too.
            device.write_blocks(right.map(0), &[0xEE; BLOCK_BYTES]).unwrap();
            assert_eq!(find_geometry(&*device), Some(right));
        }
    }

    #[test]
    fn a_lost_superblock_is_that_of_the_tier_that_there_is() {
        let (_directory, device) = device();
        let damaged = overlay(&device);
        damaged.write_blocks(0, &[0; BLOCK_BYTES]).unwrap();
        let space = Space::open_damaged(crate::test_domain(), damaged, 9, &mut |_| ()).unwrap();
        assert_eq!(space.tier(), 9);
        // One that can be read says that it has none.
        let space =
            Space::open_damaged(crate::test_domain(), overlay(&device), 9, &mut |_| ()).unwrap();
        assert_eq!(space.tier(), 0);
    }

    #[test]
    fn a_journal_of_which_nothing_can_be_read_costs_no_page() {
        let (_directory, device) = device();
        let damaged = overlay(&device);
        damaged.write_blocks(2, &vec![0xEE; 16 * 2 * BLOCK_BYTES]).unwrap();
        let (space, told) = opened(damaged, &[]);
        assert_eq!(told.len(), 1);
        assert!(space.is_known(PageNumber::FIRST));
    }

    #[test]
    fn without_a_map_pages_are_read_and_not_known() {
        let (_directory, device) = device();
        let map = Geometry::new(8192, 7).unwrap().map(0);
        for byte in [0, 0xFF] {
            let damaged = overlay(&device);
            damaged.write_blocks(map, &[byte; 2 * BLOCK_BYTES]).unwrap();
            let (space, _) = opened(damaged, &[]);
            assert!(!space.is_known(PageNumber::FIRST), "filled with {byte}");
        }
    }

    #[test]
    fn a_region_of_zeroes_costs_no_region_behind_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ssd");
        let device: Device =
            Arc::new(FileDevice::create(&file, 2, DirectTransfers::Never).unwrap());
        let options = SpaceOptions { page_bytes: SMALLEST_PAGE_BYTES, batch_pages: 7 };
        let geometry = Geometry::new(options.page_bytes, options.batch_pages).unwrap();
        let space = Space::create(crate::test_domain(), Arc::clone(&device), &options).unwrap();
        let pages = 2 * geometry.region_pages() + 1;
        let last = (0..pages).map(|_| space.allocate().unwrap()).last().unwrap();
        let mut batch = space.begin_batch();
        let kind = PageKind(FIRST_KIND);
        let fill = |bytes: &mut [u8]| page::begin_page(bytes, kind, last.get(), 0);
        assert_eq!(batch.add(last, fill), Added::InBatch);
        batch.write(0).unwrap();
        drop(batch);
        space.settle(0).unwrap();
        device.write_blocks(geometry.map(1), &[0; BLOCK_BYTES]).unwrap();
        let space =
            Space::open_damaged(crate::test_domain(), overlay(&device), 0, &mut |_| ()).unwrap();
        assert!(space.read(last, |_| ()).is_ok());
        assert!(space.is_known(last));
    }

    #[test]
    fn a_page_that_is_damaged_costs_itself() {
        let (_directory, device) = device();
        let place = Geometry::new(8192, 7).unwrap().page(9);
        let damaged = overlay(&device);
        damaged.write_blocks(place + 1, &[1; BLOCK_BYTES]).unwrap();
        opened(damaged, &[10]);
    }

    #[test]
    fn what_has_no_page_is_no_space() {
        let (directory, _) = device();
        let file = directory.path().join("other");
        let direct = DirectTransfers::Never;
        let device: Device = Arc::new(FileDevice::create(&file, 50, direct).unwrap());
        let opened = Space::open_damaged(crate::test_domain(), overlay(&device), 0, &mut |_| ());
        assert!(matches!(opened, Err(SpaceError::NotASpace(_))));
    }
}
