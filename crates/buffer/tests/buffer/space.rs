//! Pages on a device: what is found out, what is refused, and what it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::space::Added;
use lapis_buffer::{
    PageDamage, PageKind, PageNumber, RoomFor, Space, SpaceError, SpaceOptions, SpaceProblem,
};
use lapis_device::{BlockDamage, ImageBudget, ModelledSsd, SsdConfig};
use lapis_pmem::{
    BLOCK_BYTES, BlockCounts, BlockDevice, BlockError, BlockOperation, BlockQueue, DirectTransfers,
    FileDevice, Hardware,
};

const BATCH_PAGES: usize = 8;
const OPTIONS: SpaceOptions =
    SpaceOptions { page_bytes: SMALLEST_PAGE_BYTES, batch_pages: BATCH_PAGES };
/// Superblock, journal, map.
const FIRST_PAGE_BLOCK: u64 = 1 + 2 * (1 + BATCH_PAGES as u64) + 1;

fn device() -> ModelledSsd {
    ModelledSsd::new(1, SsdConfig::default()).unwrap()
}

fn create(device: &ModelledSsd) -> Space<Hardware> {
    Space::create(crate::hardware(), Arc::new(device.clone()), &OPTIONS).unwrap()
}

fn open(device: &ModelledSsd) -> Result<Space<Hardware>, SpaceError> {
    Space::open(crate::hardware(), Arc::new(device.clone()))
}

fn block_of(number: PageNumber) -> u64 {
    FIRST_PAGE_BLOCK + number.get() - 1
}

/// A page whose contents are all `value`.
fn fill(number: PageNumber, value: u8) -> impl FnOnce(&mut [u8]) {
    move |page| {
        page.fill(0);
        page[..4].copy_from_slice(b"LPAG");
        (page[4], page[5]) = (1, PageKind(16).0);
        page[8..16].copy_from_slice(&number.get().to_le_bytes());
        page[32..].fill(value);
    }
}

fn write(space: &Space<Hardware>, pages: &[(PageNumber, u8)]) -> Result<(), SpaceError> {
    let mut batch = space.begin_batch();
    for &(number, value) in pages {
        assert_eq!(batch.add(number, fill(number, value)), Added::InBatch);
    }
    batch.write(u64::MAX)
}

fn value(space: &Space<Hardware>, number: PageNumber) -> Result<u8, SpaceError> {
    space.read(number, |page| {
        assert!(page[32..].iter().all(|byte| *byte == page[32]), "a page that is not whole");
        page[32]
    })
}

/// A device, and a space with pages 1 to `count`, each full of its number.
fn with_pages(count: u64) -> (ModelledSsd, Space<Hardware>, Vec<PageNumber>) {
    let device = device();
    let space = create(&device);
    let numbers: Vec<_> = (0..count).map(|_| space.allocate().unwrap()).collect();
    for some in numbers.chunks(BATCH_PAGES - 1) {
        let pages: Vec<_> = some.iter().map(|&number| (number, number.get() as u8)).collect();
        write(&space, &pages).unwrap();
    }
    (device, space, numbers)
}

fn damage_of(read: Result<u8, SpaceError>) -> (u64, PageDamage) {
    match read {
        Err(SpaceError::Page { number, damage }) => (number.get(), damage),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pages_are_there_when_the_space_is_opened_again() {
    let (device, space, numbers) = with_pages(20);
    space.settle(u64::MAX).unwrap();
    drop(space);
    let space = open(&device).unwrap();
    assert_eq!(space.redone_pages(), 0, "it was closed");
    for number in numbers {
        assert_eq!(value(&space, number).unwrap(), number.get() as u8);
    }
    assert!(space.check().is_empty());
    assert_eq!(space.allocate().unwrap().get(), 21);
}

#[test]
fn without_a_close_what_is_not_in_place_of_the_last_two_batches_is_written_again() {
    let (device, _, numbers) = with_pages(20);
    assert_eq!(open(&device).unwrap().redone_pages(), 0, "no power was cut");
    // Twenty pages in batches of seven, and the map in each.
    let zero = [0; BLOCK_BYTES];
    for &number in &numbers {
        device.write_blocks(block_of(number), &zero).unwrap();
    }
    let space = open(&device).unwrap();
    assert_eq!(space.redone_pages(), 7 + 6);
    assert_eq!(space.check().len(), 7);
}

#[test]
fn a_journal_that_went_bad_takes_back_nothing() {
    let (device, space, numbers) = with_pages(3);
    for value in [70, 71, 72] {
        write(&space, &[(numbers[0], value), (numbers[1], value)]).unwrap();
    }
    drop(space);
    for area in [1, 1 + 1 + BATCH_PAGES as u64] {
        for block in area..area + 3 {
            device.rot(block, 1, block);
            let space = open(&device).unwrap();
            assert_eq!(value(&space, numbers[0]).unwrap(), 72, "block {block}");
            assert_eq!(value(&space, numbers[1]).unwrap(), 72, "block {block}");
            device.rot(block, 1, block);
        }
    }
}

#[test]
fn a_device_on_which_bits_flip_anywhere_shows_every_page_as_it_was_or_none() {
    let (mut right, mut refused) = (0, 0);
    for seed in 0..1000u64 {
        let (device, space, numbers) = with_pages(10);
        write(&space, &[(numbers[2], 3), (numbers[7], 8)]).unwrap();
        if seed % 2 == 0 {
            space.settle(u64::MAX).unwrap();
        }
        drop(space);
        let blocks = block_of(numbers[9]) + 1;
        let mut random = seed;
        for _ in 0..1 + seed % 3 {
            random = (random + 1).wrapping_mul(6_364_136_223_846_793_005);
            device.rot((random >> 33) % blocks, 1 + (seed % 40) as u32, random);
        }
        let Ok(space) = open(&device) else {
            refused += numbers.len();
            continue;
        };
        for &number in &numbers {
            match value(&space, number) {
                Ok(found) => {
                    assert_eq!(u64::from(found), number.get(), "seed {seed}");
                    right += 1;
                }
                Err(SpaceError::Page { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
    }
    println!("{right} read, {refused} refused");
    assert!(right > 5000 && refused > 500, "{right} {refused}");
}

#[test]
fn a_batch_costs_each_page_twice_a_descriptor_and_one_flush() {
    let (device, space, numbers) = with_pages(5);
    let before = device.counts();
    let pages: Vec<_> = numbers.iter().map(|&number| (number, 9)).collect();
    write(&space, &pages).unwrap();
    let after = device.counts();
    assert_eq!(after.writes - before.writes, 5 + 1 + 5);
    assert_eq!(after.written_bytes - before.written_bytes, 11 * BLOCK_BYTES as u64);
    assert_eq!(after.flushes - before.flushes, 1);
}

#[test]
fn every_state_after_a_batch_holds_all_of_it() {
    let (device, space, numbers) = with_pages(3);
    write(&space, &[(numbers[0], 71), (numbers[2], 73)]).unwrap();
    let (states, after) = (device.crash_states(), device.after_power_cut());
    let mut images = 0;
    for image in states.images(ImageBudget::default()) {
        states.apply_to_devices(&image, std::slice::from_ref(&after));
        let space = open(&after).unwrap();
        let found: Vec<_> = numbers.iter().map(|&number| value(&space, number).unwrap()).collect();
        assert_eq!(found, [71, 2, 73]);
        after.revert();
        images += 1;
    }
    assert!(images > 50, "{images}");
}

#[test]
fn flipped_bits_are_found_and_every_other_page_can_be_read() {
    let (device, space, numbers) = with_pages(6);
    for seed in 0..200 {
        device.rot(block_of(numbers[3]), 1 + seed as u32 % 3, seed);
        let (number, damage) = damage_of(value(&space, numbers[3]));
        assert_eq!(number, 4);
        let named = [PageDamage::Checksum, PageDamage::NotAPage];
        let newer = matches!(damage, PageDamage::NewerFormat { .. });
        assert!(newer || named.contains(&damage), "{damage:?}");
        let problems = space.check();
        assert_eq!(problems.len(), 1, "{problems:?}");
        device.rot(block_of(numbers[3]), 1 + seed as u32 % 3, seed);
    }
    assert!(space.check().is_empty());
}

#[test]
fn a_page_in_the_place_of_another_is_found() {
    let (device, space, numbers) = with_pages(3);
    let mut block = [0; BLOCK_BYTES];
    device.read_blocks(block_of(numbers[1]), &mut block).unwrap();
    device.write_blocks(block_of(numbers[0]), &block).unwrap();
    let damage = PageDamage::Misdirected { found: 2 };
    assert_eq!(damage_of(value(&space, numbers[0])), (1, damage));
}

#[test]
fn a_write_that_the_device_lost_is_found_now_and_after_an_orderly_restart() {
    let (device, space, numbers) = with_pages(3);
    let mut before = [0; BLOCK_BYTES];
    device.read_blocks(block_of(numbers[0]), &mut before).unwrap();
    write(&space, &[(numbers[0], 50)]).unwrap();
    space.settle(u64::MAX).unwrap();
    device.write_blocks(block_of(numbers[0]), &before).unwrap();
    let lost = |read| matches!(damage_of(read), (1, PageDamage::Lost { .. }));
    assert!(lost(value(&space, numbers[0])));
    assert!(lost(value(&open(&device).unwrap(), numbers[0])));
}

#[test]
fn a_page_of_an_earlier_life_of_the_place_is_no_page_of_this_one() {
    let (device, space, numbers) = with_pages(3);
    let mut earlier = [0; BLOCK_BYTES];
    device.read_blocks(block_of(numbers[1]), &mut earlier).unwrap();
    space.free(numbers[1], 0).unwrap();
    space.settle(u64::MAX).unwrap();
    let space = open(&device).unwrap();
    assert_eq!(space.allocate().unwrap(), numbers[1]);
    write(&space, &[(numbers[1], 90)]).unwrap();
    device.write_blocks(block_of(numbers[1]), &earlier).unwrap();
    assert!(matches!(damage_of(value(&space, numbers[1])), (2, PageDamage::Lost { .. })));
}

#[test]
fn a_place_that_was_never_written_is_told_from_a_damaged_one() {
    let (device, space, numbers) = with_pages(3);
    device.discard(block_of(numbers[2]), 1).unwrap();
    assert_eq!(damage_of(value(&space, numbers[2])), (3, PageDamage::NeverWritten));
}

#[test]
fn pages_that_are_not_in_use_are_not_read_and_not_freed() {
    let (_, space, numbers) = with_pages(2);
    space.free(numbers[0], 0).unwrap();
    let reserved = space.allocate().unwrap();
    for number in [numbers[0], reserved, PageNumber::LAST] {
        assert!(matches!(value(&space, number), Err(SpaceError::NotInUse { .. })), "{number}");
    }
    for number in [numbers[0], PageNumber::LAST] {
        assert!(matches!(space.free(number, 0), Err(SpaceError::NotInUse { .. })), "{number}");
    }
}

#[test]
fn a_freed_page_is_given_out_when_its_free_is_durable_and_in_the_log() {
    let (_, space, numbers) = with_pages(3);
    space.free(numbers[0], 7).unwrap();
    assert_eq!(space.allocate().unwrap().get(), 4);
    space.write_freed(6).unwrap();
    assert_eq!(space.allocate().unwrap().get(), 5, "the log does not hold change 7");
    space.write_freed(7).unwrap();
    assert_eq!(space.allocate().unwrap(), numbers[0]);
}

#[test]
fn a_file_whose_end_was_given_back_is_opened_though_the_journal_has_pages_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ssd");
    let device = Arc::new(FileDevice::create(&file, 1, DirectTransfers::Never).unwrap());
    let space = Space::create(crate::hardware(), Arc::clone(&device) as _, &OPTIONS).unwrap();
    let numbers: Vec<_> = (0..30).map(|_| space.allocate().unwrap()).collect();
    numbers.iter().for_each(|&number| write(&space, &[(number, number.get() as u8)]).unwrap());
    numbers[10..].iter().for_each(|&number| space.free(number, 0).unwrap());
    space.write_freed(u64::MAX).unwrap();
    assert_eq!(space.trim().unwrap(), 20);
    assert_eq!(device.capacity_blocks(), block_of(numbers[10]));
    drop(space);
    let space = Space::open(crate::hardware(), Arc::clone(&device) as _).unwrap();
    assert_eq!(space.numbers(), numbers[..10]);
    assert!(space.check().is_empty());
    assert_eq!(space.allocate().unwrap(), numbers[10]);
    write(&space, &[(numbers[10], 99)]).unwrap();
    assert_eq!(value(&space, numbers[10]).unwrap(), 99);
}

#[test]
fn the_end_of_the_space_is_given_back_and_used_again() {
    let (device, space, numbers) = with_pages(30);
    numbers[10..].iter().for_each(|&number| space.free(number, 0).unwrap());
    assert_eq!(space.trim().unwrap(), 0, "that they are free is not durable yet");
    space.write_freed(u64::MAX).unwrap();
    assert_eq!(space.trim().unwrap(), 20);
    assert_eq!(space.trim().unwrap(), 0);
    assert_eq!(device.counts().discards, 1);
    let mut block = [1; BLOCK_BYTES];
    device.read_blocks(block_of(numbers[10]), &mut block).unwrap();
    assert_eq!(block, [0; BLOCK_BYTES]);
    assert_eq!(value(&space, numbers[9]).unwrap(), 10);
    assert_eq!(space.allocate().unwrap(), numbers[10]);
    write(&space, &[(numbers[10], 99)]).unwrap();
    let space = open(&device).unwrap();
    assert_eq!(value(&space, numbers[10]).unwrap(), 99);
    assert!(space.check().is_empty());
}

#[test]
fn a_journal_that_cannot_be_written_changes_nothing_and_is_written_again() {
    let (device, space, numbers) = with_pages(3);
    device.fail_after(BlockOperation::Write, 1);
    let pages = [(numbers[0], 80), (numbers[1], 81)];
    assert!(matches!(write(&space, &pages), Err(SpaceError::Device(_))));
    assert_eq!(value(&space, numbers[0]).unwrap(), 1);
    write(&space, &pages).unwrap();
    assert_eq!(value(&space, numbers[0]).unwrap(), 80);
    assert_eq!(value(&open(&device).unwrap(), numbers[1]).unwrap(), 81);
}

#[test]
fn a_failed_flush_or_write_in_place_ends_all_writing_and_a_restart_completes_the_batch() {
    for (operation, after) in [(BlockOperation::Flush, 0), (BlockOperation::Write, 3)] {
        let (device, space, numbers) = with_pages(3);
        device.fail_after(operation, after);
        let pages = [(numbers[0], 80), (numbers[1], 81)];
        assert!(matches!(write(&space, &pages), Err(SpaceError::Device(_))), "{operation:?}");
        assert!(matches!(write(&space, &pages), Err(SpaceError::WritesLost { .. })));
        assert!(matches!(space.settle(u64::MAX), Err(SpaceError::WritesLost { .. })));
        assert_eq!(value(&space, numbers[2]).unwrap(), 3, "reading goes on");
        if operation == BlockOperation::Write {
            let found = open(&device).unwrap();
            assert_eq!(value(&found, numbers[0]).unwrap(), 80);
            assert_eq!(value(&found, numbers[1]).unwrap(), 81);
        }
    }
}

#[test]
fn a_read_that_fails_names_the_block_and_may_succeed_later() {
    let (device, space, numbers) = with_pages(3);
    device.fail_after(BlockOperation::Read, 0);
    assert!(matches!(value(&space, numbers[0]), Err(SpaceError::Device(_))));
    assert_eq!(value(&space, numbers[0]).unwrap(), 1);
}

#[test]
fn what_is_no_space_is_refused_and_a_damaged_journal_named() {
    let blank = ModelledSsd::new(64, SsdConfig::default()).unwrap();
    assert!(matches!(open(&blank), Err(SpaceError::NotASpace(PageDamage::NeverWritten))));
    blank.write_blocks(0, &[7; BLOCK_BYTES]).unwrap();
    assert!(matches!(open(&blank), Err(SpaceError::NotASpace(PageDamage::NotAPage))));
    let (device, ..) = with_pages(3);
    device.rot(1, 1, 3);
    assert!(open(&device).is_ok(), "one area is enough");
    device.rot(2 + BATCH_PAGES as u64, 1, 3);
    device.rot(1, 1, 4);
    assert!(matches!(open(&device), Err(SpaceError::JournalDamaged)));
}

/// The descriptors of the journal's areas.
const DESCRIPTORS: [u64; 2] = [1, 2 + BATCH_PAGES as u64];

/// The power is cut when two batches are in the journal: the first is in place too, and both have the first page.
fn cut_behind_two_batches() -> (ModelledSsd, PageNumber) {
    let (device, space, numbers) = with_pages(3);
    write(&space, &[(numbers[0], 70)]).unwrap();
    write(&space, &[(numbers[0], 71), (numbers[1], 71)]).unwrap();
    (device.after_power_cut(), numbers[0])
}

#[test]
fn a_page_that_cannot_be_read_in_place_is_written_again_from_the_journal() {
    let (device, _, numbers) = with_pages(3);
    device.damage_block(block_of(numbers[1]), BlockDamage::UntilWritten);
    let space = open(&device).unwrap();
    assert_eq!(space.redone_pages(), 1);
    assert_eq!(value(&space, numbers[1]).unwrap(), 2);
}

#[test]
fn a_descriptor_that_cannot_be_read_may_be_that_of_the_last_batch_and_opening_refuses() {
    for settled in [false, true] {
        let (device, space, _) = with_pages(10);
        if settled {
            space.settle(u64::MAX).unwrap();
        }
        for block in DESCRIPTORS {
            let device = device.after_power_cut();
            device.damage_block(block, BlockDamage::UntilWritten);
            let refused = open(&device).unwrap_err();
            assert!(matches!(refused, SpaceError::JournalUnreadable { .. }), "{refused}");
        }
    }
}

#[test]
fn a_copy_that_cannot_be_read_of_a_page_that_is_not_in_place_is_refused() {
    let (device, _) = cut_behind_two_batches();
    device.damage_block(DESCRIPTORS[0] + 1, BlockDamage::UntilWritten);
    let refused = open(&device).unwrap_err();
    assert!(matches!(refused, SpaceError::JournalUnreadable { .. }), "{refused}");
}

#[test]
fn a_copy_that_cannot_be_read_is_not_needed_where_the_page_is_in_place() {
    let (device, number) = cut_behind_two_batches();
    assert_eq!(value(&open(&device).unwrap(), number).unwrap(), 71);
    device.damage_block(DESCRIPTORS[0] + 1, BlockDamage::UntilWritten);
    assert_eq!(value(&open(&device).unwrap(), number).unwrap(), 71);
}

#[test]
fn a_copy_that_cannot_be_read_is_not_needed_where_the_next_batch_has_the_page() {
    let (device, number) = cut_behind_two_batches();
    device.damage_block(DESCRIPTORS[1] + 1, BlockDamage::UntilWritten);
    for opening in ["it is in place", "the next one is in place"] {
        assert_eq!(value(&open(&device).unwrap(), number).unwrap(), 71, "{opening}");
    }
}

#[test]
fn a_map_that_cannot_be_read_is_refused_and_named_by_its_first_page() {
    let (device, space, _) = with_pages(3);
    space.settle(u64::MAX).unwrap();
    drop(space);
    device.damage_block(FIRST_PAGE_BLOCK - 1, BlockDamage::UntilWritten);
    let refused = open(&device).unwrap_err();
    let names_it = matches!(refused, SpaceError::MapUnreadable { first: PageNumber::FIRST, .. });
    assert!(names_it, "{refused}");
}

#[test]
fn under_a_damaged_map_pages_are_read_and_none_is_given_out() {
    let (device, space, numbers) = with_pages(3);
    space.settle(u64::MAX).unwrap();
    device.rot(FIRST_PAGE_BLOCK - 1, 1, 5);
    let space = open(&device).unwrap();
    for &number in &numbers {
        assert_eq!(value(&space, number).unwrap(), number.get() as u8);
    }
    let beyond = space.allocate().unwrap().get();
    assert_eq!(beyond, SMALLEST_PAGE_BYTES as u64 - 32 + 1);
    write(&space, &[(numbers[1], 60)]).unwrap();
    assert_eq!(value(&space, numbers[1]).unwrap(), 60);
    let problems = space.check();
    assert!(matches!(problems[0], SpaceProblem::Map(PageNumber::FIRST)), "{:?}", problems[0]);
}

#[test]
fn a_space_of_several_regions_has_a_map_for_each() {
    let device = device();
    let space = create(&device);
    let region = SMALLEST_PAGE_BYTES as u64 - 32;
    let numbers: Vec<_> = (0..2 * region + 2).map(|_| space.allocate().unwrap()).collect();
    let some = [0, region - 1, region, 2 * region + 1].map(|at| numbers[at as usize]);
    write(&space, &[(some[3], 4)]).unwrap();
    write(&space, &[(some[0], 1), (some[1], 2), (some[2], 3)]).unwrap();
    let space = open(&device).unwrap();
    for (number, expected) in some.into_iter().zip(1..) {
        assert_eq!(value(&space, number).unwrap(), expected);
    }
    assert!(space.check().is_empty());
    assert_eq!(space.allocate().unwrap(), numbers[1], "what was never written is free again");
}

#[test]
fn a_page_that_was_freed_unwritten_brings_no_map_of_a_region_that_has_none() {
    let device = device();
    let space = create(&device);
    let region = SMALLEST_PAGE_BYTES as u64 - 32;
    let numbers: Vec<_> = (0..2 * region + 2).map(|_| space.allocate().unwrap()).collect();
    let last = numbers[2 * region as usize + 1];
    space.free(last, 0).unwrap();
    write(&space, &[(numbers[0], 1)]).unwrap();
    write(&space, &[(numbers[region as usize], 2)]).unwrap();
    write(&space, &[(numbers[2 * region as usize], 3)]).unwrap();
    assert_eq!(space.allocate().unwrap(), last);
    let space = open(&device).unwrap();
    for (at, expected) in [(0, 1), (region, 2), (2 * region, 3)] {
        assert_eq!(value(&space, numbers[at as usize]).unwrap(), expected);
    }
}

/// Makes the checksum of a page right, whatever it holds.
fn seal_again(page: &mut [u8]) {
    page[24..28].fill(0);
    let sum = crc32c::crc32c(page);
    page[24..28].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn pages_that_lie_with_a_right_checksum_make_nothing_panic() {
    let (mut opened, mut random) = (0, 7u64);
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (random >> 33) % below
    };
    for _ in 0..3000 {
        let (device, space, numbers) = with_pages(10);
        drop(space);
        let journal = [1, 2 + BATCH_PAGES as u64];
        let map = FIRST_PAGE_BLOCK - 1;
        for _ in 0..1 + next(3) {
            let of_all = next(map + 10);
            let block = [0, journal[0], journal[1], map, of_all][next(5) as usize];
            let mut page = [0; BLOCK_BYTES];
            device.read_blocks(block, &mut page).unwrap();
            for _ in 0..1 + next(4) {
                let at = if next(2) == 0 { 8 + next(100) } else { next(4096) } as usize;
                page[at] = [0, 1, 0x80, 0xff, next(256) as u8][next(5) as usize];
            }
            seal_again(&mut page);
            device.write_blocks(block, &page).unwrap();
        }
        let Ok(space) = open(&device) else { continue };
        opened += 1;
        for &number in &numbers {
            let _ = space.read(number, |page| page[32]);
        }
        space.check();
        let _ = space.free(numbers[3], 0);
        for _ in 0..3 {
            if let Ok(number) = space.allocate() {
                let _ = write(&space, &[(number, 5)]);
            }
        }
        let _ = (space.trim(), space.settle(u64::MAX), open(&device).map(|it| it.check().len()));
    }
    assert!(opened > 1500, "{opened}");
}

/// A disk that fills up. If it is to, it waits while it grows until somebody has looked into the space.
#[derive(Debug)]
struct Small(ModelledSsd, u64, Option<Arc<Looks>>);

#[derive(Debug, Default)]
struct Looks {
    grows: AtomicBool,
    looked: AtomicBool,
}

/// Whether it comes to be set.
fn comes(what: &AtomicBool) -> bool {
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        what.load(Ordering::Acquire)
    })
}

impl BlockDevice for Small {
    fn capacity_blocks(&self) -> u64 {
        self.0.capacity_blocks()
    }
    fn read_blocks(&self, first_block: u64, into: &mut [u8]) -> Result<(), BlockError> {
        self.0.read_blocks(first_block, into)
    }
    fn write_blocks(&self, first_block: u64, from: &[u8]) -> Result<(), BlockError> {
        self.0.write_blocks(first_block, from)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.0.flush()
    }
    fn discard(&self, first_block: u64, blocks: u64) -> Result<(), BlockError> {
        self.0.discard(first_block, blocks)
    }
    fn grow_to(&self, capacity_blocks: u64) -> Result<(), BlockError> {
        if let Some(looks) = &self.2 {
            looks.grows.store(true, Ordering::Release);
            assert!(comes(&looks.looked), "nobody can look into the space while the disk grows");
        }
        match capacity_blocks <= self.1 {
            true => self.0.grow_to(capacity_blocks),
            false => Err(BlockError::NoSpace { block: self.1 }),
        }
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn BlockQueue>, BlockError> {
        self.0.queue(depth)
    }
    fn counts(&self) -> BlockCounts {
        self.0.counts()
    }
}

#[test]
fn a_disk_that_is_full_is_said_at_allocation_and_freed_pages_are_room_again() {
    let disk = Arc::new(Small(device(), FIRST_PAGE_BLOCK + 5, None));
    let space = Space::create(crate::hardware(), disk, &OPTIONS).unwrap();
    let numbers: Vec<_> = (0..5).map(|_| space.allocate().unwrap()).collect();
    for _ in 0..2 {
        let full = space.allocate();
        assert!(matches!(full, Err(SpaceError::Device(BlockError::NoSpace { .. }))), "{full:?}");
    }
    let pages: Vec<_> = numbers.iter().map(|&number| (number, 1)).collect();
    write(&space, &pages).unwrap();
    space.free(numbers[2], 0).unwrap();
    space.write_freed(0).unwrap();
    assert_eq!(space.allocate().unwrap(), numbers[2]);
}

#[test]
fn others_look_into_the_space_while_the_disk_grows_for_who_allocates() {
    let (device, looks) = (device(), Arc::new(Looks::default()));
    drop(create(&device));
    let disk = Arc::new(Small(device, 1 << 20, Some(Arc::clone(&looks))));
    let space = Space::open(crate::hardware(), disk).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(comes(&looks.grows), "the disk is to be too short");
            space.used_pages();
            looks.looked.store(true, Ordering::Release);
        });
        let fits = |space: &Space<_>| {
            space.allocate().unwrap();
            !looks.grows.load(Ordering::Acquire)
        };
        while fits(&space) {}
    });
}

#[test]
fn maps_of_many_regions_at_once_come_in_batches_before_the_page_that_needs_them() {
    let device = device();
    let options = SpaceOptions { batch_pages: 2, ..OPTIONS };
    let disk = Arc::new(device.clone());
    let space = Space::create(crate::hardware(), disk, &options).unwrap();
    let region = SMALLEST_PAGE_BYTES as u64 - 32;
    let last = (0..5 * region + 1).map(|_| space.allocate().unwrap()).last().unwrap();
    let mut batches = 1;
    loop {
        let mut batch = space.begin_batch();
        let added = batch.add(last, fill(last, 7));
        batch.write(0).unwrap();
        if added == Added::InBatch {
            break;
        }
        batches += 1;
    }
    assert_eq!(batches, 3, "two maps, two maps, a map and the page");
    assert_eq!(value(&open(&device).unwrap(), last).unwrap(), 7);
}

#[test]
fn a_full_batch_says_so() {
    let device = device();
    let space = create(&device);
    let mut batch = space.begin_batch();
    for _ in 0..BATCH_PAGES - 1 {
        let number = space.allocate().unwrap();
        assert_eq!(batch.add(number, fill(number, 1)), Added::InBatch);
    }
    let number = space.allocate().unwrap();
    assert_eq!(batch.add(number, fill(number, 1)), Added::Full, "the map has the last place");
    batch.write(0).unwrap();
    assert_eq!(batch.add(number, fill(number, 1)), Added::InBatch);
}

#[test]
fn what_is_promised_can_be_allocated_on_a_device_that_grows_no_more() {
    let device = device();
    let space = create(&device);
    device.limit_to(device.capacity_blocks() + 100);
    let promised = space.promise(60, RoomFor::Growth).unwrap();
    let refused = space.promise(60, RoomFor::Growth).unwrap_err();
    assert!(matches!(refused, SpaceError::NoRoom { pages: 60, .. }), "{refused}");
    let numbers: Vec<_> = (0..60).map(|_| space.allocate().unwrap()).collect();
    drop(promised);
    assert!(matches!(space.promise(10, RoomFor::Growth), Err(SpaceError::NoRoom { .. })));
    drop(space.promise(10, RoomFor::MakingRoom).unwrap());
    write(&space, &[(numbers[0], 1)]).unwrap();
    numbers.iter().for_each(|&number| space.free(number, 0).unwrap());
    space.write_freed(0).unwrap();
    drop(space.promise(60, RoomFor::Growth).unwrap());
}

#[test]
fn trimming_leaves_what_is_promised_and_the_reserve() {
    let device = device();
    let space = create(&device);
    let promised = space.promise(100, RoomFor::Growth).unwrap();
    let last = (0..100).map(|_| space.allocate().unwrap()).last().unwrap();
    write(&space, &[(last, 1)]).unwrap();
    (1..=100).for_each(|number| space.free(PageNumber::new(number).unwrap(), 0).unwrap());
    space.write_freed(0).unwrap();
    assert_eq!(space.trim().unwrap(), 32, "132 pages are promised or kept, and more had storage");
    assert_eq!(space.trim().unwrap(), 0);
    drop(promised);
    assert_eq!(space.trim().unwrap(), 100, "the reserve stays");
}
