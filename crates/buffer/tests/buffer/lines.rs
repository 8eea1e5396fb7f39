//! Pages that come from persistent memory line by line. Counts are of 64-byte lines of 4 KiB pages.

use lapis_buffer::page::SMALLEST_PAGE_BYTES;
use lapis_buffer::{BufferManager, PageNumber, Placement, TierStatistics};
use lapis_pmem::Hardware;

use crate::pool::{allocate, sum};
use crate::tier::{FRAMES, Media, OPTIONS};

const LINES: u64 = SMALLEST_PAGE_BYTES as u64 / 64;

type Manager = BufferManager<Hardware>;

/// Pages that are in persistent memory and not in DRAM.
fn warm_pages(manager: &Manager, count: usize) -> Vec<PageNumber> {
    let numbers = allocate(manager, 20);
    (0..6).for_each(|_| assert_eq!(sum(manager, &numbers), 0));
    manager.write_all().unwrap();
    // The others push them out.
    let (warm, others) = numbers.split_at(count);
    (0..3).for_each(|_| assert_eq!(sum(manager, others), 0));
    assert!(others.len() > FRAMES);
    warm.to_vec()
}

/// What happened meanwhile.
pub(crate) fn during(manager: &Manager, act: impl FnOnce()) -> TierStatistics {
    let before = manager.statistics().tier;
    act();
    let after = manager.statistics().tier;
    TierStatistics {
        loads: after.loads - before.loads,
        mini_loads: after.mini_loads - before.mini_loads,
        promotions: after.promotions - before.promotions,
        lines_loaded: after.lines_loaded - before.lines_loaded,
        lines_written: after.lines_written - before.lines_written,
        pages_written: after.pages_written - before.pages_written,
        ..TierStatistics::default()
    }
}

pub(crate) fn word(manager: &Manager, number: PageNumber, at: usize) -> u64 {
    let read = manager.retry(|| {
        let page = manager.fix(number)?;
        let word = page.read().word(at);
        page.validate()?;
        Ok(word)
    });
    read.unwrap()
}

#[test]
fn what_is_read_is_loaded_once_and_the_header_with_it() {
    let manager = Media::new(&OPTIONS).create(Placement::ThreeTier);
    let [page] = warm_pages(&manager, 1)[..] else { panic!() };
    let first = during(&manager, || assert_eq!(word(&manager, page, 1000), 0));
    assert_eq!((first.loads, first.lines_loaded), (1, 2));
    let again = during(&manager, || assert_eq!(word(&manager, page, 1008), 0));
    assert_eq!((again.loads, again.lines_loaded), (0, 0));
    // A word across the end of a line.
    let across = during(&manager, || assert_eq!(word(&manager, page, 2044), 0));
    assert_eq!((across.loads, across.lines_loaded), (0, 2));
}

#[test]
fn whoever_reads_a_whole_page_has_it_loaded_at_once() {
    let manager = Media::new(&OPTIONS).create(Placement::ThreeTier);
    let [page] = warm_pages(&manager, 1)[..] else { panic!() };
    let loaded = during(&manager, || {
        let page = manager.retry(|| manager.fix(page)).unwrap();
        page.make_resident(0..SMALLEST_PAGE_BYTES);
        page.validate().unwrap();
    });
    assert_eq!(loaded.lines_loaded, LINES);
    let read = during(&manager, || assert_eq!(word(&manager, page, 3000), 0));
    assert_eq!(read.lines_loaded, 0);
}

#[test]
fn only_lines_that_were_changed_are_written() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(Placement::ThreeTier);
    let [page] = warm_pages(&manager, 1)[..] else { panic!() };
    let written = during(&manager, || {
        let mut it = manager.fix_exclusive(page).unwrap();
        it.write(0).set_word(1000, 7);
        it.write(0).set_word(3000, 8);
        drop(it);
        manager.write_all().unwrap();
    });
    assert_eq!((written.pages_written, written.lines_written), (1, 2));
    drop(manager);
    let manager = media.open(Placement::BasicNvm).unwrap();
    assert_eq!([1000, 3000, 2000].map(|at| word(&manager, page, at)), [7, 8, 0]);
}

#[test]
fn many_changed_lines_are_written_with_those_that_are_not_in_dram() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(Placement::ThreeTier);
    let [page] = warm_pages(&manager, 1)[..] else { panic!() };
    let mut it = manager.fix_exclusive(page).unwrap();
    it.write(0).set_word(1000, 7);
    drop(it);
    manager.write_all().unwrap();
    // It leaves DRAM, and comes back without that line.
    let others = allocate(&manager, 40);
    (0..3).for_each(|_| assert_eq!(sum(&manager, &others), 0));
    let written = during(&manager, || {
        let mut it = manager.fix_exclusive(page).unwrap();
        (2048..4096).step_by(8).for_each(|at| it.write(0).set_word(at, 9));
        drop(it);
        manager.write_all().unwrap();
    });
    assert_eq!((written.lines_loaded, written.lines_written), (33, 32));
    drop(manager);
    let manager = media.open(Placement::ThreeTier).unwrap();
    assert_eq!([1000, 2048, 4088, 1008].map(|at| word(&manager, page, at)), [7, 9, 9, 0]);
}

#[test]
fn inner_nodes_come_whole() {
    let manager = Media::new(&OPTIONS).create(Placement::ThreeTier);
    let numbers = allocate(&manager, 20);
    for &number in &numbers {
        manager.fix_exclusive(number).unwrap().write(0).set_references(64, 4);
    }
    (0..6).for_each(|_| assert_eq!(sum(&manager, &numbers), 0));
    manager.write_all().unwrap();
    (0..3).for_each(|_| assert_eq!(sum(&manager, &numbers[1..]), 0));
    let loaded = during(&manager, || assert_eq!(word(&manager, numbers[0], 1000), 0));
    assert_eq!((loaded.loads, loaded.lines_loaded), (1, LINES));
}

#[test]
fn pages_move_whole_where_lines_do_not() {
    let manager = Media::new(&OPTIONS).create(Placement::BasicNvm);
    let [page] = warm_pages(&manager, 1)[..] else { panic!() };
    let read = during(&manager, || assert_eq!(word(&manager, page, 1000), 0));
    assert_eq!((read.loads, read.lines_loaded), (1, LINES));
}

#[test]
fn a_page_in_persistent_memory_is_freed_without_a_line_of_it() {
    let media = Media::new(&OPTIONS);
    let manager = media.create(Placement::ThreeTier);
    let page = warm_pages(&manager, 1)[0];
    let freed = during(&manager, || manager.free_unread(page, 0).unwrap());
    assert_eq!((freed.loads, freed.lines_loaded), (0, 0));
    assert!(manager.fix_exclusive(page).unwrap_err().is_not_in_use());
    assert!(manager.free_unread(page, 0).unwrap_err().is_not_in_use());
    manager.space().unwrap().write_freed(0).unwrap();
    assert_eq!(allocate(&manager, 1), [page]);
    assert_eq!(word(&manager, page, 40), 0);
}
